//! What is typed while nobody reads it: not echoed, not lost, and no way to stop the output. Only on Unix.

use std::sync::Arc;

/// The keyboard of the process's terminal. Clones share what it was found as.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyboard {
    found: Arc<Found>,
}

#[cfg(unix)]
pub(super) use unix::{Found, columns, forget_typed, is_hung_up, wait_for_line};

#[cfg(not(unix))]
pub(super) use other::{Found, columns, forget_typed, is_hung_up, wait_for_line};

impl Keyboard {
    /// What is typed from now on waits for whoever reads it next.
    pub(super) fn silence(&self) {
        self.found.silence();
    }

    /// It is again as it was found before it was silenced.
    pub(super) fn restore(&self) -> Silenced {
        self.found.restore()
    }
}

/// What the keyboard was before it was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silenced {
    /// Silent.
    Was,
    /// As it had been found.
    WasNot,
}

/// The keyboard is silent for as long as this lives; a panic ends that, too.
pub(crate) struct Silence {
    keyboard: Keyboard,
}

impl Silence {
    pub(super) fn new(keyboard: &Keyboard) -> Self {
        keyboard.silence();
        Self { keyboard: keyboard.clone() }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = self.keyboard.restore();
    }
}

#[cfg(unix)]
mod unix {
    use super::Silenced;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::termios::{
        InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
        tcgetwinsize, tcsetattr,
    };
    use std::io::{stderr, stdin, stdout};
    use std::sync::{Mutex, PoisonError};

    /// The state of the terminal before it was silenced.
    #[derive(Debug, Default)]
    pub(in crate::terminal) struct Found(Mutex<Option<Termios>>);

    impl Found {
        pub(super) fn silence(&self) {
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if found.is_some() {
                return;
            }
            // Without a terminal there is nothing to silence.
            let Ok(original) = tcgetattr(stdin()) else { return };
            if tcsetattr(stdin(), OptionalActions::Now, &silent(original.clone())).is_ok() {
                *found = Some(original);
            }
        }

        pub(super) fn restore(&self) -> Silenced {
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(original) = found.take() else { return Silenced::WasNot };
            let _ = tcsetattr(stdin(), OptionalActions::Now, &original);
            Silenced::Was
        }
    }

    /// Keys arrive one by one and as they are; Ctrl-C keeps what was typed before it, and Ctrl-S stops nothing.
    fn silent(mut modes: Termios) -> Termios {
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON);
        modes.local_modes.insert(LocalModes::NOFLSH);
        modes.input_modes.remove(InputModes::ICRNL | InputModes::IXON);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        modes
    }

    /// What was typed and not read yet is gone: it was meant for something else.
    pub(in crate::terminal) fn forget_typed() {
        let _ = tcflush(stdin(), QueueSelector::IFlush);
    }

    /// Waits a moment for a line; whether there is one, or none will ever come.
    pub(in crate::terminal) fn wait_for_line() -> bool {
        let stdin = stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match poll(&mut waiting, Some(&moment)) {
            Ok(ready) => ready > 0,
            Err(error) => error != rustix::io::Errno::INTR,
        }
    }

    /// Whether the terminal is gone: whoever reads from it is told of an end of input again and again.
    pub(in crate::terminal) fn is_hung_up() -> bool {
        let stdin = stdin();
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut terminal, Some(&now)).is_ok() && terminal[0].revents().contains(PollFlags::HUP)
    }

    /// Columns of whichever output is a terminal that knows them.
    pub(in crate::terminal) fn columns() -> Option<usize> {
        let sizes = [tcgetwinsize(stdout()), tcgetwinsize(stderr())];
        sizes.into_iter().flatten().map(|size| usize::from(size.ws_col)).find(|columns| *columns > 0)
    }
}

#[cfg(not(unix))]
mod other {
    use super::Silenced;

    /// Nothing is changed, so there is nothing to be known.
    #[derive(Debug, Default)]
    pub(in crate::terminal) struct Found;

    impl Found {
        pub(super) fn silence(&self) {}

        pub(super) fn restore(&self) -> Silenced {
            Silenced::WasNot
        }
    }

    pub(in crate::terminal) fn columns() -> Option<usize> {
        None
    }

    pub(in crate::terminal) fn forget_typed() {}

    pub(in crate::terminal) fn wait_for_line() -> bool {
        true
    }

    pub(in crate::terminal) fn is_hung_up() -> bool {
        false
    }
}
