//! The usmq side of `make bench`: answers `row side count` on stdin with nanoseconds per operation; see
//! run.py.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use usmq::profile::Session;
use usmq::{
    Array, DType, Graph, Kernel, Queue, QueueProperties, UsmKind, capture, current_queue, with_queue,
};

/// The kernels of the launch rows, the same text that the C++ program compiles.
const SOURCE: &str = include_str!("axpy.cpp");
const ITEMS: usize = 256;
const LAUNCHES: usize = 1000;
const HOPS: usize = 100;
/// The launches of a graph.
const CHAIN: usize = 10;
const SMALL: usize = 4096;
const LARGE: usize = 64 << 20;
/// 0.3 to 1.1 s on two cores.
const LONG_ITEMS: usize = 1 << 16;
const LONG_STEPS: u32 = 110_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rust: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<(), Failure> {
    let bench = Bench::new()?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let [row, side, count] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("{line:?} is not a request").into());
        };
        println!("{}", bench.round(row, side, count.parse()?)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Bench {
    queue: Queue,
    kernel: Kernel,
    spin: Kernel,
    long: Array,
    x: Array,
    y: Array,
    /// Large enough for every copy; `there` is on a second in-order queue of the device and context.
    small: [Array; 2],
    large: [Array; 2],
    there: Array,
    /// Ten launches.
    graph: Graph,
}

impl Bench {
    fn new() -> Result<Self, Failure> {
        let queue = current_queue()?;
        // The cache returns one queue per set of properties, so profiling distinguishes the second one, as in
        // peer.cc.
        let other = Queue::new(&queue, None, QueueProperties { profiling: true, ..Default::default() })?;
        let bytes = |count: usize, queue: &Queue| -> Result<Array, Failure> {
            let array = Array::uninit([count], DType::U8, UsmKind::Device, queue)?;
            array.fill(0u8)?;
            array.wait()?;
            Ok(array)
        };
        let kernel = Kernel::from_sycl(SOURCE, "axpy")?;
        let (x, y) = (Array::zeros::<f32>([ITEMS])?, Array::zeros::<f32>([ITEMS])?);
        let graph = capture(|| (0..CHAIN).try_for_each(|_| launch(&kernel, &x, &y).map(drop)))?;
        Ok(Self {
            kernel,
            graph,
            spin: Kernel::from_sycl(SOURCE, "spin")?,
            long: Array::zeros::<u32>([LONG_ITEMS])?,
            x,
            y,
            small: [bytes(SMALL, &queue)?, bytes(SMALL, &queue)?],
            large: [bytes(LARGE, &queue)?, bytes(LARGE, &queue)?],
            there: bytes(SMALL, &other)?,
            queue,
        })
    }

    fn round(&self, row: &str, side: &str, count: usize) -> Result<f64, Failure> {
        match row {
            "rust.current_queue" => with_queue(&self.queue, || {
                time(count, || {
                    black_box(current_queue()?);
                    Ok(())
                })
            }),
            "rust.launch_wait" => time(count, || Ok(self.launch(&self.x, &self.y)?.wait()?)),
            "rust.long_kernel" => time(count, || Ok(self.launch_long()?.wait()?)),
            "rust.launch_throughput" => Ok(time(count / LAUNCHES, || self.launch_many())? / LAUNCHES as f64),
            "profile.off_wait" => {
                drop(Session::start());
                time(count, || Ok(self.launch(&self.x, &self.y)?.wait()?))
            }
            "profile.off_throughput" => {
                drop(Session::start());
                Ok(time(count / LAUNCHES, || self.launch_many())? / LAUNCHES as f64)
            }
            "profile.on_wait" => {
                let session = (side == "usmq").then(Session::start);
                let taken = time(count, || Ok(self.launch(&self.x, &self.y)?.wait()?));
                drop(session);
                taken
            }
            "profile.on_throughput" => {
                let session = (side == "usmq").then(Session::start);
                let taken = time(count / LAUNCHES, || self.launch_many())? / LAUNCHES as f64;
                drop(session);
                Ok(taken)
            }
            "rust.copy_4k_wait" => time(count, || copy(&self.small)),
            "rust.copy_64m" => time(count, || copy(&self.large)),
            "replay.rust_chain10" | "replay.graph" => time(count, || Ok(self.graph.replay()?.wait()?)),
            "rust.two_queue_chain" => Ok(time(count / HOPS, || self.chain())? / HOPS as f64),
            "order.many_queues" => self.many_queues(if side == "usmq" { 64 } else { 2 }, count),
            "rust.threads" => self.threads(if side == "usmq" { 2 } else { 1 }, count),
            _ => match row.strip_prefix("rust.alloc_free.") {
                Some(bytes) => self.alloc_free(bytes.parse()?, count),
                None => Err(format!("there is no row {row:?}").into()),
            },
        }
    }

    fn alloc_free(&self, bytes: usize, count: usize) -> Result<f64, Failure> {
        time(count, || {
            black_box(Array::uninit([bytes], DType::U8, UsmKind::Device, &self.queue)?);
            Ok(())
        })
    }

    fn launch(&self, x: &Array, y: &Array) -> usmq::Result<usmq::Event> {
        launch(&self.kernel, x, y)
    }

    fn launch_long(&self) -> usmq::Result<usmq::Event> {
        let args = [LONG_STEPS.into(), (&self.long).into()];
        // SAFETY: the kernel reads and writes one element of its array for each work-item.
        unsafe { self.spin.launch([LONG_ITEMS], &args) }
    }

    fn launch_many(&self) -> Result<(), Failure> {
        for _ in 0..LAUNCHES {
            self.launch(&self.x, &self.y)?;
        }
        Ok(self.queue.wait()?)
    }

    /// Each copy reads the result of the previous one, on the other queue.
    fn chain(&self) -> Result<(), Failure> {
        let [here, there] = [&self.small[0], &self.there];
        for hop in 0..HOPS {
            let (target, source) = if hop % 2 == 0 { (here, there) } else { (there, here) };
            target.assign(source)?;
        }
        Ok(there.wait()?)
    }

    /// Nanoseconds per operation in each thread, averaged over all threads. Each has its own scope and queue;
    /// they share the pool, the device and the runtime.
    fn threads(&self, threads: usize, count: usize) -> Result<f64, Failure> {
        let start = Barrier::new(threads);
        let work = |queue: &Queue| {
            with_queue(queue, || {
                self.alloc_launch_free(count / 8)?;
                start.wait();
                let begin = Instant::now();
                self.alloc_launch_free(count)?;
                Ok(begin.elapsed().as_secs_f64() * 1e9 / count as f64)
            })
        };
        let times: Result<Vec<f64>, Failure> = std::thread::scope(|scope| {
            let queues = [&self.queue, self.there.queue()];
            let running: Vec<_> = queues[..threads].iter().map(|queue| scope.spawn(|| work(queue))).collect();
            running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
        });
        Ok(times?.iter().sum::<f64>() / threads as f64)
    }

    /// Launches on queues of one context in turn, each with arrays of its own.
    fn many_queues(&self, queues: usize, count: usize) -> Result<f64, Failure> {
        let arrays = |_| -> usmq::Result<[Array; 2]> {
            let queue = Queue::builder(&self.queue).uncached().build()?;
            let zeros = || Array::builder::<f32>(ITEMS).queue(&queue).zeroed().build();
            Ok([zeros()?, zeros()?])
        };
        let arrays = (0..queues).map(arrays).collect::<usmq::Result<Vec<_>>>()?;
        let seconds = time(count / queues, || {
            for [x, y] in &arrays {
                self.launch(x, y)?;
            }
            Ok(())
        })?;
        arrays.iter().try_for_each(|[_, y]| y.wait())?;
        Ok(seconds / queues as f64)
    }

    fn alloc_launch_free(&self, count: usize) -> Result<(), Failure> {
        let x = Array::zeros::<f32>([ITEMS])?;
        for _ in 0..count {
            self.launch(&x, &Array::empty::<f32>([ITEMS])?)?;
        }
        Ok(current_queue()?.wait()?)
    }
}

fn launch(axpy: &Kernel, x: &Array, y: &Array) -> usmq::Result<usmq::Event> {
    let args = [2.0f32.into(), x.into(), y.into(), (ITEMS as u64).into()];
    // SAFETY: the kernel reads x and writes y below its last argument, which is the length of both.
    unsafe { axpy.launch([ITEMS], &args) }
}

fn copy([source, target]: &[Array; 2]) -> Result<(), Failure> {
    target.assign(source)?;
    Ok(target.wait()?)
}

/// Nanoseconds per operation, after a warm-up that is not counted.
fn time(count: usize, mut operation: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    for _ in 0..count / 8 + 1 {
        operation()?;
    }
    let start = Instant::now();
    for _ in 0..count {
        operation()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
}
