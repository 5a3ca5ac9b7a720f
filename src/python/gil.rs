//! Runs code without the GIL, and lets signals interrupt waits. Also protects pending Python exceptions while values are
//! dropped.

use super::lines;
use crate::Error;
use crate::runtime::with_interrupt;
use crate::trace::recorder;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError};
use pyo3::ffi;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyTuple};
use std::cell::Cell;
use std::hint::black_box;
use std::mem::{ManuallyDrop, transmute};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `f` without the GIL, as work of the source line that called usmq. Submissions use this function so
/// that a profile has their source line; waits use it so that a signal can interrupt them.
pub(super) fn detach<T: Ungil, F: Ungil + FnOnce() -> T>(py: Python<'_>, f: F) -> T {
    let _at = recorder::with_site(|| lines::caller(py));
    let _capture = super::capture_scope::enter(py);
    if !has_signals() {
        return py.detach(f);
    }
    LOST.set(None);
    with_interrupt(signalled, || py.detach(f))
}

thread_local! {
    /// The exception of a signal handler, or one that ends the program, while it passes through Rust code
    /// that does not use Python.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Python's identifier of the thread on which Python handles signals.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

/// Records the main thread when usmq is imported. A later query would run Python code, and with it signal
/// handlers, whose exceptions could not be propagated there.
pub(super) fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    /// As in Python, the thread that forked is the main thread of the child.
    unsafe extern "C" fn in_child() {
        MAIN_THREAD.store(this_thread(), Ordering::Relaxed);
    }
    let main = py.import("threading")?.call_method0("main_thread")?.getattr("ident")?;
    MAIN_THREAD.store(main.extract()?, Ordering::Relaxed);
    // SAFETY: the handler stores a number in an atomic, which is allowed after a fork; it is a function of this library,
    // which is never unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        _ => Err(PyMemoryError::new_err("no memory to watch for forks")),
    }
}

fn this_thread() -> u64 {
    // SAFETY: returns the identifier of the calling thread; allowed at any time.
    unsafe { ffi::PyThread_get_thread_ident() }
}

/// Only the main thread handles signals: waits of other threads need not check.
fn has_signals() -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == this_thread()
}

/// Runs the handlers of pending signals; returns true if a handler raised an exception.
fn signalled() -> bool {
    Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    })
    .unwrap_or(false)
}

thread_local! {
    /// The exception that interrupted the last call, if its caller may have lost it.
    static LOST: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Returns the error for the caller and keeps interrupts: numpy discards the exception of a failed buffer
/// request, even KeyboardInterrupt, and then calls `__array__`.
pub(super) fn remembered(py: Python<'_>, error: Error) -> PyErr {
    let interrupted = matches!(error, Error::Interrupted);
    let error = PyErr::from(error);
    if interrupted {
        LOST.set(Some(error.clone_ref(py)));
    }
    error
}

/// The error that [`remembered`] has kept, unless usmq has released the GIL since.
pub(super) fn lost() -> PyResult<()> {
    LOST.take().map_or(Ok(()), Err)
}

/// Keeps the exception that stopped the caller's code inside Rust, for example in an iterable:
/// [`Error::Interrupted`] passes it to the caller unchanged.
pub(super) fn stopped_by(raised: PyErr) -> Error {
    RAISED.set(Some(raised));
    Error::Interrupted
}

/// The exception that interrupted a wait of this thread.
pub(super) fn raised() -> PyErr {
    RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
}

/// A field of a Python object whose drop may run another library's Python code: the release of an import.
/// Python may destroy an object while an exception is pending, and such code would discard the exception.
pub(super) struct Quiet<T>(ManuallyDrop<T>);

impl<T> Quiet<T> {
    pub(super) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Quiet<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        let outer = IN_DESTRUCTOR.try_with(|inside| inside.replace(true));
        // SAFETY: drop runs once, and nothing uses the value after it.
        quietly(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        let _ = outer.map(|outer| IN_DESTRUCTOR.set(outer));
    }
}

thread_local! {
    /// Whether the drop of a [`Quiet`] runs: it holds the GIL, and calls no other library.
    static IN_DESTRUCTOR: Cell<bool> = const { Cell::new(false) };
}

/// Python, if this thread is inside a destructor that Python has called. Unlike `PyGILState_Check`, this holds beside
/// subinterpreters and at the end of the interpreter, too.
pub(super) fn in_destructor<'py>() -> Option<Python<'py>> {
    // SAFETY: the drop of a `Quiet` holds the GIL, and does not release it.
    IN_DESTRUCTOR.try_with(Cell::get).unwrap_or(false).then(|| unsafe { Python::assume_attached() })
}

type Object = *mut ffi::PyObject;
type Call = unsafe extern "C-unwind" fn(Object, Object, Object) -> Object;
type WithObject = unsafe extern "C-unwind" fn(Object);

/// Functions of Python that may unwind the stack. pyo3 declares that they do not, and the compiler then cannot unwind their
/// callers, even if they are declared again. So they are called through addresses that the compiler does not know.
struct MayUnwind {
    call: Call,
    write_unraisable: WithObject,
    release: WithObject,
}

impl MayUnwind {
    fn new() -> Self {
        let call: unsafe extern "C" fn(Object, Object, Object) -> Object = ffi::PyObject_Call;
        let [write, release]: [unsafe extern "C" fn(Object); 2] =
            [ffi::PyErr_WriteUnraisable, ffi::Py_DecRef];
        Self {
            // SAFETY: the ABIs differ in whether calls may be unwound only, and these functions are C's.
            call: unsafe {
                transmute::<unsafe extern "C" fn(Object, Object, Object) -> Object, Call>(black_box(call))
            },
            // SAFETY: as above.
            write_unraisable: unsafe {
                transmute::<unsafe extern "C" fn(Object), WithObject>(black_box(write))
            },
            // SAFETY: as above.
            release: unsafe { transmute::<unsafe extern "C" fn(Object), WithObject>(black_box(release)) },
        }
    }
}

/// Code of Python on a thread of usmq. Python before 3.14 ends a thread that takes the GIL after the interpreter has begun
/// to exit, by unwinding its stack, which ends the process in frames of Rust. Such a thread waits here for the end of the
/// process.
struct PythonCode(());

impl PythonCode {
    fn run<T>(f: impl FnOnce() -> T) -> T {
        let running = Self(());
        let value = f();
        std::mem::forget(running);
        value
    }
}

impl Drop for PythonCode {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls a function of the user on a thread of usmq; passes an exception to `sys.unraisablehook`.
pub(super) fn call_on_own_thread(function: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) {
    let (function, arguments, python) = (function.as_ptr(), arguments.as_ptr(), MayUnwind::new());
    // SAFETY: live objects, with the GIL held; no keywords.
    let returned = PythonCode::run(|| unsafe { (python.call)(function, arguments, std::ptr::null_mut()) });
    if returned.is_null() {
        // SAFETY: as above, with the exception of the call pending.
        PythonCode::run(|| unsafe { (python.write_unraisable)(function) });
    } else {
        // SAFETY: the new reference that the call returned.
        PythonCode::run(|| unsafe { (python.release)(returned) });
    }
}

/// Drops a reference on a thread of usmq, which may run code of the object.
pub(super) fn drop_on_own_thread<T>(_: Python<'_>, object: Py<T>) {
    let (object, python) = (object.into_ptr(), MayUnwind::new());
    // SAFETY: an owned reference, with the GIL held.
    PythonCode::run(|| unsafe { (python.release)(object) });
}

/// Runs `f` with the pending exception of this thread, if any, saved and restored. For destructors only:
/// Python calls them with the GIL held, also while the interpreter shuts down and attaching fails.
#[allow(
    deprecated,
    reason = "what stands for these two came with Python 3.12, and the stable ABI here is that of 3.11"
)]
pub(super) fn quietly(f: impl FnOnce()) {
    let mut error = [std::ptr::null_mut(); 3];
    let [class, value, traceback] = &mut error;
    // SAFETY: the GIL is held, and the output pointers are valid.
    unsafe { ffi::PyErr_Fetch(class, value, traceback) };
    f();
    let [class, value, traceback] = error;
    // SAFETY: the GIL is held; the fetched exception is restored once.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}
