//! Faults in imports and exports (array interface, Arrow, DLPack), profiles and the doctor. Owners are released once.

use crate::common::{LOOSE, Work, advanced, states_of};
use crate::harness::{Sweep, Threads};
use crate::memory::expect;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use usmq::interop::arrow::{
    ArrowArrayStream, ArrowAsyncDeviceStreamHandler, ArrowDeviceArrayStream, AsyncExport, AsyncStreamReader,
    Batches, Column, ColumnOrTable, Field, ImportOptions, StreamEnd, StreamReader, SyncMode, Table,
};
use usmq::interop::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, Destination, Export, ForeignTensor, Import, Order, adopt,
    device_of, export, import, lend, work_queue, work_stream,
};
use usmq::interop::suai::{self, Descriptor, SyclObject};
use usmq::profile::Session;
use usmq::{Array, Error, Queue, Result, UsmKind};

const HOST: ImportOptions<'_> = ImportOptions { queue: None, kind: Some(UsmKind::Host), columns: None };

/// The number of live owners of foreign memory.
static OWNERS: AtomicI64 = AtomicI64::new(0);

struct Owner(#[allow(dead_code, reason = "held, not read")] Array);

impl Owner {
    fn of(array: &Array) -> Box<Self> {
        OWNERS.fetch_add(1, Ordering::SeqCst);
        Box::new(Self(array.clone()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        OWNERS.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn all(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    array_interface(sweep, home)?;
    arrow(sweep, home)?;
    dlpack(sweep, home)?;
    reports(sweep, home)?;
    sweep.settled("owners of foreign memory", || OWNERS.load(Ordering::SeqCst) == 0);
    Ok(())
}

/// The array as that of another library which works on `queue`.
fn foreign(array: &Array, queue: &Queue) -> Result<Array> {
    let shape = array.shape().to_vec();
    let (pointer, dtype) = (array.address(), array.dtype());
    let descriptor = Descriptor { pointer, readonly: false, shape, strides: None, offset: 0, dtype };
    // SAFETY: the owner keeps the array.
    unsafe { suai::import(&descriptor, &SyclObject::Queue(queue.clone()), Owner::of(array)) }
}

fn array_interface(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let theirs = Queue::new(home, None, LOOSE)?;
    let work = Work::new(home)?;
    let ours = || states_of(&[1; 500], home);
    let still = |x: &Array| expect(x.to_vec::<u32>()?, vec![1; 500]);
    sweep.run("array interface: export", ours, |x| suai::export(x).map(drop), |x, _| still(x));
    sweep.run("array interface: import", ours, |x| foreign(x, home), |x, _| still(x));
    sweep.run(
        "array interface: import by context",
        ours,
        |x| {
            let shape = x.shape().to_vec();
            let (pointer, dtype) = (x.address(), x.dtype());
            let descriptor = Descriptor { pointer, readonly: false, shape, strides: None, offset: 0, dtype };
            // SAFETY: the owner keeps the array.
            unsafe { suai::import(&descriptor, &SyclObject::Context(home.context().clone()), Owner::of(x)) }
        },
        |x, _| still(x),
    );
    // Between two barriers on the other library's queue; a later call releases the owner.
    sweep.run(
        "array interface: kernel on foreign memory, dropped",
        ours,
        |x| {
            let x = foreign(x, &theirs)?;
            work.advance(home, &x, 3).map(drop)
        },
        |x, done| {
            theirs.wait()?;
            home.wait()?;
            let found = x.to_vec::<u32>()?;
            let (old, new) = (vec![1; 500], vec![advanced(1, 3); 500]);
            expect(found == new || done.is_none() && found == old, true)
        },
    );
    sweep.run(
        "array interface: copies from and to foreign memory",
        ours,
        |x| {
            let x = foreign(x, &theirs)?.on_queue(home)?;
            x.copy_from_slice(&[1u32; 500])?;
            x.to_vec::<u32>()
        },
        |x, read| {
            read.map_or(Ok(()), |read| expect(read, vec![1; 500]))?;
            still(x)
        },
    );
    // Our memory, exported on a queue, returns to the pool only after another barrier on it.
    sweep.run(
        "array interface: export, drop, allocate",
        || Ok(()),
        |()| {
            let x = ours()?.on_queue(&theirs)?;
            suai::export(&x)?;
            work.advance(&theirs, &x, 2)?;
            drop(x);
            ours()?.to_vec::<u32>()
        },
        |(), read| read.map_or(Ok(()), |read| expect(read, vec![1; 500])),
    );
    Ok(())
}

fn arrow(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..300).map(|n| (n % 7 != 0).then_some(n))));
    let text: ArrayRef = Arc::new(StringArray::from_iter((0..300).map(|n| Some(format!("text {n}")))));
    let batch = RecordBatch::try_from_iter([("n", numbers), ("t", text.clone())])
        .map_err(|error| Error::value(error.to_string()))?;
    let table = || Table::from_arrow(&batch, ImportOptions { queue: Some(home), ..ImportOptions::default() });
    let column =
        || Column::from_arrow("t", &text, ImportOptions { queue: Some(home), ..ImportOptions::default() });
    let same = |table: &Table| expect(table.to_arrow()? == [batch.clone()], true);
    let whole = |column: &Column| expect(column.to_arrow()?.as_ref() == text.as_ref(), true);
    sweep.run(
        "arrow: from host",
        || Ok(()),
        |()| table(),
        |(), made| made.map_or(Ok(()), |made| same(&made)),
    );
    sweep.run("arrow: to host", table, Table::to_arrow, |table, made| {
        made.map_or(Ok(()), |made| expect(made == [batch.clone()], true))?;
        same(table)
    });
    for ready in [SyncMode::Event, SyncMode::Now] {
        let export = |column: &Column| column.export_device(ready);
        sweep.run(&format!("arrow: export_device ({ready:?})"), column, export, |column, made| {
            made.map_or(Ok(()), |made| {
                whole(&Column::import_device(made.into(), ImportOptions::default())?)
            })?;
            whole(column)
        });
        let round = |column: &Column| {
            let made = column.export_device(ready)?;
            Column::import_device(made.into(), ImportOptions::default())
        };
        sweep.run(&format!("arrow: export and import ({ready:?})"), column, round, |column, made| {
            made.map_or(Ok(()), |made| whole(&made))?;
            whole(column)
        });
        // Only device memory has these null counts and lengths of text.
        let read = |column: &Column| {
            let made = column.export_device(ready)?;
            let made = Column::import_device(made.into(), ImportOptions::default())?;
            Ok((made.null_count()?, made.to_arrow()?))
        };
        sweep.run(&format!("arrow: import and read ({ready:?})"), column, read, |column, found| {
            found.map_or(Ok(()), |found| expect(found.0 == 0 && found.1.as_ref() == text.as_ref(), true))?;
            whole(column)
        });
    }
    let on_host = || Column::from_arrow("t", &text, HOST);
    sweep.run(
        "arrow: export_host and import",
        on_host,
        |column| Column::import(column.export_host()?.into(), ImportOptions::default()),
        |column, made| {
            made.map_or(Ok(()), |made| whole(&made))?;
            whole(column)
        },
    );
    sweep.run("arrow: converted to host USM", table, Table::to_host, |table, made| {
        made.map_or(Ok(()), |made| same(&made))?;
        same(table)
    });
    sweep.run("arrow: pack and unpack", table, pack, |table, made| {
        made.map_or(Ok(()), |made| same(&made))?;
        same(table)
    });
    let batches = |table: &Table| table.batches().to_vec();
    sweep.run(
        "arrow: a device stream, as producer and consumer",
        table,
        |table| {
            let columns = batches(table).into_iter().map(Ok);
            let stream = ArrowDeviceArrayStream::new(table.schema().clone(), Box::new(columns));
            ColumnOrTable::from_device_stream(stream.into(), ImportOptions::default())
        },
        |table, made| {
            if let Some(ColumnOrTable::Table(made)) = made {
                same(&made)?;
            }
            same(table)
        },
    );
    sweep.run(
        "arrow: a host stream, as producer and consumer",
        table,
        |table| {
            let columns = batches(&table.to_host()?).into_iter().map(Ok);
            let stream = ArrowArrayStream::new(table.schema().clone(), Box::new(columns));
            let mut arrays = StreamReader::new(stream.into())?;
            let array = arrays.next().ok_or_else(|| Error::value("no batch"))?;
            Table::from_structs(Column::import(array?, ImportOptions::default())?)
        },
        |table, made| {
            made.map_or(Ok(()), |made| same(&made))?;
            same(table)
        },
    );
    let came = |column: &Column, read: Option<Vec<Column>>| {
        read.map_or(Ok(()), |read| read.iter().try_for_each(whole))?;
        whole(column)
    };
    let on_host = || Column::from_arrow("t", &text, HOST);
    for (name, threads, start) in [
        ("arrow: an asynchronous stream, its consumer", Threads::This, AsyncExport::start as Start),
        ("arrow: an asynchronous stream, its producer", Threads::Others, AsyncExport::start),
        (
            "arrow: an asynchronous stream for the host, its consumer",
            Threads::This,
            AsyncExport::start_on_host,
        ),
        (
            "arrow: an asynchronous stream for the host, its producer",
            Threads::Others,
            AsyncExport::start_on_host,
        ),
    ] {
        sweep.run_on(threads, name, &[], on_host, |column| asynchronous(column, start), came);
    }
    Ok(())
}

type Start = unsafe fn(*mut ArrowAsyncDeviceStreamHandler, Arc<Field>, Batches) -> Result<AsyncExport>;

/// The column, sent twice through the asynchronous interface.
fn asynchronous(column: &Column, start: Start) -> Result<Vec<Column>> {
    let (mut stream, handler) = AsyncStreamReader::new(1);
    let batches = Box::new([column.clone(), column.clone()].into_iter().map(Ok));
    // SAFETY: only this producer gets the handler.
    let producing = unsafe { start(handler.into_raw(), column.field().clone(), batches) }?;
    let read = block_on(async {
        stream.field().await?;
        let mut read = Vec::new();
        while let Some(array) = stream.next().await {
            read.push(Column::import_device(array?, ImportOptions::default())?);
        }
        Ok::<_, Error>(read)
    });
    drop(stream);
    let ended = producing.wait();
    match (read?, ended) {
        (read, StreamEnd::Complete) => Ok(read),
        (_, ended) => Err(Error::value(format!("the consumer has everything, the producer {ended:?}"))),
    }
}

fn pack(table: &Table) -> Result<Table> {
    let packed = table.pack()?;
    let frames = packed.buffers.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    Table::unpack(&packed.header, &frames, table.queue())
}

fn dlpack(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let theirs = Queue::new(home, None, LOOSE)?;
    let ours = || states_of(&[1; 500], home);
    let still = |x: &Array| expect(x.to_vec::<u32>()?, vec![1; 500]);
    let orders = [("wait", Order::Wait), ("queue", Order::Queue(&theirs)), ("none", Order::Unordered)];
    for (name, order) in orders {
        let asked = Export { order, ..Export::default() };
        sweep.run(
            &format!("dlpack: export and import, order: {name}"),
            ours,
            |x| import::<DLManagedTensorVersioned>(export(x, asked)?.into(), Import::default()),
            |x, made| {
                theirs.wait()?;
                made.map_or(Ok(()), |made| still(&made))?;
                still(x)
            },
        );
        sweep.run(
            &format!("dlpack: lend, order: {name}"),
            ours,
            |x| lend(x, order).map(drop),
            |x, _| still(x),
        );
    }
    let to_host = Export { destination: Some(Destination { kind: 1, id: 0 }), ..Export::default() };
    sweep.run(
        "dlpack: export to and import from the host",
        ours,
        |x| import::<DLManagedTensor>(export(x, to_host)?.into(), Import::default()),
        |x, made| {
            made.map_or(Ok(()), |made| still(&made))?;
            still(x)
        },
    );
    sweep.run(
        "dlpack exchange: adopt",
        ours,
        |x| {
            let made: ForeignTensor<DLManagedTensorVersioned> = export(x, Export::default())?.into();
            let raw = made.into_raw();
            // SAFETY: our own tensor, which is not shared.
            unsafe { adopt(raw, Ok::<_, Error>) }.inspect_err(|_| {
                // SAFETY: after an error it is still the caller's, which deletes it.
                drop(unsafe { ForeignTensor::from_raw(raw) });
            })
        },
        |x, made| {
            made.map_or(Ok(()), |made| still(&made))?;
            still(x)
        },
    );
    sweep.run(
        "dlpack exchange: queue and stream of a device",
        ours,
        |x| work_queue(device_of(x))?.map(|queue| work_stream(&queue)).transpose().map(drop),
        |x, _| still(x),
    );
    Ok(())
}

fn reports(sweep: &mut Sweep, home: &Queue) -> Result<()> {
    let work = Work::new(home)?;
    let ours = || states_of(&[1; 500], home);
    sweep.run(
        "profile of a launch and a copy",
        ours,
        |x| {
            let session = Session::start();
            let result = work.advance(home, x, 3).and_then(|_| x.to_vec::<u32>());
            // Events whose end was not observed are left out; others are complete.
            let profile = session.finish()?;
            result.map(|read| (profile, read))
        },
        |_, found| found.map_or(Ok(()), |(_, read)| expect(read, vec![advanced(1, 3); 500])),
    );
    sweep.run(
        "doctor",
        || Ok(()),
        |()| Ok(usmq::doctor().to_string()),
        |(), report| report.map_or(Ok(()), |report| expect(report.is_empty(), false)),
    );
    Ok(())
}
