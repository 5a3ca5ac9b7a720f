//! A context: the devices for which its USM pointers are valid.

use super::host_event::UserEvents;
use super::kernel_cache;
use super::program::ContextKey;
use super::{Backend, Capabilities, UsmKind};
use crate::completion::release;
use crate::error::{During, Error, Result};
use crate::ffi;
use crate::runtime::{Handle, Interned, Interner};
use cxx::UniquePtr;
use once_cell::sync::{Lazy, OnceCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// A SYCL context. Cheap to clone; equal handles are the same context of the runtime.
///
/// A device's [default context](crate::Device::default_context) lives as long as the process, with the queues,
/// memory and kernels made in it. Any other context is freed with its last handle, queue, array and event,
/// and its kernels and pools with it. Exceptions: a context with a transfer from or to a CUDA device lives
/// on, and a kernel keeps its builds for the last four contexts.
///
/// ```
/// use usmq::{Context, Queue};
///
/// let queue = Queue::get("cpu")?;
/// assert_eq!(queue.context(), &queue.device().default_context()?);
/// let own = Context::new(&[queue.device().clone()])?; // its USM is not valid in the other
/// assert_ne!(&own, queue.context());
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// Source: SYCL 2020, section 4.6.3.
#[derive(Clone)]
pub struct Context(Interned<Inner>);

/// One entry per context of the runtime, however often another library passes it to usmq.
static CONTEXTS: Lazy<Interner<usize, Inner>> = Lazy::new(Interner::default);

struct Inner {
    /// Taken when the last handle is dropped.
    raw: ManuallyDrop<Handle<ffi::Context>>,
    id: usize,
    backend: Backend,
    /// What [`ffi::usm_info`] needs; its function is 0 where the driver has none.
    driver: OnceCell<[usize; 2]>,
    user_events: OnceCell<Arc<UserEvents>>,
}

/// USM at an address, as far as the driver describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsmAt {
    pub(crate) kind: UsmKind,
    /// Start and end of the allocation.
    pub(crate) range: Option<(usize, usize)>,
    /// The driver's handle of the device; 0 for host memory, and where the driver does not report it.
    pub(super) device: usize,
}

impl Drop for Inner {
    /// The release of kernels and of a context may block, so the release thread does it.
    fn drop(&mut self) {
        // SAFETY: taken once, here, and nothing uses it after.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        let built = kernel_cache::take(ContextKey(self.id));
        let user_events = self.user_events.take();
        release(move || {
            drop(user_events);
            drop(built);
            drop(raw);
        });
    }
}

impl Context {
    pub(crate) fn adopt(raw: UniquePtr<ffi::Context>) -> Result<Self> {
        Self::known(raw, false)
    }

    /// As `adopt`, but kept for the life of the process.
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
                let raw = ManuallyDrop::new(raw);
                Ok(Interned::new(Inner {
                    raw,
                    id: *id,
                    backend,
                    driver: OnceCell::new(),
                    user_events: OnceCell::new(),
                }))
            })
            .map(Self)
    }

    /// Whether it lives as long as the process, with everything made in it.
    pub(crate) fn is_process_lifetime(&self) -> bool {
        self.0.is_process_lifetime()
    }

    pub(crate) fn key(&self) -> ContextKey {
        ContextKey(self.0.id)
    }

    /// A new `sycl::context` on the C++ heap, for another library. [`Context::free_raw`] deletes it.
    ///
    /// # Errors
    /// [`Error::Sycl`](crate::Error::Sycl) if memory is short.
    pub fn to_raw(&self) -> Result<NonNull<c_void>> {
        let address = ffi::context_copy_to_heap(self.raw()?).during("copying a context")?;
        NonNull::new(address as *mut c_void).ok_or_else(|| Error::interop("the SYCL runtime gave no object"))
    }

    /// Deletes the object that [`Context::to_raw`] made.
    ///
    /// # Safety
    /// `handle` came from [`Context::to_raw`] and is freed once.
    pub unsafe fn free_raw(handle: NonNull<c_void>) {
        let address = handle.as_ptr() as usize;
        crate::completion::release(move || {
            // SAFETY: the caller's promise. An exception of the runtime's destructor cannot be reported.
            let _ = unsafe { ffi::context_free_heap(address) };
        });
    }

    pub(crate) fn raw(&self) -> Result<&ffi::Context> {
        self.0.raw.get()
    }

    /// Its user events. Only for a backend that has them.
    pub(super) fn user_events(&self) -> Result<Arc<UserEvents>> {
        let counted = self.capabilities().holds_waiting_commands;
        let make = || UserEvents::new(self.raw()?, counted).map(Arc::new);
        self.0.user_events.get_or_try_init(make).cloned()
    }

    /// The properties of the backend that select a mechanism in usmq.
    pub(super) fn capabilities(&self) -> &'static Capabilities {
        self.0.backend.capabilities()
    }

    /// The USM kind of a pointer, `None` if this context does not know it. Any address is valid.
    pub(crate) fn kind_of(&self, pointer: usize) -> Result<Option<UsmKind>> {
        let code = ffi::usm_kind(pointer, self.raw()?).during("querying the USM kind of a pointer")?;
        Ok(UsmKind::from_code(code))
    }

    /// The USM at an address, `None` if this context does not know it. Any address is valid.
    pub(crate) fn usm_at(&self, pointer: usize) -> Result<Option<UsmAt>> {
        let Some(driver) = self.driver()? else {
            return Ok(self.kind_of(pointer)?.map(|kind| UsmAt { kind, range: None, device: 0 }));
        };
        // SAFETY: the handle of this context, which lives.
        let found =
            unsafe { ffi::usm_info(driver, pointer) }.during("querying the allocation of a pointer")?;
        let ffi::UsmInfo { kind, base, bytes, device } = found;
        let range = (base != 0).then(|| (base, base + bytes.max(1)));
        Ok(UsmKind::from_code(kind).map(|kind| UsmAt { kind, range, device }))
    }

    /// What queries of the driver need; `None` where libsycl has to be asked.
    fn driver(&self) -> Result<Option<[usize; 2]>> {
        let raw = self.raw()?;
        if !self.capabilities().pointer_info {
            return Ok(None);
        }
        let find = || ffi::usm_driver(raw).during("querying the driver of a context");
        let driver = *self.0.driver.get_or_try_init(find)?;
        Ok((driver[1] != 0).then_some(driver))
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

/// `context 0x55…`, enough to compare two contexts.
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
