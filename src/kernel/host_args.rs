//! Launches with memory of the host as arguments: used in place where the device reaches it, else copied to the
//! device and, if the kernel may write to it, back.

use super::arg::{Arg, HostArg};
use crate::array::{Array, DType, HostMemory, Layout};
use crate::device::{Event, Queue, UsmKind};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, drop_after, ordered, refuse, try_reserve};
use crate::runtime::interrupt::uninterruptible;
use crate::trace::{Reason, with_reason};
use std::sync::Arc;

/// The allocation's name, for an error.
const PACKED: &str = "the elements of a strided host array";

/// The elements of a strided or unaligned argument in C order, as an array of the same shape.
struct Packed {
    array: Array,
    host: Arc<Allocation>,
}

/// Contiguous arguments without gaps between them, as one allocation on the device.
struct Region {
    array: Array,
    start: usize,
    end: usize,
    host: Arc<Allocation>,
}

/// The place of an argument during the launch.
enum Place {
    /// It has no elements.
    Empty,
    OnHost(Arc<Allocation>),
    /// In the region with this number.
    Region(usize),
    /// In the packed array with this number.
    Packed(usize),
}

/// A host argument: its position among the arguments, its access, and its place.
struct Placed<'a> {
    position: usize,
    arg: &'a HostArg,
    access: Access,
    place: Place,
}

/// The use of each argument by a kernel, and the error for an argument that does not fit.
pub(super) struct Rules<'a> {
    pub(super) uses: Vec<Use>,
    /// The error for the argument with this number.
    pub(super) refuse: &'a dyn Fn(usize, &str) -> Error,
}

/// The use of one argument by a kernel.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) access: Access,
    /// Whether it takes strides, so that the argument is packed only if it is not aligned.
    pub(super) takes_strides: bool,
}

impl Rules<'_> {
    /// Whether a device that reaches the memory of this argument can use it in place.
    fn fits(&self, placed: &Placed<'_>) -> bool {
        let memory = &placed.arg.memory;
        memory.is_plain() || (self.uses[placed.position].takes_strides && memory.element_strides().is_ok())
    }
}

/// Everything that a launch does with its host arguments.
pub(super) struct Transfers<'a> {
    queue: Queue,
    placed: Vec<Placed<'a>>,
    regions: Vec<Region>,
    packed: Vec<Packed>,
}

/// Addresses of the first byte and after the last one; empty without elements.
fn span(memory: &HostMemory) -> Result<(usize, usize)> {
    Ok(memory.span()?.unwrap_or((0, 0)))
}

fn overlap(a: (usize, usize), b: (usize, usize)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl<'a> Transfers<'a> {
    pub(super) fn new(rules: &Rules<'_>, args: &'a [Arg<'a>], queue: &Queue) -> Result<Self> {
        let mut all =
            Self { queue: queue.clone(), placed: Vec::new(), regions: Vec::new(), packed: Vec::new() };
        for (position, arg) in args.iter().enumerate() {
            let Some(host) = arg.host_arg() else { continue };
            refuse(|| format!("a launch with host memory (argument {position})"))?;
            let refuse = |error| match error {
                Error::Value { message: why, .. } => (rules.refuse)(position, &why),
                other => other,
            };
            span(&host.memory).map_err(refuse)?;
            let access = rules.uses[position].access;
            all.placed.push(Placed { position, arg: host, access, place: Place::Empty });
        }
        all.check_overlaps(rules, args)?;
        all.place(rules)?;
        Ok(all)
    }

    /// An error if two arguments share elements, one of them is written, and the kernel would see different memory.
    fn check_overlaps(&self, rules: &Rules<'_>, args: &[Arg<'_>]) -> Result<()> {
        let reaches = self.queue.device().has_system_usm();
        for (number, one) in self.placed.iter().enumerate() {
            let memory = &one.arg.memory;
            for other in &self.placed[number + 1..] {
                let writes = one.access.writes() || other.access.writes();
                let is_packed = !rules.fits(one) || !rules.fits(other);
                if writes
                    && is_packed
                    && !memory.is_same(&other.arg.memory)
                    && share_elements(memory, &other.arg.memory)?
                {
                    let is_aligned = [one, other].map(|placed| placed.arg.memory.element_strides().is_ok());
                    let (why, fix) = match is_aligned {
                        [true, true] => ("strided", "contiguous"),
                        _ => ("unaligned", "aligned"),
                    };
                    return Err((rules.refuse)(
                        other.position,
                        &format!(
                            "it overlaps argument {}, the kernel may write to one of them, and one is {why}, so the \
                             kernel would get a packed copy; pass {fix} views, or a copy()",
                            one.position
                        ),
                    ));
                }
            }
            for (position, arg) in args.iter().enumerate() {
                let Some(array) = arg.array().filter(|array| array.memory_kind().is_host_accessible()) else {
                    continue;
                };
                let writes = one.access.writes() || rules.uses[position].access.writes();
                if writes && !(reaches && rules.fits(one)) && share_elements(memory, &described(array))? {
                    return Err((rules.refuse)(
                        one.position,
                        &format!(
                            "it is the memory of argument {position}, the kernel may write to it, and the device would \
                             get a copy; pass the usmq array for both"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Chooses the place of each argument, and allocates memory on the device.
    fn place(&mut self, rules: &Rules<'_>) -> Result<()> {
        let reaches = self.queue.device().has_system_usm();
        for number in 0..self.placed.len() {
            let memory = &self.placed[number].arg.memory;
            let (start, end) = span(memory)?;
            let host = || Allocation::system(start, end - start, None);
            let place = if start == end {
                Place::Empty
            } else if reaches && rules.fits(&self.placed[number]) {
                Place::OnHost(host()?)
            } else if memory.is_plain() {
                Place::Region(0)
            } else {
                let same = |other: &&Placed<'_>| other.arg.memory.is_same(memory);
                match self.placed[..number].iter().find(same) {
                    Some(Placed { place: Place::Packed(packed), .. }) => Place::Packed(*packed),
                    _ => {
                        let array = Array::uninit(&memory.shape, memory.dtype, UsmKind::Device, &self.queue)?;
                        self.packed.push(Packed { array, host: host()? });
                        Place::Packed(self.packed.len() - 1)
                    }
                }
            };
            self.placed[number].place = place;
        }
        self.place_regions()
    }

    /// Overlapping arguments become one region, so that the kernel sees one allocation as in place.
    fn place_regions(&mut self) -> Result<()> {
        let mut spans = Vec::new();
        for placed in &self.placed {
            if matches!(placed.place, Place::Region(_)) {
                spans.push(span(&placed.arg.memory)?);
            }
        }
        for (start, end) in joined(spans) {
            let host = Allocation::system(start, end - start, None)?;
            // The elements keep the alignment that they have on the host.
            let shift = start % ALIGNMENT;
            let all = Array::uninit([shift + end - start], DType::U8, UsmKind::Device, &self.queue)?;
            let layout = Layout::foreign(&[end - start], None, shift, 1)?;
            let array =
                Array::from_parts(all.shared_allocation(), layout, DType::U8, self.queue.clone(), false);
            self.regions.push(Region { array, start, end, host });
        }
        for placed in &mut self.placed {
            if let Place::Region(number) = &mut placed.place {
                let (start, _) = span(&placed.arg.memory)?;
                let found =
                    self.regions.iter().position(|region| region.start <= start && start < region.end);
                *number = found.unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Copies to the device, submits the kernel and copies back. Returns after all of them.
    pub(super) fn run(&self, submit: impl FnOnce() -> Result<Event>) -> Result<Event> {
        let run = || {
            self.copy_in()?;
            let event = submit()?;
            event.wait()?;
            self.copy_back()?;
            Ok(event)
        };
        // Without an owner, only the caller of the launch keeps the memory.
        let is_owned = self.placed.iter().all(|placed| placed.arg.owner.is_some());
        let result = if is_owned { run() } else { uninterruptible(run) };
        result.inspect_err(|error| self.abandon(error))
    }

    /// The arguments with arrays for the host arguments.
    pub(super) fn replaced<'b>(&self, args: &[Arg<'b>]) -> Result<Vec<Arg<'b>>> {
        self.arrays(args, |placed| match &placed.place {
            Place::Empty => self.new_array(placed),
            Place::OnHost(_) => self.described(placed),
            Place::Region(number) => {
                let region = &self.regions[*number];
                let bytes = region.array.layout().offset() + placed.arg.memory.pointer - region.start;
                self.contiguous(placed, &region.array, bytes)
            }
            Place::Packed(number) => self.contiguous(placed, &self.packed[*number].array, 0),
        })
    }

    /// The arguments with arrays that have addresses and strides of the host, as far as they are aligned: for checks, not
    /// for commands.
    pub(super) fn as_on_host<'b>(&self, args: &[Arg<'b>]) -> Result<Vec<Arg<'b>>> {
        self.arrays(args, |placed| match &placed.place {
            Place::Empty => self.new_array(placed),
            Place::Packed(number) if placed.arg.memory.element_strides().is_err() => {
                self.contiguous(placed, &self.packed[*number].array, 0)
            }
            _ => self.described(placed),
        })
    }

    fn arrays<'b>(
        &self,
        args: &[Arg<'b>],
        array: impl Fn(&Placed<'_>) -> Result<Array>,
    ) -> Result<Vec<Arg<'b>>> {
        let mut args = args.to_vec();
        for placed in &self.placed {
            let array = array(placed)?;
            let array = if placed.arg.memory.readonly { array.as_readonly() } else { array };
            args[placed.position] = Arg::marked(array, placed.access);
        }
        Ok(args)
    }

    fn new_array(&self, placed: &Placed<'_>) -> Result<Array> {
        let memory = &placed.arg.memory;
        Array::uninit(&memory.shape, memory.dtype, UsmKind::Device, &self.queue)
    }

    /// The argument's elements in C order, from this byte of the allocation of `array` on.
    fn contiguous(&self, placed: &Placed<'_>, array: &Array, first: usize) -> Result<Array> {
        let HostMemory { shape, dtype, readonly, .. } = &placed.arg.memory;
        let layout = Layout::foreign(shape, None, first / dtype.itemsize(), dtype.itemsize())?;
        Ok(Array::from_parts(array.shared_allocation(), layout, *dtype, self.queue.clone(), *readonly))
    }

    /// The argument's memory on the host.
    fn described(&self, placed: &Placed<'_>) -> Result<Array> {
        let memory = &placed.arg.memory;
        let (dtype, itemsize) = (memory.dtype, memory.dtype.itemsize());
        let (start, end) = span(memory)?;
        let host = match &placed.place {
            Place::OnHost(host) => host.clone(),
            _ => Allocation::system(start, end - start, None)?,
        };
        let strides = memory.element_strides().map_err(Error::value)?;
        let first = (memory.pointer - start) / itemsize;
        let layout = Layout::foreign(&memory.shape, strides.as_deref(), first, itemsize)?;
        Ok(Array::from_parts(host, layout, dtype, self.queue.clone(), memory.readonly))
    }

    fn copy_in(&self) -> Result<()> {
        let _why = with_reason(Reason::HostArgument);
        for Region { array, start, end, host } in &self.regions {
            let operands = [(array.allocation(), Access::Write), (host, Access::Read)];
            ordered(&self.queue, &operands, |after| {
                // SAFETY: the target is inside an allocation that its log keeps; the caller of the launch keeps
                // the source until the event is complete: by waiting, or by an owner.
                unsafe { self.queue.memcpy(array.address(), *start, end - start, after) }
            })?;
        }
        for (number, Packed { array, host }) in self.packed.iter().enumerate() {
            let Some(memory) = self.memory_of(number) else { continue };
            host.wait_for_host(Access::Read)?;
            let bytes = Arc::new(gather(memory)?);
            array.write_from(bytes.as_ptr(), bytes.len(), Some(&|| Box::new(bytes.clone())))?;
        }
        Ok(())
    }

    /// The memory of a packed array.
    fn memory_of(&self, number: usize) -> Option<&HostMemory> {
        let mut all = self.placed.iter();
        let found = all.find(|placed| matches!(placed.place, Place::Packed(packed) if packed == number));
        found.map(|placed| &placed.arg.memory)
    }

    /// Copies what the kernel may have written back to the host, and waits for the copies.
    fn copy_back(&self) -> Result<()> {
        let _why = with_reason(Reason::HostArgument);
        let (mut copies, mut scattered) = (Vec::new(), vec![false; self.packed.len()]);
        for placed in self.placed.iter().filter(|placed| placed.access.writes()) {
            let memory = &placed.arg.memory;
            match &placed.place {
                Place::Region(number) => {
                    let Region { array, start: first, host, .. } = &self.regions[*number];
                    let (start, end) = span(memory)?;
                    let operands = [(array.allocation(), Access::Read), (host, Access::Write)];
                    copies.push(ordered(&self.queue, &operands, |after| {
                        let source = array.address() + (start - first);
                        // SAFETY: as in `copy_in`, the other way.
                        unsafe { self.queue.memcpy(start, source, end - start, after) }
                    })?);
                }
                Place::Packed(number) if !std::mem::replace(&mut scattered[*number], true) => {
                    let Packed { array, host } = &self.packed[*number];
                    let bytes = array.to_bytes()?;
                    host.wait_for_host(Access::ReadWrite)?;
                    // SAFETY: the caller of the launch promises writable memory, which no command uses now.
                    unsafe { scatter(memory, &bytes) }?;
                }
                _ => {}
            }
        }
        copies.iter().try_for_each(Event::wait)
    }

    /// Ensures that commands which an error has left behind do not outlive the host memory that they use.
    fn abandon(&self, error: &Error) {
        if !matches!(error, Error::Interrupted) {
            self.queue.drain();
            return;
        }
        for placed in &self.placed {
            let host = match &placed.place {
                Place::Empty => continue,
                Place::OnHost(host) => host,
                Place::Region(number) => &self.regions[*number].host,
                Place::Packed(number) => &self.packed[*number].host,
            };
            let Some(owner) = placed.arg.owner.clone() else { continue };
            match host.pending() {
                // With the allocation, later uses of the memory are still ordered after these commands.
                Ok(pending) => drop_after(Box::new((owner, host.clone())), pending),
                // In a forked child no command runs.
                Err(_) => std::mem::forget(owner),
            }
        }
    }
}

/// The alignment of pool memory (`cpp/usm.cc`).
const ALIGNMENT: usize = 64;

/// The union of overlapping spans.
fn joined(mut spans: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    spans.sort_unstable();
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (start, end) in spans {
        match all.last_mut() {
            Some(last) if start < last.1 => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    all
}

/// The memory of an array that the host can read.
fn described(array: &Array) -> HostMemory {
    let itemsize = array.dtype().itemsize() as isize;
    HostMemory {
        pointer: array.address(),
        shape: array.shape().to_vec(),
        strides: Some(array.strides().iter().map(|step| step * itemsize).collect()),
        dtype: array.dtype(),
        readonly: array.is_readonly(),
    }
}

/// Whether an element of one is in the bytes of an element of the other. Views of one array are often interleaved, so
/// the spans alone do not decide.
fn share_elements(one: &HostMemory, other: &HostMemory) -> Result<bool> {
    let (first, second) = (span(one)?, span(other)?);
    if !overlap(first, second) {
        return Ok(false);
    }
    if one.is_plain() && other.is_plain() {
        return Ok(true);
    }
    let (low, high) = (first.0.max(second.0), first.1.min(second.1));
    let mut used: Vec<bool> = try_reserve::try_with_capacity(high - low, "a check for shared elements")?;
    used.resize(high - low, false);
    let bytes_of = |memory: &HostMemory| {
        let (pointer, itemsize) = (memory.pointer, memory.dtype.itemsize());
        let starts = memory.byte_layout().map(|layout| layout.offsets().collect::<Vec<_>>());
        starts.map(move |starts| {
            let bytes = starts.into_iter().flat_map(move |at| {
                let start = pointer.wrapping_add_signed(at);
                start..start + itemsize
            });
            bytes.filter(move |byte| (low..high).contains(byte)).map(move |byte| byte - low)
        })
    };
    bytes_of(one)?.for_each(|byte| used[byte] = true);
    Ok(bytes_of(other)?.any(|byte| used[byte]))
}

/// The elements in C order.
fn gather(memory: &HostMemory) -> Result<Vec<u8>> {
    let itemsize = memory.dtype.itemsize();
    let mut bytes = try_reserve::try_with_capacity(memory.size() * itemsize, PACKED)?;
    for offset in memory.byte_layout()?.offsets() {
        let element = memory.pointer.wrapping_add_signed(offset) as *const u8;
        // SAFETY: the caller of the launch promises an element at each position of the shape.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(element, itemsize) });
    }
    Ok(bytes)
}

/// Writes elements in C order to their positions.
///
/// # Safety
/// Each element is writable, and `bytes` has as many.
unsafe fn scatter(memory: &HostMemory, bytes: &[u8]) -> Result<()> {
    let elements = bytes.chunks_exact(memory.dtype.itemsize());
    for (offset, element) in memory.byte_layout()?.offsets().zip(elements) {
        let target = memory.pointer.wrapping_add_signed(offset) as *mut u8;
        // SAFETY: the caller's promise; the bytes are in memory of usmq.
        unsafe { std::ptr::copy_nonoverlapping(element.as_ptr(), target, element.len()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(values: &[f32], first: usize, count: usize, step: isize) -> HostMemory {
        HostMemory {
            shape: vec![count],
            strides: Some(vec![step * 4]),
            ..HostMemory::from_slice(&values[first..])
        }
    }

    #[test]
    fn overlapping_spans_join() {
        assert_eq!(joined(vec![(5, 9), (0, 4), (8, 12), (12, 13)]), [(0, 4), (5, 12), (12, 13)]);
        assert_eq!(joined(vec![(0, 10), (2, 3)]), [(0, 10)]);
        assert!(joined(Vec::new()).is_empty());
    }

    #[test]
    fn interleaved_views_share_no_element() {
        let values = [0f32; 12];
        let share = |a, b| share_elements(&a, &b).unwrap();
        assert!(!share(view(&values, 0, 6, 2), view(&values, 1, 6, 2)));
        assert!(share(view(&values, 0, 6, 2), view(&values, 4, 2, 1)));
        assert!(share(view(&values, 0, 4, 3), view(&values, 0, 6, 2)));
        assert!(!share(view(&values, 0, 3, 1), view(&values, 3, 3, 1)));
        assert!(share(view(&values, 11, 12, -1), view(&values, 5, 1, 1)));
    }

    #[test]
    fn scatter_reverts_gather() {
        let values: Vec<f32> = (0..12u8).map(f32::from).collect();
        let mut target = values.clone();
        let memory = HostMemory {
            shape: vec![2, 3],
            strides: Some(vec![-4, 16]),
            ..HostMemory::from_slice_mut(&mut target[1..])
        };
        let bytes = gather(&memory).unwrap();
        let packed: Vec<f32> =
            bytes.chunks(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect();
        assert_eq!(packed, [1.0, 5.0, 9.0, 0.0, 4.0, 8.0]);
        target.fill(-1.0);
        // SAFETY: all positions are inside `target`.
        unsafe { scatter(&memory, &bytes) }.unwrap();
        assert_eq!(target, [0.0, 1.0, -1.0, -1.0, 4.0, 5.0, -1.0, -1.0, 8.0, 9.0, -1.0, -1.0]);
    }
}
