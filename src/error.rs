//! The error type: what was asked, what was found, what to do. One variant per case that callers handle
//! differently.

use std::fmt::Display;

/// `std::result::Result` with usmq's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error of usmq.
///
/// ```
/// use usmq::{Error, Queue};
///
/// match Queue::get("accelerator:7") {
///     Err(Error::DeviceNotFound { asked, .. }) => assert_eq!(asked, "accelerator:7"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid filter string.
    #[error(
        "invalid filter string {asked:?}: {reason}; expected [backend:][device_type][:index], as in \"gpu\", \"opencl:cpu\" or \"gpu:1\""
    )]
    #[non_exhaustive]
    Selector {
        /// The string as given.
        asked: String,
        /// Which part is wrong.
        reason: String,
    },
    /// A well-formed filter string that no visible device matches.
    #[error("no device matches {asked:?}; visible devices: {visible}")]
    #[non_exhaustive]
    DeviceNotFound {
        /// The string as given.
        asked: String,
        /// Every visible device, or a note that none is visible.
        visible: String,
    },
    /// Arrays and queues that cannot be used together.
    #[error("{message}")]
    #[non_exhaustive]
    Placement {
        /// The text of the error.
        message: String,
        /// The queues involved, as texts, one for each array or argument with memory, in their order; empty if the
        /// error concerns memory without a queue.
        queues: Vec<String>,
        /// The position, from 0, of the array or argument that the queue cannot use; `None` if the error concerns all.
        position: Option<usize>,
    },
    /// A failed USM allocation.
    #[error("usm allocation of {} ({kind}) on {device} failed: {} in use, {} reserved, limit {}, device has {}{note}",
        size(*.asked), size(*.used), size(*.reserved), .limit.map_or("none".to_owned(), size), size(*.total))]
    #[non_exhaustive]
    Allocation {
        /// Bytes requested.
        asked: u64,
        /// `device`, `shared` or `host`.
        kind: &'static str,
        /// Filter string and name of the device.
        device: String,
        /// Bytes that live arrays hold.
        used: u64,
        /// Bytes taken from the runtime.
        reserved: u64,
        /// The limit in force, if one was set.
        limit: Option<u64>,
        /// Global memory of the device.
        total: u64,
        /// More about the cause; empty or starts with "; ".
        note: String,
    },
    /// An access that conflicts with a live [`HostView`](crate::HostView) or [`HostViewMut`](crate::HostViewMut).
    #[error("{array} has a {}host view, so {}; drop the view first, or use a copy() made before it",
        if *is_mutable { "mutable " } else { "" },
        if *is_mutable { "nothing else may use its memory" } else { "nothing may write to its memory" })]
    #[non_exhaustive]
    HostView {
        /// The array of the view.
        array: String,
        /// Whether the view may write.
        is_mutable: bool,
    },
    /// A call that is not possible inside a [`capture`](crate::capture()), or with an event of one.
    #[error("{call} is not possible: {found}; {fix}")]
    #[non_exhaustive]
    Capture {
        /// The call, with its operand.
        call: String,
        /// What the capture does with the operand.
        found: String,
        /// Where to move the call, or what to call instead.
        fix: String,
    },
    /// A failed allocation of host memory.
    #[error("could not allocate {} of host memory for {what}; free memory, raise the process limit, or split the work", size(*.asked))]
    #[non_exhaustive]
    HostMemory {
        /// Bytes requested.
        asked: u64,
        /// The intended content of the memory.
        what: &'static str,
    },
    /// A kernel that does not compile, with the compiler's log.
    #[error("kernel {name:?} does not build for {device}:\n{log}")]
    #[non_exhaustive]
    KernelBuild {
        /// The kernel's name.
        name: String,
        /// The device it was built for.
        device: String,
        /// The compiler's output.
        log: String,
    },
    /// Arguments or ranges that a kernel does not accept, or memory outside of its arrays that a debug build has
    /// accessed.
    #[error("{message}")]
    #[non_exhaustive]
    Launch {
        /// The text of the error.
        message: String,
        /// The kernel's name.
        kernel: String,
        /// The position of the argument, from 0; `None` if the error concerns no single argument.
        argument: Option<usize>,
    },
    /// A foreign object that violates its protocol, or an export that is not possible.
    #[error("{message}")]
    #[non_exhaustive]
    Interop {
        /// The text of the error.
        message: String,
    },
    /// A value outside its domain: a negative extent, an index past the end.
    #[error("{message}")]
    #[non_exhaustive]
    Value {
        /// The text of the error.
        message: String,
    },
    /// A wrong type: a dtype, an argument.
    #[error("{message}")]
    #[non_exhaustive]
    Type {
        /// The text of the error.
        message: String,
        /// The expected type, where there is one.
        expected: Option<String>,
        /// The type that was found, where the error compares two.
        found: Option<String>,
    },
    /// An index, axis or range outside an array, column or table, or the name of a missing column.
    #[error("{message}")]
    #[non_exhaustive]
    Index {
        /// The text of the error.
        message: String,
        /// The index or axis as given, or the end of the range; `None` for names and for too many indices.
        index: Option<isize>,
        /// The number of elements, axes or rows that `index` may select; `None` without an `index`.
        extent: Option<usize>,
        /// The axis, from 0, of an index into an array; otherwise `None`.
        axis: Option<usize>,
    },
    /// No usable SYCL runtime, driver or optional library.
    #[error("{message}")]
    #[non_exhaustive]
    RuntimeNotFound {
        /// The text of the error.
        message: String,
    },
    /// Two SYCL runtimes in one process.
    #[error("{message}")]
    #[non_exhaustive]
    RuntimeConflict {
        /// The text of the error.
        message: String,
        /// The paths of the runtime's libraries that are loaded; empty if another copy of usmq is in use.
        libraries: Vec<String>,
    },
    /// The process was forked after the SYCL runtime had started.
    #[error(
        "this process was forked after usmq had started the SYCL runtime in its parent; drivers do not survive a fork. {}, or fork before the first use of a device",
        spelled(
            "Start workers with the \"spawn\" or \"forkserver\" method",
            "Start a new program, with std::process::Command"
        )
    )]
    Fork,
    /// The process is exiting, and the exit handler of usmq has run.
    #[error(
        "this process is exiting, and usmq has ended its use of devices; call usmq before the end of {}, or before `exit`",
        spelled("the script", "main")
    )]
    Exit,
    /// The operating system refused to start a thread.
    #[error(
        "usmq cannot start its thread {name:?}: {reason}; raise the limit of threads (`ulimit -u`, or pids.max of the \
         container), or end other threads and processes"
    )]
    #[non_exhaustive]
    Thread {
        /// The name of the thread.
        name: String,
        /// The error of the operating system.
        reason: String,
    },
    /// A wait that was interrupted on request; see [`with_interrupt`](crate::with_interrupt).
    #[error("the wait was interrupted; submitted work continues")]
    Interrupted,
    /// An error of the SYCL runtime, with its `sycl::errc`.
    #[error("{operation}: SYCL error {code}: {message}")]
    #[non_exhaustive]
    Sycl {
        /// The operation that failed.
        operation: String,
        /// The name of the `sycl::errc`, or `unknown`.
        code: String,
        /// The runtime's text.
        message: String,
    },
}

/// Separates code and message in the text that the shim throws (`kCodeEnd` in cpp/error.h).
const CODE_END: char = '\u{1f}';

/// Part of the error text with which an emulated GPU refuses memory of another one (`kForeignMemory` in
/// layers/emulator/checks.h).
const FOREIGN_MEMORY: &str = "UR_RESULT_ERROR_INVALID_MEM_OBJECT";

/// For functions of users that usmq calls, such as the sources of streams and the bodies of tasks.
impl Error {
    /// An [`Error::Value`] with this text.
    ///
    /// ```
    /// let failed = usmq::with_queue("cpu", || Err::<(), _>(usmq::Error::value("the file is empty")));
    /// assert!(matches!(failed, Err(usmq::Error::Value { message, .. }) if message == "the file is empty"));
    /// ```
    #[must_use]
    pub fn value(message: impl Into<String>) -> Self {
        Self::Value { message: message.into() }
    }

    /// An [`Error::Interop`] with this text.
    ///
    /// ```
    /// assert_eq!(usmq::Error::interop("the reader was closed").to_string(), "the reader was closed");
    /// ```
    #[must_use]
    pub fn interop(message: impl Into<String>) -> Self {
        Self::Interop { message: message.into() }
    }

    /// An [`Error::Type`] with this text, without the two types.
    ///
    /// ```
    /// let error = usmq::Error::wrong_type("dates are not supported");
    /// assert!(matches!(error, usmq::Error::Type { expected: None, found: None, .. }));
    /// ```
    #[must_use]
    pub fn wrong_type(message: impl Into<String>) -> Self {
        Self::Type { message: message.into(), expected: None, found: None }
    }
}

impl Error {
    /// `name` is that of the thread.
    pub(crate) fn no_thread(name: &str, reason: &std::io::Error) -> Self {
        Self::Thread { name: name.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn placement(message: String, queues: Vec<String>, position: Option<usize>) -> Self {
        Self::Placement { message, queues, position }
    }

    pub(crate) fn launch(kernel: &str, argument: Option<usize>, message: String) -> Self {
        Self::Launch { message, kernel: kernel.to_owned(), argument }
    }

    pub(crate) fn type_mismatch(expected: impl Display, found: impl Display, message: String) -> Self {
        Self::Type { message, expected: Some(expected.to_string()), found: Some(found.to_string()) }
    }

    /// An [`Error::Index`] that concerns no position.
    pub(crate) fn index(message: impl Into<String>) -> Self {
        Self::Index { message: message.into(), index: None, extent: None, axis: None }
    }

    /// An axis number that a shape does not have.
    pub(crate) fn no_axis(axis: isize, shape: &[usize]) -> Self {
        let message = format!("axis {axis} is out of range for shape {shape:?}");
        Self::Index { message, index: Some(axis), extent: Some(shape.len()), axis: None }
    }

    /// A range of rows or values that ends outside of `extent`.
    pub(crate) fn range_end(end: usize, extent: usize, message: String) -> Self {
        Self::Index { message, index: isize::try_from(end).ok(), extent: Some(extent), axis: None }
    }

    pub(crate) fn runtime_not_found(message: impl Into<String>) -> Self {
        Self::RuntimeNotFound { message: message.into() }
    }

    /// Turns an exception of the shim into an error that names the operation.
    pub(crate) fn from_shim(operation: &str, exception: &cxx::Exception) -> Self {
        Self::from_text(operation, exception.what())
    }

    /// As [`Error::from_shim`], for the text of an exception.
    pub(crate) fn from_text(operation: &str, text: &str) -> Self {
        let (code, message) = text.split_once(CODE_END).unwrap_or(("unknown", text));
        if code == "runtime_not_found" {
            return Self::runtime_not_found(message);
        }
        if code == "exit" {
            return Self::Exit;
        }
        if message.contains(FOREIGN_MEMORY) && std::env::var_os("USMQ_EMULATE_GPUS").is_some() {
            let message = format!(
                "{operation}: a device used memory of another device, which it cannot access; the line of the usmq \
                 emulator on standard error names both. Copy the data with collocate() first, or keep it in host memory"
            );
            return Self::placement(message, Vec::new(), None);
        }
        Self::Sycl {
            operation: operation.to_owned(),
            code: code.to_owned(),
            message: message.trim_end().to_owned(),
        }
    }
}

/// Adds the operation to an exception of the shim: `ffi::queue_wait(..).during("waiting for a queue")?`.
pub(crate) trait During<T> {
    fn during(self, operation: &str) -> Result<T>;
}

impl<T> During<T> for std::result::Result<T, cxx::Exception> {
    fn during(self, operation: &str) -> Result<T> {
        self.map_err(|exception| Error::from_shim(operation, &exception))
    }
}

/// Selects the spelling of a call for messages: the extension is called from Python, the crate from Rust.
/// (libusmq.so is built as the crate is.)
pub(crate) const fn spelled(python: &'static str, rust: &'static str) -> &'static str {
    if cfg!(feature = "python") { python } else { rust }
}

/// The call that diagnoses missing devices, for messages.
pub(crate) const DOCTOR: &str = spelled("`python -m usmq doctor`", "`usmq::doctor()`");

/// Formats bytes with a unit: `64 B`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Escapes a text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(c),
            // XML cannot express control characters.
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_formatted_with_units() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
    }
}
