//! Start of the runtime: checks before the first SYCL call, and whether this process may still make one.
//!
//! Nothing runs at load or import. The first device query calls [`ready`]; every later use of a SYCL object
//! calls [`Handle::get`], which fails in a forked child.

mod cache_dir;
pub(crate) mod checks;
pub(crate) mod emulator;
mod environment;
pub(crate) mod exit;
#[cfg(usmq_faults)]
pub mod faults;
mod fork_mutex;
mod interned;
pub(crate) mod interrupt;
mod loaded_libraries;
pub(crate) mod opencl_layers;
mod output;
pub(crate) mod python_lock;
mod regular_file;
mod retry;

pub(crate) use cache_dir::{Who, fault, make_private};
#[cfg(feature = "python")]
pub(crate) use environment::name_driver;
pub(crate) use environment::{
    Setting, TOO_EARLY, asked_too_early, folder_fault, kernel_cache, settings, warn, without_own_term,
};
pub(crate) use exit::{CountedWait, Pending, ensure_usable, has_ended, not_forked};
pub(crate) use fork_mutex::ForkMutex;
pub(crate) use interned::{AnyInterned, Interned, Interner};
pub use interrupt::with_interrupt;
pub(crate) use loaded_libraries::{drivers_are_loaded, libraries};
pub use opencl_layers::Layers;
pub(crate) use opencl_layers::cpu_queues_are_in_order;
pub(crate) use output::write_stdout;
pub(crate) use python_lock::without_python_lock;
pub(crate) use regular_file::{RegularFile, read_file, read_text};
pub(crate) use retry::{Patience, retry};

use crate::error::{Error, Result};
use cxx::UniquePtr;
use cxx::memory::UniquePtrTarget;
use once_cell::sync::OnceCell;
use std::mem::ManuallyDrop;

static STARTED: OnceCell<()> = OnceCell::new();

/// Prepares the process for its first SYCL call. A failure is not cached: the caller may fix it and try
/// again.
pub(crate) fn ready() -> Result<()> {
    ensure_usable()?;
    exit::watch_this_thread();
    STARTED.get_or_try_init(|| -> Result<()> {
        loaded_libraries::refuse_two_runtimes()?;
        if let Some(fault) = environment::folder_fault() {
            return Err(Error::runtime_not_found(fault));
        }
        if let Some(fault) = emulator::fault()? {
            return Err(fault.into());
        }
        environment::prepare();
        emulator::start();
        exit::watch_for_fork();
        Ok(())
    })?;
    Ok(())
}

/// Whether [`ready`] has succeeded: drivers may be loaded, and a fork would break them.
pub(crate) fn started() -> bool {
    STARTED.get().is_some()
}

/// An owned object of the shim. It is not destroyed in a forked child, where a driver would wait for threads that no
/// longer exist, nor once the process exits, which destroys the runtime.
pub(crate) struct Handle<T: UniquePtrTarget>(ManuallyDrop<UniquePtr<T>>);

impl<T: UniquePtrTarget> Handle<T> {
    pub(crate) fn new(object: UniquePtr<T>) -> Self {
        #[cfg(usmq_faults)]
        faults::count(&object, 1);
        Self(ManuallyDrop::new(object))
    }

    pub(crate) fn get(&self) -> Result<&T> {
        ensure_usable()?;
        self.0.as_ref().ok_or_else(|| Error::interop("the SYCL runtime returned no object"))
    }
}

impl<T: UniquePtrTarget> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Some(_counted) = CountedWait::unless_leaving() {
            #[cfg(usmq_faults)]
            faults::count(&self.0, -1);
            // SAFETY: drop runs once, and the object is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        } else {
            #[cfg(usmq_sanitizer)]
            LEFT.lock().push(self.0.as_ptr() as usize);
        }
    }
}

/// The objects that stay until the process ends, so that LeakSanitizer finds them.
#[cfg(usmq_sanitizer)]
static LEFT: parking_lot::Mutex<Vec<usize>> = parking_lot::Mutex::new(Vec::new());

/// Whether the caller, the unit test of this name, is to run here. It starts the runtime, while other tests of the
/// binary need one that has not started: so the first call runs the test in a process of its own.
#[cfg(test)]
pub(crate) fn is_own_process(name: &str) -> bool {
    const IN_CHILD: &str = "USMQ_TEST_IN_CHILD";
    if std::env::var_os(IN_CHILD).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name]).env(IN_CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}");
    false
}
