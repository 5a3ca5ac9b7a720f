//! The bridge to the C++ shim in `cpp/`, in the order of `cpp/shim.h`: the only Rust file that uses SYCL's
//! objects.
//!
//! Contains no policy. Every function that can throw returns `Result`; the text of its error is
//! `code\x1fmessage` (see `cpp/error.h`), which [`crate::error::Error::from_shim`] parses.

use std::any::Any;

// Code that cxx generates is not linted.
#[allow(clippy::multiple_unsafe_ops_per_block, clippy::panic)]
#[cxx::bridge(namespace = "usmq")]
pub(crate) mod bridge {
    /// The description of a device, queried once.
    #[derive(Debug, Clone)]
    struct DeviceInfo {
        name: String,
        vendor: String,
        driver_version: String,
        backend: String,
        device_type: String,
        max_compute_units: u32,
        max_work_group_size: usize,
        max_sub_devices: u32,
        global_mem_size: u64,
        local_mem_size: u64,
        max_alloc_size: u64,
        usm_device: bool,
        usm_shared: bool,
        usm_host: bool,
        usm_system: bool,
        /// The rating of SYCL's default selector; negative means "never choose".
        score: i32,
    }

    /// More properties of a device, queried on demand. Vector widths are those of char, short, int, long, float,
    /// double and half.
    #[derive(Debug, Clone)]
    struct DeviceProperties {
        vendor_id: u32,
        address_bits: u32,
        max_clock_frequency: u32,
        max_work_item_dims: u32,
        max_work_item_sizes1d: usize,
        max_work_item_sizes2d: [usize; 2],
        max_work_item_sizes3d: [usize; 3],
        max_num_sub_groups: u32,
        sub_group_sizes: Vec<usize>,
        sub_group_independent_forward_progress: bool,
        preferred_vector_widths: [u32; 7],
        native_vector_widths: [u32; 7],
        global_mem_cache_type: String,
        global_mem_cache_line_size: u32,
        global_mem_cache_size: u64,
        local_mem_type: String,
        mem_base_addr_align: u32,
        error_correction_support: bool,
        max_parameter_size: usize,
        max_samplers: u32,
        max_read_image_args: u32,
        max_write_image_args: u32,
        image_2d_max: [usize; 2],
        image_3d_max: [usize; 3],
        profiling_timer_resolution: usize,
        partition_properties: Vec<String>,
        partition_affinity_domains: Vec<String>,
    }

    /// A number that only some devices report.
    #[derive(Debug, Clone)]
    struct NamedNumber {
        name: String,
        value: u64,
    }

    #[derive(Debug, Clone)]
    struct PlatformInfo {
        name: String,
        vendor: String,
        version: String,
        backend: String,
    }

    /// USM kinds as both sides of the bridge encode them.
    #[repr(u8)]
    #[derive(Debug)]
    enum UsmCode {
        Unknown = 0,
        Host = 1,
        Device = 2,
        Shared = 3,
    }

    /// The allocation that contains an address: its USM kind, first address and bytes, and the `cl_device_id` of device and
    /// shared memory. All zero if it is not USM of the context.
    #[derive(Debug, Clone, Copy)]
    struct UsmInfo {
        kind: u8,
        base: usize,
        bytes: usize,
        device: usize,
    }

    /// A hint for the scheduler of a device.
    #[repr(u8)]
    #[derive(Debug)]
    enum PriorityCode {
        Normal = 0,
        High = 1,
        Low = 2,
    }

    /// The state of a command.
    #[repr(u8)]
    #[derive(Debug)]
    enum EventStatus {
        /// The runtime or the driver has the command; it may wait for others.
        Submitted = 0,
        /// The device executes it: all its dependencies are complete.
        Running = 1,
        Complete = 2,
        /// It has failed, or the backend cannot report its state.
        Unknown = 3,
    }

    /// A command of a list.
    #[repr(u8)]
    #[derive(Debug)]
    enum CommandKind {
        Barrier,
        Copy,
        Fill,
        Prefetch,
        Advise,
        Launch,
    }

    /// A command of a list without a kernel; target and source are numbers of pointers.
    #[derive(Debug)]
    struct PlainCommand {
        kind: CommandKind,
        target: usize,
        source: usize,
        bytes: usize,
        value: i32,
    }

    /// The place of a command in a list: after the commands with these numbers, as far as its queue does not order them.
    /// `is_first`: after none.
    #[derive(Debug)]
    struct ListPlace<'a> {
        after: &'a [u32],
        is_first: bool,
    }

    #[repr(u8)]
    #[derive(Debug)]
    enum KernelArgKind {
        Pointer,
        Value,
        WorkGroupMemory,
        LocalAccessor,
    }

    /// The nd-range of a launch: up to three global extents, and the work-group's if the caller chose them.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
    struct Extents {
        dimensions: u32,
        global: [usize; 3],
        /// All zero: the runtime chooses.
        local: [usize; 3],
    }

    /// One kernel argument: a pointer in `value`; a value of `value` bytes, in `bytes` if they fit, else from offset
    /// `more` on; or `value` bytes of local memory in one of the two forms that kernels declare, for a
    /// `local_accessor` as elements of `element` bytes in `dimensions` extents at offset `more`. The launch gets the
    /// bytes at these offsets apart, so that an argument is small.
    #[derive(Debug, Clone, Copy)]
    struct KernelArg {
        kind: KernelArgKind,
        element: u8,
        dimensions: u8,
        value: usize,
        more: usize,
        bytes: [u8; 16],
    }

    /// A file that a kernel source can include without a folder.
    struct IncludeFile<'a> {
        name: &'a str,
        text: &'a str,
    }

    extern "Rust" {
        type Kept;
    }

    unsafe extern "C++" {
        include!("usmq/cpp/bridge.h");

        type Device;
        type Context;
        type Queue;
        type Event;
        type Kernel;
        type Bundle;
        type UserEvent;
        type UserEvents;
        type CommandList;
        type SyclGraph;

        fn platform_count() -> Result<usize>;
        fn platform_info(index: usize) -> Result<PlatformInfo>;
        fn platform_devices(index: usize) -> Result<UniquePtr<CxxVector<Device>>>;

        fn device_copy(device: &Device) -> Result<UniquePtr<Device>>;
        fn device_id(device: &Device) -> Result<usize>;
        fn device_info(device: &Device) -> Result<DeviceInfo>;
        fn device_aspects(device: &Device) -> Result<Vec<String>>;
        /// The names of all aspects.
        fn aspect_names() -> Result<Vec<String>>;
        fn device_properties(device: &Device) -> Result<DeviceProperties>;
        fn device_intel_info(device: &Device) -> Result<Vec<NamedNumber>>;
        /// Null for a root device.
        fn device_parent(device: &Device) -> Result<UniquePtr<Device>>;
        fn device_split_equally(
            device: &Device,
            compute_units: usize,
        ) -> Result<UniquePtr<CxxVector<Device>>>;
        fn device_split_by_counts(device: &Device, counts: &[usize]) -> Result<UniquePtr<CxxVector<Device>>>;
        fn device_split_by_numa(device: &Device) -> Result<UniquePtr<CxxVector<Device>>>;
        /// Enables peer access; whether commands on `device` may use memory of `peer` from now on.
        fn device_enable_peer_access(device: &Device, peer: &Device) -> Result<bool>;
        /// Names and versions of device, driver and platform, which a built program depends on.
        fn device_versions(device: &Device) -> Result<String>;
        /// Whether the kernel compiler accepts OpenCL C for this device.
        fn device_builds_opencl(device: &Device) -> Result<bool>;
        /// Whether the kernel compiler accepts SPIR-V for this device.
        fn device_builds_spirv(device: &Device) -> Result<bool>;

        fn context_default(device: &Device) -> Result<UniquePtr<Context>>;
        fn device_list() -> Result<UniquePtr<CxxVector<Device>>>;
        fn device_list_push(list: Pin<&mut CxxVector<Device>>, device: &Device) -> Result<()>;
        fn context_new(devices: &CxxVector<Device>) -> Result<UniquePtr<Context>>;
        /// # Safety
        /// `address` is that of a live `sycl::context` of the libsycl this process uses.
        unsafe fn context_copy_from(address: usize) -> Result<UniquePtr<Context>>;
        fn context_copy_to_heap(context: &Context) -> Result<usize>;
        /// # Safety
        /// `address` came from `context_copy_to_heap` and is freed once.
        unsafe fn context_free_heap(address: usize) -> Result<()>;
        /// As `DeviceInfo::backend`.
        fn context_backend(context: &Context) -> Result<String>;
        fn context_id(context: &Context) -> Result<usize>;
        fn context_devices(context: &Context) -> Result<UniquePtr<CxxVector<Device>>>;

        fn queue_new(
            context: &Context,
            device: &Device,
            in_order: bool,
            profiling: bool,
            priority: PriorityCode,
        ) -> Result<UniquePtr<Queue>>;
        /// # Safety
        /// `address` is that of a live `sycl::queue` of the libsycl this process uses.
        unsafe fn queue_copy_from(address: usize) -> Result<UniquePtr<Queue>>;
        fn queue_copy_to_heap(queue: &Queue) -> Result<usize>;
        /// # Safety
        /// `address` came from `queue_copy_to_heap` and is freed once.
        unsafe fn queue_free_heap(address: usize) -> Result<()>;
        fn queue_id(queue: &Queue) -> Result<usize>;
        /// As `queue_id`, of another library's queue.
        ///
        /// # Safety
        /// As `queue_copy_from`.
        unsafe fn queue_id_at(address: usize) -> Result<usize>;
        fn queue_device(queue: &Queue) -> Result<UniquePtr<Device>>;
        fn queue_context(queue: &Queue) -> Result<UniquePtr<Context>>;
        fn queue_in_order(queue: &Queue) -> Result<bool>;
        fn queue_profiling(queue: &Queue) -> Result<bool>;
        fn queue_priority(queue: &Queue) -> Result<PriorityCode>;
        /// As `queue_wait`, without collecting errors.
        fn queue_join(queue: &Queue) -> Result<()>;
        /// Starts submitted commands on backends that otherwise start them only at a wait. Never blocks.
        fn queue_flush(queue: &Queue) -> Result<()>;
        fn queue_wait(queue: &Queue) -> Result<()>;
        fn queue_raise_errors(queue: &Queue) -> Result<()>;
        /// Raises only errors that a wait has collected already.
        fn queue_raise_stored(queue: &Queue) -> Result<()>;
        fn queue_store_error(queue: &Queue, text: &str) -> Result<()>;

        /// # Safety
        /// For this and the following commands: `after` holds addresses of live events.
        unsafe fn queue_barrier(queue: &Queue, after: &[usize]) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// Both ranges stay valid until the event completes, and `queue` may access them.
        unsafe fn queue_memcpy(
            queue: &Queue,
            target: usize,
            source: usize,
            bytes: usize,
            after: &[usize],
        ) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// The range stays valid until the event completes, and `queue` may access it.
        unsafe fn queue_memset(
            queue: &Queue,
            target: usize,
            value: u8,
            bytes: usize,
            after: &[usize],
        ) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// The range stays valid until the event completes, and `queue` may access it.
        unsafe fn queue_prefetch(
            queue: &Queue,
            pointer: usize,
            bytes: usize,
            after: &[usize],
        ) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// The range stays valid until the event completes, and `queue` may access it.
        unsafe fn queue_mem_advise(
            queue: &Queue,
            pointer: usize,
            bytes: usize,
            advice: i32,
            after: &[usize],
        ) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// The arguments match the kernel's parameters; memory that it accesses stays valid until the event
        /// completes.
        unsafe fn queue_launch(
            queue: &Queue,
            kernel: &Kernel,
            extents: &Extents,
            args: &[KernelArg],
            more: &[u8],
            after: &[usize],
        ) -> Result<UniquePtr<Event>>;
        /// # Safety
        /// `event` is the address of a live `sycl::event` of this process's libsycl.
        unsafe fn queue_barrier_after_foreign(queue: &Queue, event: usize) -> Result<UniquePtr<Event>>;

        fn list_new() -> Result<UniquePtr<CommandList>>;
        /// The value of a pointer among the arguments is its number among the addresses of the submission.
        fn list_add_launch(
            list: Pin<&mut CommandList>,
            queue: &Queue,
            kernel: &Kernel,
            extents: &Extents,
            args: &[KernelArg],
            more: &[u8],
            place: ListPlace,
        ) -> Result<()>;
        /// As `list_add_launch`, for other commands; target and source are numbers, too.
        fn list_add(
            list: Pin<&mut CommandList>,
            queue: &Queue,
            command: &PlainCommand,
            place: ListPlace,
        ) -> Result<()>;
        /// The commands, besides the last one, that no other command follows.
        fn list_end(list: Pin<&mut CommandList>, ends: &[u32]) -> Result<()>;
        /// Returns an event that completes after all commands. If a command fails after others were submitted, the event
        /// completes after these, and `failure` is set. One thread at a time may call this.
        ///
        /// # Safety
        /// The addresses in `after` are those of live events; memory and arguments are valid as for each command alone.
        unsafe fn list_submit(
            list: &CommandList,
            addresses: &[usize],
            after: &[usize],
            failure: &mut String,
        ) -> Result<UniquePtr<Event>>;
        /// `edges`: pairs of commands, by number, of which the second follows the first.
        fn graph_new(
            list: &CommandList,
            context: &Context,
            device: &Device,
            addresses: &[usize],
            edges: &[u32],
        ) -> Result<UniquePtr<SyclGraph>>;
        /// # Safety
        /// As `list_submit`.
        unsafe fn graph_submit(graph: &SyclGraph, queue: &Queue, after: &[usize])
        -> Result<UniquePtr<Event>>;

        /// Only for contexts of the opencl and level_zero backends.
        fn user_events_new(context: &Context) -> Result<UniquePtr<UserEvents>>;
        fn user_event_new(user_events: &UserEvents) -> Result<UniquePtr<UserEvent>>;
        fn user_event_event(user_event: &UserEvent) -> Result<UniquePtr<Event>>;
        fn user_event_signal(user_event: &UserEvent) -> Result<()>;
        /// Only for level_zero, and for an event that no command waits for.
        fn user_event_reset(user_event: &UserEvent) -> Result<()>;

        /// The address of the `sycl::event`, valid while the event lives; also for the parameters `after`.
        fn event_address(event: &Event) -> usize;
        /// Takes no lock of libsycl.
        fn event_status(event: &Event) -> Result<EventStatus>;
        /// False while the runtime holds its command back, behind a host task.
        fn event_is_with_driver(event: &Event) -> Result<bool>;
        fn event_wait(event: &Event) -> Result<()>;
        /// As `event_wait`, without collecting errors of the queue.
        fn event_join(event: &Event) -> Result<()>;
        fn event_profiling(event: &Event) -> Result<[u64; 3]>;

        /// The `cl_context`, valid while the context lives, and the driver's function for `usm_info`, 0 if it has none.
        /// Only for contexts of the opencl backend.
        fn usm_driver(context: &Context) -> Result<[usize; 2]>;
        /// # Safety
        /// `driver` came from `usm_driver`, has a function, and its context lives.
        unsafe fn usm_info(driver: [usize; 2], pointer: usize) -> Result<UsmInfo>;
        fn usm_kind(pointer: usize, context: &Context) -> Result<u8>;
        fn usm_device(pointer: usize, context: &Context) -> Result<UniquePtr<Device>>;
        /// The `cl_device_id` of a device of the opencl backend.
        fn device_native(device: &Device) -> Result<usize>;

        /// Allocates at least one byte, aligned to 64. Returns 0 if that fails.
        fn usm_alloc(kind: u8, device: &Device, context: &Context, bytes: usize) -> usize;
        /// Returns false if the runtime does not free it. May wait for commands.
        /// # Safety
        /// `pointer` came from `usm_alloc` for this context, is freed once, and no command uses it any more.
        unsafe fn usm_free(context: &Context, pointer: usize) -> bool;
        /// A `std::shared_ptr<void>` to this address on the C++ heap. The last of its copies drops `kept`, on any thread. Without
        /// memory 0.
        fn shared_pointer_new(address: usize, kept: Box<Kept>) -> usize;
        /// # Safety
        /// `pointer` came from `shared_pointer_new` and is freed once.
        unsafe fn shared_pointer_free(pointer: usize);

        /// `registered` makes one kernel available by its C++ name; empty if all names are `extern "C"`.
        fn bundle_from_sycl(
            context: &Context,
            device: &Device,
            source: &str,
            include: IncludeFile,
            options: &Vec<String>,
            registered: &str,
        ) -> Result<UniquePtr<Bundle>>;
        fn bundle_from_opencl(
            context: &Context,
            device: &Device,
            source: &str,
            options: &Vec<String>,
        ) -> Result<UniquePtr<Bundle>>;
        fn bundle_from_spirv(context: &Context, device: &Device, module: &[u8]) -> Result<UniquePtr<Bundle>>;
        /// Null if the bundle has no kernel of that name.
        fn bundle_kernel(bundle: &Bundle, name: &str) -> Result<UniquePtr<Kernel>>;
        /// For this and the next function: `built` gets the program, or nothing if the driver does not return it.
        fn kernel_from_opencl(
            context: &Context,
            device: &Device,
            source: &str,
            name: &str,
            options: &Vec<String>,
            built: &mut Vec<u8>,
        ) -> Result<UniquePtr<Kernel>>;
        fn kernel_from_spirv(
            context: &Context,
            device: &Device,
            binary: &[u8],
            name: &str,
            built: &mut Vec<u8>,
        ) -> Result<UniquePtr<Kernel>>;
        /// The kernel `name` of a built program, for the same device, driver and options. Only for contexts of the
        /// opencl backend, as `kernel_binary`.
        fn kernel_from_binary(
            context: &Context,
            device: &Device,
            program: &[u8],
            name: &str,
            options: &Vec<String>,
        ) -> Result<UniquePtr<Kernel>>;
        /// The program of a kernel that `bundle_kernel` has returned; empty if the driver does not return it.
        fn kernel_binary(kernel: &Kernel, context: &Context, device: &Device) -> Result<Vec<u8>>;
        /// The size of each argument of the driver's kernel; 0 if unknown, `u32::MAX` for local memory.
        /// Queries the driver only for kernels of the opencl backend.
        fn kernel_slots(kernel: &Kernel, ask_driver: bool) -> Result<Vec<u32>>;
        /// The work-group size that the kernel requires, in the driver's order of dimensions and zeros if none, and the
        /// most work-items of a group.
        fn kernel_group_sizes(kernel: &Kernel, device: &Device) -> Result<[usize; 4]>;
        /// The bytes of local memory of a work-group that the kernel's source fixes; only for the opencl backend.
        fn kernel_local_memory(kernel: &Kernel, device: &Device) -> Result<u64>;
        /// The work-group size that the driver suggests for a launch on a queue of the opencl backend; zeros if it
        /// suggests none. The arguments contain no local memory, and the kernel requires no size.
        fn kernel_work_group(
            kernel: &Kernel,
            queue: &Queue,
            extents: &Extents,
            args: &[KernelArg],
        ) -> Result<[usize; 3]>;

        /// Whether this thread runs foreign code now: its calls are counted until they return, and fail after the end.
        fn set_foreign_code(runs: bool);
        fn foreign_calls() -> usize;
        fn end_foreign_calls();
        /// Names the variable `USMQ_EMULATE_*` with an invalid value; empty if all are valid.
        fn emulation_fault(gpus: &str, memory: &str, system_usm: &str, faults: &str) -> Result<String>;
    }

    impl CxxVector<Device> {}
}

pub(crate) use bridge::*;

/// A value that C++ keeps alive. Its drop neither waits nor panics.
pub(crate) struct Kept(#[expect(dead_code, reason = "only dropped")] pub(crate) Box<dyn Any + Send + Sync>);

/// Lets the types be used from any thread.
macro_rules! any_thread {
    ($($name:ident)*) => {
        $(
            // SAFETY: SYCL 2020 section 4.5.2 ("common reference semantics") and 3.10 make its runtime objects handles
            // to shared state whose member functions may be called from several threads at once. The shim only copies
            // handles and calls such members; its own state has locks. A mutable reference never reaches one of them
            // from two threads. OpenCL's events and queues may be used from any thread, too. A list is changed only before it
            // is shared, and one thread at a time submits a list or a graph.
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )*
    };
}

any_thread! { Device Context Queue Event Kernel Bundle UserEvent UserEvents CommandList SyclGraph }
