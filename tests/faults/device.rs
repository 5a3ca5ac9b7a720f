//! Faults in devices, contexts, queues, scopes and kernels; each operation creates uncached objects.

use crate::common::{SOURCE, states_of};
use crate::harness::{Sweep, Threads};
use crate::memory::expect;
use crate::spirv::spirv;
use std::sync::atomic::{AtomicUsize, Ordering};
use usmq::{
    Array, Context, DType, Kernel, KernelOptions, Priority, Queue, QueueProperties, Scope, Timer, UsmKind,
    collocate, current_queue, devices, platforms, set_default_queue, with_queue,
};

const OPENCL: &str = "kernel void add(global uint *x, uint term) { x[get_global_id(0)] += term; }";

/// Plain SYCL leaks some KiB of each context that had a copy on its in-order queue, and most of the memory of its builds.
/// With dpctl these are 23 KiB and 1.9 MiB; a context without a copy and a build leaks nothing.
pub const HEAP: [&str; 1] = ["the heap of the driver"];

/// A queue keeps the queues of its timers for later ones, with the event of their last mark.
const TIMERS: [&str; 2] = ["bridge::Queue", "bridge::Event"];

/// Built code lives as long as its context; that of a default context lives as long as the process.
const KEPT: [&str; 2] = ["Kernel", "Bundle"];

pub fn all(sweep: &mut Sweep, home: &Queue) {
    places(sweep, home);
    kernels(sweep, home);
}

fn places(sweep: &mut Sweep, home: &Queue) {
    let none = || Ok(());
    sweep.run(
        "devices",
        none,
        |()| devices(),
        |(), list| list.map_or(Ok(()), |list| expect(list.is_empty(), false)),
    );
    sweep.run("device: aspects", none, |()| home.device().aspects(), |(), _| Ok(()));
    sweep.run("device: properties", none, |()| home.device().properties().cloned(), |(), _| Ok(()));
    sweep.run(
        "platforms",
        none,
        |()| platforms(),
        |(), list| list.map_or(Ok(()), |list| expect(list.is_empty(), false)),
    );
    sweep.run(
        "context: new, devices",
        none,
        |()| Context::new(&[home.device().clone()])?.devices(),
        |(), list| list.map_or(Ok(()), |list| expect(list, vec![home.device().clone()])),
    );
    sweep.run(
        "context: to and from another library",
        none,
        |()| {
            let address = home.context().to_raw()?;
            // SAFETY: the address of a live context.
            let again = unsafe { Context::from_raw(address) };
            // SAFETY: from `to_raw`, freed once.
            unsafe { Context::free_raw(address) };
            again
        },
        |(), again| again.map_or(Ok(()), |again| expect(&again == home.context(), true)),
    );
    sweep.run(
        "queue: to and from another library",
        none,
        |()| {
            let address = home.to_raw()?;
            // SAFETY: the address of a live queue.
            let again = unsafe { Queue::from_raw(address) };
            // SAFETY: from `to_raw`, freed once.
            unsafe { Queue::free_raw(address) };
            again
        },
        |(), again| again.map_or(Ok(()), |again| expect(&again == home, true)),
    );
    let fresh = || Context::new(&[home.device().clone()]);
    let loose = QueueProperties { in_order: false, profiling: true, ..Default::default() };
    // Objects created in a context are released with it.
    sweep.run("queue: new", fresh, |context| Queue::new(home, Some(context), loose), |_, _| Ok(()));
    let urgent = QueueProperties { priority: Priority::High, ..Default::default() };
    sweep.run(
        "queue: new, with a priority",
        fresh,
        |context| Queue::new(home, Some(context), urgent),
        |_, _| Ok(()),
    );
    sweep.run_on(
        Threads::This,
        "timer: start, stop, the device's time",
        &TIMERS,
        none,
        |()| Timer::start(home)?.stop()?.device(),
        |(), _| Ok(()),
    );
    sweep.run(
        "queue: barrier after an event",
        none,
        |()| home.barrier(&[home.barrier(&[])?])?.wait(),
        |(), _| Ok(()),
    );
    sweep.run(
        "first array of each kind in a context",
        fresh,
        |context| {
            let queue = Queue::new(home, Some(context), QueueProperties::default())?;
            UsmKind::ALL
                .into_iter()
                .try_for_each(|kind| Array::uninit([10], DType::U8, kind, &queue).map(drop))
        },
        |_, _| Ok(()),
    );
    let add = Kernel::from_opencl(
        OPENCL,
        "add",
        KernelOptions { queue: Some(home.clone()), ..KernelOptions::default() },
    );
    let launched = |context: &Context| {
        let queue = Queue::new(home, Some(context), QueueProperties::default())?;
        let x = states_of(&[1; 100], &queue)?;
        // SAFETY: one work-item for each element.
        unsafe { add.clone()?.launch([100], &[(&x).into(), 4u32.into()]) }?;
        collocate(&x, home)
    };
    // A kernel caches the builds of the last few such contexts, so fill that cache first.
    for _ in 0..5 {
        let _ = fresh().and_then(|context| launched(&context));
    }
    sweep.run_on(
        Threads::This,
        "first launch in a context, and a copy to another",
        &HEAP,
        fresh,
        launched,
        |_, x| x.map_or(Ok(()), |x| expect(x.to_vec::<u32>()?, vec![5; 100])),
    );
    let before = current_queue();
    sweep.run(
        "with_queue, by filter string",
        none,
        |()| with_queue("cpu", current_queue),
        |(), _| expect(current_queue().ok(), before.clone().ok()),
    );
    sweep.run(
        "set_default_queue, by filter string",
        none,
        |()| set_default_queue("cpu:0"),
        |(), _| set_default_queue(None::<&str>),
    );
    sweep.run(
        "scope: capture and enter on another thread",
        none,
        |()| with_queue(home, || Ok(Scope::capture())).and_then(|scope: Scope| scope.enter(current_queue)),
        |(), queue| queue.map_or(Ok(()), |queue| expect(&queue == home, true)),
    );
}

fn kernels(sweep: &mut Sweep, home: &Queue) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // The source was never built, so no cache has its kernel.
    let fresh = |text: &str| format!("// {}\n{text}", NEXT.fetch_add(1, Ordering::Relaxed));
    let options = || KernelOptions { queue: Some(home.clone()), ..KernelOptions::default() };
    let x = || states_of(&[1; 100], home);
    let launch = |kernel: &Kernel, x: &Array| {
        // SAFETY: one work-item for each element.
        unsafe { kernel.launch([100], &[x.into(), 4u32.into()]) }.map(drop)
    };
    let added = |x: &Array, done: Option<()>| {
        expect(x.to_vec::<u32>()?, vec![if done.is_some() { 5 } else { 1 }; 100])
    };
    sweep.run_on(
        Threads::This,
        "build and launch, OpenCL C",
        &KEPT,
        || Ok((x()?, fresh(OPENCL))),
        |(x, source)| launch(&Kernel::from_opencl(source, "add", options())?, x),
        |(x, _), done| added(x, done),
    );
    let with_length = || {
        // Unreachable trailing words would be refused, so the name makes it a different module.
        Ok((x()?, spirv(), format!("-DN={}", NEXT.fetch_add(1, Ordering::Relaxed))))
    };
    sweep.run_on(
        Threads::This,
        "build and launch, SPIR-V",
        &KEPT,
        with_length,
        |(x, module, flag)| {
            let options = KernelOptions { flags: vec![flag.clone()], ..options() };
            // SAFETY: a valid module.
            launch(&unsafe { Kernel::from_spirv(module, "add", options) }?, x)
        },
        |(x, ..), done| added(x, done),
    );
    sweep.run_on(
        Threads::This,
        "build, SYCL C++",
        &KEPT,
        || Ok(fresh(SOURCE)),
        |source| Kernel::from_sycl_with(source, "place1", options()).map(drop),
        |_, _| Ok(()),
    );
    let axpy = crate::common::kernel("axpy", home);
    let arrays =
        || Ok([states_of(&[0; 100], home)?.cast(DType::F32)?, states_of(&[2; 100], home)?.cast(DType::F32)?]);
    sweep.run(
        "launch with scalars and two arrays",
        arrays,
        |[y, x]| {
            // SAFETY: axpy writes the elements of y.
            unsafe { axpy.clone()?.launch([100], &[2f32.into(), x.into(), y.into(), 100u64.into()]) }
        },
        |[y, _], event| {
            let done = event.is_some();
            event.map_or(Ok(()), |event| event.wait())?;
            expect(y.to_vec::<f32>()?, vec![if done { 4.0 } else { 0.0 }; 100])
        },
    );
}
