//! Runs checks that may crash or hang in a forked child, and returns the answer or how the child ended.

use crate::runtime::interrupt::poll_until;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answer(String),
    /// It ended without an answer: how, and the last line of its output.
    Died {
        how: String,
        said: String,
    },
    /// It still ran at the time limit, and was killed.
    TooLong(Duration),
    /// The caller was interrupted, and the child was killed.
    Interrupted,
    /// No child could be started.
    Unasked(String),
}

/// Calls `work` in a child of this process. Call it only before the SYCL runtime has started here: drivers do
/// not survive a fork.
pub(super) fn ask(limit: Duration, work: impl FnOnce() -> String) -> Outcome {
    match start(work) {
        Ok(child) => child.outcome(limit),
        Err(error) => Outcome::Unasked(error.to_string()),
    }
}

struct Child {
    id: libc::pid_t,
    answer: PipeReader,
    output: PipeReader,
}

fn start(work: impl FnOnce() -> String) -> io::Result<Child> {
    let (answer, to_answer) = io::pipe()?;
    let (output, to_output) = io::pipe()?;
    // SAFETY: the child runs only `live`, which never returns into code of the parent. glibc keeps malloc and
    // dlopen usable there; a lock of usmq that another thread holds at the fork would delay the child until
    // the limit, but not make it wrong.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => live(work, to_answer, &to_output),
        id => Ok(Child { id, answer, output }),
    }
}

fn live(work: impl FnOnce() -> String, mut to_answer: PipeWriter, to_output: &PipeWriter) -> ! {
    prepare(to_output);
    let answer = catch_unwind(AssertUnwindSafe(work));
    let status = match answer {
        // A failed write only means that the parent no longer reads.
        Ok(answer) => to_answer.write_all(answer.as_bytes()).map_or(1, |()| 0),
        Err(_) => 101,
    };
    // SAFETY: ends the child without the exit handlers of the parent and of drivers, which may hang.
    unsafe { libc::_exit(status) }
}

/// Prepares the child to die silently.
fn prepare(to_output: &PipeWriter) {
    for signal in [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTERM] {
        // SAFETY: the handlers of the parent, as those of a language runtime, must not run here.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: only the parent needs the answer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the struct; a crash is expected, and must not leave a core file.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    for stream in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both are descriptors of this process. Output of drivers must not reach the user's output.
        unsafe { libc::dup2(to_output.as_raw_fd(), stream) };
    }
}

impl Child {
    fn outcome(self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        let answer = read(self.answer);
        let output = read(self.output);
        let mut come = None;
        let over = || match answer.try_recv() {
            Ok(text) => {
                come = Some(text);
                true
            }
            Err(TryRecvError::Empty) => Instant::now() >= deadline,
            Err(TryRecvError::Disconnected) => true,
        };
        let interrupted = poll_until(over, || ()).is_err();
        if come.is_none() {
            // SAFETY: it is our child and was not waited for, so the number is still its own.
            unsafe { libc::kill(self.id, libc::SIGKILL) };
        }
        let how = wait(self.id);
        let Some(answer) = come else {
            return if interrupted { Outcome::Interrupted } else { Outcome::TooLong(limit) };
        };
        match (how, answer) {
            // Other code may have waited for the child; a complete answer is still valid.
            (None, answer) if !answer.is_empty() => Outcome::Answer(answer),
            (Some(0), answer) => Outcome::Answer(answer),
            (status, _) => {
                let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
                let said = output.recv_timeout(left).unwrap_or_default();
                Outcome::Died { how: described(status), said: last_line(&said) }
            }
        }
    }
}

/// Reads a pipe to its end on a thread.
fn read(mut pipe: PipeReader) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // Without a thread the sender is dropped, and the child is treated as one that does not answer.
    let _ = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        // After the time limit the receiver is dropped.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The status of waitpid; none if other code has waited for the child.
fn wait(id: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: writes to the integer; the child has ended or is about to.
        let waited = unsafe { libc::waitpid(id, &raw mut status, 0) };
        if waited == id {
            return Some(status);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn described(status: Option<libc::c_int>) -> String {
    const NAMES: [(libc::c_int, &str); 8] = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGTRAP, "SIGTRAP"),
    ];
    match status {
        Some(status) if libc::WIFSIGNALED(status) => {
            let signal = libc::WTERMSIG(status);
            let name = NAMES.iter().find(|(number, _)| *number == signal);
            name.map_or_else(|| format!("signal {signal}"), |(_, name)| format!("signal {name}"))
        }
        Some(status) => format!("exit status {}", libc::WEXITSTATUS(status)),
        None => "an unknown status".to_owned(),
    }
}

fn last_line(text: &str) -> String {
    // LLVM's last line is the same for every crash.
    let says = |line: &&str| !line.is_empty() && !line.starts_with("PLEASE submit a bug report");
    let line = text.lines().map(str::trim).rfind(says).unwrap_or_default();
    line.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::with_interrupt;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn answers_of_any_length_are_read_completely() {
        for length in [0, 1, 70_000, 1_000_000] {
            assert_eq!(ask(LONG, || "x".repeat(length)), Outcome::Answer("x".repeat(length)));
        }
    }

    #[test]
    fn a_killed_child_is_reported_with_signal_and_last_output() {
        let outcome = ask(LONG, || {
            eprintln!("something\nthe reason\n");
            // SAFETY: ends the child.
            unsafe { libc::abort() }
        });
        let expected = Outcome::Died { how: "signal SIGABRT".to_owned(), said: "the reason".to_owned() };
        // The test harness may capture the output.
        match outcome {
            Outcome::Died { how, said } if said.is_empty() => assert_eq!(how, "signal SIGABRT"),
            other => assert_eq!(other, expected),
        }
    }

    #[test]
    fn a_child_that_exits_or_panics_is_reported() {
        // SAFETY: ends the child.
        let exits = ask(LONG, || unsafe { libc::_exit(7) });
        assert!(matches!(exits, Outcome::Died { how, .. } if how == "exit status 7"));
        let panics = ask(LONG, || panic!("no"));
        assert!(matches!(panics, Outcome::Died { how, .. } if how == "exit status 101"));
    }

    #[test]
    fn a_hanging_child_is_killed_at_the_time_limit() {
        let begin = Instant::now();
        let limit = Duration::from_millis(300);
        let outcome = ask(limit, || {
            std::thread::sleep(Duration::from_secs(600));
            String::new()
        });
        assert_eq!(outcome, Outcome::TooLong(limit));
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn an_interrupted_caller_kills_the_child() {
        let (begin, hour) = (Instant::now(), Duration::from_secs(3600));
        let hangs = || {
            std::thread::sleep(hour);
            String::new()
        };
        assert_eq!(with_interrupt(|| true, || ask(hour, hangs)), Outcome::Interrupted);
        assert!(begin.elapsed() < LONG);
        let answers = with_interrupt(|| false, || ask(LONG, || "x".repeat(70_000)));
        assert_eq!(answers, Outcome::Answer("x".repeat(70_000)));
    }
}
