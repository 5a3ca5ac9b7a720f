// usmq.hpp: usmq.h for C++17 and SYCL. Scopes are RAII objects and own their queue, errors are exceptions.
#ifndef USMQ_HPP
#define USMQ_HPP

#include "usmq.h"

#include <memory>
#include <stdexcept>
#include <sycl/sycl.hpp>

namespace usmq {

/// An error of a function of usmq.h.
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

/// Returns the queue for work if neither an argument nor the data names one.
inline sycl::queue current_queue() {
  void *queue = nullptr;
  check(usmq_current_queue(&queue));
  return detail::take(queue);
}

/// Returns the queue of a target such as "gpu:1"; null: SYCL's default device.
inline sycl::queue queue(const char *target) {
  void *queue = nullptr;
  check(usmq_queue_of(target, &queue));
  return detail::take(queue);
}

/// Sets the default of the process; null restores SYCL's default device.
inline void set_default_queue(const char *target) { check(usmq_set_default_queue(target)); }
inline void set_default_queue(const sycl::queue &queue) { check(usmq_set_default_queue_to(detail::address(queue))); }

/// Makes a queue current during its lifetime, on the thread that created it. It owns a handle of the queue, so that
/// `queue()` is a reference for functions that take a `sycl::queue &`.
class [[nodiscard]] scope {
public:
  /// Keeps the queue that is current now.
  scope() : scope(current_queue()) {}
  /// The queue of a target such as "gpu:1". Null changes nothing; `queue()` is then the current queue.
  explicit scope(const char *target) : queue_(target ? usmq::queue(target) : current_queue()) {
    check(usmq_queue_scope_enter(target, &number_));
  }
  /// A queue of any origin.
  explicit scope(const sycl::queue &queue) : queue_(queue) {
    check(usmq_queue_scope_enter_on(detail::address(queue), &number_));
  }
  ~scope() { usmq_queue_scope_leave(number_); }
  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;

  /// The queue of this scope, also while a scope inside it has another one. Valid as long as the scope.
  sycl::queue &queue() & noexcept { return queue_; }
  const sycl::queue &queue() const & noexcept { return queue_; }
  // The scope ends with the expression, and the queue with it.
  sycl::queue &queue() const && = delete;

private:
  sycl::queue queue_;
  usmq_scope number_ = 0;
};

/// Frees a block in the order of its queues; see usmq_free.
struct free_block {
  void operator()(void *memory) const noexcept { usmq_free(memory); }
};

template <typename T> using block = std::unique_ptr<T[], free_block>;

/// Allocates uninitialised memory for `count` values on a queue. The block may be destroyed while commands use it.
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
