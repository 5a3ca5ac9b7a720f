//! Launches of a replay: their arguments, ranges, and order with other commands.

use crate::common::{Work, advanced, default_queue, four_queues, states_of};
use usmq::interop::suai;
use usmq::{Arg, Array, Index, Kernel, KernelOptions, Launch, Queue, Result, capture, capture_with};

fn launch(kernel: &Kernel, global: &[usize], local: Option<&[usize]>, args: &[Arg]) -> Result<()> {
    // SAFETY: the kernels of these tests stay inside of their arrays.
    unsafe { kernel.launch_with(Launch { global, local, queue: None }, args) }.map(drop)
}

const ARGUMENTS: &str = "
typedef struct { double first; int numbers[9]; } record;
kernel void arguments(char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, float i, double j,
                      double4 k, record l, global double *out, global const double *in) {
  double all = a + b + c + d + e + f + g + h + i + j + k.x + k.w + l.first + l.numbers[0] + l.numbers[8];
  out[get_global_id(0)] = out[get_global_id(0)] * 0.5 + in[get_global_id(0)] + all;
}
kernel void places(global uint *out) {
  size_t width = get_global_size(0), height = get_global_size(1);
  size_t at = (get_global_id(2) * height + get_global_id(1)) * width + get_global_id(0);
  out[at] = out[at] * 31 + get_global_id(0) + 10 * get_global_id(1) + 100 * get_global_id(2)
    + 1000 * get_local_size(0) + 10000 * get_local_size(1) + 100000 * get_local_size(2) + 1000000 * get_work_dim();
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void required(global uint *out) {
  out[get_global_id(0)] = out[get_global_id(0)] * 31 + get_local_size(0);
}
kernel void reversed(global uint *x, local uint *scratch) {
  size_t i = get_local_id(0), n = get_local_size(0);
  scratch[i] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[i] = scratch[n - 1 - i] + 1;
}
";

/// Runs the launches three times directly and three times as replays of a capture, and compares the arrays.
fn compare<T: usmq::Element + PartialEq + std::fmt::Debug>(
    start: &[T],
    run: impl Fn(&Array) -> Result<()>,
) -> Result<()> {
    let (direct, replayed) = (Array::from_slice(start)?, Array::from_slice(start)?);
    let graph = capture(|| (0..4).try_for_each(|_| run(&replayed)))?;
    for _ in 0..3 {
        (0..4).try_for_each(|_| run(&direct))?;
        graph.replay()?;
    }
    assert_eq!(direct.to_vec::<T>()?, replayed.to_vec::<T>()?);
    Ok(())
}

#[test]
fn each_kind_of_argument_and_range_is_that_of_the_capture() -> Result<()> {
    let kernel = |name: &str| Kernel::from_opencl(ARGUMENTS, name, KernelOptions::default());
    let (arguments, places, required, reversed) =
        (kernel("arguments")?, kernel("places")?, kernel("required")?, kernel("reversed")?);
    let mut record = 0.25f64.to_ne_bytes().to_vec();
    record.extend((1..10i32).flat_map(i32::to_ne_bytes));
    record.extend([0; 4]);
    let other = Array::from_slice(&(0..16u8).map(f64::from).collect::<Vec<_>>())?;
    compare(&[1f64; 16], |out| {
        let args = [
            (-3i8).into(),
            200u8.into(),
            (-30_000i16).into(),
            60_000u16.into(),
            (-2_000_000_000i32).into(),
            4_000_000_000u32.into(),
            (-(1i64 << 40)).into(),
            (1u64 << 41).into(),
            0.5f32.into(),
            0.125f64.into(),
            [1f64, 2.0, 4.0, 8.0].into(),
            Arg::bytes(&record),
            out.into(),
            (&other).into(),
        ];
        launch(&arguments, &[16], None, &args)
    })?;
    for (global, local) in [
        (&[24][..], None),
        (&[24], Some(&[8][..])),
        (&[4, 6], None),
        (&[4, 6], Some(&[2, 3])),
        (&[2, 3, 4], None),
        (&[2, 3, 4], Some(&[1, 3, 2])),
    ] {
        compare(&[7u32; 24], |out| launch(&places, global, local, &[out.into()]))?;
    }
    compare(&[7u32; 8], |out| launch(&required, &[8], Some(&[4]), &[out.into()]))?;
    compare(&[1u32, 2, 3, 4], |x| launch(&reversed, &[4], Some(&[4]), &[x.into(), Arg::local(16)]))
}

#[test]
fn a_kernel_whose_compiler_has_removed_an_argument_runs_in_a_replay() -> Result<()> {
    const SOURCE: &str = r#"
#include <sycl/sycl.hpp>
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(
    (sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void scale(unsigned unused, unsigned *x, unsigned factor, const unsigned *unread) {
  size_t i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_id(0);
  x[i] = x[i] * factor + 1;
}
"#;
    let scale = Kernel::from_sycl(SOURCE, "scale")?;
    let unread = Array::full(8, 1u32)?;
    let run =
        |x: &Array| launch(&scale, &[8], Some(&[4]), &[9u32.into(), x.into(), 3u32.into(), (&unread).into()]);
    let (direct, replayed) = (Array::full(8, 2u32)?, Array::full(8, 2u32)?);
    let graph = capture(|| (0..4).try_for_each(|_| run(&replayed)))?;
    (0..4).try_for_each(|_| run(&direct))?;
    graph.replay()?;
    assert_eq!(direct.to_vec::<u32>()?, replayed.to_vec::<u32>()?, "{}", graph.explain());
    Ok(())
}

#[test]
fn replays_with_recorded_and_exchanged_inputs_alternate() -> Result<()> {
    const STEPS: u32 = 3;
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let arrays: Vec<Array> = (0..4).map(|number| states_of(&[number], &queue)).collect::<Result<_>>()?;
    let graph = capture_with(&[("x", &arrays[0])], || {
        (0..6).try_for_each(|_| work.advance(&queue, &arrays[0], STEPS).map(drop))
    })?;
    let mut expected = [0, 1, 2, 3];
    for round in [0, 1, 1, 0, 0, 2, 3, 0, 1, 0] {
        if round == 0 {
            graph.replay()?
        } else {
            graph.replay_with(&[("x", &arrays[round])])?
        };
        expected[round] = advanced(expected[round], 6 * STEPS);
    }
    // A new array at the address of a released one.
    for _ in 0..20 {
        let other = states_of(&[5], &queue)?;
        graph.replay_with(&[("x", &other)])?;
        assert_eq!(other.to_vec::<u32>()?, [advanced(5, 6 * STEPS)]);
    }
    for (array, expected) in arrays.iter().zip(expected) {
        assert_eq!(array.to_vec::<u32>()?, [expected]);
    }
    Ok(())
}

/// The event of the replay is that of the barrier, which libsycl must not replace by the last event that it knows.
#[test]
fn a_barrier_ends_after_the_launches_before_it() -> Result<()> {
    const STEPS: u32 = 5_000_000;
    let [in_order, second, ..] = four_queues(default_queue()?.device(), None)?;
    let work = Work::new(&in_order)?;
    let (x, y) = (states_of(&[1], &second)?, states_of(&[1], &in_order)?);
    let graph = capture(|| {
        work.advance(&in_order, &y, 1)?;
        work.advance(&in_order, &x, STEPS)?;
        in_order.barrier(&[]).map(drop)
    })?;
    let mut expected = 1;
    for _ in 0..3 {
        graph.replay()?;
        expected = advanced(expected, STEPS);
        // Read on the other queue, after the event only.
        assert_eq!(x.to_vec::<u32>()?, [expected]);
    }
    Ok(())
}

/// A replay and other commands follow each other on one queue, and each kind of wait covers both.
#[test]
fn replays_are_ordered_with_other_commands_on_the_same_queue() -> Result<()> {
    const SIZE: usize = 64;
    let queue = default_queue()?;
    let work = Work::new(&queue)?;
    let x = states_of(&[0; SIZE], &queue)?;
    let graph = capture(|| (0..5).try_for_each(|_| work.advance(&queue, &x, 2000).map(drop)))?;
    let mut copies = Vec::new();
    let mut expected = Vec::new();
    for round in 0..40u32 {
        x.fill(round)?;
        let event = graph.replay()?;
        copies.push(x.copy()?);
        work.advance(&queue, &x, 1)?;
        copies.push(x.copy()?);
        let after = advanced(round, 10_000);
        expected.extend([after, advanced(after, 1)]);
        match round % 5 {
            0 => event.wait()?,
            1 => queue.wait()?,
            2 => queue.barrier(&[])?.wait()?,
            3 => x.wait()?,
            _ => {}
        }
        assert!(round % 5 == 4 || event.done()?, "round {round}");
    }
    for (number, (copy, expected)) in copies.iter().zip(expected).enumerate() {
        assert_eq!(copy.to_vec::<u32>()?, [expected; SIZE], "copy {number}");
    }
    Ok(())
}

/// As soon as another library may submit to a queue, its host tasks may hold back commands of libsycl there.
#[test]
fn a_replay_on_an_exported_queue_stays_in_order() -> Result<()> {
    let queue = Queue::new(default_queue()?.device(), None, crate::common::IN_ORDER)?;
    let work = Work::new(&queue)?;
    let x = states_of(&[3; 16], &queue)?;
    let graph = capture(|| (0..5).try_for_each(|_| work.advance(&queue, &x, 50).map(drop)))?;
    graph.replay()?;
    let exported = suai::export(&x)?;
    for _ in 0..10 {
        work.advance(&queue, &x.index(&[Index::Slice { start: Some(0), stop: None, step: None }])?, 1)?;
        graph.replay()?;
    }
    drop(exported);
    let expected = (0..10).fold(advanced(3, 250), |state, _| advanced(advanced(state, 1), 250));
    assert_eq!(x.to_vec::<u32>()?, [expected; 16]);
    Ok(())
}
