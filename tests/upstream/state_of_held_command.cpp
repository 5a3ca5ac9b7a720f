// libsycl: a command that a host task holds back is "complete" for a query, and for a wait, at the moment of its
// submission.
#include "upstream.h"

#include <atomic>
#include <cstring>
#include <sycl/sycl.hpp>
#include <vector>

namespace {

constexpr size_t SIZE = 64 << 20;
// More than most machines have processors: a query that is interrupted at the right place shows the defect.
constexpr int THREADS = 8;

bool says_complete(const sycl::event &event) {
  return event.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
}

// Whether a thread that asks `is_over` until it is true finds the target of the copy unwritten.
bool is_early(sycl::queue &queue, const char *source, char *target, bool (*is_over)(const sycl::event &)) {
  std::memset(target, 0, SIZE);
  std::atomic<bool> open{false};
  std::atomic<int> early{0};
  const sycl::event task = queue.submit([&](sycl::handler &handler) {
    handler.host_task([&] {
      while (!open) {
        std::this_thread::yield();
      }
    });
  });
  const sycl::event copy = queue.submit([&](sycl::handler &handler) {
    handler.depends_on(task);
    handler.memcpy(target, source, SIZE);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; ++i) {
    threads.emplace_back([&] {
      while (!is_over(copy)) {
      }
      early += target[SIZE - 1] == 0;
    });
  }
  upstream::pause(3);
  open = true;
  for (std::thread &thread : threads) {
    thread.join();
  }
  sycl::event(copy).wait();
  return early != 0;
}

} // namespace

int main() {
  sycl::queue queue{sycl::device()};
  auto *source = sycl::malloc_host<char>(SIZE, queue), *target = sycl::malloc_host<char>(SIZE, queue);
  std::memset(source, 1, SIZE);
  constexpr int ROUNDS = 60;
  int once = 0, twice = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    once += is_early(queue, source, target, says_complete);
    twice += is_early(queue, source, target,
                      [](const sycl::event &event) { return says_complete(event) && says_complete(event); });
  }
  const std::string of = " of " + std::to_string(ROUNDS) + " rounds";
  if (twice != 0) {
    return upstream::seen("also a second answer was early, in " + std::to_string(twice) + of +
                          ", which cpp/event.cc relies on");
  }
  return once != 0
             ? upstream::seen("the first answer was early in " + std::to_string(once) + of + ", the second one never")
             : upstream::not_seen("no answer was early in " + std::to_string(ROUNDS) + " rounds");
}
