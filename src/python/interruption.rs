//! Calls that Python makes between two steps of the code that runs: signal handlers, trace functions, finalizers.
//!
//! Python does not mark them. A registered function is one of them if it got the arguments that only Python passes it, a
//! finalizer has its name, and no other call comes from an instruction that calls nothing. Variables of other functions are
//! not read: until Python 3.13 a read keeps their values alive.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple, PyWeakrefReference};

/// `CO_VARARGS` of `co_flags`. Source: "Code objects bit flags" of Python's module `inspect`.
const HAS_VARARGS: u32 = 4;

/// The Python code that runs in this thread.
pub(super) fn innermost(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the lock is held; a borrowed reference to the innermost Python frame of this thread, or null.
    let frame = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: an object, or null for none.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, frame.cast()) }
}

/// The number of interruptions between the frame of the address `outer` and the innermost one, and whether the frame was
/// found; without it, the number in all frames of the thread.
pub(super) fn count(py: Python<'_>, outer: usize) -> PyResult<(usize, bool)> {
    let (mut interruptions, mut inner, mut codes) = (0, innermost(py), None);
    while let Some(frame) = inner {
        if frame.as_ptr().addr() == outer {
            return Ok((interruptions, true));
        }
        let caller = frame.getattr(intern!(py, "f_back"))?;
        if caller.is_none() {
            break;
        }
        interruptions += usize::from(is_interruption(&frame, &caller, &mut codes)?);
        inner = Some(caller);
    }
    Ok((interruptions, false))
}

/// `codes` has the result of [`registered`] after its first use.
fn is_interruption<'py>(
    frame: &Bound<'py, PyAny>,
    caller: &Bound<'py, PyAny>,
    codes: &mut Option<Vec<Bound<'py, PyAny>>>,
) -> PyResult<bool> {
    let py = frame.py();
    let code = frame.getattr(intern!(py, "f_code"))?;
    if code.getattr(intern!(py, "co_name"))?.eq(intern!(py, "__del__"))? || is_at_no_call(caller)? {
        return Ok(true);
    }
    let codes = match codes {
        Some(codes) => codes,
        None => codes.insert(registered(py)?),
    };
    let local = code_of(&caller.getattr(intern!(py, "f_trace"))?)?;
    if !codes.iter().chain(&local).any(|own| own.is(&code)) {
        return Ok(false);
    }
    let arguments = arguments(frame, &code)?;
    // Methods get their object first.
    let rest = arguments.get(1..).unwrap_or_default();
    Ok(are_of_python(&arguments, caller) || are_of_python(rest, caller))
}

/// Whether a registered function got these arguments from Python: a signal handler and a trace function the frame that
/// they interrupt, a callback of the garbage collector its phase, `weakref.finalize` the reference.
fn are_of_python(arguments: &[Bound<'_, PyAny>], caller: &Bound<'_, PyAny>) -> bool {
    let is_text = |object: &Bound<'_, PyAny>| object.is_instance_of::<PyString>();
    match arguments {
        [number, frame, ..] if number.is_instance_of::<PyInt>() => frame.is(caller),
        [frame, event, _] if is_text(event) => frame.is(caller),
        [phase, about] if is_text(phase) => about.contains("uncollectable").unwrap_or(false),
        [reference] => reference.is_instance_of::<PyWeakrefReference>(),
        _ => false,
    }
}

/// The codes of the functions that Python may call between two steps of any code.
fn registered(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let sys = py.import(intern!(py, "sys"))?;
    let finalize = py.import(intern!(py, "weakref"))?.getattr(intern!(py, "finalize"))?;
    let mut all = vec![
        sys.call_method0(intern!(py, "gettrace"))?,
        sys.call_method0(intern!(py, "getprofile"))?,
        finalize.getattr(intern!(py, "__call__"))?,
    ];
    let callbacks = py.import(intern!(py, "gc"))?.getattr(intern!(py, "callbacks"))?;
    all.extend(callbacks.try_iter()?.collect::<PyResult<Vec<_>>>()?);
    let signal = py.import(intern!(py, "_signal"))?;
    let (handler, count) = (signal.getattr(intern!(py, "getsignal"))?, signal.getattr(intern!(py, "NSIG"))?);
    let handlers = (1..count.extract::<i32>()?).map(|number| handler.call1((number,)));
    all.extend(handlers.collect::<PyResult<Vec<_>>>()?);
    all.iter().filter_map(|function| code_of(function).transpose()).collect()
}

/// The code of a function, a method, a `functools.partial` or an object that can be called.
fn code_of<'py>(callable: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = callable.py();
    if callable.is_none() || callable.is_instance_of::<PyInt>() {
        return Ok(None);
    }
    let code = intern!(py, "__code__");
    if let Some(function) = callable.getattr_opt(intern!(py, "__func__"))? {
        return function.getattr_opt(code);
    }
    if let Some(own) = callable.getattr_opt(code)? {
        return Ok(Some(own));
    }
    let class = callable.get_type();
    if class.is(&py.import(intern!(py, "functools"))?.getattr(intern!(py, "partial"))?) {
        return code_of(&callable.getattr(intern!(py, "func"))?);
    }
    class.getattr(intern!(py, "__call__"))?.getattr_opt(code)
}

/// Whether the frame is at an instruction that calls no code of its own, so that Python has interrupted it.
fn is_at_no_call(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    const NAMES: [&str; 14] = [
        "RESUME",
        "JUMP_BACKWARD",
        "POP_TOP",
        "STORE_FAST",
        "STORE_FAST_LOAD_FAST",
        "STORE_FAST_STORE_FAST",
        "STORE_DEREF",
        "STORE_GLOBAL",
        "STORE_NAME",
        "DELETE_FAST",
        "DELETE_DEREF",
        "DELETE_GLOBAL",
        "DELETE_NAME",
        "RETURN_VALUE",
    ];
    static NO_CALLS: PyOnceLock<Vec<u8>> = PyOnceLock::new();
    let py = frame.py();
    let no_calls = NO_CALLS.get_or_try_init(py, || -> PyResult<_> {
        let numbers = py.import("opcode")?.getattr("opmap")?;
        // Each version of Python has some of them.
        Ok(NAMES.iter().filter_map(|name| numbers.get_item(name).ok()?.extract().ok()).collect())
    })?;
    let at: usize = frame.getattr(intern!(py, "f_lasti"))?.extract()?;
    let code =
        frame.getattr(intern!(py, "f_code"))?.getattr(intern!(py, "co_code"))?.cast_into::<PyBytes>()?;
    Ok(code.as_bytes().get(at).is_some_and(|instruction| no_calls.contains(instruction)))
}

/// The positional arguments, as far as they still have their names.
fn arguments<'py>(frame: &Bound<'py, PyAny>, code: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = frame.py();
    let count = |name| -> PyResult<usize> { code.getattr(name)?.extract() };
    let flags: u32 = code.getattr(intern!(py, "co_flags"))?.extract()?;
    let (positional, named) = (count(intern!(py, "co_argcount"))?, count(intern!(py, "co_kwonlyargcount"))?);
    let names = code.getattr(intern!(py, "co_varnames"))?.cast_into::<PyTuple>()?;
    let locals = frame.getattr(intern!(py, "f_locals"))?;
    let value = |at: usize| locals.get_item(names.get_item(at).ok()?).ok();
    let mut values: Vec<_> = (0..positional).filter_map(value).collect();
    if flags & HAS_VARARGS != 0
        && let Some(more) = value(positional + named)
        && let Ok(more) = more.cast::<PyTuple>()
    {
        values.extend(more.iter());
    }
    Ok(values)
}
