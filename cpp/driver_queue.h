// Commands that go to the OpenCL driver without libsycl.
#pragma once

#include "opencl.h"
#include "usmq/src/ffi.rs.h"

#include <CL/cl_ext.h>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace usmq {

// The driver's queue below an in-order queue. A command that is enqueued here is in order with those that libsycl has
// passed to the driver: libsycl must hold back none, as it does behind a host task.
class DriverQueue {
public:
  // Null if libsycl must pass all commands to the driver.
  static std::shared_ptr<DriverQueue> of(const sycl::queue &queue);

  // Enqueues a kernel whose arguments are set, with sizes in OpenCL's order of dimensions. Without `local` the driver
  // chooses, without `event` it makes none.
  cl_int enqueue(cl_kernel kernel, cl_uint dimensions, const std::size_t *global, const std::size_t *local,
                 const std::vector<cl_event> &after, cl_event *event) const;
  cl_int set_pointer(cl_kernel kernel, cl_uint index, std::size_t address) const;
  cl_int copy(std::size_t target, std::size_t source, std::size_t bytes, const std::vector<cl_event> &after,
              cl_event *event) const;
  cl_int fill(std::size_t target, std::uint8_t value, std::size_t bytes, const std::vector<cl_event> &after,
              cl_event *event) const;
  void flush() const;

  // Whether its events serve as those of libsycl, which also have timestamps if the queue records them.
  bool gives_events() const { return gives_events_; }
  std::unique_ptr<Event> new_event() const;

private:
  explicit DriverQueue(const sycl::queue &queue);

  using SetPointer = cl_int(CL_API_CALL *)(cl_kernel, cl_uint, const void *);

  Owned<cl_command_queue> native_{"clReleaseCommandQueue"};
  Context context_;
  bool gives_events_;
  unsigned copy_threads_;
  SetPointer set_pointer_;
  clEnqueueMemcpyINTEL_fn copy_;
  clEnqueueMemFillINTEL_fn fill_;
};

// The kernels of the driver that have the code of one kernel. Each launch takes one, since a kernel of OpenCL holds its
// arguments.
class DriverKernels {
public:
  // Null on other backends, and if the driver does not create the kernel again.
  static std::shared_ptr<DriverKernels> of(const sycl::kernel &kernel);

  // Whether libsycl has launched the kernel, or is about to: it prepares global variables of the program then.
  bool note_launch() { return has_launched_.exchange(true, std::memory_order_relaxed); }

  // Whether the driver's kernel has these arguments, one for each value and pointer: the compiler of SYCL removes
  // unused ones, and local memory takes several.
  bool takes(rust::Slice<const KernelArg> args) const;

  // A kernel whose arguments are unset, or those of an earlier launch.
  std::unique_ptr<Owned<cl_kernel>> take();
  void put_back(std::unique_ptr<Owned<cl_kernel>> kernel) noexcept;
  std::unique_ptr<Owned<cl_kernel>> create() const;

private:
  explicit DriverKernels(const sycl::kernel &kernel);

  Owned<cl_kernel> original_{"clReleaseKernel"};
  cl_uint args_ = 0;
  std::atomic<bool> has_launched_{false};
  std::mutex lock_;
  std::vector<std::unique_ptr<Owned<cl_kernel>>> idle_;
};

// Whether the driver has events for all of these, which are then appended to `events`.
bool driver_events(rust::Slice<const std::size_t> after, std::vector<cl_event> &events);

} // namespace usmq
