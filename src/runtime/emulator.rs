//! The emulated GPUs: reads the variables of the process, and says why the OpenCL layer cannot make them.

use super::opencl_layers;
use crate::error::{During, Error, Result, spelled};
use crate::ffi;
use once_cell::sync::OnceCell;
use std::path::PathBuf;

/// The number of GPUs to emulate; without it the other variables have no effect.
pub(crate) const GPUS: &str = "USMQ_EMULATE_GPUS";
/// The other variables that the layer reads.
pub(crate) const OTHERS: [&str; 3] =
    ["USMQ_EMULATE_GPU_MEMORY", "USMQ_EMULATE_SYSTEM_USM", "USMQ_EMULATE_FAULTS"];
/// All variables of [`values`].
const NAMES: [&str; 4] = [GPUS, OTHERS[0], OTHERS[1], OTHERS[2]];

/// The prefix of the names of emulated GPUs, which the layer sets.
pub(crate) const NAME: &str = "Emulated GPU ";

/// The values of [`NAMES`] at the first device query.
static AT_START: OnceCell<[Option<String>; NAMES.len()]> = OnceCell::new();

/// Why requested emulated GPUs are not visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A variable has an invalid value.
    Setting(String),
    /// The library of the layer cannot be listed.
    NoLibrary(String),
    /// The OpenCL loader has read its variables already.
    TooLate {
        /// The problem.
        text: String,
        /// The value that OPENCL_LAYERS needs before the process starts.
        layers: PathBuf,
    },
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let (Fault::Setting(text) | Fault::NoLibrary(text) | Fault::TooLate { text, .. }) = fault;
        Self::runtime_not_found(text)
    }
}

/// The requested number of GPUs, as the user wrote it.
pub(crate) fn asked_for() -> Option<String> {
    value_of(GPUS)
}

fn value_of(name: &str) -> Option<String> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

fn values() -> [Option<String>; NAMES.len()] {
    NAMES.map(value_of)
}

/// Records the variables that the first device query, which follows, reads.
pub(super) fn start() {
    AT_START.get_or_init(values);
}

/// The number of GPUs that was requested at the first device query.
pub(crate) fn at_start() -> Option<&'static str> {
    AT_START.get()?[0].as_deref()
}

/// The variable that has changed since the first device query, while GPUs are requested. Not an error: a program may set
/// the variables for its child processes.
pub(crate) fn ignored_change() -> Option<String> {
    let before = AT_START.get()?;
    let now = values();
    now[0].as_ref()?;
    let changed = (0..now.len()).find(|number| now[*number] != before[*number])?;
    Some(format!(
        "{} has changed since the first device query, which read it; set it before that query, or before the process starts",
        NAMES[changed]
    ))
}

/// The variable with an invalid value, and its valid values.
fn wrong_setting() -> Result<Option<String>> {
    let [gpus, memory, system_usm, faults] = values().map(Option::unwrap_or_default);
    let fault = ffi::emulation_fault(&gpus, &memory, &system_usm, &faults)
        .during("reading the emulator's settings")?;
    Ok((!fault.is_empty()).then_some(fault))
}

/// Checks for problems that would hide the requested GPUs. `None` if none are requested or no problem is
/// found.
pub(crate) fn fault() -> Result<Option<Fault>> {
    if asked_for().is_none() {
        return Ok(None);
    }
    if let Some(wrong) = wrong_setting()? {
        return Ok(Some(Fault::Setting(wrong)));
    }
    if let Err(reason) = opencl_layers::find() {
        return Ok(Some(Fault::NoLibrary(format!(
            "the emulated GPUs need the OpenCL layer of usmq: {reason}"
        ))));
    }
    let too_late = opencl_layers::is_too_late_for_gpus();
    let layers = || {
        let set = || std::env::var_os(opencl_layers::VARIABLE);
        opencl_layers::value(true).or_else(set).unwrap_or_default().into()
    };
    Ok(too_late.then(|| Fault::TooLate { text: too_late_text(), layers: layers() }))
}

fn too_late_text() -> String {
    format!(
        "{GPUS} was set after the SYCL runtime had been asked for its devices, and the runtime reads its settings once; \
         set it before the process starts, or before the first device query{}",
        spelled(" of any library", "")
    )
}

#[cfg(test)]
mod tests {
    use crate::ffi::emulation_fault;

    fn fault(memory: &str, system_usm: &str, faults: &str) -> String {
        emulation_fault("2", memory, system_usm, faults).unwrap()
    }

    #[test]
    fn numbers_of_gpus_are_parsed() {
        for right in ["", "1", "2", "64", "007"] {
            assert_eq!(emulation_fault(right, "", "", "").unwrap(), "", "{right}");
        }
        for wrong in ["0", "65", "-1", "+1", " 1", "1 ", "two", "1.0", "99999999999999999999"] {
            let text = emulation_fault(wrong, "", "", "").unwrap();
            assert_eq!(
                text,
                format!("USMQ_EMULATE_GPUS=\"{wrong}\": expected a number of GPUs from 1 to 64")
            );
        }
    }

    #[test]
    fn without_gpus_nothing_else_is_read() {
        assert_eq!(emulation_fault("", "x", "x", "x").unwrap(), "");
    }

    #[test]
    fn memory_sizes_are_parsed() {
        for right in ["1048576", "1MiB", "4GiB", "1024KiB", "2TiB", "5MB", "1GB", "1500kB", "1048576B"] {
            assert_eq!(fault(right, "", ""), "", "{right}");
        }
        for wrong in
            ["0", "1048575", "4", "4 GiB", "GiB", "-1MiB", "1.5GiB", "4G", "99999999999TiB", "0x100000"]
        {
            assert!(fault(wrong, "", "").starts_with("USMQ_EMULATE_GPU_MEMORY="), "{wrong}");
        }
    }

    #[test]
    fn system_usm_is_0_or_1() {
        assert_eq!([fault("", "0", ""), fault("", "1", "")], ["", ""]);
        assert_eq!(fault("", "yes", ""), "USMQ_EMULATE_SYSTEM_USM=\"yes\": expected 0 or 1");
    }

    #[test]
    fn fault_settings_follow_the_grammar() {
        for right in [
            "gpu:0=lost",
            "gpu:1=lost@10",
            "gpu:0=alloc@3,gpu:0=alloc@5+",
            "gpu:0=slow:50us,gpu:1=slow:2ms,gpu:1=command-error@1",
            "gpu:0=slow:60s",
        ] {
            assert_eq!(fault("", "", right), "", "{right}");
        }
        for wrong in [
            "lost",
            "gpu=lost",
            "gpu:=lost",
            "gpu:2=lost",
            "gpu:0=",
            "gpu:0=lose",
            "gpu:0=lost@",
            "gpu:0=lost@0",
            "gpu:0=lost@-1",
            "gpu:0=alloc@+",
            "gpu:0=slow",
            "gpu:0=slow:",
            "gpu:0=slow:3",
            "gpu:0=slow:0us",
            "gpu:0=slow:61s",
            "gpu:0=lost,,gpu:1=lost",
            "gpu:0=lost gpu:1=lost",
            "cpu:0=lost",
        ] {
            let text = fault("", "", wrong);
            assert!(text.starts_with("USMQ_EMULATE_FAULTS=") && text.contains(wrong), "{wrong}: {text}");
        }
    }
}
