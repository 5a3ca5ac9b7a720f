//! Replaces the NVIDIA driver in a build without the feature `cuda`.

use super::driver::Driver;
use crate::error::{Error, Result};
use std::sync::Arc;

pub(super) fn open() -> Result<(Arc<dyn Driver>, usize)> {
    Err(Error::runtime_not_found(
        "this build of usmq cannot load the CUDA driver; build it with the feature cuda",
    ))
}
