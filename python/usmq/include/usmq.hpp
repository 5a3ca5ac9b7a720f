// usmq.hpp: usmq.h for C++17 and SYCL. Queues are values, scopes end by themselves, errors are exceptions.
#ifndef USMQ_HPP
#define USMQ_HPP

#include "usmq.h"

#include <memory>
#include <stdexcept>
#include <sycl/sycl.hpp>

namespace usmq {

/// What a function of usmq.h reported.
class error : public std::runtime_error {
public:
  explicit error(usmq_status status) : std::runtime_error(usmq_last_error()), status_(status) {}
  usmq_status status() const noexcept { return status_; }

private:
  usmq_status status_;
};

inline void check(usmq_status status) {
  if (status != USMQ_OK)
    throw error(status);
}

namespace detail {

inline sycl::queue take(void *queue) {
  struct release {
    void operator()(sycl::queue *queue) const { usmq_queue_release(queue); }
  };
  std::unique_ptr<sycl::queue, release> owned(static_cast<sycl::queue *>(queue));
  return *owned;
}

inline void *address(const sycl::queue &queue) { return const_cast<sycl::queue *>(&queue); }

} // namespace detail

/// The queue where work goes when neither an argument nor the data says otherwise.
inline sycl::queue current_queue() {
  void *queue = nullptr;
  check(usmq_current_queue(&queue));
  return detail::take(queue);
}

/// The queue of a target such as "gpu:1"; of SYCL's default device for null.
inline sycl::queue queue(const char *target) {
  void *queue = nullptr;
  check(usmq_queue_of(target, &queue));
  return detail::take(queue);
}

/// Sets the default of the process; null returns to SYCL's default device.
inline void set_default_queue(const char *target) { check(usmq_set_default_queue(target)); }
inline void set_default_queue(const sycl::queue &queue) { check(usmq_set_default_queue_to(detail::address(queue))); }

/// Makes a queue current while it lives, on the thread that made it.
class [[nodiscard]] scope {
public:
  explicit scope(const char *target) { check(usmq_queue_scope_enter(target, &number_)); }
  explicit scope(const sycl::queue &queue) { check(usmq_queue_scope_enter_on(detail::address(queue), &number_)); }
  ~scope() { usmq_queue_scope_leave(number_); }
  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;

private:
  usmq_scope number_ = 0;
};

/// Gives a block back in the order of its queues; see usmq_free.
struct free_block {
  void operator()(void *memory) const noexcept { usmq_free(memory); }
};

template <typename T> using block = std::unique_ptr<T[], free_block>;

/// Room for `count` values on a queue, not initialised. The block may be dropped while commands still use it.
template <typename T> block<T> allocate(std::size_t count, const sycl::queue &queue, usmq_kind kind = USMQ_DEVICE) {
  static_assert(std::is_trivially_copyable<T>::value, "USM holds plain values");
  if (count > SIZE_MAX / sizeof(T))
    throw std::bad_alloc();
  void *memory = nullptr;
  check(usmq_allocate(count * sizeof(T), kind, detail::address(queue), &memory));
  return block<T>(static_cast<T *>(memory));
}

} // namespace usmq

#endif
