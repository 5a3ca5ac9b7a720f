//! Truth values as a bitmap.

use super::{Array, DType};
use crate::device::submit::{Extents, KernelArgs};
use crate::device::{Code, Includes, Program};
use crate::error::{Error, Result};
use crate::memory::{Access, is_capturing, ordered};
use crate::trace::{Kind, Label, Reason, with_reason};
use std::sync::Arc;

const NAME: &str = "usmq_pack_bits";

const TEXT: &str = "\
#include <usmq/kernel.h>
USMQ_KERNEL(1) void usmq_pack_bits(const unsigned char *source, unsigned char *target, unsigned long n) {
  unsigned long item = global_linear_id(), first = item * 8;
  if (first >= n) return;
  unsigned bits = 0;
  for (unsigned bit = 0; bit < 8 && first + bit < n; ++bit) bits |= (source[first + bit] != 0 ? 1u : 0u) << bit;
  target[item] = static_cast<unsigned char>(bits);
}
";

impl Array {
    /// The truth values of this array of `bool`, in C order, as a bitmap: a `uint8` array in which bit `i % 8`, from the
    /// least significant one, of byte `i / 8` is value `i`. Returns before the bitmap is complete.
    ///
    /// ```
    /// let flags = usmq::Array::from_slice(&[true, false, true])?;
    /// assert_eq!(flags.packed_bits()?.to_vec::<u8>()?, [0b101]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] for another dtype, [`Error::Allocation`] when memory is short.
    pub fn packed_bits(&self) -> Result<Self> {
        if self.dtype() != DType::Bool {
            let message = format!("{self} has elements of {}, not bool", self.dtype());
            return Err(Error::type_mismatch(DType::Bool, self.dtype(), message));
        }
        let bytes = self.size().div_ceil(8);
        let packed = Self::uninit([bytes], DType::U8, self.kind_of_copies(), self.queue())?;
        if bytes == 0 {
            return Ok(packed);
        }
        let _why = with_reason(Reason::Conversion);
        let source = self.contiguous()?;
        let (queue, name) = (self.queue(), Arc::from(NAME));
        let code = Code::Sycl(TEXT.into());
        let program = Program::get(
            queue.context(),
            queue.device(),
            &code,
            &name,
            &Arc::from(Vec::new()),
            Includes::NONE,
        )?;
        let mut args = KernelArgs::default();
        args.pointer(source.address());
        args.pointer(packed.address());
        args.value(&(self.size() as u64).to_le_bytes());
        let label = Label { kind: Kind::Copy, name: Some(&name), bytes };
        let operands = [(packed.allocation(), Access::Write), (source.allocation(), Access::Read)];
        if is_capturing() {
            packed.touch();
            source.touch();
        }
        ordered(queue, &operands, |after| {
            // SAFETY: the text above has this signature; each work-item reads eight elements of the source, as far as
            // they exist, and writes one byte of the target. Both allocations' logs keep them until the event is
            // complete.
            unsafe { queue.submit(&program, Extents::padded(bytes), &args, label, after) }
        })?;
        Ok(packed)
    }
}
