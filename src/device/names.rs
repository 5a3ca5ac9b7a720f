//! The types and aspects of devices, by the names that SYCL gives them. Pure.

use crate::error::{Error, Result};
use std::fmt;

/// An enum whose variants have names: `name`, `ALL`, `Display` and `FromStr`.
macro_rules! named {
    ($(#[$attribute:meta])* $type:ident, $what:literal: $($(#[$note:meta])+ $variant:ident $name:literal;)+) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$note])+ $variant,)+
        }

        impl $type {
            /// Every value that usmq knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in SYCL.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|value| value.name()).collect();
                    Error::value(format!("unknown {} {text:?}; expected {}", $what, names.join(", ")))
                })
            }
        }
    };
}

named! {
    /// The type of a device. Source: SYCL 2020, section 4.6.4.1.
    ///
    /// ```
    /// use usmq::{Device, DeviceType};
    ///
    /// assert_eq!(usmq::Queue::get("cpu")?.device().device_type(), DeviceType::Cpu);
    /// assert_eq!("gpu".parse::<DeviceType>()?.to_string(), "gpu");
    /// # Ok::<(), usmq::Error>(())
    /// ```
    DeviceType, "device type":
    /// A CPU.
    Cpu "cpu";
    /// A GPU.
    Gpu "gpu";
    /// An accelerator, such as an FPGA.
    Accelerator "accelerator";
    /// Any other device.
    Custom "custom";
}

named! {
    /// A feature that a device may have. Source: SYCL 2020, section 4.6.4.5.
    ///
    /// ```
    /// use usmq::Aspect;
    ///
    /// let device = usmq::Queue::get("cpu")?.device().clone();
    /// assert!(device.has(Aspect::UsmDeviceAllocations)?);
    /// assert_eq!("fp64".parse::<Aspect>()?, Aspect::Fp64);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    Aspect, "aspect":
    /// It is a CPU.
    Cpu "cpu";
    /// It is a GPU.
    Gpu "gpu";
    /// It is an accelerator.
    Accelerator "accelerator";
    /// It is another kind of device.
    Custom "custom";
    /// It is emulated, for debugging.
    Emulated "emulated";
    /// Kernels may use 16-bit floats.
    Fp16 "fp16";
    /// Kernels may use 64-bit floats.
    Fp64 "fp64";
    /// Kernels may use 64-bit atomic operations.
    Atomic64 "atomic64";
    /// It has images.
    Image "image";
    /// Kernels can be compiled at run time.
    OnlineCompiler "online_compiler";
    /// Kernels can be linked at run time.
    OnlineLinker "online_linker";
    /// Queues can record timestamps.
    QueueProfiling "queue_profiling";
    /// It has device USM.
    UsmDeviceAllocations "usm_device_allocations";
    /// It has host USM.
    UsmHostAllocations "usm_host_allocations";
    /// The host and the device may access host USM with atomic operations at the same time.
    UsmAtomicHostAllocations "usm_atomic_host_allocations";
    /// It has shared USM.
    UsmSharedAllocations "usm_shared_allocations";
    /// The host and devices may access shared USM with atomic operations at the same time.
    UsmAtomicSharedAllocations "usm_atomic_shared_allocations";
    /// Kernels may use memory of the host's allocator.
    UsmSystemAllocations "usm_system_allocations";
}

impl DeviceType {
    /// The type with this name in the shim.
    pub(super) fn from_name(name: &str) -> Self {
        name.parse().unwrap_or(Self::Custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused() {
        for kind in DeviceType::ALL {
            assert_eq!(kind.to_string().parse::<DeviceType>().unwrap(), *kind);
        }
        for aspect in Aspect::ALL {
            assert_eq!(aspect.to_string().parse::<Aspect>().unwrap(), *aspect);
        }
        let error = "GPU".parse::<DeviceType>().unwrap_err().to_string();
        assert_eq!(error, "unknown device type \"GPU\"; expected cpu, gpu, accelerator, custom");
        assert!("fp8".parse::<Aspect>().is_err());
    }

    #[test]
    fn the_runtime_has_every_aspect_of_the_list() {
        let known = crate::ffi::aspect_names().unwrap();
        for aspect in Aspect::ALL {
            assert!(known.iter().any(|name| name == aspect.name()), "{aspect}");
        }
    }
}
