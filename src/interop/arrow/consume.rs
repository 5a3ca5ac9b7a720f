//! Batches taken one after another: the C stream and C Device stream interfaces as a consumer.

use super::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use super::foreign::{ArrayStruct, Foreign, Struct};
use super::produce;
use super::schema::Field;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// The arrays of a stream, as structs with its field. The stream is released when this is dropped.
pub struct Arrays<S: Stream> {
    stream: S,
    field: Arc<Field>,
    ended: bool,
}

/// A stream struct of either interface.
pub trait Stream: sealed::Calls + Struct<About = ()> {}

impl Stream for ArrowArrayStream {}
impl Stream for ArrowDeviceArrayStream {}

impl<S: Stream> Arrays<S> {
    /// Takes the stream and asks it for its schema.
    ///
    /// # Errors
    /// [`Error::Interop`] for a released stream, with the producer's text when it fails, and as [`Field::import`].
    pub fn new(stream: Foreign<S>) -> Result<Self> {
        let mut stream = stream.inner;
        stream.check()?;
        let mut schema = ArrowSchema::empty();
        // SAFETY: whoever made a `Foreign` vouched for the stream; it is not released.
        let status = unsafe { stream.schema(&mut schema) };
        // SAFETY: as above.
        unsafe { stream.done(status, "schema") }?;
        let field = Arc::new(Field::import(&schema.into())?);
        Ok(Self { stream, field, ended: false })
    }

    /// The type of every array.
    pub fn field(&self) -> &Arc<Field> {
        &self.field
    }

    fn ask(&mut self) -> Result<Option<Foreign<S::Array>>> {
        let mut array = S::EMPTY_ARRAY;
        // SAFETY: as in `new`; `&mut self` keeps calls apart.
        let status = unsafe { self.stream.next(&mut array) };
        // SAFETY: as above.
        unsafe { self.stream.done(status, "next array") }?;
        if !S::is_array(&array) {
            return Ok(None);
        }
        self.stream.accept(&array)?;
        // Whoever vouched for the stream did so for the type of its arrays.
        Ok(Some(Foreign::described(self.field.clone(), array)))
    }
}

impl<S: Stream> Iterator for Arrays<S> {
    type Item = Result<Foreign<S::Array>>;

    /// The next array; after the end or an error the stream is not asked again.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.ask().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

mod sealed {
    use super::*;

    /// The callbacks of a stream struct.
    #[allow(missing_docs)]
    pub trait Calls {
        type Array: ArrayStruct;
        const EMPTY_ARRAY: Self::Array;

        fn is_array(array: &Self::Array) -> bool;
        fn check(&self) -> Result<()>;
        fn accept(&self, array: &Self::Array) -> Result<()>;

        /// # Safety
        /// The struct is as the interface says and not released, and no other call to it runs.
        unsafe fn schema(&mut self, out: &mut ArrowSchema) -> c_int;

        /// # Safety
        /// As [`schema`](Self::schema).
        unsafe fn next(&mut self, out: &mut Self::Array) -> c_int;

        /// # Safety
        /// As [`schema`](Self::schema).
        unsafe fn last_error(&mut self) -> *const c_char;

        /// An error with the producer's text, unless `status` is 0.
        ///
        /// # Safety
        /// As [`schema`](Self::schema); right after the call that gave `status`.
        unsafe fn done(&mut self, status: c_int, what: &str) -> Result<()> {
            if status == 0 {
                return Ok(());
            }
            produce::interrupt(status)?;
            // SAFETY: the caller's promise.
            let text = unsafe { self.last_error() };
            // SAFETY: the interface: null, or a string that is valid until the next call.
            let text =
                (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
            let text = text.unwrap_or_else(|| std::io::Error::from_raw_os_error(status).to_string());
            Err(Error::Interop(format!("the Arrow stream gave no {what}: {text}")))
        }
    }
}

macro_rules! calls {
    ($stream:ident, $array:ident, $accept:expr) => {
        impl sealed::Calls for $stream {
            type Array = $array;
            const EMPTY_ARRAY: $array = $array::empty();

            fn is_array(array: &$array) -> bool {
                !array.is_released()
            }

            fn check(&self) -> Result<()> {
                let whole = self.get_schema.is_some() && self.get_next.is_some();
                if self.is_released() || !whole {
                    return Err(Error::Interop(
                        "the Arrow stream is released, or lacks callbacks".to_owned(),
                    ));
                }
                Ok(())
            }

            fn accept(&self, array: &$array) -> Result<()> {
                $accept(self, array)
            }

            unsafe fn schema(&mut self, out: &mut ArrowSchema) -> c_int {
                // SAFETY: the caller's promise.
                self.get_schema.map_or(libc::EINVAL, |get| unsafe { get(self, out) })
            }

            unsafe fn next(&mut self, out: &mut $array) -> c_int {
                // SAFETY: the caller's promise.
                self.get_next.map_or(libc::EINVAL, |get| unsafe { get(self, out) })
            }

            unsafe fn last_error(&mut self) -> *const c_char {
                // SAFETY: the caller's promise.
                self.get_last_error.map_or(std::ptr::null(), |get| unsafe { get(self) })
            }
        }
    };
}

calls!(ArrowArrayStream, ArrowArray, |_, _| Ok(()));
calls!(
    ArrowDeviceArrayStream,
    ArrowDeviceArray,
    |stream: &ArrowDeviceArrayStream, array: &ArrowDeviceArray| {
        if array.device_type == stream.device_type {
            return Ok(());
        }
        Err(Error::Interop(format!(
            "the Arrow stream is of device type {}, but gave an array of type {}",
            stream.device_type, array.device_type
        )))
    }
);
