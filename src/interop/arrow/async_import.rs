//! The consumer side of the asynchronous C Device stream interface: receives requested batches.

use super::abi::{ArrowAsyncTask, ArrowDeviceArray};
use super::async_handler::{AsyncHandler, ConsumerState, broken};
use super::foreign::ForeignStruct;
use super::schema::Field;
use crate::error::Result;
use futures_core::Stream;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The arrays that a producer passes to the [`AsyncHandler`] of this stream, in order.
///
/// Each array is extracted on the thread that polls for it. The stream queues or requests at most the given
/// number of arrays. Dropping the stream cancels it and discards queued arrays. The stream ends after an
/// error.
///
/// ```
/// use futures::{StreamExt, executor::block_on};
/// use usmq::interop::arrow::{AsyncStreamReader, Column, ImportOptions, AsyncExport};
///
/// let (mut arrays, handler) = AsyncStreamReader::new(4);
/// // Any producer of the interface; here usmq's own, with one batch.
/// let column = Column::from_array("x", &usmq::Array::from_slice(&[1i64, 2, 3])?)?;
/// let batches = Box::new(std::iter::once(Ok(column.clone())));
/// // SAFETY: the handler is whole, and no other producer has it.
/// let producing = unsafe { AsyncExport::start(handler.into_raw(), column.field().clone(), batches) }?;
///
/// while let Some(array) = block_on(arrays.next()) {
///     let column = Column::import_device(array?, ImportOptions::default())?;
///     assert_eq!(column.values()?.to_vec::<i64>()?, [1, 2, 3]);
/// }
/// producing.wait();
/// # Ok::<(), usmq::Error>(())
/// ```
pub struct AsyncStreamReader {
    shared: Arc<ConsumerState>,
}

impl AsyncStreamReader {
    /// Creates a stream and its handler. The stream first requests `ahead` arrays (at least 1), then one more
    /// for each array that it returns.
    ///
    /// Source: the Arrow C Device data interface, "Async Device Stream Interface"; the structs as in `abi.h`.
    #[must_use]
    pub fn new(ahead: usize) -> (Self, AsyncHandler) {
        let shared = ConsumerState::new(i64::try_from(ahead.max(1)).unwrap_or(i64::MAX));
        (Self { shared: shared.clone() }, AsyncHandler { shared })
    }

    /// Returns the type of every array, after the producer has sent it.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) if the stream ends or fails before.
    pub async fn field(&mut self) -> Result<Arc<Field>> {
        poll_fn(|context| self.poll_field(context)).await
    }

    /// As [`field`](Self::field), for use in other futures.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn poll_field(&mut self, context: &mut Context<'_>) -> Poll<Result<Arc<Field>>> {
        self.shared.poll(context, |state| {
            if let Some(field) = &state.field {
                return Some(Ok(field.clone()));
            }
            let end = state.end.clone()?;
            Some(Err(end.err().unwrap_or_else(|| broken("it ended without a schema"))))
        })
    }

    fn extract(&self, mut task: ArrowAsyncTask) -> Result<ForeignStruct<ArrowDeviceArray>> {
        let extract = task.extract_data.ok_or_else(|| broken("a task has no callback"))?;
        // After an error the callback may have left anything in the struct, so it is not released.
        let mut array = ManuallyDrop::new(ArrowDeviceArray::empty());
        // SAFETY: the producer's callback for its task, which was taken from the queue and so is extracted once.
        let status = unsafe { extract(&mut task, &raw mut *array) };
        if status != 0 {
            let text = std::io::Error::from_raw_os_error(status);
            return Err(broken(format_args!("it gave no array for a task: {text}")));
        }
        let array = ManuallyDrop::into_inner(array);
        if array.is_released() {
            return Err(broken("it gave a released array for a task"));
        }
        let device_type = self.shared.state.lock().device_type;
        if array.device_type != device_type {
            return Err(broken(format_args!(
                "it is of device type {device_type}, but gave an array of type {}",
                array.device_type
            )));
        }
        // The producer guarantees that its arrays have the type that it has sent.
        let field = self.shared.state.lock().field.clone();
        let field = field.ok_or_else(|| broken("it gave an array before its schema"))?;
        Ok(ForeignStruct::described(field, array))
    }
}

impl Stream for AsyncStreamReader {
    type Item = Result<ForeignStruct<ArrowDeviceArray>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.shared.poll(context, |state| match state.tasks.pop_front() {
            Some(task) => Some(Ok(Some(task))),
            // Return an error once.
            None => state.end.as_mut().map(|end| std::mem::replace(end, Ok(())).map(|()| None)),
        });
        next.map(|next| match next {
            Ok(None) => None,
            Err(error) => Some(Err(error)),
            Ok(Some(task)) => {
                let array = self.extract(task);
                if array.is_ok() {
                    self.shared.request(1)
                } else {
                    self.shared.close()
                }
                Some(array)
            }
        })
    }
}

impl Drop for AsyncStreamReader {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl std::fmt::Debug for AsyncStreamReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncStreamReader").finish_non_exhaustive()
    }
}
