//! CUDA memory: imports and exports arrays on CUDA devices, and copies them to and from USM that is registered with the CUDA
//! driver.
//!
//! The driver is loaded at run time, by the feature `cuda`. Without the feature, without a driver, or with an
//! incomplete one, every function here returns [`Error::RuntimeNotFound`](crate::Error::RuntimeNotFound),
//! which names the missing part; the rest of usmq is not affected.

mod array;
#[cfg(not(feature = "cuda"))]
#[path = "stub.rs"]
mod cuda_driver;
#[cfg(feature = "cuda")]
mod cuda_driver;

mod device;
mod driver;
mod in_flight;
mod interface;
mod transfer;
mod transfer_stream;

#[cfg(test)]
mod mock_driver;
#[cfg(test)]
mod ordering_tests;
#[cfg(test)]
mod tests;

pub use array::CudaArray;
pub(crate) use array::{Described, ReadyEvent};
pub use interface::{Descriptor, export, import};

/// Returns the number of CUDA devices, or an error without any. Never panics, with or without a driver.
///
/// ```
/// match usmq::interop::cuda::device_count() {
///     Ok(count) => println!("{count} CUDA devices"),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
///
/// # Errors
/// [`Error::RuntimeNotFound`](crate::Error::RuntimeNotFound) naming what is missing.
pub fn device_count() -> crate::Result<usize> {
    cuda_driver::open().map(|(_, count)| count)
}

/// The stream on which producers order their work on memory of this device before they export it: the
/// `stream` of DLPack.
///
/// # Errors
/// [`Error::RuntimeNotFound`](crate::Error::RuntimeNotFound) without a driver,
/// [`Error::DeviceNotFound`](crate::Error::DeviceNotFound) for another number.
pub fn arrivals(ordinal: usize) -> crate::Result<usize> {
    device::CudaDevice::get(ordinal).map(|device| device.arrivals)
}

/// As [`arrivals`], after an event of another library, a `cudaEvent_t`; 0 stands for no event.
///
/// # Safety
/// The event is live and belongs to this process.
pub(crate) unsafe fn arrivals_after(ordinal: usize, event: usize) -> crate::Result<usize> {
    let device = device::CudaDevice::get(ordinal)?;
    if event != 0 {
        device.driver.stream_wait_event(device.context(), device.arrivals, event)?;
    }
    Ok(device.arrivals)
}
