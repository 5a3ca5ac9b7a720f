//! Launches of debug builds: the bounds of each array go to the device with its address, and the first access outside
//! of them comes back.

use super::arg::Arg;
use super::checked_source::CheckedParam;
use super::param::Param;
use crate::array::{Array, DType};
use crate::device::submit::KernelArgs;
use crate::device::{Queue, Slot, UsmKind};
use crate::error::{Error, Result};

/// The number of arguments that the built kernel has for a `local_accessor`.
const ACCESSOR: usize = 4;
/// An `usmq::debug::pointer` in bytes.
const POINTER: usize = 16;
/// `usmq::debug::report` in bytes. One `usmq::debug::extent` for each argument follows it.
const REPORT: usize = 512 + 4096;
const EXTENT: usize = 32;

/// The advice for a source that builds, but not with checked pointers.
pub(super) const ADVICE: &str = "the source builds without debug. A debug build replaces pointers by objects of the \
    class usmq::debug::pointer: declare variables and parameters that take them as auto, or pass the address of an \
    element, as &x[i]";

/// The slots of a debug build as the kernel has them without it: a checked pointer counts as a pointer.
pub(super) fn plain_slots(slots: &[Slot], debug: &[CheckedParam], params: Option<&[Param]>) -> Vec<Slot> {
    let mut slots = slots.to_vec();
    let mut at = 0;
    for (position, param) in debug.iter().enumerate() {
        if let Some(slot) =
            slots.get_mut(at).filter(|slot| param.is_checked && **slot == Slot::Bytes(POINTER))
        {
            *slot = Slot::Bytes(size_of::<usize>());
        }
        let is_accessor =
            matches!(params.and_then(|all| all.get(position)), Some(Param::LocalAccessor { .. }));
        at += if is_accessor || param.is_accessor { ACCESSOR } else { 1 };
    }
    slots
}

/// The bounds of the arrays of one launch, and the accesses outside of them.
pub(super) struct Report {
    memory: Array,
    /// The positions of checked arrays, and their addresses.
    arrays: Vec<(usize, usize)>,
}

/// An access outside of an array.
struct Fault {
    count: u32,
    argument: usize,
    /// From the start of the array, in bytes.
    offset: i64,
    size: i64,
    is_const: bool,
    /// The last dimension first.
    work_item: [u64; 3],
}

impl Report {
    pub(super) fn new(debug: &[CheckedParam], args: &[Arg<'_>], queue: &Queue) -> Result<Self> {
        let memory = Array::uninit([REPORT + args.len() * EXTENT], DType::U8, UsmKind::Device, queue)?;
        let mut bytes = vec![0; memory.size()];
        let mut arrays = Vec::new();
        for (position, (arg, param)) in args.iter().zip(debug).enumerate() {
            let Some(array) = arg.array().filter(|_| param.is_checked) else { continue };
            let words = [memory.address(), array.address(), array.nbytes(), position];
            let extent = &mut bytes[REPORT + position * EXTENT..][..EXTENT];
            for (place, word) in extent.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&(word as u64).to_ne_bytes());
            }
            arrays.push((position, array.address()));
        }
        memory.copy_from_bytes(&bytes)?;
        Ok(Self { memory, arrays })
    }

    /// The memory that the launch reads and writes besides its arguments.
    pub(super) fn memory(&self) -> &Array {
        &self.memory
    }

    /// Replaces the addresses of checked arrays by checked pointers.
    pub(super) fn bind(&self, bound: &mut KernelArgs) {
        for (position, address) in &self.arrays {
            let extent = self.memory.address() + REPORT + position * EXTENT;
            let mut pointer = [0; POINTER];
            pointer[..8].copy_from_slice(&(*address as u64).to_ne_bytes());
            pointer[8..].copy_from_slice(&(extent as u64).to_ne_bytes());
            bound.replace(*position, &pointer);
        }
    }

    /// Waits for the launch of this kernel. An error if it has accessed memory outside of an array.
    pub(super) fn check(
        &self,
        name: &str,
        debug: &[CheckedParam],
        args: &[Arg<'_>],
        global: &[usize],
    ) -> Result<()> {
        let Some(fault) = Fault::read(&self.memory.to_bytes()?) else { return Ok(()) };
        let message = format!("kernel {name:?}, {}", fault.describe(debug, args, global));
        Err(Error::launch(name, Some(fault.argument), message))
    }
}

impl Fault {
    fn read(bytes: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let count = half(0).filter(|count| *count > 0)?;
        Some(Self {
            count,
            argument: half(4)? as usize,
            offset: word(8)? as i64,
            size: word(16)? as i64,
            is_const: word(24)? != 0,
            work_item: [word(32)?, word(40)?, word(48)?],
        })
    }

    fn describe(&self, debug: &[CheckedParam], args: &[Arg<'_>], global: &[usize]) -> String {
        let position = self.argument;
        let named = debug.get(position).filter(|param| !param.name.is_empty());
        let name = named.map_or(String::new(), |param| format!(" ({})", param.name));
        let Some(array) = args.get(position).and_then(Arg::array) else {
            return format!("argument {position}{name}: an access outside of it");
        };
        let (size, dtype) = (self.size.max(1), array.dtype());
        let (place, count, unit) = match (size == dtype.itemsize() as i64, self.offset % size) {
            (true, 0) => (format!("index {}", self.offset / size), array.size(), format!(" of {dtype}")),
            (false, 0) => {
                let count = array.nbytes() / size as usize;
                (format!("index {}", self.offset / size), count, format!(" of {size} bytes"))
            }
            // Through a cast, between the elements.
            _ => (format!("{size} bytes at byte {}", self.offset), array.size(), format!(" of {dtype}")),
        };
        let plural = if count == 1 { "element" } else { "elements" };
        let verb = if self.is_const { "read" } else { "accessed" };
        let ids: Vec<u64> = self.work_item.iter().take(global.len()).rev().copied().collect();
        let item = match ids[..] {
            [id] => id.to_string(),
            _ => format!("{ids:?}"),
        };
        let more = match self.count {
            1 => String::new(),
            count => format!(", the first of {count} accesses out of range"),
        };
        format!(
            "argument {position}{name}: work-item {item} of {global:?} {verb} {place}, but the array has {count} \
             {plural}{unit}{more}; compare the index with the length in the kernel",
        )
    }
}
