//! Parameters that were given by hand, held against those that the source has. Pure.

use super::arg::describe;
use super::signature::Param;
use crate::array::DType;

/// The parameters given, completed by what the source says of them; or where the two contradict.
///
/// What could not be read decides nothing: a word unknown to us may be a type, or a macro for several parameters.
pub(super) fn agreed(given: Vec<Param>, read: &[Param]) -> Result<Vec<Param>, String> {
    if given.len() != read.len() {
        if read.contains(&Param::Unknown) {
            return Ok(given);
        }
        let list = read.iter().map(describe).collect::<Vec<_>>().join(", ");
        return Err(format!(
            "params has {} parameters, and the source has {} ({list})",
            given.len(),
            read.len()
        ));
    }
    given
        .into_iter()
        .zip(read)
        .enumerate()
        .map(|(position, (given, read))| {
            let refuse = || {
                let (source, params) = (describe(read), describe(&given));
                format!("parameter {position} is {source} in the source, and {params} in params")
            };
            one(&given, read).ok_or_else(refuse)
        })
        .collect()
}

fn one(given: &Param, read: &Param) -> Option<Param> {
    match (given, read) {
        (given, Param::Unknown) => Some(given.clone()),
        (Param::Unknown, read) => Some(read.clone()),
        // Python has one mark for each kind of local memory.
        (Param::Local, Param::WorkGroupMemory | Param::LocalAccessor { .. }) => Some(read.clone()),
        (given, read) if given == read => Some(given.clone()),
        // What the kernel does with its memory, const or not, is the caller's to say.
        (given, read) => {
            let (element, pointee) = (given.pointee()?, read.pointee()?);
            let fits = element.zip(pointee).is_none_or(|(element, pointee)| carries(pointee, element));
            fits.then(|| given.clone())
        }
    }
}

/// Whether elements of a type lie in memory as the kernel takes them: as they are, as their bits, or as the parts of
/// complex numbers.
fn carries(pointee: DType, element: DType) -> bool {
    let bits = match pointee {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => pointee.itemsize() == element.itemsize(),
        _ => false,
    };
    let parts = matches!((pointee, element), (DType::F32, DType::C64) | (DType::F64, DType::C128));
    pointee == element || bits || parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;
    use Param::*;

    const ACCESSOR: Param = LocalAccessor { element: Some(F32), dimensions: Some(1) };

    #[test]
    fn what_the_source_says_too_must_be_the_same() {
        for (given, read, expected) in [
            (Scalar(F32), Scalar(F32), Some(Scalar(F32))),
            (Scalar(F32), Scalar(F64), None),
            (Scalar(I32), Scalar(U32), None),
            (Scalar(F32), ReadWrite(Some(F32)), None),
            (Read(Some(F32)), Scalar(F32), None),
            (Read(Some(F32)), ReadWrite(Some(F32)), Some(Read(Some(F32)))),
            (Write(Some(F32)), ReadWrite(Some(F32)), Some(Write(Some(F32)))),
            (Read(Some(I32)), Read(Some(F32)), None),
            (Read(Some(F64)), Read(Some(F32)), None),
            (Read(Some(F64)), Read(None), Some(Read(Some(F64)))),
            (Read(None), Read(Some(F32)), Some(Read(None))),
            (Read(Some(BF16)), Read(Some(U16)), Some(Read(Some(BF16)))),
            (Read(Some(BF16)), Read(Some(I32)), None),
            (Write(Some(C64)), ReadWrite(Some(F32)), Some(Write(Some(C64)))),
            (Write(Some(C128)), ReadWrite(Some(F32)), None),
            (Local, Local, Some(Local)),
            (Local, WorkGroupMemory, Some(WorkGroupMemory)),
            (Local, ACCESSOR, Some(ACCESSOR)),
            (ACCESSOR, WorkGroupMemory, None),
            (Local, ReadWrite(Some(F32)), None),
            (Write(Some(F32)), Local, None),
            (Scalar(F32), Unknown, Some(Scalar(F32))),
            (Unknown, Scalar(F32), Some(Scalar(F32))),
        ] {
            let found = agreed(vec![given.clone()], std::slice::from_ref(&read));
            assert_eq!(found.ok(), expected.map(|param| vec![param]), "{given:?}, {read:?}");
        }
    }

    #[test]
    fn the_number_counts_where_all_of_the_source_was_read() {
        let given = || vec![Scalar(F32), Scalar(F32)];
        assert_eq!(agreed(given(), &[Unknown]), Ok(given()));
        let why = agreed(given(), &[Scalar(F32)]).unwrap_err();
        assert_eq!(why, "params has 2 parameters, and the source has 1 (float32)");
        let why = agreed(given(), &[Scalar(F32), Read(Some(I32))]).unwrap_err();
        assert!(why.starts_with("parameter 1 is a pointer to int32 that it reads in the source"), "{why}");
    }
}
