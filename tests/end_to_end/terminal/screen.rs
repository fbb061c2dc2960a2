//! Runs a program on a pseudo-terminal, and computes the screen that a user would see.

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

/// The maximum duration of a wait, unless a test sets another limit.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A process that runs on its own pseudo-terminal, and the screen of that terminal.
pub(crate) struct Screen {
    /// The user's end of the terminal, to which typed keys are written. `None` when the window was closed.
    keyboard: Option<File>,
    terminal: File,
    state: Arc<Mutex<ScreenState>>,
    watcher: Option<JoinHandle<()>>,
    child: Child,
    max_wait: Duration,
}

/// The bytes that the process has written, and the screen that results from them.
struct ScreenState {
    parser: Parser<CursorQueries>,
    raw: Vec<u8>,
    /// Whether the test has closed the window.
    closed: bool,
}

/// The cursor positions for which the process has asked with an escape code. The terminal sends each position to the
/// process as if a user had typed it.
#[derive(Default)]
struct CursorQueries(Vec<(u16, u16)>);

impl Callbacks for CursorQueries {
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
    /// Starts the command on a terminal with this many rows and columns.
    pub(crate) fn start(mut command: Command, rows: u16, columns: u16) -> Self {
        let (keyboard, terminal) = pseudo_terminal();
        let parser = Parser::new_with_callbacks(rows, columns, 0, CursorQueries::default());
        let state = Arc::new(Mutex::new(ScreenState { parser, raw: Vec::new(), closed: false }));
        for stream in 0..3 {
            let end = terminal.try_clone().expect("the terminal can be opened three times");
            match stream {
                0 => command.stdin(end),
                1 => command.stdout(end),
                _ => command.stderr(end),
            };
        }
        use_controlling_terminal(&mut command);
        resize(&keyboard, rows, columns);
        let child = command.spawn().expect("the binary starts");
        let reader = keyboard.try_clone().expect("a terminal can be read");
        let shared = state.clone();
        let watcher = Some(std::thread::spawn(move || watch(reader, &shared)));
        Self { keyboard: Some(keyboard), terminal, state, watcher, child, max_wait: MAX_WAIT }
    }

    /// Sets another maximum duration of each wait, for slow operations such as running a toolchain.
    pub(crate) fn with_max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Pastes text into the terminal. The terminal marks the text as pasted if the program has enabled bracketed paste.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace('\n', "\r");
        let is_marked = self.state.lock().unwrap().parser.screen().bracketed_paste();
        self.send(&if is_marked { format!("\u{1b}[200~{text}\u{1b}[201~") } else { text });
    }

    /// Sends typed keys to the process.
    pub(crate) fn send(&mut self, keys: &str) {
        self.keyboard().write_all(keys.as_bytes()).expect("the terminal accepts typed keys");
    }

    /// Changes the size of the window to `rows` rows and `columns` columns, and notifies the process of the new size.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.state.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        resize(self.keyboard(), rows, columns);
    }

    /// Returns the text on the screen.
    pub(crate) fn text(&self) -> String {
        self.state.lock().unwrap().parser.screen().contents()
    }

    /// Returns all bytes that the process has written.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().unwrap().raw).into_owned()
    }

    /// Waits until the text is on the screen.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait(&format!("`{text}`"), |shown| shown.contains(text));
    }

    /// Waits until the text on the screen ends with `text`.
    pub(crate) fn wait_for_end(&self, text: &str) {
        self.wait(&format!("`{text}` at the end"), |shown| shown.trim_end().ends_with(text));
    }

    /// Waits until the screen shows `number` prompts and the text on the screen ends with a prompt.
    pub(crate) fn wait_for_prompt(&self, number: usize) {
        let count = |shown: &str| shown.lines().filter(|line| *line == ">" || line.starts_with("> ")).count();
        let is_asked = |shown: &str| shown.trim_end().ends_with("\n>") && count(shown) == number;
        self.wait(&format!("prompt {number}"), is_asked);
    }

    /// Waits until `is_shown` is true for the text on the screen. The panic message contains `description`.
    pub(crate) fn wait(&self, description: &str, is_shown: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while !is_shown(&self.text()) {
            assert!(started.elapsed() < self.max_wait, "{description} did not appear:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the screen cells of `text` in the first line that contains this text.
    pub(crate) fn cells(&self, text: &str) -> Vec<vt100::Cell> {
        let state = self.state.lock().unwrap();
        let screen = state.parser.screen();
        let (rows, columns) = screen.size();
        for (row, line) in (0..rows).zip(screen.rows(0, columns)) {
            if let Some(start) = line.find(text) {
                let first = u16::try_from(line[..start].chars().count()).expect("a column");
                let last = first + u16::try_from(text.chars().count()).expect("a column");
                return (first..last).filter_map(|column| screen.cell(row, column).cloned()).collect();
            }
        }
        panic!("`{text}` is not on the screen:\n{}", screen.contents());
    }

    /// Returns the text on the screen, in which marks such as `[yellow]` and `[dim]` stand before text with another colour or
    /// style than the text before it, and `[]` before text without one. Empty lines at the end are left out.
    pub(crate) fn styled_text(&self) -> String {
        let state = self.state.lock().unwrap();
        let screen = state.parser.screen();
        let (rows, columns) = screen.size();
        let lines = (0..rows).map(|row| {
            let (mut line, mut style) = (String::new(), String::new());
            for cell in (0..columns).filter_map(|column| screen.cell(row, column)) {
                let next = if cell.has_contents() { style_of(cell) } else { style.clone() };
                if next != style {
                    line.push_str(&format!("[{next}]"));
                    style = next;
                }
                line.push_str(if cell.has_contents() || cell.is_wide_continuation() { cell.contents() } else { " " });
            }
            line.trim_end().to_owned()
        });
        let lines: Vec<_> = lines.collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Returns the number of non-empty screen cells that have a colour or a style.
    pub(crate) fn styled_cells(&self) -> usize {
        let state = self.state.lock().unwrap();
        let screen = state.parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).filter_map(move |column| screen.cell(row, column)));
        let is_styled = |cell: &&vt100::Cell| {
            let is_coloured = cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default;
            cell.has_contents() && (is_coloured || cell.bold() || cell.dim() || cell.italic() || cell.underline())
        };
        cells.filter(is_styled).count()
    }

    /// Returns whether the terminal shows typed keys itself, without the process.
    pub(crate) fn echoes(&self) -> bool {
        tcgetattr(&self.terminal).expect("a terminal").local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// Returns the operating system's id of the process on the terminal.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    fn keyboard(&self) -> &File {
        self.keyboard.as_ref().expect("the window is open")
    }

    /// Closes the window, so that the process loses its terminal.
    pub(crate) fn close(&mut self) {
        self.state.lock().unwrap().closed = true;
        self.watcher.take().expect("the window is closed only once").join().expect("the reader thread does not panic");
        self.keyboard = None;
    }

    /// Waits until everything that the process has written is on the screen.
    fn read_rest(&self) {
        let Some(keyboard) = &self.keyboard else { return };
        let mut length_before = None;
        loop {
            let mut waiting = [PollFd::new(keyboard, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let is_unread = poll(&mut waiting, Some(&now)) != Ok(0) && waiting[0].revents().contains(PollFlags::IN);
            let length = self.state.lock().unwrap().raw.len();
            if !is_unread && length_before == Some(length) {
                return;
            }
            length_before = Some(length);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the process to end, and returns its exit code. Its complete output is then on the screen.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                self.read_rest();
                return status.code();
            }
            assert!(started.elapsed() < self.max_wait, "the process does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the names of the colour and the styles of a cell, separated by spaces.
fn style_of(cell: &vt100::Cell) -> String {
    const COLOURS: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    let colour = match cell.fgcolor() {
        vt100::Color::Default => None,
        vt100::Color::Idx(number) => Some(COLOURS.get(usize::from(number)).map_or("another colour", |name| *name)),
        vt100::Color::Rgb(..) => Some("another colour"),
    };
    let styles =
        [(cell.bold(), "bold"), (cell.dim(), "dim"), (cell.italic(), "italic"), (cell.underline(), "underlined")];
    let styles = styles.into_iter().filter_map(|(has, name)| has.then_some(name));
    colour.into_iter().chain(styles).collect::<Vec<_>>().join(" ")
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the output of the process, updates the screen, and answers queries for the cursor position.
fn watch(mut terminal: File, state: &Mutex<ScreenState>) {
    let mut bytes = [0; 4096];
    while is_written_to(&terminal, state) {
        let Ok(read @ 1..) = terminal.read(&mut bytes) else { return };
        let queries = {
            let mut state = state.lock().unwrap();
            state.raw.extend_from_slice(&bytes[..read]);
            state.parser.process(&bytes[..read]);
            std::mem::take(&mut state.parser.callbacks_mut().0)
        };
        for (row, column) in queries {
            if write!(terminal, "\u{1b}[{};{}R", row + 1, column + 1).is_err() {
                return;
            }
        }
    }
}

/// Waits for output of the process. Returns false when the terminal is closed.
fn is_written_to(terminal: &File, state: &Mutex<ScreenState>) -> bool {
    let poll_timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !state.lock().unwrap().closed {
        if poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&poll_timeout)) != Ok(0) {
            return true;
        }
    }
    false
}

fn resize(terminal: &File, ws_row: u16, ws_col: u16) {
    tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal has a size");
}

/// Creates a pseudo-terminal. Returns the user's end of the terminal and the process's end.
#[allow(unsafe_code, reason = "two Linux ioctls for which no safe library is available here, see tty_ioctl(4)")]
fn pseudo_terminal() -> (File, File) {
    const UNLOCK: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 0x31);
    const NUMBER: rustix::ioctl::Opcode = opcode::read::<u32>(b'T', 0x30);
    let open = |path: &str| OpenOptions::new().read(true).write(true).open(path);
    let master = open("/dev/ptmx").expect("the system has pseudo-terminals");
    // SAFETY: TIOCSPTLCK takes a pointer to an int, and TIOCGPTN returns an unsigned int.
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

/// Makes the terminal the controlling terminal of the process, so that Ctrl-C reaches only this process.
#[allow(unsafe_code, reason = "between fork and exec, only two system calls are made")]
fn use_controlling_terminal(command: &mut Command) {
    // SAFETY: This closure calls two functions, each of which only makes a system call. System calls are allowed
    // between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
}
