#include "large_copy.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace usmq {

namespace {

constexpr std::size_t kSmallest = std::size_t{64} << 20;
// A thread takes one part at a time, so that one on a busy core copies fewer. Parts end where huge pages do: two
// threads that touch a new page both fill it with zeros.
constexpr std::size_t kPart = std::size_t{2} << 20;
// A few cores use all of the bandwidth of most memories.
constexpr unsigned kMostThreads = 16;

// Whether the page exists. The kernel fills a new page with zeros, which the caches then hold.
bool exists(const char *address) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto *start = reinterpret_cast<void *>(reinterpret_cast<std::size_t>(address) / page * page);
  unsigned char resident = 0;
  return mincore(start, 1, &resident) == 0 && (resident & 1U) != 0;
}

#ifdef __SSE2__
constexpr std::size_t kLine = 64;
// Several pages at once, since the memory's banks serve pages side by side.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 4;

void stream_line(char *target, const char *source) {
  for (std::size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i *>(target + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + i)));
  }
}

void copy_part(char *target, const char *source, std::size_t bytes) {
  if (!exists(target)) {
    std::memcpy(target, source, bytes);
    return;
  }
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::size_t>(target) % kLine) % kLine);
  std::memcpy(target, source, head);
  std::size_t done = head;
  for (; bytes - done >= kPages * kPage; done += kPages * kPage) {
    for (std::size_t line = 0; line < kPage; line += kLine) {
      for (std::size_t page = 0; page < kPages; ++page) {
        const std::size_t start = done + page * kPage + line;
        _mm_prefetch(source + start + 2 * kLine, _MM_HINT_T0);
        stream_line(target + start, source + start);
      }
    }
  }
  _mm_sfence();
  std::memcpy(target + done, source + done, bytes - done);
}
#else
void copy_part(char *target, const char *source, std::size_t bytes) { std::memcpy(target, source, bytes); }
#endif

void copy_parts(const LargeCopy &copy, std::atomic<std::size_t> &next) {
  const std::size_t before = reinterpret_cast<std::size_t>(copy.target) % kPart; // of the target's first huge page
  for (std::size_t part = next.fetch_add(kPart); part < before + copy.bytes; part = next.fetch_add(kPart)) {
    const std::size_t start = std::max(part, before) - before;
    const std::size_t end = std::min(part + kPart - before, copy.bytes);
    copy_part(copy.target + start, copy.source + start, end - start);
  }
}

} // namespace

unsigned LargeCopy::threads_of(const sycl::device &device) {
  using sycl::info::partition_property;
  if (!device.is_cpu() || !device.has(sycl::aspect::usm_system_allocations) ||
      // The threads would leave the cores of a sub-device.
      device.get_info<sycl::info::device::partition_type_property>() != partition_property::no_partition) {
    return 0;
  }
  return std::min(kMostThreads, device.get_info<sycl::info::device::max_compute_units>());
}

std::optional<LargeCopy> LargeCopy::of(std::size_t target, std::size_t source, std::size_t bytes, unsigned threads) {
  const std::size_t distance = target > source ? target - source : source - target;
  // Overlapping ranges are the driver's to refuse.
  if (threads < 2 || bytes < kSmallest || distance < bytes) {
    return std::nullopt;
  }
  LargeCopy copy{reinterpret_cast<char *>(target), reinterpret_cast<const char *>(source), bytes, threads, {}};
  // Of the first thread: the driver binds its workers to one core each.
  if (sched_getaffinity(getpid(), sizeof(copy.cores), &copy.cores) != 0) {
    return std::nullopt; // more cores than the set has room for
  }
  copy.threads = std::min(threads, static_cast<unsigned>(CPU_COUNT(&copy.cores)));
  return copy.threads < 2 ? std::nullopt : std::optional(copy);
}

void CL_CALLBACK LargeCopy::run(void *arguments) noexcept {
  const LargeCopy copy = *static_cast<const LargeCopy *>(arguments);
  std::atomic<std::size_t> next{0};
  std::array<std::thread, kMostThreads - 1> others;
  // New threads inherit the cores of this one. A worker of the driver is bound to one core, where they could not run,
  // nor move themselves, before the end of this thread's time slice, which is longer than many copies.
  cpu_set_t own;
  const bool widened =
      sched_getaffinity(0, sizeof(own), &own) == 0 && sched_setaffinity(0, sizeof(copy.cores), &copy.cores) == 0;
  try {
    for (unsigned i = 0; i + 1 < copy.threads; ++i) {
      others[i] = std::thread([&] { copy_parts(copy, next); });
    }
  } catch (...) {
    // The threads that have started copy all parts.
  }
  if (widened) {
    sched_setaffinity(0, sizeof(own), &own);
  }
  copy_parts(copy, next);
  for (auto &other : others) {
    if (other.joinable()) {
      other.join();
    }
  }
}

} // namespace usmq
