//! Arrays as text: copies the shown elements to the host, and prints them as numpy does.

use super::format::{self, EDGE, Lines, THRESHOLD, WIDTH};
use super::{Array, Layout};
use crate::device::Device;
use crate::error::{Error, Result};
use std::fmt::Write;

/// Shown elements at most this many bytes apart are copied to the host together.
const GAP: usize = 4096;
/// More elements or axes are not printed, not even shortened: only views with steps of 0 have as many.
const MOST: usize = 100_000;
const MOST_AXES: usize = 64;
/// Columns of a line with the properties of an array.
const LONGEST: usize = 100;
const PREFIX: &str = "usmq.Array(";

impl Array {
    /// The elements as text, in the layout of numpy's `str`: aligned, with up to 8 digits after the decimal point,
    /// and shortened beyond 1000 elements. Copies only the shown elements to the host, after earlier writes.
    ///
    /// Floating-point numbers have the digits of numpy 2.3 and newer, which choose exponents by the dtype.
    ///
    /// ```
    /// let x = usmq::Array::from_slice(&[1.0f32, 2.5, -3.0])?;
    /// assert_eq!(x.preview()?, "[ 1.   2.5 -3. ]");
    /// assert_eq!(usmq::Array::zeros::<u8>([5000])?.preview()?, "[0 0 0 ... 0 0 0]");
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`] with the error that the work reported; [`Error::Allocation`] or [`Error::HostMemory`] when
    /// memory is short; [`Error::Capture`] inside a capture that writes the array.
    pub fn preview(&self) -> Result<String> {
        let shown = self.shown_elements()?;
        Ok(match shown {
            Some(bytes) if self.shape().is_empty() => format::single(&bytes, self.dtype()),
            shown => self.nested(shown.as_deref(), Lines { separator: " ", indent: 0, width: WIDTH }),
        })
    }

    /// As [`preview`](Self::preview), with commas, dtype, kind and device. Text in place of elements that cannot be
    /// read names the error, or is `<captured>`; only an interrupted wait is an error.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "Python's repr"))]
    pub(crate) fn represent(&self) -> Result<String> {
        // As numpy, leave room for the closing parenthesis.
        let lines = Lines { separator: ", ", indent: PREFIX.len(), width: WIDTH - 1 };
        let elements = match self.shown_elements() {
            Ok(shown) => self.nested(shown.as_deref(), lines),
            Err(error) => unreadable(error)?,
        };
        let mut rest = String::new();
        let is_implied = elements.starts_with('[') && self.size() > 0 && !self.is_shortened();
        if !is_implied && self.shape() != [0] {
            let _ = write!(rest, "shape={}, ", tuple(self.shape()));
        }
        let (dtype, kind, device) = (self.dtype(), self.memory_kind().name(), device_name(self.device()));
        let _ = write!(rest, "dtype={dtype}, usm_type='{kind}', device='{device}')");
        let last = elements.rsplit('\n').next().map_or(0, str::len);
        let start = if elements.contains('\n') { 0 } else { PREFIX.len() };
        let fits = start + last + 2 + rest.len() <= LONGEST;
        let space = if fits { " ".to_owned() } else { format!("\n{}", " ".repeat(PREFIX.len())) };
        Ok(format!("{PREFIX}{elements},{space}{rest}"))
    }

    /// As [`preview`](Self::preview), with the error as the text of elements that cannot be read.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "Python's str"))]
    pub(crate) fn preview_or_error(&self) -> Result<String> {
        self.preview().or_else(unreadable)
    }

    fn nested(&self, shown: Option<&[u8]>, lines: Lines) -> String {
        let Some(bytes) = shown else { return "[...]".to_owned() };
        format::nested(bytes, self.dtype(), self.shape(), self.is_shortened(), lines)
    }

    fn is_shortened(&self) -> bool {
        self.size() > THRESHOLD
    }

    /// The elements that the text shows, in C order; `None` if they are too many. Inside a capture that does not write
    /// the array, they are read at once.
    fn shown_elements(&self) -> Result<Option<Vec<u8>>> {
        let _direct = self.outside_capture("the text")?;
        let Some(offsets) = self.shown_offsets() else { return Ok(None) };
        let itemsize = self.dtype().itemsize();
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        let mut spans: Vec<(isize, Vec<u8>)> = Vec::new();
        for span in sorted.chunk_by(|a, b| ((b - a).unsigned_abs() * itemsize) <= GAP) {
            let (Some(first), Some(last)) = (span.first(), span.last()) else { continue };
            let start = self.layout().offset().wrapping_add_signed(*first);
            let layout = Layout::foreign(&[(last - first).unsigned_abs() + 1], None, start, itemsize)?;
            spans.push((*first, self.view(layout).to_bytes()?));
        }
        let mut elements = Vec::with_capacity(offsets.len() * itemsize);
        for offset in offsets {
            let span = spans.partition_point(|(first, _)| *first <= offset).saturating_sub(1);
            if let Some((first, bytes)) = spans.get(span) {
                let at = (offset - first).unsigned_abs() * itemsize;
                elements.extend_from_slice(&bytes[at..at + itemsize]);
            }
        }
        Ok(Some(elements))
    }

    /// The positions of the shown elements relative to the first, in C order; `None` if they are too many.
    fn shown_offsets(&self) -> Option<Vec<isize>> {
        let is_shortened = self.is_shortened();
        let counts = || self.shape().iter().map(|extent| format::shown(*extent, is_shortened));
        let count = counts().try_fold(1usize, |all, (count, _)| all.checked_mul(count));
        if self.ndim() > MOST_AXES || count.is_none_or(|count| count > MOST) {
            return None;
        }
        let mut offsets = vec![0isize];
        for ((extent, stride), (count, has_gap)) in self.shape().iter().zip(self.strides()).zip(counts()) {
            let position = |at: usize| if has_gap && at >= EDGE { extent - count + at } else { at };
            let along = |offset: &isize| {
                let offset = *offset;
                (0..count).map(move |at| offset + position(at) as isize * stride)
            };
            offsets = offsets.iter().flat_map(along).collect();
        }
        Some(offsets)
    }
}

/// The text in place of elements that cannot be read.
fn unreadable(error: Error) -> Result<String> {
    match error {
        Error::Interrupted => Err(error),
        Error::Capture { .. } => Ok("<captured>".to_owned()),
        other => Ok(format!("<not readable: {other}>")),
    }
}

/// Extents as Python prints a tuple.
fn tuple(shape: &[usize]) -> String {
    match shape {
        [only] => format!("({only},)"),
        all => format!("({})", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The filter string; for a sub-device that of its root device, with a note.
fn device_name(device: &Device) -> String {
    match (device.filter_string(), device.parent()) {
        (Some(filter), _) => filter.to_owned(),
        (None, Some(parent)) => format!("sub-device of {}", device_name(parent)),
        (None, None) => device.to_string(),
    }
}
