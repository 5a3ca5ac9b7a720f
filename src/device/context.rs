//! A context: the devices among which USM pointers mean something.

use super::program::Built;
use super::{Backend, Capabilities, Device, UsmKind};
use crate::completion::release;
use crate::error::{During, Result};
use crate::ffi;
use crate::runtime::{Handle, Interned, Interner};
use cxx::UniquePtr;
use once_cell::sync::Lazy;
use std::fmt;
use std::mem::ManuallyDrop;

/// A SYCL context. Cheap to clone; equal means the same context of the runtime.
///
/// A device's [default context](Device::default_context) stays for the process, with the queues, memory and kernels that
/// are made in it. Any other goes with its last handle, queue, array and event, and they with it; but one that had a
/// transfer from or to a CUDA device stays, and a kernel holds on to what was built for the last four.
///
/// Source: SYCL 2020, section 4.6.3.
#[derive(Clone)]
pub struct Context(Interned<Inner>);

/// One for each context of the runtime, however often another library hands it over.
static CONTEXTS: Lazy<Interner<usize, Inner>> = Lazy::new(Interner::default);

struct Inner {
    /// Taken when the last handle goes.
    parts: ManuallyDrop<Parts>,
    id: usize,
    backend: Backend,
}

struct Parts {
    /// Goes before the context does.
    built: Built,
    raw: Handle<ffi::Context>,
}

impl Drop for Inner {
    /// The release of kernels and of a context may block.
    fn drop(&mut self) {
        // SAFETY: taken once, here, and nothing uses it after.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        release(move || drop(parts));
    }
}

/// Kind, device and allocation of an address in USM. [`Context::pointer_info`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerInfo {
    /// The USM kind.
    pub kind: UsmKind,
    /// The device that owns device or shared memory; for host memory a device of the context.
    pub device: Device,
    /// First address of the allocation; `None` where the driver does not tell.
    pub base: Option<usize>,
    /// Bytes of the allocation; `None` where the driver does not tell.
    pub bytes: Option<usize>,
}

/// A context as part of a key, which keeps none: another may come to have the same, once this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContextKey(usize);

impl Context {
    /// A fresh context for these devices. USM of one context means nothing in another, so prefer
    /// [`Device::default_context`]; sub-devices that are to share memory need one made here.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when the devices do not go together.
    pub fn new(devices: &[Device]) -> Result<Self> {
        Self::adopt(Self::raw_new(devices)?)
    }

    pub(super) fn raw_new(devices: &[Device]) -> Result<UniquePtr<ffi::Context>> {
        ffi::context_new(&*Device::list(devices)?).during("creating a context")
    }

    pub(crate) fn adopt(raw: UniquePtr<ffi::Context>) -> Result<Self> {
        Self::known(raw, false)
    }

    /// The same for the rest of the process.
    pub(super) fn keep(raw: UniquePtr<ffi::Context>) -> Result<Self> {
        Self::known(raw, true)
    }

    fn known(raw: UniquePtr<ffi::Context>, keep: bool) -> Result<Self> {
        let raw = Handle::new(raw);
        let id = ffi::context_id(raw.get()?).during("identifying a context")?;
        CONTEXTS
            .get_or_make(id, keep, |id| {
                let backend = ffi::context_backend(raw.get()?).during("querying the backend of a context")?;
                let backend = Backend::from_name(&backend);
                let parts = ManuallyDrop::new(Parts { built: Built::default(), raw });
                Ok(Interned::new(Inner { parts, id: *id, backend }))
            })
            .map(Self)
    }

    /// Whether it stays for the process, and with it what is made in it.
    pub(crate) fn is_process_lifetime(&self) -> bool {
        self.0.is_process_lifetime()
    }

    pub(crate) fn key(&self) -> ContextKey {
        ContextKey(self.0.id)
    }

    /// A handle to a context of another library.
    ///
    /// # Safety
    /// `address` is that of a live `sycl::context` made by the libsycl of this process. It is copied, not kept.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when the runtime refuses it.
    pub unsafe fn from_raw(address: usize) -> Result<Self> {
        crate::device::devices()?;
        // SAFETY: the caller's promise.
        Self::adopt(unsafe { ffi::context_copy_from(address) }.during("copying a context")?)
    }

    /// A new `sycl::context` on the C++ heap, for another library. [`Context::free_raw`] deletes it.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when memory is short.
    pub fn to_raw(&self) -> Result<usize> {
        ffi::context_copy_to_heap(self.raw()?).during("copying a context")
    }

    /// Deletes what [`Context::to_raw`] made.
    ///
    /// # Safety
    /// `address` came from [`Context::to_raw`] and is freed once.
    pub unsafe fn free_raw(address: usize) {
        crate::completion::release(move || {
            // SAFETY: the caller's promise. An exception of the runtime's destructor has nowhere to go.
            let _ = unsafe { ffi::context_free_heap(address) };
        });
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Context> {
        self.0.parts.raw.get()
    }

    /// The features that usmq chooses a mechanism by.
    pub(super) fn capabilities(&self) -> &'static Capabilities {
        self.0.backend.capabilities()
    }

    pub(super) fn built(&self) -> &Built {
        &self.0.parts.built
    }

    /// The devices of this context.
    ///
    /// # Errors
    /// [`Error::Interop`](crate::Error::Interop) when one of them is not visible to this process.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let list = ffi::context_devices(self.raw()?).during("querying the devices of a context")?;
        list.iter()
            .map(|device| Device::adopt(ffi::device_copy(device).during("copying a device")?))
            .collect()
    }

    /// Asks the runtime for kind, device and allocation of an address. `None` when it is not USM of this context. Any
    /// address may be asked about. The answer is out of date once another thread frees the memory.
    ///
    /// ```
    /// let x = usmq::Array::zeros::<f32>([3])?;
    /// let found = x.context().pointer_info(x.address())?;
    /// assert!(found.is_some_and(|found| found.kind == x.usm_kind() && found.device == *x.device()));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) when the runtime cannot answer.
    pub fn pointer_info(&self, address: usize) -> Result<Option<PointerInfo>> {
        let Some(kind) = self.kind_of(address)? else { return Ok(None) };
        let range = self.range_of(address)?;
        Ok(Some(PointerInfo {
            kind,
            device: self.device_of(address)?,
            base: range.map(|(base, _)| base),
            bytes: range.map(|(base, end)| end - base),
        }))
    }

    /// The USM kind of a pointer, `None` when this context does not know it. The question is safe for any address.
    pub(crate) fn kind_of(&self, pointer: usize) -> Result<Option<UsmKind>> {
        let code = ffi::usm_kind(pointer, self.raw()?).during("querying the USM kind of a pointer")?;
        Ok(UsmKind::from_code(code))
    }

    /// First address and end of the allocation that a pointer is in; `None` where the driver does not tell.
    pub(crate) fn range_of(&self, pointer: usize) -> Result<Option<(usize, usize)>> {
        if !self.capabilities().pointer_info {
            return Ok(None);
        }
        let [base, bytes] = ffi::usm_range(pointer, self.raw()?).during("querying the range of a pointer")?;
        Ok((base != 0).then(|| (base, base + bytes.max(1))))
    }

    /// The device of a USM pointer that [`Context::kind_of`] knows.
    pub(crate) fn device_of(&self, pointer: usize) -> Result<Device> {
        let raw = self.raw()?;
        let during = "querying the device of a pointer";
        if self.capabilities().pointer_info {
            let named = ffi::usm_device_of_driver(pointer, raw).during(during)?;
            if !named.is_null() {
                return Device::adopt(named);
            }
        }
        Device::adopt(ffi::usm_device(pointer, raw).during(during)?)
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Context {}

impl std::hash::Hash for Context {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

/// `context 0x55…`, enough to see whether two are the same.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {:#x}", self.0.id)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({:#x})", self.0.id)
    }
}
