//! The structs of DLPack, as another library sees them.
//!
//! Source: `dlpack/dlpack.h`, version 1.3, and the legacy struct of before 1.0.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};

/// `kDLCPU`.
pub(super) const CPU: i32 = 1;
/// `kDLCUDA`.
pub(super) const CUDA: i32 = 2;
/// `kDLCUDAHost`.
pub(super) const CUDA_HOST: i32 = 3;
/// `kDLCUDAManaged`.
pub(super) const CUDA_MANAGED: i32 = 13;
/// `kDLOneAPI`: USM of a oneAPI root device in its platform's default context.
pub(super) const ONEAPI: i32 = 14;

/// The version of what usmq exports.
pub(super) const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 3 };

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub(super) const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
pub(super) const IS_COPIED: u64 = 2;

/// `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DLDevice {
    pub(super) kind: i32,
    pub(super) id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DLDataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// `DLTensor`: the location of elements, without an owner. Strides count elements.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    pub(super) data: *mut c_void,
    pub(super) device: DLDevice,
    pub(super) ndim: i32,
    pub(super) dtype: DLDataType,
    pub(super) shape: *mut i64,
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// `DLPackVersion`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DLPackVersion {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// `DLManagedTensor`, of before version 1.0, which has no flags for "read-only" and "copied".
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    pub(super) tensor: DLTensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    pub(super) version: DLPackVersion,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    pub(super) flags: u64,
    pub(super) tensor: DLTensor,
}

/// Either of the two structs.
pub trait Managed: sealed::Managed {}

impl Managed for DLManagedTensor {}
impl Managed for DLManagedTensorVersioned {}

pub(super) mod sealed {
    use super::{DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION};
    use std::ffi::c_void;

    /// The common part of the two structs.
    #[allow(missing_docs, private_interfaces)]
    pub trait Managed: Sized + 'static {
        /// Whether the struct has a read-only flag.
        const SAYS_READ_ONLY: bool;

        fn new(
            tensor: DLTensor,
            flags: u64,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
        ) -> Self;
        fn tensor(&self) -> &DLTensor;
        fn context(&self) -> *mut c_void;
        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
        /// `None` for another major version, in which the rest of the struct may have another layout.
        fn is_readonly(&self) -> Option<bool>;
    }

    #[allow(private_interfaces)]
    impl Managed for DLManagedTensor {
        const SAYS_READ_ONLY: bool = false;

        fn new(
            tensor: DLTensor,
            _: u64,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
        ) -> Self {
            Self { tensor, context, deleter: Some(deleter) }
        }

        fn tensor(&self) -> &DLTensor {
            &self.tensor
        }

        fn context(&self) -> *mut c_void {
            self.context
        }

        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
            self.deleter
        }

        fn is_readonly(&self) -> Option<bool> {
            Some(false)
        }
    }

    #[allow(private_interfaces)]
    impl Managed for DLManagedTensorVersioned {
        const SAYS_READ_ONLY: bool = true;

        fn new(
            tensor: DLTensor,
            flags: u64,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
        ) -> Self {
            Self { version: VERSION, context, deleter: Some(deleter), flags, tensor }
        }

        fn tensor(&self) -> &DLTensor {
            &self.tensor
        }

        fn context(&self) -> *mut c_void {
            self.context
        }

        fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
            self.deleter
        }

        fn is_readonly(&self) -> Option<bool> {
            (self.version.major == VERSION.major).then_some(self.flags & READ_ONLY != 0)
        }
    }
}

const _: () = {
    assert!(size_of::<DLTensor>() == 48);
    assert!(offset_of!(DLTensor, dtype) == 20);
    assert!(offset_of!(DLTensor, byte_offset) == 40);
    assert!(size_of::<DLManagedTensor>() == 64);
    assert!(size_of::<DLManagedTensorVersioned>() == 80);
    assert!(offset_of!(DLManagedTensorVersioned, flags) == 24);
    assert!(offset_of!(DLManagedTensorVersioned, tensor) == 32);
};
