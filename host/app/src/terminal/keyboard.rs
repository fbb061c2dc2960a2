//! Modes of the keyboard. While the process does not read input, typed text is kept but not echoed, and Ctrl-S cannot
//! stop the output. On systems other than Unix, the mode is never changed.

use std::sync::Arc;

/// The keyboard of the process's terminal. All clones of this value share the saved original mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyboard {
    original: Arc<OriginalMode>,
}

#[cfg(unix)]
pub(super) use unix::{OriginalMode, columns, discard_typed, is_hung_up, wait_for_line};

#[cfg(not(unix))]
pub(super) use other::{OriginalMode, columns, discard_typed, is_hung_up, wait_for_line};

impl Keyboard {
    /// Turns off the echo. Typed text is kept for the next reader.
    pub(super) fn turn_off_echo(&self) {
        self.original.turn_off_echo();
    }

    /// Restores the mode that the keyboard had before [`Keyboard::turn_off_echo`]. Returns the mode that was in effect
    /// until now.
    pub(super) fn restore(&self) -> KeyboardMode {
        self.original.restore()
    }
}

/// Mode of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyboardMode {
    /// Typed text is not echoed.
    NoEcho,
    /// The mode that the keyboard had when the process started.
    Normal,
}

/// Guard that turns off the echo of typed text, and restores the original mode when it is dropped, even after a panic.
pub(crate) struct EchoOffGuard {
    keyboard: Keyboard,
}

impl EchoOffGuard {
    pub(super) fn new(keyboard: &Keyboard) -> Self {
        keyboard.turn_off_echo();
        Self { keyboard: keyboard.clone() }
    }
}

impl Drop for EchoOffGuard {
    fn drop(&mut self) {
        let _ = self.keyboard.restore();
    }
}

#[cfg(unix)]
mod unix {
    use super::KeyboardMode;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::termios::{
        InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
        tcgetwinsize, tcsetattr,
    };
    use std::io::{stderr, stdin, stdout};
    use std::sync::{Mutex, PoisonError};

    /// Terminal modes that were in effect before the echo was turned off. `None` if the echo is not turned off.
    #[derive(Debug, Default)]
    pub(in crate::terminal) struct OriginalMode(Mutex<Option<Termios>>);

    impl OriginalMode {
        pub(super) fn turn_off_echo(&self) {
            let mut saved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if saved.is_some() {
                return;
            }
            // If stdin is not a terminal, there is no echo to turn off.
            let Ok(original) = tcgetattr(stdin()) else { return };
            if tcsetattr(stdin(), OptionalActions::Now, &without_echo(original.clone())).is_ok() {
                *saved = Some(original);
            }
        }

        pub(super) fn restore(&self) -> KeyboardMode {
            let mut saved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(original) = saved.take() else { return KeyboardMode::Normal };
            let _ = tcsetattr(stdin(), OptionalActions::Now, &original);
            KeyboardMode::NoEcho
        }
    }

    /// Returns the terminal modes without echo and line editing. With the returned modes, Ctrl-C does not discard typed
    /// text, and Ctrl-S does not stop the output.
    fn without_echo(mut modes: Termios) -> Termios {
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON);
        modes.local_modes.insert(LocalModes::NOFLSH);
        modes.input_modes.remove(InputModes::ICRNL | InputModes::IXON);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        modes
    }

    /// Discards typed text that has not been read, because the text was not meant for the next question.
    pub(in crate::terminal) fn discard_typed() {
        let _ = tcflush(stdin(), QueueSelector::IFlush);
    }

    /// Waits up to 50 ms for a line. Returns true if a read would return immediately, because a line was typed, the
    /// input has ended or an error has occurred.
    pub(in crate::terminal) fn wait_for_line() -> bool {
        let stdin = stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match poll(&mut waiting, Some(&timeout)) {
            Ok(ready) => ready > 0,
            Err(error) => error != rustix::io::Errno::INTR,
        }
    }

    /// Returns true if the terminal is closed. Every read from a closed terminal returns the end of input.
    pub(in crate::terminal) fn is_hung_up() -> bool {
        let stdin = stdin();
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut terminal, Some(&no_wait)).is_ok() && terminal[0].revents().contains(PollFlags::HUP)
    }

    /// Returns the width of the terminal on stdout or stderr, in columns. Returns None if neither stream is a
    /// terminal that reports its width.
    pub(in crate::terminal) fn columns() -> Option<usize> {
        let sizes = [tcgetwinsize(stdout()), tcgetwinsize(stderr())];
        sizes.into_iter().flatten().map(|size| usize::from(size.ws_col)).find(|columns| *columns > 0)
    }
}

#[cfg(not(unix))]
mod other {
    use super::KeyboardMode;

    /// Contains nothing, because the keyboard's mode is never changed on this system.
    #[derive(Debug, Default)]
    pub(in crate::terminal) struct OriginalMode;

    impl OriginalMode {
        pub(super) fn turn_off_echo(&self) {}

        pub(super) fn restore(&self) -> KeyboardMode {
            KeyboardMode::Normal
        }
    }

    pub(in crate::terminal) fn columns() -> Option<usize> {
        None
    }

    pub(in crate::terminal) fn discard_typed() {}

    pub(in crate::terminal) fn wait_for_line() -> bool {
        true
    }

    pub(in crate::terminal) fn is_hung_up() -> bool {
        false
    }
}
