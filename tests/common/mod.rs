//! Shared code of device tests: kernel sources and their host model, queues, random numbers.

#![allow(dead_code, reason = "every test binary uses a part of this")]

pub mod gate;

use usmq::{
    Array, Context, DType, Device, Event, Kernel, KernelOptions, Launch, Partition, Priority, Queue,
    QueueProperties,
};
use usmq::{Result, Target, UsmKind, devices};

/// `advance` steps each state `steps` times along a chain that no compiler can shorten: `steps` sets how long a
/// command runs, and a lost, repeated or reordered command changes every bit. `mix` folds its input into
/// a digest, so that one read at the end checks every round.
pub const SOURCE: &str = r#"
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;
#define KERNEL(n) extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<n>)) void
#define ITEM syclext::this_work_item::get_nd_item<1>().get_global_linear_id()

static unsigned after(unsigned state, unsigned steps) {
  for (unsigned k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
  return state;
}
KERNEL(1) advance(unsigned *x, unsigned steps) { x[ITEM] = after(x[ITEM], steps); }
KERNEL(1) advance_into(const unsigned *x, unsigned *y, unsigned steps) { y[ITEM] = after(x[ITEM], steps); }
KERNEL(1) mix(const unsigned *x, unsigned *digest) { digest[ITEM] = digest[ITEM] * 31u + x[ITEM]; }
KERNEL(1) nothing(unsigned unused) {}
KERNEL(1) axpy(float a, const float *x, float *y, unsigned long n) { if (ITEM < n) y[ITEM] += a * x[ITEM]; }
KERNEL(1) place1(unsigned *x) { x[ITEM] = ITEM; }
KERNEL(2) place2(unsigned *x) {
  auto item = syclext::this_work_item::get_nd_item<2>();
  x[item.get_global_linear_id()] = 100 * item.get_global_id(0) + item.get_global_id(1);
}
KERNEL(3) place3(unsigned *x) {
  auto item = syclext::this_work_item::get_nd_item<3>();
  x[item.get_global_linear_id()] = 10000 * item.get_global_id(0) + 100 * item.get_global_id(1) + item.get_global_id(2);
}
KERNEL(2) groups(unsigned *size, unsigned *group, unsigned *place) {
  auto item = syclext::this_work_item::get_nd_item<2>();
  size_t i = item.get_global_linear_id();
  size[i] = 100 * item.get_local_range(0) + item.get_local_range(1);
  group[i] = 100 * item.get_group(0) + item.get_group(1);
  place[i] = 100 * item.get_local_id(0) + item.get_local_id(1);
}
"#;

/// The state after `advance`, computed in as many operations as `steps` has bits.
pub fn advanced(state: u32, mut steps: u32) -> u32 {
    let (mut factor, mut term) = (1u32, 0u32);
    let (mut step_factor, mut step_term) = (1_664_525u32, 1_013_904_223u32);
    while steps > 0 {
        if steps & 1 == 1 {
            factor = factor.wrapping_mul(step_factor);
            term = term.wrapping_mul(step_factor).wrapping_add(step_term);
        }
        step_term = step_term.wrapping_mul(step_factor).wrapping_add(step_term);
        step_factor = step_factor.wrapping_mul(step_factor);
        steps >>= 1;
    }
    state.wrapping_mul(factor).wrapping_add(term)
}

/// As [`advanced`], for every state.
pub fn all_advanced(states: &mut [u32], steps: u32) {
    states.iter_mut().for_each(|state| *state = advanced(*state, steps));
}

/// The host model of `mix`.
pub fn mixed(x: &[u32], digest: &mut [u32]) {
    digest.iter_mut().zip(x).for_each(|(digest, x)| *digest = digest.wrapping_mul(31).wrapping_add(*x));
}

/// The kernels that most tests run. They are safe, since they access exactly the elements of their arrays.
pub struct Work {
    advance: Kernel,
    advance_into: Kernel,
    mix: Kernel,
}

impl Work {
    /// Builds for `queue`'s context now, so that no later launch on it compiles.
    pub fn new(queue: &Queue) -> Result<Self> {
        Ok(Self {
            advance: kernel("advance", queue)?,
            advance_into: kernel("advance_into", queue)?,
            mix: kernel("mix", queue)?,
        })
    }

    pub fn advance(&self, queue: &Queue, x: &Array, steps: u32) -> Result<Event> {
        let launch = Launch { global: &[x.size()], local: None, queue: Some(queue) };
        // SAFETY: one work-item per element of `x`, which is all that an item touches.
        unsafe { self.advance.launch_with(launch, &[x.into(), steps.into()]) }
    }

    pub fn advance_into(&self, queue: &Queue, x: &Array, y: &Array, steps: u32) -> Result<Event> {
        assert_eq!(x.size(), y.size());
        let launch = Launch { global: &[x.size()], local: None, queue: Some(queue) };
        // SAFETY: one work-item per element of both arrays, which is all that an item touches.
        unsafe { self.advance_into.launch_with(launch, &[x.into(), y.into(), steps.into()]) }
    }

    pub fn mix(&self, queue: &Queue, x: &Array, digest: &Array) -> Result<Event> {
        assert_eq!(x.size(), digest.size());
        let launch = Launch { global: &[x.size()], local: None, queue: Some(queue) };
        // SAFETY: one work-item per element of both arrays, which is all that an item touches.
        unsafe { self.mix.launch_with(launch, &[x.into(), digest.into()]) }
    }
}

/// A kernel of [`SOURCE`].
pub fn kernel(name: &str, queue: &Queue) -> Result<Kernel> {
    Kernel::from_sycl_with(
        SOURCE,
        name,
        KernelOptions { queue: Some(queue.clone()), ..KernelOptions::default() },
    )
}

/// An uninitialised array of states in device memory.
pub fn states(count: usize, queue: &Queue) -> Result<Array> {
    Array::uninit([count], DType::U32, UsmKind::Device, queue)
}

/// An array of these states in device memory.
pub fn states_of(values: &[u32], queue: &Queue) -> Result<Array> {
    let array = states(values.len(), queue)?;
    array.copy_from_slice(values)?;
    Ok(array)
}

pub const IN_ORDER: QueueProperties =
    QueueProperties { in_order: true, profiling: false, priority: Priority::Normal };
pub const PROFILING: QueueProperties =
    QueueProperties { in_order: true, profiling: true, priority: Priority::Normal };
pub const LOOSE: QueueProperties =
    QueueProperties { in_order: false, profiling: false, priority: Priority::Normal };
pub const LOOSE_PROFILING: QueueProperties =
    QueueProperties { in_order: false, profiling: true, priority: Priority::Normal };

/// SYCL's default queue: the device that the tests run on unless they need more.
pub fn default_queue() -> Result<Queue> {
    Queue::new(Target::Unset, None, IN_ORDER)
}

/// Four different queues of one device and one context, the in-order one without profiling first.
pub fn four_queues(device: &Device, context: Option<&Context>) -> Result<[Queue; 4]> {
    Ok([
        Queue::new(device, context, IN_ORDER)?,
        Queue::new(device, context, PROFILING)?,
        Queue::new(device, context, LOOSE)?,
        Queue::new(device, context, LOOSE_PROFILING)?,
    ])
}

/// A root device of another context than `queue`'s; `None`, with a printed line, if there is none.
pub fn other_root(queue: &Queue) -> Result<Option<Device>> {
    for device in devices()? {
        let usable = UsmKind::ALL.into_iter().all(|kind| device.has_usm(kind));
        if usable && &device.default_context()? != queue.context() {
            return Ok(Some(device));
        }
    }
    println!("no second root device with USM is visible: the part of this test that needs two is left out");
    Ok(None)
}

/// Two sub-devices of the device; `None`, with a printed line, if it cannot be partitioned.
pub fn two_sub_devices(device: &Device) -> Result<Option<[Device; 2]>> {
    if device.max_sub_devices() < 2 || device.max_compute_units() < 2 {
        println!("{device} cannot be divided: the part of this test that needs sub-devices is left out");
        return Ok(None);
    }
    let parts = device.sub_devices(&Partition::Equally(1))?;
    Ok(parts.first_chunk().cloned())
}

/// One in-order queue per context other than `queue`'s that this machine has: a second root device, a sub-device, a
/// fresh context of the same device.
pub fn queues_elsewhere(queue: &Queue) -> Result<Vec<Queue>> {
    let mut queues =
        vec![Queue::new(queue.device(), Some(&Context::new(&[queue.device().clone()])?), IN_ORDER)?];
    if let Some(root) = other_root(queue)? {
        queues.push(Queue::new(&root, None, IN_ORDER)?);
    }
    if let Some([part, _]) = two_sub_devices(queue.device())? {
        queues.push(Queue::new(&part, None, IN_ORDER)?);
    }
    Ok(queues)
}

/// Random numbers; equal seeds give equal numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    pub fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 up to `end`, which is not included.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) as usize) % end
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
