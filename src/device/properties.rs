//! Properties of a device that are queried on demand.

use crate::ffi;

/// More properties of a device, from [`Device::properties`](crate::Device::properties). A number that the driver does
/// not report is 0.
///
/// Source: SYCL 2020, section 4.6.4.2.
///
/// ```
/// let queue = usmq::Queue::get("cpu")?;
/// let properties = queue.device().properties()?;
/// assert_eq!(properties.max_work_item_dims, 3);
/// assert!(!properties.sub_group_sizes.is_empty());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The vendor's number, as PCI numbers vendors.
    pub vendor_id: u32,
    /// Bits of an address.
    pub address_bits: u32,
    /// Largest clock frequency in MHz; 0 if the driver does not report it.
    pub max_clock_frequency: u32,
    /// Dimensions of an nd-range.
    pub max_work_item_dims: u32,
    /// Largest extent of a work-group of one dimension.
    pub max_work_item_sizes1d: usize,
    /// Largest extents of a work-group of two dimensions.
    pub max_work_item_sizes2d: [usize; 2],
    /// Largest extents of a work-group of three dimensions.
    pub max_work_item_sizes3d: [usize; 3],
    /// Largest number of sub-groups in a work-group.
    pub max_num_sub_groups: u32,
    /// The sub-group sizes that kernels can have.
    pub sub_group_sizes: Vec<usize>,
    /// Whether the sub-groups of a work-group make progress independently.
    pub sub_group_independent_forward_progress: bool,
    /// Preferred widths of built-in vectors.
    pub preferred_vector_width: VectorWidths,
    /// Widths of the instructions.
    pub native_vector_width: VectorWidths,
    /// `none`, `read_only` or `read_write`.
    pub global_mem_cache_type: String,
    /// Bytes of a line of the global memory's cache.
    pub global_mem_cache_line_size: u32,
    /// Bytes of the global memory's cache.
    pub global_mem_cache_size: u64,
    /// `none`, `local` (dedicated memory) or `global`.
    pub local_mem_type: String,
    /// Alignment in bits that every data type fits.
    pub mem_base_addr_align: u32,
    /// Whether the memory corrects errors.
    pub error_correction_support: bool,
    /// Largest size of all arguments of a kernel in bytes.
    pub max_parameter_size: usize,
    /// Largest number of samplers of a kernel.
    pub max_samplers: u32,
    /// Largest number of images that a kernel reads.
    pub max_read_image_args: u32,
    /// Largest number of images that a kernel writes.
    pub max_write_image_args: u32,
    /// Largest width and height of a 2D image.
    pub image_2d_max: [usize; 2],
    /// Largest width, height and depth of a 3D image.
    pub image_3d_max: [usize; 3],
    /// Resolution of event timestamps in nanoseconds.
    pub profiling_timer_resolution: usize,
    /// The partitions that the device supports, as `partition_equally`.
    pub partition_properties: Vec<String>,
    /// The affinity domains of a partition, as `numa`.
    pub partition_affinity_domains: Vec<String>,
}

/// Widths of vectors, in elements of each type; 0 for a type that the device does not have.
///
/// ```
/// let queue = usmq::Queue::get("cpu")?;
/// assert!(queue.device().properties()?.native_vector_width.float >= 1);
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorWidths {
    /// Of `char`.
    pub char: u32,
    /// Of `short`.
    pub short: u32,
    /// Of `int`.
    pub int: u32,
    /// Of `long`.
    pub long: u32,
    /// Of `float`.
    pub float: u32,
    /// Of `double`.
    pub double: u32,
    /// Of `half`.
    pub half: u32,
}

impl From<[u32; 7]> for VectorWidths {
    fn from([char, short, int, long, float, double, half]: [u32; 7]) -> Self {
        Self { char, short, int, long, float, double, half }
    }
}

impl From<ffi::DeviceProperties> for DeviceProperties {
    fn from(found: ffi::DeviceProperties) -> Self {
        Self {
            vendor_id: found.vendor_id,
            address_bits: found.address_bits,
            max_clock_frequency: found.max_clock_frequency,
            max_work_item_dims: found.max_work_item_dims,
            max_work_item_sizes1d: found.max_work_item_sizes1d,
            max_work_item_sizes2d: found.max_work_item_sizes2d,
            max_work_item_sizes3d: found.max_work_item_sizes3d,
            max_num_sub_groups: found.max_num_sub_groups,
            sub_group_sizes: found.sub_group_sizes,
            sub_group_independent_forward_progress: found.sub_group_independent_forward_progress,
            preferred_vector_width: found.preferred_vector_widths.into(),
            native_vector_width: found.native_vector_widths.into(),
            global_mem_cache_type: found.global_mem_cache_type,
            global_mem_cache_line_size: found.global_mem_cache_line_size,
            global_mem_cache_size: found.global_mem_cache_size,
            local_mem_type: found.local_mem_type,
            mem_base_addr_align: found.mem_base_addr_align,
            error_correction_support: found.error_correction_support,
            max_parameter_size: found.max_parameter_size,
            max_samplers: found.max_samplers,
            max_read_image_args: found.max_read_image_args,
            max_write_image_args: found.max_write_image_args,
            image_2d_max: found.image_2d_max,
            image_3d_max: found.image_3d_max,
            profiling_timer_resolution: found.profiling_timer_resolution,
            partition_properties: found.partition_properties,
            partition_affinity_domains: found.partition_affinity_domains,
        }
    }
}
