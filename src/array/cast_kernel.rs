//! Copies that need a kernel: strided views, and changes of dtype.

use super::{Array, DType, Family};
use crate::device::submit::{Extents, KernelArgs};
use crate::device::{Code, Includes, Program};
use crate::error::Result;
use crate::memory::{Access, is_capturing, ordered};
use crate::trace::{Kind, Label};
use std::fmt::Write;
use std::sync::Arc;

const NAME: &str = "usmq_convert";

impl Array {
    /// Sets every element from the one at the same place of `source`, which has the same shape, is usable
    /// from this array's queue and shares no element with this array.
    pub(super) fn convert_from(&self, source: &Self) -> Result<()> {
        let (shape, from, to) = source.layout().merged(self.layout());
        let source_text = text(source.dtype, self.dtype, shape.len());
        let code = Code::Sycl(source_text.into());
        let queue = self.queue();
        let name = Arc::from(NAME);
        let no_flags = Arc::from(Vec::new());
        let program = Program::get(queue.context(), queue.device(), &code, &name, &no_flags, Includes::NONE)?;

        let mut args = KernelArgs::default();
        args.pointer(source.address());
        args.pointer(self.address());
        args.value(&(self.size() as u64).to_le_bytes());
        let numbers = shape.iter().skip(1).map(|extent| *extent as i64);
        let numbers = numbers
            .chain(from.iter().map(|stride| *stride as i64))
            .chain(to.iter().map(|stride| *stride as i64));
        numbers.for_each(|number| args.value(&number.to_le_bytes()));

        let label = Label { kind: Kind::Copy, name: Some(&name), bytes: self.nbytes() };
        let extents = Extents::padded(self.size());
        let operands = [(self.allocation(), Access::Write), (source.allocation(), Access::Read)];
        if is_capturing() {
            self.touch();
            source.touch();
        }
        ordered(queue, &operands, |after| {
            // SAFETY: the text below has this signature; each work-item reads and writes the element of its
            // number, inside the two views, whose allocations' logs keep them until the event is complete.
            unsafe { queue.submit(&program, extents, &args, label, after) }
        })?;
        Ok(())
    }
}

/// The kernel for one pair of types and one number of axes. Copies that do not change the type are selected
/// by size, so that they share kernels and preserve every bit.
fn text(from: DType, to: DType, axes: usize) -> String {
    let (from, to) = if from == to { (same_size(from), same_size(from)) } else { (from, to) };
    // A bool of another library may be any byte, which C++ must not load as a bool.
    let source = if from == DType::Bool { DType::U8 } else { from }.row().cpp;
    let target = to.row().cpp;
    let mut text = String::from("#include <usmq/kernel.h>\n");
    let preludes = [from.min(to).row().cpp_prelude, from.max(to).row().cpp_prelude];
    text += preludes[0];
    if preludes[1] != preludes[0] {
        text += preludes[1];
    }
    let list = |prefix: &str, first: usize| {
        (first..axes).fold(String::new(), |mut all, axis| {
            let _ = write!(all, ", long {prefix}{axis}");
            all
        })
    };
    let parameters = list("n", 1) + &list("s", 0) + &list("t", 0);
    let mut body = String::new();
    for axis in (1..axes).rev() {
        let _ = writeln!(
            body,
            "  {{ long c = rest % n{axis}; rest /= n{axis}; s += c * s{axis}; t += c * t{axis}; }}"
        );
    }
    if axes > 0 {
        body += "  s += rest * s0; t += rest * t0;\n";
    }
    let value = conversion(from, to);
    let _ = write!(
        text,
        "USMQ_KERNEL(1) void {NAME}(const {source} *source, {target} *target, unsigned long n{parameters}) {{\n  \
         unsigned long item = global_linear_id();\n  \
         if (item >= n) return;\n  \
         long rest = item, s = 0, t = 0;\n{body}  \
         const {source} x = source[s];\n  target[t] = {value};\n}}\n"
    );
    text
}

/// The type that copies elements of this size.
fn same_size(dtype: DType) -> DType {
    match dtype.itemsize() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => DType::C128,
    }
}

/// The C++ expression that turns `x` into the target type.
fn conversion(from: DType, to: DType) -> String {
    if from == to {
        return "x".to_owned();
    }
    let target = to.row().cpp;
    // The small floats convert through float only.
    let small = |dtype: DType| dtype.family() == Family::Float && dtype.itemsize() < 4;
    let x = match from {
        DType::Bool => "(x != 0)",
        from if small(from) => "static_cast<float>(x)",
        _ => "x",
    };
    match (from.family(), to.family()) {
        (Family::Complex, Family::Complex) => format!("{target}::of(x)"),
        (Family::Complex, Family::Bool) => "x.re != 0 || x.im != 0".to_owned(),
        (_, Family::Complex) => format!("{target}::of({x})"),
        (_, Family::Bool) => format!("{x} != 0"),
        _ if small(to) => format!("static_cast<{target}>(static_cast<float>({x}))"),
        _ => format!("static_cast<{target}>({x})"),
    }
}
