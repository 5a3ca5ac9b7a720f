//! Compares parameters and arguments with those of the built kernel, as far as its driver reports them. Pure.

use super::arg::SHAPED;
use super::param::Param;
use crate::device::Slot;
use crate::device::submit::KernelArg;

/// A `local_accessor` is a pointer to local memory and three extents.
const EXTENTS: usize = 3;
const EXTENT: usize = 8;

/// Whether the built kernel takes these parameters, or how they differ.
pub(super) fn agree(params: &[Param], slots: &[Slot], is_sycl: bool) -> Result<(), String> {
    // A parameter of unreadable type may be an accessor.
    let is_open = |param: &&Param| is_sycl && matches!(param, Param::Unknown | Param::Local);
    let open = params.iter().filter(is_open).count();
    let accessors = params.iter().filter(|param| is_accessor(param)).count();
    let least = params.len() + EXTENTS * accessors;
    let more = slots.len().checked_sub(least);
    if !more.is_some_and(|more| more % EXTENTS == 0 && more / EXTENTS <= open) {
        let taken = slots.len().saturating_sub(EXTENTS * accessors);
        return Err(format!("params has {} parameters, but the built kernel takes {taken}", params.len()));
    }
    if more != Some(0) && open > 1 {
        // It is unknown which of them are accessors.
        return Ok(());
    }
    let mut rest = slots;
    for (position, param) in params.iter().enumerate() {
        let opens = more != Some(0) && is_open(&param);
        let (Some((slot, after)), wanted) = (rest.split_first(), wanted(param)) else { return Ok(()) };
        if !wanted.is_none_or(|wanted| fits(wanted, *slot)) {
            return Err(format!(
                "parameter {position} is {param} in params, but the built kernel takes {}",
                taken(*slot)
            ));
        }
        rest = after.get(if opens || is_accessor(param) { EXTENTS } else { 0 }..).unwrap_or_default();
    }
    Ok(())
}

fn is_accessor(param: &Param) -> bool {
    matches!(param, Param::LocalAccessor { .. })
}

fn wanted(param: &Param) -> Option<Slot> {
    match param {
        Param::Scalar(dtype) => Some(Slot::Bytes(dtype.itemsize())),
        Param::Vector { bytes, .. } => Some(Slot::Bytes(*bytes)),
        Param::Read(_) | Param::Write(_) | Param::ReadWrite(_) => Some(Slot::Bytes(size_of::<usize>())),
        Param::Local | Param::LocalAccessor { .. } | Param::WorkGroupMemory => Some(Slot::Local),
        Param::Unknown => None,
    }
}

fn fits(wanted: Slot, slot: Slot) -> bool {
    slot == Slot::Unknown || wanted == slot
}

fn taken(slot: Slot) -> String {
    match slot {
        Slot::Unknown => "a value of unknown type".to_owned(),
        Slot::Bytes(1) => "1 byte".to_owned(),
        Slot::Bytes(bytes) => format!("{bytes} bytes"),
        Slot::Local => "local memory".to_owned(),
    }
}

/// How many arguments of these forms the built kernel takes.
pub(super) fn expected(bound: &[KernelArg], slots: &[Slot], is_sycl: bool) -> usize {
    let accessors = bound.iter().filter(|arg| is_sycl && arg.is_accessor()).count();
    slots.len().saturating_sub(EXTENTS * accessors)
}

/// The first argument that the built kernel does not accept, the expected form, and the fix. The number of
/// arguments was checked before.
pub(super) fn misfit(bound: &[KernelArg], slots: &[Slot], is_sycl: bool) -> Option<(usize, String)> {
    const DO: &str = "give an argument of the kernel's type";
    let mut rest = slots;
    for (position, arg) in bound.iter().enumerate() {
        let (slot, after) = rest.split_first()?;
        if !fits(arg.slot(), *slot) {
            return Some((position, format!("{}; {DO}", taken(*slot))));
        }
        let extents = if is_sycl && arg.is_accessor() { EXTENTS } else { 0 };
        let (extents, after) = after.split_at_checked(extents)?;
        let wanted = Slot::Bytes(EXTENT * usize::from(arg.dimensions));
        if let Some(Slot::Bytes(bytes)) = extents.iter().find(|extent| !fits(wanted, **extent)) {
            let dimensions = bytes / EXTENT;
            return Some((position, format!("a {dimensions}-dimensional local_accessor; {SHAPED}")));
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType::*;
    use crate::device::submit::KernelArgs;
    use Slot::{Bytes, Local, Unknown};

    const ACCESSOR: Param = Param::LocalAccessor { element: Some(F32), dimensions: Some(1) };
    const POINTER: Param = Param::ReadWrite(Some(F32));

    #[test]
    fn parameters_must_match_the_built_kernel() {
        for (params, slots, is_sycl, expected) in [
            (vec![POINTER, Param::Scalar(F32)], vec![Bytes(8), Bytes(4)], true, true),
            (vec![POINTER, Param::Scalar(F32)], vec![Unknown, Unknown], true, true),
            (vec![POINTER, Param::Scalar(F32)], vec![Bytes(8), Bytes(8)], true, false),
            (vec![POINTER], vec![Bytes(8), Bytes(8)], true, false),
            (vec![POINTER], vec![Local], true, false),
            (vec![], vec![], true, true),
            (vec![ACCESSOR, POINTER], vec![Local, Bytes(8), Bytes(8), Bytes(8), Bytes(8)], true, true),
            (vec![ACCESSOR, POINTER], vec![Local, Bytes(8)], true, false),
            (vec![Param::WorkGroupMemory, POINTER], vec![Local, Bytes(8)], true, true),
            (vec![Param::Local, POINTER], vec![Local, Bytes(8)], false, true),
            (vec![Param::Local, POINTER], vec![Local, Bytes(8), Bytes(8), Bytes(8), Bytes(8)], false, false),
            (vec![Param::Local, POINTER], vec![Local, Bytes(8), Bytes(8), Bytes(8), Bytes(8)], true, true),
            (vec![Param::Local, POINTER], vec![Local, Bytes(8)], true, true),
            (vec![Param::Unknown, POINTER], vec![Bytes(12), Bytes(8)], true, true),
            (vec![Param::Unknown, POINTER], vec![Bytes(12), Bytes(8), Bytes(8)], true, false),
            (
                vec![Param::Unknown, Param::Scalar(F32)],
                vec![Local, Bytes(8), Bytes(8), Bytes(8), Bytes(8)],
                true,
                false,
            ),
            (
                vec![Param::Unknown, Param::Unknown],
                vec![Local, Bytes(8), Bytes(8), Bytes(8), Bytes(8)],
                true,
                true,
            ),
        ] {
            let found = agree(&params, &slots, is_sycl);
            assert_eq!(found.is_ok(), expected, "{params:?} {slots:?}: {found:?}");
        }
        let why = agree(&[POINTER, Param::Scalar(F32)], &[Bytes(8), Bytes(1)], true).unwrap_err();
        assert_eq!(why, "parameter 1 is float32 in params, but the built kernel takes 1 byte");
    }

    #[test]
    fn the_first_argument_that_does_not_fit_is_found() {
        type Add = fn(&mut KernelArgs);
        let pointer: Add = |args| args.pointer(64);
        let (number, memory): (Add, Add) = (|args| args.value(&[0; 4]), |args| args.local(16, 1, &[16]));
        let matrix: Add = |args| args.local(16, 4, &[2, 2]);
        let accessor = [Local, Bytes(8), Bytes(8), Bytes(8), Bytes(4)];
        let square = [Local, Bytes(16), Bytes(16), Bytes(16), Bytes(4)];
        for (adders, slots, is_sycl, expected) in [
            ([pointer, number], &[Bytes(8), Bytes(4)][..], true, None),
            ([pointer, number], &[Bytes(8), Unknown], true, None),
            ([pointer, number], &[Bytes(8), Bytes(16)], true, Some((1, "16 bytes"))),
            ([pointer, number], &[Local, Bytes(4)], true, Some((0, "local memory"))),
            ([memory, number], &accessor, true, None),
            ([memory, pointer], &accessor, true, Some((1, "4 bytes"))),
            ([memory, number], &[Local, Bytes(4)], false, None),
            ([memory, number], &square, true, Some((0, "a 2-dimensional local_accessor"))),
            ([matrix, number], &square, true, None),
            ([matrix, number], &accessor, true, Some((0, "a 1-dimensional local_accessor"))),
        ] {
            let mut bound = KernelArgs::default();
            adders.iter().for_each(|add| add(&mut bound));
            let found = misfit(&bound, slots, is_sycl);
            let same = match (&found, expected) {
                (Some((at, why)), Some((place, part))) => *at == place && why.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(same, "{slots:?}: {found:?}");
        }
    }
}
