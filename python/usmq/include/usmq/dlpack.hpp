// usmq/dlpack.hpp: passes memory of C++ code to other libraries by DLPack, without a copy. Needs C++17 and SYCL.
#ifndef USMQ_DLPACK_HPP
#define USMQ_DLPACK_HPP

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <sycl/sycl.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace usmq {
namespace dlpack {

// The structs of dlpack/dlpack.h, version 1.0, under names of their own: both headers can be included. A pointer to
// `managed_tensor` is a `DLManagedTensorVersioned *`.
struct version {
  std::uint32_t major = 1;
  std::uint32_t minor = 0;
};

struct device {
  std::int32_t type;
  std::int32_t id;
};

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct tensor {
  void *data;
  struct device device;
  std::int32_t ndim;
  data_type dtype;
  std::int64_t *shape;
  std::int64_t *strides;
  std::uint64_t byte_offset;
};

struct managed_tensor {
  struct version version;
  void *manager_ctx;
  void (*deleter)(managed_tensor *);
  std::uint64_t flags;
  tensor dl_tensor;
};

/// The name of a Python capsule that holds a `managed_tensor *`.
constexpr const char *capsule_name = "dltensor_versioned";

/// Calls the deleter, as a consumer does.
struct release {
  void operator()(managed_tensor *exported) const { exported->deleter(exported); }
};

using handle = std::unique_ptr<managed_tensor, release>;

namespace detail {

template <typename T> struct element {
  static_assert(std::is_arithmetic<T>::value, "DLPack has no code for this type");
  static constexpr std::uint8_t code = std::is_same<T, bool>::value       ? 6
                                       : std::is_floating_point<T>::value ? 2
                                       : std::is_signed<T>::value         ? 0
                                                                          : 1;
};
template <> struct element<sycl::half> {
  static constexpr std::uint8_t code = 2;
};
template <typename T> struct element<std::complex<T>> {
  static constexpr std::uint8_t code = 5;
};

// Holds the memory and the arrays that the tensor points to.
template <typename Owner> struct holder {
  managed_tensor exported;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  Owner owner;
};

} // namespace detail

/// Returns the DLPack device of a queue: kDLOneAPI, and the position of its device among all root devices. Throws
/// std::invalid_argument for memory that DLPack cannot name: that of a sub-device or of another context than the
/// default one of the platform.
inline device device_of(const sycl::queue &queue) {
  constexpr std::int32_t kOneAPI = 14;
  if (queue.get_context() != queue.get_device().get_platform().khr_get_default_context())
    throw std::invalid_argument("DLPack names a device only, so its consumers expect memory of the default context of "
                                "the platform; this queue has another context");
  std::int32_t id = 0;
  for (const auto &platform : sycl::platform::get_platforms())
    for (const auto &root : platform.get_devices()) {
      if (root == queue.get_device())
        return {kOneAPI, id};
      ++id;
    }
  throw std::invalid_argument("DLPack numbers root devices only; the device of this queue is a sub-device");
}

/// The number of elements of an array of `T` with these extents. Throws std::invalid_argument for a negative extent,
/// and if the other extents multiply to more bytes than an address space has, also beside an extent of 0.
template <typename T> std::size_t count_of(const std::vector<std::int64_t> &shape) {
  std::int64_t count = 1;
  bool is_empty = false;
  for (const auto extent : shape) {
    if (extent < 0)
      throw std::invalid_argument("an extent is negative");
    is_empty = is_empty || extent == 0;
    if (extent > 0 && count > PTRDIFF_MAX / static_cast<std::int64_t>(sizeof(T)) / extent)
      throw std::invalid_argument("the extents multiply to more bytes than an address space has");
    count *= extent > 0 ? extent : 1;
  }
  return is_empty ? 0 : static_cast<std::size_t>(count);
}

/// Exports an array in C order. `owner` keeps the memory, for example a `usmq::block` or a `std::shared_ptr`; the
/// consumer's call of the deleter destroys it. Commands of the queue that write the memory must be complete, or
/// ordered before those of the consumer, which DLPack leaves to the caller. Throws as `count_of` and `device_of`.
template <typename T, typename Owner>
handle export_memory(T *data, std::vector<std::int64_t> shape, const sycl::queue &queue, Owner owner) {
  constexpr std::uint64_t kReadOnly = 1;
  using value = typename std::remove_const<T>::type;
  using holder = detail::holder<Owner>;
  count_of<value>(shape); // so that no step overflows
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis] > 0 ? shape[axis] : 1;
  }
  std::unique_ptr<holder> held(new holder{{}, std::move(shape), std::move(strides), std::move(owner)});
  managed_tensor &exported = held->exported;
  exported.manager_ctx = held.get();
  exported.deleter = [](managed_tensor *self) { delete static_cast<holder *>(self->manager_ctx); };
  exported.flags = std::is_const<T>::value ? kReadOnly : 0;
  exported.dl_tensor = {const_cast<value *>(data),
                        device_of(queue),
                        static_cast<std::int32_t>(held->shape.size()),
                        {detail::element<value>::code, sizeof(value) * 8, 1},
                        held->shape.data(),
                        held->strides.data(),
                        0};
  return handle(&held.release()->exported);
}

} // namespace dlpack
} // namespace usmq

#endif
