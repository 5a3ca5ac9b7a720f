//! `usmq.Device`.

use super::classes::Device;
use super::gil::detach;
use super::platform::{Platform, filter};
use super::{argument, index, pickle, target};
use crate::runtime::emulator::{self, Fault};
use crate::{Partition, UsmKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PySequence, PyString};
use std::collections::BTreeMap;

impl Device {
    fn properties(&self, py: Python<'_>) -> PyResult<&crate::DeviceProperties> {
        Ok(detach(py, || self.0.properties())?)
    }
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (filter=None, /))]
    fn new(py: Python<'_>, filter: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let target = target::target(filter, "filter")?;
        Ok(Self(detach(py, || target.device())?))
    }

    /// The device's name, as the driver reports it.
    #[getter]
    fn name(&self) -> &str {
        self.0.name().trim()
    }

    /// The vendor's name.
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor()
    }

    /// The driver's version.
    #[getter]
    fn driver_version(&self) -> &str {
        self.0.driver_version()
    }

    /// ``"opencl"``, ``"level_zero"``, ``"cuda"``, ``"hip"``, ``"native_cpu"`` or ``"other"``.
    #[getter]
    fn backend(&self) -> &str {
        self.0.backend().name()
    }

    /// ``"cpu"``, ``"gpu"``, ``"accelerator"`` or ``"custom"``.
    #[getter]
    fn device_type(&self) -> &str {
        self.0.device_type().name()
    }

    /// The filter string of this root device; None for a sub-device.
    #[getter]
    fn filter_string(&self) -> Option<&str> {
        self.0.filter_string()
    }

    /// Names of the SYCL aspects that the device has, as ``"fp64"``.
    #[getter]
    fn aspects(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(detach(py, || self.0.aspect_names().map(<[String]>::to_vec))?)
    }

    /// Return whether the device has a SYCL aspect, as ``"fp64"``.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     SYCL has no aspect of this name.
    fn has_aspect(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::name)] name: &str,
    ) -> PyResult<bool> {
        Ok(detach(py, || self.0.has(name))?)
    }

    /// Return the best device with these properties, by the rating of SYCL's default selector.
    ///
    /// Parameters
    /// ----------
    /// aspects : sequence of str, optional
    ///     SYCL aspects that the device must have, as ``["fp64"]``.
    /// excluded_aspects : sequence of str, optional
    ///     SYCL aspects that it must not have, as ``["emulated"]``.
    /// backend : str, optional
    ///     Its backend, as ``"opencl"`` or ``"level_zero"``.
    /// device_type : str, optional
    ///     ``"cpu"``, ``"gpu"``, ``"accelerator"`` or ``"custom"``.
    ///
    /// Raises
    /// ------
    /// DeviceNotFoundError
    ///     No visible device has these properties; the text lists the visible ones.
    /// ValueError
    ///     A name is unknown.
    ///
    /// Examples
    /// --------
    /// >>> import usmq
    /// >>> usmq.Device.select(aspects=["fp64"], device_type="cpu").has_aspect("fp64")
    /// True
    #[staticmethod]
    #[pyo3(signature = (*, aspects=None, excluded_aspects=None, backend=None, device_type=None))]
    fn select(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::aspects)] aspects: Option<Vec<String>>,
        #[pyo3(from_py_with = argument::excluded_aspects)] excluded_aspects: Option<Vec<String>>,
        #[pyo3(from_py_with = argument::backend)] backend: Option<&str>,
        #[pyo3(from_py_with = argument::device_type)] device_type: Option<&str>,
    ) -> PyResult<Self> {
        let filter = filter(aspects, excluded_aspects, backend, device_type);
        Ok(Self(detach(py, || filter.select())?))
    }

    /// The platform of the device.
    #[getter]
    fn platform(&self, py: Python<'_>) -> PyResult<Platform> {
        Ok(Platform(detach(py, || self.0.platform())?))
    }

    /// The root device: this device, or its outermost parent.
    #[getter]
    fn root_device(&self) -> Self {
        Self(self.0.root_device().clone())
    }

    /// The rating of SYCL's default selector; a device with a negative rating is never a default.
    #[getter]
    fn default_selector_score(&self) -> i32 {
        self.0.default_selector_score()
    }

    /// Whether ``device_type`` is ``"cpu"``.
    #[getter]
    fn is_cpu(&self) -> bool {
        self.0.device_type().name() == "cpu"
    }

    /// Whether ``device_type`` is ``"gpu"``.
    #[getter]
    fn is_gpu(&self) -> bool {
        self.0.device_type().name() == "gpu"
    }

    /// Whether ``device_type`` is ``"accelerator"``.
    #[getter]
    fn is_accelerator(&self) -> bool {
        self.0.device_type().name() == "accelerator"
    }

    /// Largest number of sub-devices.
    #[getter]
    fn partition_max_sub_devices(&self) -> u32 {
        self.0.max_sub_devices()
    }

    /// Return the numbers that devices of Intel report, as ``"free_memory"`` in bytes. Queried at each call.
    fn intel_device_info(&self, py: Python<'_>) -> PyResult<BTreeMap<String, u64>> {
        Ok(detach(py, || self.0.intel_device_info())?.into_iter().collect())
    }

    /// The vendor's number, as PCI numbers vendors.
    #[getter]
    fn vendor_id(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.vendor_id)
    }

    /// Bits of an address.
    #[getter]
    fn address_bits(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.address_bits)
    }

    /// Largest clock frequency in MHz; 0 if the driver does not report it.
    #[getter]
    fn max_clock_frequency(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_clock_frequency)
    }

    /// Dimensions of an nd-range.
    #[getter]
    fn max_work_item_dims(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_work_item_dims)
    }

    /// Largest extent of a work-group of one dimension.
    #[getter]
    fn max_work_item_sizes1d(&self, py: Python<'_>) -> PyResult<(usize,)> {
        self.properties(py).map(|p| (p.max_work_item_sizes1d,))
    }

    /// Largest extents of a work-group of two dimensions.
    #[getter]
    fn max_work_item_sizes2d(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.properties(py).map(|p| p.max_work_item_sizes2d.into())
    }

    /// Largest extents of a work-group of three dimensions.
    #[getter]
    fn max_work_item_sizes3d(&self, py: Python<'_>) -> PyResult<(usize, usize, usize)> {
        self.properties(py).map(|p| p.max_work_item_sizes3d.into())
    }

    /// Largest number of sub-groups in a work-group.
    #[getter]
    fn max_num_sub_groups(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_num_sub_groups)
    }

    /// The sub-group sizes that kernels can have.
    #[getter]
    fn sub_group_sizes(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.properties(py).map(|p| p.sub_group_sizes.clone())
    }

    /// Whether the sub-groups of a work-group make progress independently.
    #[getter]
    fn sub_group_independent_forward_progress(&self, py: Python<'_>) -> PyResult<bool> {
        self.properties(py).map(|p| p.sub_group_independent_forward_progress)
    }

    /// Preferred elements of a vector of char; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_char(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.char)
    }

    /// Preferred elements of a vector of short; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_short(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.short)
    }

    /// Preferred elements of a vector of int; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_int(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.int)
    }

    /// Preferred elements of a vector of long; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_long(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.long)
    }

    /// Preferred elements of a vector of float; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_float(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.float)
    }

    /// Preferred elements of a vector of double; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_double(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.double)
    }

    /// Preferred elements of a vector of half; 0 for a type that the device lacks.
    #[getter]
    fn preferred_vector_width_half(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.preferred_vector_width.half)
    }

    /// Elements of the instructions for vectors of char; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_char(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.char)
    }

    /// Elements of the instructions for vectors of short; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_short(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.short)
    }

    /// Elements of the instructions for vectors of int; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_int(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.int)
    }

    /// Elements of the instructions for vectors of long; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_long(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.long)
    }

    /// Elements of the instructions for vectors of float; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_float(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.float)
    }

    /// Elements of the instructions for vectors of double; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_double(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.double)
    }

    /// Elements of the instructions for vectors of half; 0 for a type that the device lacks.
    #[getter]
    fn native_vector_width_half(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.native_vector_width.half)
    }

    /// ``"none"``, ``"read_only"`` or ``"read_write"``.
    #[getter]
    fn global_mem_cache_type(&self, py: Python<'_>) -> PyResult<&str> {
        self.properties(py).map(|p| p.global_mem_cache_type.as_str())
    }

    /// Bytes of a line of the global memory's cache.
    #[getter]
    fn global_mem_cache_line_size(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.global_mem_cache_line_size)
    }

    /// Bytes of the global memory's cache.
    #[getter]
    fn global_mem_cache_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.properties(py).map(|p| p.global_mem_cache_size)
    }

    /// ``"none"``, ``"local"`` (dedicated memory) or ``"global"``.
    #[getter]
    fn local_mem_type(&self, py: Python<'_>) -> PyResult<&str> {
        self.properties(py).map(|p| p.local_mem_type.as_str())
    }

    /// Alignment in bits that every data type fits.
    #[getter]
    fn mem_base_addr_align(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.mem_base_addr_align)
    }

    /// Whether the memory corrects errors.
    #[getter]
    fn error_correction_support(&self, py: Python<'_>) -> PyResult<bool> {
        self.properties(py).map(|p| p.error_correction_support)
    }

    /// Largest size of all arguments of a kernel in bytes.
    #[getter]
    fn max_parameter_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.max_parameter_size)
    }

    /// Largest number of samplers of a kernel.
    #[getter]
    fn max_samplers(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_samplers)
    }

    /// Largest number of images that a kernel reads.
    #[getter]
    fn max_read_image_args(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_read_image_args)
    }

    /// Largest number of images that a kernel writes.
    #[getter]
    fn max_write_image_args(&self, py: Python<'_>) -> PyResult<u32> {
        self.properties(py).map(|p| p.max_write_image_args)
    }

    /// Largest width of a 2D image.
    #[getter]
    fn image_2d_max_width(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.image_2d_max[0])
    }

    /// Largest height of a 2D image.
    #[getter]
    fn image_2d_max_height(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.image_2d_max[1])
    }

    /// Largest width of a 3D image.
    #[getter]
    fn image_3d_max_width(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.image_3d_max[0])
    }

    /// Largest height of a 3D image.
    #[getter]
    fn image_3d_max_height(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.image_3d_max[1])
    }

    /// Largest depth of a 3D image.
    #[getter]
    fn image_3d_max_depth(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.image_3d_max[2])
    }

    /// Resolution of event timestamps in nanoseconds.
    #[getter]
    fn profiling_timer_resolution(&self, py: Python<'_>) -> PyResult<usize> {
        self.properties(py).map(|p| p.profiling_timer_resolution)
    }

    /// The partitions that the device supports, as ``"partition_equally"``.
    #[getter]
    fn partition_properties(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.properties(py).map(|p| p.partition_properties.clone())
    }

    /// The affinity domains of a partition, as ``"numa"``.
    #[getter]
    fn partition_affinity_domains(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.properties(py).map(|p| p.partition_affinity_domains.clone())
    }

    /// Number of compute units.
    #[getter]
    fn max_compute_units(&self) -> u32 {
        self.0.max_compute_units()
    }

    /// Largest number of work-items in a work-group.
    #[getter]
    fn max_work_group_size(&self) -> usize {
        self.0.max_work_group_size()
    }

    /// Global memory in bytes.
    #[getter]
    fn global_mem_size(&self) -> u64 {
        self.0.global_mem_size()
    }

    /// Local memory of a work-group in bytes.
    #[getter]
    fn local_mem_size(&self) -> u64 {
        self.0.local_mem_size()
    }

    /// Largest single allocation in bytes.
    #[getter]
    fn max_alloc_size(&self) -> u64 {
        self.0.max_alloc_size()
    }

    /// The parent of a sub-device; None for a root device.
    #[getter]
    fn parent(&self) -> Option<Self> {
        self.0.parent().cloned().map(Self)
    }

    /// Position of the root device among all visible ones.
    #[getter]
    fn ordinal(&self) -> usize {
        self.0.ordinal()
    }

    /// Whether memory of this USM kind can be allocated.
    ///
    /// Parameters
    /// ----------
    /// kind : str
    ///     ``"device"``, ``"shared"`` or ``"host"``.
    fn has_usm(&self, #[pyo3(from_py_with = argument::kind)] kind: &str) -> PyResult<bool> {
        Ok(self.0.has_usm(kind.parse::<UsmKind>()?))
    }

    /// Partition the device into sub-devices. The same request returns the same sub-devices. Each has its own
    /// context, and thus its own memory.
    ///
    /// Parameters
    /// ----------
    /// partition : int, list of int or "numa"
    ///     The compute units of every part, a list with the compute units of each part, or one part per NUMA
    ///     domain.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     A part would have less than one compute unit, or the name is unknown.
    /// TypeError
    ///     ``partition`` has another type.
    /// SyclError
    ///     The device cannot be partitioned this way, for example because it has too few compute units.
    fn sub_devices(&self, py: Python<'_>, partition: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        let partition = partition_from(partition)?;
        let parts = detach(py, || self.0.sub_devices(&partition))?;
        Ok(parts.into_iter().map(Self).collect())
    }

    /// Pickles the filter string.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<pickle::Reduced<'py>> {
        pickle::reduced(py, "Device", (pickle::filter(&self.0)?,))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        format!("<usmq.Device {}>", self.0)
    }
}

fn partition_from(object: &Bound<'_, PyAny>) -> PyResult<Partition> {
    if let Ok(text) = object.cast::<PyString>() {
        return match text.to_str()? {
            "numa" => Ok(Partition::Numa),
            other => Err(crate::Error::value(format!(
                "partition must be \"numa\" where it is a str, not {other:?}"
            ))
            .into()),
        };
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Partition::Equally(index::shape(object, "partition")?.into_iter().sum()));
    }
    match object.cast::<PySequence>() {
        Ok(_) if !object.is_instance_of::<PyBytes>() => {
            Ok(Partition::ByCounts(index::extents(object, "partition")?))
        }
        _ => {
            let wanted = "a number of compute units, a sequence of such numbers, or \"numa\"";
            Err(argument::wrong_type(object, "partition", wanted))
        }
    }
}

/// Copies the variables that usmq has set for the runtime to ``os.environ``: child processes often get a copy
/// of it, and may query devices before usmq does.
pub(super) fn share_environment(py: Python<'_>) -> PyResult<()> {
    let environ = py.import("os")?.getattr("environ")?;
    for (name, value) in crate::runtime::name_driver() {
        environ.set_item(name, value.into_os_string())?;
    }
    Ok(())
}

/// Check the variables of the emulated GPUs, set those that a program needs to see them, and check that a
/// child process sees one; for ``usmq emulate``.
#[pyfunction]
pub(super) fn prepare_emulation(py: Python<'_>) -> PyResult<()> {
    match emulator::fault()? {
        Some(Fault::Setting(text)) => return Err(PyValueError::new_err(text)),
        Some(fault) => return Err(crate::Error::from(fault).into()),
        None => share_environment(py)?,
    }
    match detach(py, crate::doctor::why_no_emulated_gpu) {
        Some(reason) => Err(crate::Error::runtime_not_found(reason).into()),
        None => Ok(()),
    }
}

/// Paths of the loaded libraries whose names start with the prefix; for ``doctor``.
#[pyfunction]
pub(super) fn runtime_libraries(prefix: &str) -> Vec<String> {
    crate::runtime::libraries(prefix).into_iter().map(|path| path.display().to_string()).collect()
}
