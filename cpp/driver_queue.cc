#include "driver_queue.h"
#include "large_copy.h"

#include <algorithm>
#include <array>
#include <sycl/backend/opencl.hpp>

namespace usmq {

namespace {

constexpr auto kBackend = sycl::backend::opencl;

bool is_in_order(cl_command_queue queue) {
  cl_command_queue_properties properties = 0;
  const auto info = opencl_entry<decltype(&clGetCommandQueueInfo)>("clGetCommandQueueInfo");
  opencl_check(info(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr), "clGetCommandQueueInfo");
  return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
}

// Pointers inside of structures and of memory, as libsycl allows them for its kernels.
void allow_indirect_access(cl_kernel kernel) {
  const auto set = opencl_entry<decltype(&clSetKernelExecInfo)>("clSetKernelExecInfo");
  const cl_bool yes = CL_TRUE;
  for (const cl_kernel_exec_info kind :
       {CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL, CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
        CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL}) {
    opencl_check(set(kernel, kind, sizeof(yes), &yes), "clSetKernelExecInfo");
  }
}

const cl_event *list_or_null(const std::vector<cl_event> &events) { return events.empty() ? nullptr : events.data(); }

cl_uint count(const std::vector<cl_event> &events) { return static_cast<cl_uint>(events.size()); }

} // namespace

DriverQueue::DriverQueue(const sycl::queue &queue)
    : context_(queue.get_context()), gives_events_(!queue.has_property<sycl::property::queue::enable_profiling>()),
      copy_threads_(LargeCopy::threads_of(queue.get_device())) {
  const auto platform = queue.get_device().get_platform();
  set_pointer_ = opencl_extension<SetPointer>(platform, "clSetKernelArgMemPointerINTEL");
  copy_ = opencl_extension<clEnqueueMemcpyINTEL_fn>(platform, "clEnqueueMemcpyINTEL");
  fill_ = opencl_extension<clEnqueueMemFillINTEL_fn>(platform, "clEnqueueMemFillINTEL");
  native_.object = sycl::get_native<kBackend>(queue); // which retains it
}

std::shared_ptr<DriverQueue> DriverQueue::of(const sycl::queue &queue) try {
  if (queue.get_backend() != kBackend || !queue.is_in_order()) {
    return nullptr;
  }
  std::shared_ptr<DriverQueue> made(new DriverQueue(queue));
  const bool has_all = made->set_pointer_ != nullptr && made->copy_ != nullptr && made->fill_ != nullptr;
  return has_all && is_in_order(made->native_.object) ? made : nullptr;
} catch (const sycl::exception &) {
  return nullptr; // libsycl can do all of it
}

cl_int DriverQueue::enqueue(cl_kernel kernel, cl_uint dimensions, const std::size_t *global, const std::size_t *local,
                            const std::vector<cl_event> &after, cl_event *event) const {
  static const auto put = opencl_entry<decltype(&clEnqueueNDRangeKernel)>("clEnqueueNDRangeKernel");
  USMQ_FAULT_POINT("clEnqueueNDRangeKernel");
  return put(native_.object, kernel, dimensions, nullptr, global, local, count(after), list_or_null(after), event);
}

cl_int DriverQueue::set_pointer(cl_kernel kernel, cl_uint index, std::size_t address) const {
  return set_pointer_(kernel, index, reinterpret_cast<const void *>(address));
}

cl_int DriverQueue::copy(std::size_t target, std::size_t source, std::size_t bytes, const std::vector<cl_event> &after,
                         cl_event *event) const {
  if (auto large = LargeCopy::of(target, source, bytes, copy_threads_)) {
    static const auto put = opencl_entry<decltype(&clEnqueueNativeKernel)>("clEnqueueNativeKernel");
    if (put(native_.object, LargeCopy::run, &*large, sizeof(*large), 0, nullptr, nullptr, count(after),
            list_or_null(after), event) == CL_SUCCESS) {
      return CL_SUCCESS;
    }
    // The driver may still be able to copy: a device need not run functions of the host.
  }
  USMQ_FAULT_POINT("clEnqueueMemcpyINTEL");
  return copy_(native_.object, CL_FALSE, reinterpret_cast<void *>(target), reinterpret_cast<const void *>(source),
               bytes, count(after), list_or_null(after), event);
}

cl_int DriverQueue::fill(std::size_t target, std::uint8_t value, std::size_t bytes, const std::vector<cl_event> &after,
                         cl_event *event) const {
  USMQ_FAULT_POINT("clEnqueueMemFillINTEL");
  return fill_(native_.object, reinterpret_cast<void *>(target), &value, sizeof(value), bytes, count(after),
               list_or_null(after), event);
}

void DriverQueue::flush() const {
  static const auto flush = opencl_entry<decltype(&clFlush)>("clFlush");
  opencl_check(flush(native_.object), "clFlush");
}

std::unique_ptr<Event> DriverQueue::new_event() const {
  static const auto release = opencl_entry<decltype(&clReleaseEvent)>("clReleaseEvent");
  return std::make_unique<Event>(context_, release);
}

DriverKernels::DriverKernels(const sycl::kernel &kernel) {
  original_.object = sycl::get_native<kBackend>(kernel); // which retains it
  const auto info = opencl_entry<decltype(&clGetKernelInfo)>("clGetKernelInfo");
  opencl_check(info(original_.object, CL_KERNEL_NUM_ARGS, sizeof(args_), &args_, nullptr), "clGetKernelInfo");
}

std::shared_ptr<DriverKernels> DriverKernels::of(const sycl::kernel &kernel) try {
  if (kernel.get_backend() != kBackend) {
    return nullptr;
  }
  std::shared_ptr<DriverKernels> made(new DriverKernels(kernel));
  made->put_back(made->create());
  return made;
} catch (const sycl::exception &) {
  return nullptr; // libsycl can launch it
}

bool DriverKernels::takes(rust::Slice<const KernelArg> args) const {
  const auto is_plain = [](const KernelArg &arg) {
    return arg.kind == KernelArgKind::Pointer || arg.kind == KernelArgKind::Value;
  };
  return args_ == args.size() && std::all_of(args.begin(), args.end(), is_plain);
}

std::unique_ptr<Owned<cl_kernel>> DriverKernels::create() const {
  auto kernel = std::make_unique<Owned<cl_kernel>>("clReleaseKernel");
  opencl_create_again(original_.object, *kernel);
  allow_indirect_access(kernel->object);
  return kernel;
}

std::unique_ptr<Owned<cl_kernel>> DriverKernels::take() {
  {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!idle_.empty()) {
      auto kernel = std::move(idle_.back());
      idle_.pop_back();
      return kernel;
    }
  }
  return create();
}

void DriverKernels::put_back(std::unique_ptr<Owned<cl_kernel>> kernel) noexcept try {
  const std::lock_guard<std::mutex> guard(lock_);
  idle_.push_back(std::move(kernel));
} catch (...) {
  // Without memory for the list, the next launch creates a kernel. The driver keeps this one as long as it runs.
}

bool driver_events(rust::Slice<const std::size_t> after, std::vector<cl_event> &events) {
  for (const std::size_t address : after) {
    auto *native = reinterpret_cast<const Event *>(address)->native();
    if (native == nullptr) {
      return false;
    }
    events.push_back(native);
  }
  return true;
}

namespace {

// Passes a command to the driver. Null if that has no event for one of `after`, or refuses the command: libsycl then
// gets it, and reports the reason.
template <typename Enqueue>
std::unique_ptr<Event> pass(const Queue &queue, rust::Slice<const std::size_t> after, const Enqueue &enqueue) {
  std::vector<cl_event> events;
  if (!queue.driver || !queue.driver->gives_events() || !driver_events(after, events)) {
    return nullptr;
  }
  auto event = queue.driver->new_event();
  return enqueue(*queue.driver, events, event->place()) == CL_SUCCESS ? std::move(event) : nullptr;
}

// Sets the arguments of the driver's kernel.
cl_int set_args(const DriverQueue &queue, cl_kernel kernel, rust::Slice<const KernelArg> args,
                rust::Slice<const std::uint8_t> more) {
  static const auto set = opencl_entry<decltype(&clSetKernelArg)>("clSetKernelArg");
  cl_int status = CL_SUCCESS;
  for (std::size_t i = 0; i < args.size() && status == CL_SUCCESS; ++i) {
    const auto index = static_cast<cl_uint>(i);
    const KernelArg &arg = args[i];
    status = arg.kind == KernelArgKind::Pointer ? queue.set_pointer(kernel, index, arg.value)
                                                : set(kernel, index, arg.value, value_of(arg, more));
  }
  return status;
}

} // namespace

std::unique_ptr<Event> driver_launch(const Queue &queue, const Kernel &kernel, const Extents &extents,
                                     rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more,
                                     rust::Slice<const std::size_t> after) {
  if (!kernel.driver || extents.local[0] == 0 || !kernel.driver->takes(args) || !kernel.driver->note_launch()) {
    return nullptr;
  }
  return pass(queue, after, [&](const DriverQueue &driver, const std::vector<cl_event> &events, cl_event *event) {
    auto used = kernel.driver->take();
    cl_int status = set_args(driver, used->object, args, more);
    if (status == CL_SUCCESS) {
      // OpenCL's first dimension varies fastest, SYCL's last.
      std::array<std::size_t, 3> global{}, local{};
      std::reverse_copy(extents.global.begin(), extents.global.begin() + extents.dimensions, global.begin());
      std::reverse_copy(extents.local.begin(), extents.local.begin() + extents.dimensions, local.begin());
      status = driver.enqueue(used->object, extents.dimensions, global.data(), local.data(), events, event);
    }
    kernel.driver->put_back(std::move(used));
    return status;
  });
}

std::unique_ptr<Event> driver_memcpy(const Queue &queue, std::size_t target, std::size_t source, std::size_t bytes,
                                     rust::Slice<const std::size_t> after) {
  if (bytes == 0) {
    return nullptr;
  }
  return pass(queue, after, [&](const DriverQueue &driver, const std::vector<cl_event> &events, cl_event *event) {
    return driver.copy(target, source, bytes, events, event);
  });
}

std::unique_ptr<Event> driver_memset(const Queue &queue, std::size_t target, std::uint8_t value, std::size_t bytes,
                                     rust::Slice<const std::size_t> after) {
  if (bytes == 0) {
    return nullptr;
  }
  return pass(queue, after, [&](const DriverQueue &driver, const std::vector<cl_event> &events, cl_event *event) {
    return driver.fill(target, value, bytes, events, event);
  });
}

} // namespace usmq
