//! The binary on a pseudo-terminal, and the screen that a person would see.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Getter, Setter, ioctl, opcode};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vt100::{Callbacks, Parser};

/// How long anything is waited for, unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process with a terminal of its own.
pub(super) struct Screen {
    /// What a person types on; None once the terminal is closed.
    keyboard: Option<File>,
    terminal: File,
    seen: Arc<Mutex<Seen>>,
    watcher: Option<JoinHandle<()>>,
    child: Child,
    patience: Duration,
}

/// What was written so far.
struct Seen {
    parser: Parser<Questions>,
    raw: Vec<u8>,
    /// Whether the person looks away for good.
    closed: bool,
}

/// Questions for where the cursor is, which a terminal answers as if they had been typed.
#[derive(Default)]
struct Questions(Vec<(u16, u16)>);

impl Callbacks for Questions {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        _: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        if last == 'n' && parameters == [&[6]] {
            self.0.push(screen.cursor_position());
        }
    }
}

impl Screen {
    /// Starts the command on a terminal of so many rows and columns.
    pub(super) fn start(mut command: Command, rows: u16, columns: u16) -> Self {
        let (keyboard, terminal) = pseudo_terminal();
        let parser = Parser::new_with_callbacks(rows, columns, 0, Questions::default());
        let seen = Arc::new(Mutex::new(Seen { parser, raw: Vec::new(), closed: false }));
        for stream in 0..3 {
            let end = terminal.try_clone().expect("a terminal can be opened thrice");
            match stream {
                0 => command.stdin(end),
                1 => command.stdout(end),
                _ => command.stderr(end),
            };
        }
        on_its_own_terminal(&mut command);
        resize(&keyboard, rows, columns);
        let child = command.spawn().expect("the binary starts");
        let reader = keyboard.try_clone().expect("a terminal can be read");
        let shared = seen.clone();
        let watcher = Some(std::thread::spawn(move || watch(reader, &shared)));
        Self { keyboard: Some(keyboard), terminal, seen, watcher, child, patience: PATIENCE }
    }

    /// For what takes longer, such as a toolchain.
    pub(super) fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Pastes: the terminal marks what it pastes for whoever has asked for that.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace('\n', "\r");
        let is_marked = self.seen.lock().unwrap().parser.screen().bracketed_paste();
        self.send(&if is_marked { format!("\u{1b}[200~{text}\u{1b}[201~") } else { text });
    }

    /// Types.
    pub(super) fn send(&mut self, keys: &str) {
        self.keyboard().write_all(keys.as_bytes()).expect("the terminal takes what is typed");
    }

    /// The window gets another size.
    pub(super) fn resize(&mut self, rows: u16, columns: u16) {
        self.seen.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        resize(self.keyboard(), rows, columns);
    }

    /// What stands on the screen.
    pub(super) fn text(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    /// All bytes that were written.
    pub(super) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap().raw).into_owned()
    }

    /// Waits until the text stands on the screen.
    pub(super) fn wait_for(&self, text: &str) {
        self.wait(&format!("`{text}`"), |shown| shown.contains(text));
    }

    /// Waits until what stands on the screen ends with the text.
    pub(super) fn wait_for_end(&self, text: &str) {
        self.wait(&format!("`{text}` at the end"), |shown| shown.trim_end().ends_with(text));
    }

    /// Waits until the person is asked for the next input, `number` prompts being on the screen by then.
    pub(super) fn wait_for_prompt(&self, number: usize) {
        let count = |shown: &str| shown.lines().filter(|line| *line == ">" || line.starts_with("> ")).count();
        let is_asked = |shown: &str| shown.trim_end().ends_with("\n>") && count(shown) == number;
        self.wait(&format!("prompt {number}"), is_asked);
    }

    /// Waits until what stands on the screen is right.
    pub(super) fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while !is_there(&self.text()) {
            assert!(started.elapsed() < self.patience, "{what} did not appear:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The cells of the first line that holds the text, from there on.
    pub(super) fn cells(&self, text: &str) -> Vec<vt100::Cell> {
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        let (rows, columns) = screen.size();
        for (row, line) in (0..rows).zip(screen.rows(0, columns)) {
            if let Some(place) = line.find(text) {
                let first = u16::try_from(line[..place].chars().count()).expect("a column");
                let last = first + u16::try_from(text.chars().count()).expect("a column");
                return (first..last).filter_map(|column| screen.cell(row, column).cloned()).collect();
            }
        }
        panic!("`{text}` is not on the screen:\n{}", screen.contents());
    }

    /// Cells that hold anything and have a colour or a style.
    pub(super) fn styled_cells(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).filter_map(move |column| screen.cell(row, column)));
        let is_styled = |cell: &&vt100::Cell| {
            let is_coloured = cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default;
            cell.has_contents() && (is_coloured || cell.bold() || cell.dim() || cell.italic() || cell.underline())
        };
        cells.filter(is_styled).count()
    }

    /// Whether what is typed is echoed by the terminal itself.
    pub(super) fn echoes(&self) -> bool {
        tcgetattr(&self.terminal).expect("a terminal").local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// The process's id.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    fn keyboard(&self) -> &File {
        self.keyboard.as_ref().expect("the window is open")
    }

    /// Closes the window.
    pub(super) fn close(&mut self) {
        self.seen.lock().unwrap().closed = true;
        self.watcher.take().expect("a window is closed once").join().expect("it was read until now");
        self.keyboard = None;
    }

    /// Waits for the process to end, and returns its exit code.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                return status.code();
            }
            assert!(started.elapsed() < self.patience, "the process does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what is written, keeps the screen, and answers questions for the cursor.
fn watch(mut terminal: File, seen: &Mutex<Seen>) {
    let mut bytes = [0; 4096];
    while is_written_to(&terminal, seen) {
        let Ok(read @ 1..) = terminal.read(&mut bytes) else { return };
        let questions = {
            let mut seen = seen.lock().unwrap();
            seen.raw.extend_from_slice(&bytes[..read]);
            seen.parser.process(&bytes[..read]);
            std::mem::take(&mut seen.parser.callbacks_mut().0)
        };
        for (row, column) in questions {
            if write!(terminal, "\u{1b}[{};{}R", row + 1, column + 1).is_err() {
                return;
            }
        }
    }
}

/// Waits for something to read; not, once the terminal is closed.
fn is_written_to(terminal: &File, seen: &Mutex<Seen>) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !seen.lock().unwrap().closed {
        if poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&moment)) != Ok(0) {
            return true;
        }
    }
    false
}

fn resize(terminal: &File, ws_row: u16, ws_col: u16) {
    tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal has a size");
}

/// Both ends of a new pseudo-terminal: what a person sees and types on, and what a process writes and reads.
#[allow(unsafe_code, reason = "two ioctls of Linux that no safe library here offers, as tty_ioctl(4) gives them")]
fn pseudo_terminal() -> (File, File) {
    const UNLOCK: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 0x31);
    const NUMBER: rustix::ioctl::Opcode = opcode::read::<u32>(b'T', 0x30);
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
    let master = open("/dev/ptmx").expect("the system has pseudo-terminals");
    // Safety: TIOCSPTLCK takes a pointer to an int, TIOCGPTN gives an unsigned int.
    let number = unsafe {
        ioctl(&master, Setter::<UNLOCK, i32>::new(0)).expect("a pseudo-terminal can be unlocked");
        ioctl(&master, Getter::<NUMBER, u32>::new()).expect("a pseudo-terminal has a number")
    };
    let slave = {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).expect("a flag");
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(format!("/dev/pts/{number}"))
    };
    (master, slave.expect("the other end can be opened"))
}

/// Ctrl-C on the terminal reaches the process, and nobody else.
#[allow(unsafe_code, reason = "between fork and exec, only two system calls are made")]
fn on_its_own_terminal(command: &mut Command) {
    // Safety: both are plain system calls, which are allowed there.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}
