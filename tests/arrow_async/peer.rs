//! Arrow C++ as peer: its consumer with our producer, its producer with our consumer.
//!
//! tests/cpp/arrow_async_peer.cc is compiled against pyarrow's headers and library, and loaded into the test.

use crate::arrow_c::{Balance, number_field, numbers};
use crate::producer::{all_values, values_of};
use futures::StreamExt;
use futures::executor::block_on;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use usmq::interop::arrow::{
    ArrowAsyncDeviceStreamHandler, ArrowDeviceArrayStream, AsyncExport, AsyncStreamReader, Batches, Column,
    Field, ForeignStruct, ImportOptions, StreamEnd, StreamReader, Table,
};
use usmq::{Error, Result, UsmKind};

/// As in the C++ file.
#[repr(C)]
struct Found {
    batches: i64,
    rows: i64,
    sum: i64,
    error: [c_char; 256],
}

impl Found {
    fn new() -> Self {
        Self { batches: 0, rows: 0, sum: 0, error: [0; 256] }
    }

    fn error(&self) -> String {
        // SAFETY: snprintf ends the text with a NUL.
        unsafe { CStr::from_ptr(self.error.as_ptr()) }.to_string_lossy().into_owned()
    }
}

type Handler = ArrowAsyncDeviceStreamHandler;

macro_rules! peer {
    ($($name:ident = $symbol:literal: $type:ty,)*) => {
        /// The functions of the C++ file.
        struct Peer {
            $($name: $type),*
        }

        fn load(library: &Path) -> Peer {
            let path = CString::new(library.as_os_str().as_encoded_bytes()).unwrap_or_default();
            // SAFETY: a library of ours; its initialisers and those of Arrow do no harm.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            assert!(!handle.is_null(), "{} does not load", library.display());
            let symbol = |name: &CStr| {
                // SAFETY: the library was loaded and is never unloaded.
                let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
                assert!(!symbol.is_null(), "{name:?} is missing");
                symbol
            };
            // SAFETY: the C++ file declares them so.
            Peer { $($name: unsafe { std::mem::transmute::<*mut c_void, $type>(symbol($symbol)) }),* }
        }
    };
}

peer! {
    bytes = c"peer_bytes": extern "C" fn() -> i64,
    consumer = c"peer_consumer": extern "C" fn(u64, *mut *mut Handler) -> *mut c_void,
    consume = c"peer_consume": extern "C" fn(*mut c_void, i64, *mut Found),
    free = c"peer_free": extern "C" fn(*mut c_void) -> i64,
    producer = c"peer_producer": extern "C" fn(*mut Handler, i64, i64, i64) -> *mut c_void,
    finish = c"peer_finish": extern "C" fn(*mut c_void, *mut Found),
    read = c"peer_read": extern "C" fn(*mut ArrowDeviceArrayStream, *mut Found),
    stream = c"peer_stream": extern "C" fn(i64, i64, i64, *mut ArrowDeviceArrayStream, *mut Found),
}

/// `None`, with a printed line, if Arrow C++ is absent.
fn peer() -> Option<&'static Peer> {
    static PEER: OnceLock<Option<Peer>> = OnceLock::new();
    let peer = PEER.get_or_init(|| pyarrow().map(|arrow| load(&build(&arrow)))).as_ref();
    if peer.is_none() {
        println!("no pyarrow is in .venv: the tests with Arrow C++ are left out");
    }
    peer
}

fn pyarrow() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons.map(|python| python.path().join("site-packages/pyarrow")).find(|path| path.is_dir())
}

fn build(arrow: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/arrow_async_peer.cc");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libarrow_async_peer.so");
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if time(&library).is_some_and(|built| time(&source).is_some_and(|written| built > written)) {
        return library;
    }
    let name = |path: PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libarrow.so."))
    };
    let entries = std::fs::read_dir(arrow).into_iter().flatten().flatten();
    let libarrow = entries.map(|entry| entry.path()).find(|path| name(path.clone()));
    // Build beside the target first: several test processes may build it.
    let fresh = library.with_extension(format!("{}.so", std::process::id()));
    let status = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
        .args(["-std=c++20", "-O1", "-fPIC", "-shared", "-isystem"])
        .arg(arrow.join("include"))
        .arg(source)
        .arg("-o")
        .arg(&fresh)
        .args(libarrow)
        .arg(format!("-Wl,-rpath,{}", arrow.display()))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the peer does not compile");
    assert!(std::fs::rename(fresh, &library).is_ok());
    library
}

/// Arrow's own memory is as before, now or soon.
fn wait_for_memory(peer: &Peer, before: i64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while (peer.bytes)() != before {
        // Memory that waits for the device is freed by later allocations.
        drop(usmq::Array::empty::<u8>([1])?);
        assert!(Instant::now() < end, "{} bytes of Arrow's, {before} before", (peer.bytes)());
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A record batch of one column, as Arrow C++ takes them.
fn record(number: usize) -> Result<Column> {
    let column = numbers(&values_of(number), UsmKind::Shared)?;
    Ok(Table::new(vec![column])?.batches()[0].clone())
}

fn record_field() -> Result<Arc<Field>> {
    Ok(record(0)?.field().clone())
}

struct Consumed {
    found: Found,
    ended: StreamEnd,
    /// Tasks that Arrow C++ accepted and did not extract, which breaks rule A20.
    forgotten: i64,
}

/// The result of Arrow C++ for at most `most` batches, and how our side ended.
fn consumed(peer: &Peer, ahead: u64, batches: Batches, most: i64) -> Result<Consumed> {
    let (mut handler, mut found) = (ptr::null_mut(), Found::new());
    let consumer = (peer.consumer)(ahead, &mut handler);
    // SAFETY: Arrow C++ made the handler; it is freed after its release.
    let producing = unsafe { AsyncExport::start_on_host(handler, record_field()?, batches) }?;
    (peer.consume)(consumer, most, &mut found);
    if most < i64::MAX {
        // Arrow C++ 26 stops without a call to its producer.
        std::thread::sleep(Duration::from_millis(50));
        producing.stop();
    }
    let ended = producing.wait();
    Ok(Consumed { found, ended, forgotten: (peer.free)(consumer) })
}

#[test]
fn a1_to_a12_arrow_cpp_reads_every_exported_batch() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for (ahead, batches) in [(1, 50), (5, 0), (5, 1), (5, 500), (1000, 500)] {
        let batches_of = Box::new((0..batches).map(record));
        let Consumed { found, ended, forgotten } = consumed(peer, ahead, batches_of, i64::MAX)?;
        assert_eq!(forgotten, 0);
        assert_eq!(found.error(), "");
        assert_eq!(found.batches, batches as i64);
        let values = all_values(batches);
        assert_eq!((found.rows, found.sum), (values.len() as i64, values.iter().sum()));
        assert!(matches!(ended, StreamEnd::Complete), "{ended:?}");
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn a10_arrow_cpp_receives_our_failure() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for at in [0, 1, 20] {
        let batches =
            (0..30).map(
                move |number| {
                    if number == at { Err(Error::value("the disk is gone")) } else { record(number) }
                },
            );
        let Consumed { found, ended, forgotten } = consumed(peer, 3, Box::new(batches), i64::MAX)?;
        // Arrow C++ may return or drop batches that it took before the error; `balance` counts the releases.
        assert!(forgotten <= 3 && found.batches + forgotten <= at as i64, "{forgotten} of {at}");
        assert!(found.error().contains("the disk is gone"), "{}", found.error());
        assert!(matches!(ended, StreamEnd::Failed(Error::Value { .. })), "{ended:?}");
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn a8_arrow_cpp_cancels_in_the_middle_and_our_stream_stops() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for most in [0, 1, 7] {
        let Consumed { found, ended, forgotten } = consumed(peer, 3, Box::new((0..).map(record)), most)?;
        assert_eq!((found.batches, found.error()), (most, String::new()));
        assert!(
            matches!(ended, StreamEnd::Cancelled | StreamEnd::Refused(_) | StreamEnd::Stopped),
            "{ended:?}"
        );
        println!(
            "Arrow C++ left after {most} batches, with {forgotten} forgotten; our producer ended as {ended:?}"
        );
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

/// The rows of a batch of Arrow C++'s.
fn rows(
    array: usmq::interop::arrow::ForeignStruct<usmq::interop::arrow::ArrowDeviceArray>,
) -> Result<Vec<i64>> {
    let table = Table::from_structs(Column::import_device(array, ImportOptions::default())?)?;
    table.column("n")?.values()?.to_vec()
}

#[test]
fn a20_to_a25_every_batch_of_arrow_cpp_is_imported() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for (ahead, batches, rows_each) in [(1, 40, 5), (4, 0, 1), (4, 1, 0), (4, 400, 10), (1000, 400, 3)] {
        let (mut stream, handler) = AsyncStreamReader::new(ahead);
        let producer = (peer.producer)(handler.into_raw(), batches, rows_each, -1);
        let field = block_on(stream.field())?;
        assert_eq!(field.children()[0].format(), number_field()?.format());
        let mut seen = 0;
        while let Some(array) = block_on(stream.next()) {
            let expected: Vec<_> = (seen * rows_each..(seen + 1) * rows_each).collect();
            assert_eq!(rows(array?)?, expected);
            seen += 1;
        }
        assert_eq!(seen, batches);
        let mut found = Found::new();
        (peer.finish)(producer, &mut found);
        assert_eq!(found.error(), "");
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn a20_an_error_of_arrow_cpp_follows_the_batches_before_it() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for fails in [0, 3] {
        let (mut stream, handler) = AsyncStreamReader::new(2);
        let producer = (peer.producer)(handler.into_raw(), 9, 4, fails);
        let mut came: Vec<_> = block_on(stream.by_ref().collect());
        let Some(Err(error)) = came.pop() else { panic!("no error at the end") };
        assert!(error.to_string().contains("no such batch"), "{error}");
        assert_eq!(came.len() as i64, fails);
        drop(came);
        (peer.finish)(producer, &mut Found::new());
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn a23_an_error_of_arrow_cpp_after_our_cancellation_is_ignored() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    let mut errors = 0;
    for wanted in [0, 1, 5, 20, 40] {
        let (mut stream, handler) = AsyncStreamReader::new(3);
        let producer = (peer.producer)(handler.into_raw(), i64::MAX, 2, -1);
        for _ in 0..wanted {
            assert!(matches!(block_on(stream.next()), Some(Ok(_))));
        }
        drop(stream);
        let mut found = Found::new();
        (peer.finish)(producer, &mut found);
        errors += usize::from(!found.error().is_empty());
    }
    println!("Arrow C++ took {errors} of 5 cancellations for an error");
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn s1_s2_s3_s10_arrow_cpp_reads_our_device_stream_and_its_failure() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for (count, fails) in [(0, 9), (1, 9), (40, 99), (40, 0), (40, 7)] {
        let batches = (0..count).map(move |number| {
            if number == fails { Err(Error::value("the disk is gone")) } else { record(number) }
        });
        let mut stream = ArrowDeviceArrayStream::of_host(record_field()?, Box::new(batches));
        let mut found = Found::new();
        (peer.read)(&mut stream, &mut found);
        let whole = count.min(fails);
        let values = all_values(whole);
        assert_eq!((found.batches, found.rows), (whole as i64, values.len() as i64));
        assert_eq!(found.sum, values.iter().sum::<i64>());
        assert_eq!(found.error().contains("the disk is gone"), fails < count, "{}", found.error());
        assert!(stream.is_released(), "Arrow C++ has taken it over");
    }
    wait_for_memory(peer, before)?;
    balance.check()
}

#[test]
fn s10_a_device_stream_of_arrow_cpp_is_read_to_end_or_failure() -> Result<()> {
    let Some(peer) = peer() else { return Ok(()) };
    let (balance, before) = (Balance::new()?, (peer.bytes)());
    for (count, fails) in [(0, 9), (1, 9), (40, 99), (40, 0), (40, 7)] {
        let (mut stream, mut found) = (ArrowDeviceArrayStream::empty(), Found::new());
        (peer.stream)(count, 11, fails, &mut stream, &mut found);
        assert_eq!(found.error(), "");
        // SAFETY: Arrow C++ has filled it.
        let mut arrays = StreamReader::new(unsafe { ForeignStruct::take(&mut stream) })?;
        let mut numbers = Vec::new();
        let mut error = None;
        for array in arrays.by_ref() {
            match array {
                Ok(array) => {
                    let batch = Column::import_device(array, ImportOptions::default())?;
                    numbers.extend(batch.children()[0].values()?.to_vec::<i64>()?);
                }
                Err(told) => error = Some(told.to_string()),
            }
        }
        assert_eq!(numbers, (0..count.min(fails) * 11).collect::<Vec<_>>());
        assert_eq!(error.is_some_and(|text| text.contains("no such batch")), fails < count);
        assert!(arrays.next().is_none(), "the end stays the end");
    }
    wait_for_memory(peer, before)?;
    balance.check()
}
