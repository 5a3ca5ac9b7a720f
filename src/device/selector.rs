//! SYCL filter strings: parses them and selects a device. Pure; the rules are libsycl's.
//!
//! ```text
//! selector := filter ("," filter)*     empty pieces are dropped
//! filter   := token (":" token){0,2}   any order; empty tokens are dropped
//! token    := backend | device type | index, at most one of each
//! ```
//!
//! Source: the SYCL extension `sycl_ext_oneapi_filter_selector`. An index counts the devices that match the
//! other parts of its filter, so `opencl:gpu:1` is the second OpenCL GPU. If several devices match, SYCL's
//! default rating decides; the first of the best is selected.

use super::Backend;
use crate::error::{Error, Result};

/// The properties of a device that a filter is matched against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub backend: Backend,
    pub device_type: &'a str,
    /// The default selector's rating; a device with a negative rating is never selected.
    pub score: i32,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Filter {
    backend: Option<Backend>,
    device_type: Option<&'static str>,
    index: Option<usize>,
}

/// A parsed filter string, as in `"gpu"`, `"opencl:cpu"`, `"gpu:1"` or `"level_zero:gpu,cpu"`.
///
/// ```
/// use usmq::Selector;
///
/// let selector: Selector = "opencl:cpu:0".parse()?;
/// assert_eq!(selector.as_str(), "opencl:cpu:0");
/// assert!("cpu;0".parse::<Selector>().is_err());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    filters: Vec<Filter>,
}

const DEVICE_TYPES: [&str; 3] = ["cpu", "gpu", "accelerator"];

impl Selector {
    /// Parses a filter string.
    ///
    /// ```
    /// use usmq::{Error, Selector};
    ///
    /// assert_eq!(Selector::parse("gpu:1")?.as_str(), "gpu:1");
    /// assert!(matches!(Selector::parse("gpu;1"), Err(Error::Selector { .. })));
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Selector`] with the invalid part.
    pub fn parse(text: &str) -> Result<Self> {
        let pieces = text.split(',').filter(|piece| !piece.is_empty());
        let filters = pieces
            .map(Filter::parse)
            .collect::<std::result::Result<Vec<_>, _>>()
            .and_then(|filters| if filters.is_empty() { Err("it is empty".to_owned()) } else { Ok(filters) })
            .map_err(|reason| Error::Selector { asked: text.to_owned(), reason })?;
        Ok(Self { text: text.to_owned(), filters })
    }

    /// The string as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The index of the device that SYCL would select.
    pub(crate) fn choose(&self, devices: &[Candidate<'_>]) -> Option<usize> {
        let mut seen = vec![0usize; self.filters.len()];
        let mut best: Option<(usize, i32)> = None;
        for (position, device) in devices.iter().enumerate() {
            // Every filter counts every device, even if an earlier filter has selected it.
            let mut taken = false;
            for (filter, seen) in self.filters.iter().zip(&mut seen) {
                taken |= filter.takes(device, seen);
            }
            if taken && device.score >= 0 && best.is_none_or(|(_, score)| device.score > score) {
                best = Some((position, device.score));
            }
        }
        best.map(|(position, _)| position)
    }
}

impl std::str::FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl Filter {
    fn parse(piece: &str) -> std::result::Result<Self, String> {
        // As libsycl: at most three fields; empty ones do not count.
        let tokens: Vec<_> = piece.split(':').filter(|token| !token.is_empty()).collect();
        if tokens.len() > 3 {
            return Err(format!("{piece:?} has more than three parts"));
        }
        let mut filter = Self::default();
        for token in tokens {
            let device_type = DEVICE_TYPES.into_iter().find(|name| *name == token);
            if let Some(backend) = Backend::IN_FILTERS.into_iter().find(|backend| backend.name() == token) {
                put(&mut filter.backend, backend, "backend", piece)?;
            } else if let Some(device_type) = device_type {
                put(&mut filter.device_type, device_type, "device type", piece)?;
            } else if token.bytes().all(|byte| byte.is_ascii_digit()) {
                // libsycl parses the number as an int.
                let index = token.parse::<i32>().map_err(|_| format!("index {token} is too large"))?;
                put(&mut filter.index, index.unsigned_abs() as usize, "index", piece)?;
            } else {
                return Err(format!(
                    "{token:?} is neither a backend ({}), a device type ({}) nor an index",
                    Backend::IN_FILTERS.map(Backend::name).join(", "),
                    DEVICE_TYPES.join(", ")
                ));
            }
        }
        Ok(filter)
    }

    fn takes(&self, device: &Candidate<'_>, seen: &mut usize) -> bool {
        let fits = self.backend.is_none_or(|backend| backend == device.backend)
            && self.device_type.is_none_or(|device_type| device_type == device.device_type);
        if !fits {
            return false;
        }
        let position = *seen;
        *seen += 1;
        self.index.is_none_or(|index| index == position)
    }
}

fn put<T>(place: &mut Option<T>, value: T, what: &str, piece: &str) -> std::result::Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{piece:?} names more than one {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn device(backend: Backend, device_type: &'static str, score: i32) -> Candidate<'static> {
        Candidate { backend, device_type, score }
    }

    const MACHINE: [Candidate<'static>; 5] = [
        device(Backend::OpenCl, "cpu", 300),
        device(Backend::OpenCl, "gpu", 500),
        device(Backend::LevelZero, "gpu", 550),
        device(Backend::LevelZero, "gpu", 550),
        device(Backend::OpenCl, "accelerator", 75),
    ];

    fn choose(text: &str) -> Option<usize> {
        Selector::parse(text).unwrap_or_else(|error| panic!("{error}")).choose(&MACHINE)
    }

    #[test]
    fn each_accepted_form_selects_the_same_device_as_sycl() {
        for (text, expected) in [
            ("cpu", Some(0)),
            ("gpu", Some(2)),
            ("gpu:0", Some(1)),
            ("gpu:1", Some(2)),
            ("level_zero:gpu:1", Some(3)),
            ("1:gpu:level_zero", Some(3)),
            ("opencl:gpu", Some(1)),
            ("opencl", Some(1)),
            ("opencl::0", Some(0)),
            ("0:cpu", Some(0)),
            ("4", Some(4)),
            ("5", None),
            (":", Some(2)),
            ("cpu,", Some(0)),
            (",cpu", Some(0)),
            ("cpu,gpu", Some(2)),
            ("cuda,accelerator", Some(4)),
            ("hip", None),
            ("cpu:007", None),
        ] {
            assert_eq!(choose(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_rejected_device_is_never_selected() {
        let devices = [device(Backend::OpenCl, "cpu", -1)];
        assert_eq!(Selector::parse("cpu").unwrap_or_else(|e| panic!("{e}")).choose(&devices), None);
    }

    #[test]
    fn each_refused_form_names_the_invalid_part() {
        for text in [
            "",
            ",",
            "CPU",
            " cpu",
            "gpu, cpu",
            "-1",
            "+0",
            "*",
            "*:cpu",
            "!cpu",
            "host",
            "acc",
            "all",
            "native_cpu",
            "ext_oneapi_level_zero:gpu",
            "cpu:cpu",
            "opencl:cpu:0:0",
            "cpu;gpu",
            "cpu\0x",
            "1:2",
            "99999999999",
            "opencl:hip",
        ] {
            let error = Selector::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
