//! Streams whose other side goes on after usmq's exit handler, in `atexit` or an ELF destructor.

use crate::arrow_c::{empty_array, extract, numbers, release};
use crate::consumer::{pair, poll};
use crate::recorder::{Call, Recorder};
use std::process::{Command, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use usmq::interop::arrow::{AsyncExport, AsyncStreamReader, Batches};
use usmq::{Result, UsmKind};

/// "atexit" or "an ELF destructor".
const PLACE: &str = "USMQ_TEST_LATE_STREAM";

type Step = Box<dyn FnOnce() + Send>;

/// The steps after the exit handler, by name.
static LATE: Mutex<Vec<(&str, Step)>> = Mutex::new(Vec::new());

fn later(name: &'static str, step: impl FnOnce() + Send + 'static) {
    LATE.lock().unwrap_or_else(PoisonError::into_inner).push((name, Box::new(step)));
}

/// A failed assertion aborts the process, so its status tells the test.
extern "C" fn go_on() {
    for (name, step) in std::mem::take(&mut *LATE.lock().unwrap_or_else(PoisonError::into_inner)) {
        step();
        eprintln!("done: {name}");
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_VERY_END: extern "C" fn() = go_on;

/// Batches of every USM kind, made before the process ends.
fn batches(count: usize) -> Result<Batches> {
    let kinds = UsmKind::ALL.iter().cycle().take(count);
    let columns = kinds.map(|kind| numbers(&[1, 2, 3], *kind)).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(columns.into_iter().map(Ok)))
}

/// A stream of ours whose consumer has got so many tasks.
fn producing(tasks: usize) -> Result<(Arc<Recorder>, AsyncExport)> {
    let recorder = Recorder::silent();
    let column = numbers(&[1], UsmKind::Device)?;
    // SAFETY: the handler is the recorder's, which lives as long as the process.
    let stream = unsafe { AsyncExport::start(recorder.raw(), column.field().clone(), batches(9)?) }?;
    recorder.until(|log| log.calls.len() == 1);
    if tasks > 0 {
        recorder.request(tasks as i64);
        recorder.until(|log| log.tasks.len() == tasks);
    }
    std::mem::forget(recorder.clone());
    Ok((recorder, stream))
}

/// Registers the steps of each stream.
fn steps() -> Result<()> {
    let (recorder, stream) = producing(3)?;
    later("a consumer extracts tasks, releases arrays and cancels", move || {
        for mut task in std::mem::take(&mut recorder.log().tasks) {
            let mut array = empty_array();
            assert_eq!(extract(&mut task, &mut array), 0);
            release(&mut array);
        }
        recorder.cancel();
        assert_eq!(recorder.calls().last(), Some(&Call::Release));
        drop(stream);
    });
    for tasks in [0, 2] {
        let (recorder, stream) = producing(tasks)?;
        later("a consumer requests arrays", move || {
            recorder.request(2);
            let calls = recorder.calls();
            let [.., Call::Error(_, text), Call::Release] = &calls[..] else { unreachable!("{calls:?}") };
            assert!(text.contains("this process is exiting"), "{text}");
            drop(stream.wait());
        });
    }
    let (recorder, stream) = producing(1)?;
    later("a consumer forgets a stream, which its owner stops", move || {
        stream.stop();
        let calls = recorder.calls();
        assert!(matches!(&calls[..], [.., Call::Error(..), Call::Release]), "{calls:?}");
    });
    let (stream, source) = pair(4);
    assert_eq!((source.schema()?, source.values(&[1, 2]), source.values(&[])), (0, 0, 0));
    later("a producer offers a task, ends, and releases the handler", move || {
        assert_eq!((source.values(&[3]), source.end()), (0, 0));
        source.release();
        drop(stream);
        assert_eq!(source.check(), (0, 3));
    });
    let (mut stream, source) = pair(4);
    assert_eq!((source.schema()?, source.values(&[1, 2])), (0, 0));
    later("a consumer polls, and a producer fails", move || {
        let next = poll(&mut stream);
        let Poll::Ready(Some(Err(error))) = next else { unreachable!("{next:?}") };
        assert!(error.to_string().contains("this process is exiting"), "{error}");
        source.error(libc::EIO, Some(c"the disk is gone"));
        source.release();
        let next = poll(&mut stream);
        let Poll::Ready(Some(Err(error))) = next else { unreachable!("{next:?}") };
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    });
    let (stream, handler) = AsyncStreamReader::new(2);
    // SAFETY: only this producer gets the handler.
    let producing = unsafe {
        AsyncExport::start(handler.into_raw(), numbers(&[], UsmKind::Host)?.field().clone(), batches(9)?)
    }?;
    later("a consumer of ours leaves a producer of ours", move || {
        drop(stream);
        drop(producing.wait());
    });
    Ok(())
}

/// The body of each child.
#[test]
fn late_child() -> Result<()> {
    let Ok(place) = std::env::var(PLACE) else { return Ok(()) };
    if place == "atexit" {
        // Before the first use of a device, so that it runs after usmq's handler.
        // SAFETY: registers a function of this program.
        unsafe { libc::atexit(go_on) };
    }
    steps()?;
    exit(7)
}

#[test]
fn streams_go_on_or_end_with_an_error_after_the_exit_handler() -> Result<()> {
    for place in ["atexit", "an ELF destructor"] {
        let output = Command::new("timeout")
            .arg("90")
            .arg(std::env::current_exe().unwrap_or_default())
            .args(["--exact", "late::late_child", "--nocapture", "--test-threads=1"])
            .env(PLACE, place)
            .env("ASAN_OPTIONS", crate::leaks::without_leaks())
            .output();
        let Ok(output) = output else { panic!("the child does not start") };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{place}: {text}");
        assert_eq!(text.matches("done: ").count(), 7, "{place}: {text}");
    }
    Ok(())
}
