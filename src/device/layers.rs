//! Reports why a part of usmq's OpenCL layer that the process needs is not in use.

use super::{Backend, Device};
use crate::runtime::{self, emulator, opencl_layers};

/// A part of the layer that the process needs, and does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerProblem {
    /// The part, the reason, and what to do.
    pub text: String,
    /// A command for the shell, after which the problem is gone.
    pub fix: String,
}

/// The parts that the process needs, and does not use. Asks the layer, so it needs the devices of the first query.
pub(crate) fn layer_problems(devices: &[Device]) -> Vec<LayerProblem> {
    waits(devices).into_iter().chain(emulated_gpus(devices)).collect()
}

fn waits(devices: &[Device]) -> Option<LayerProblem> {
    let needed = devices
        .iter()
        .any(|device| device.backend() == Backend::OpenCl && device.computes_in_waiting_threads());
    if !needed || !opencl_layers::wants_in_order_queues() || opencl_layers::layers().waits {
        return None;
    }
    let (why, fix) = opencl_layers::why_unused();
    Some(LayerProblem {
        text: format!(
            "waits of several threads may lock up the OpenCL driver for CPUs, because the layer that prevents this is off: {why}"
        ),
        fix: fix
            .unwrap_or_else(|| format!("export {}=0    # to go without it", opencl_layers::WAITS_VARIABLE)),
    })
}

fn emulated_gpus(devices: &[Device]) -> Option<LayerProblem> {
    const SELECTOR: &str = "ONEAPI_DEVICE_SELECTOR";
    let asked = emulator::at_start()?;
    if devices.iter().any(|device| device.name().starts_with(emulator::NAME)) {
        return None;
    }
    let (is_on, made) = (opencl_layers::layers().emulator, opencl_layers::emulated_gpus());
    let asks_opencl = !runtime::libraries("libOpenCL.so").is_empty();
    let (why, fix) = match std::env::var(SELECTOR) {
        // A selector may also keep the runtime from asking OpenCL at all.
        Ok(selector) if made > 0 || !asks_opencl => {
            let own = runtime::without_own_term(&selector);
            (format!("{SELECTOR}={own:?} hides them"), Some(format!("unset {SELECTOR}")))
        }
        _ if made > 0 => ("the SYCL runtime does not list them".to_owned(), None),
        _ if is_on => {
            let why =
                "the layer found no CPU device of OpenCL that it can divide; standard error has its message";
            (why.to_owned(), None)
        }
        _ => opencl_layers::why_unused(),
    };
    Some(LayerProblem {
        text: format!("{}={asked}, but no emulated GPU is visible: {why}", emulator::GPUS),
        fix: fix.unwrap_or_else(|| format!("unset {}", emulator::GPUS)),
    })
}

/// Reports the problems once, after the first device query.
pub(super) fn warn(devices: &[Device]) {
    for problem in layer_problems(devices) {
        runtime::warn(&problem.text);
    }
}
