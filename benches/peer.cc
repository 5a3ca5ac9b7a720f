// The plain C++ side of `make bench`: the same rows as rust.rs on the same libsycl, written by hand. Answers "row
// side count" on stdin with nanoseconds per operation; see run.py. The argument is the kernel's file.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <sycl/sycl.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace exp = sycl::ext::oneapi::experimental;

constexpr std::size_t kItems = 256;
constexpr std::size_t kLaunches = 1000;
constexpr std::size_t kHops = 100;
constexpr std::size_t kChain = 10;
constexpr std::size_t kSmall = 4096;
constexpr std::size_t kLarge = std::size_t{64} << 20;
// 0.3 to 1.1 s on two cores.
constexpr std::size_t kLongItems = std::size_t{1} << 16;
constexpr unsigned kLongSteps = 110'000;

// The per-thread state of a program that keeps its own current queue.
thread_local sycl::queue *current = nullptr;
[[gnu::noinline]] sycl::queue *current_queue() { return current; }

sycl::kernel_bundle<sycl::bundle_state::executable> build(const sycl::queue &queue, const char *file) {
  std::ifstream in(file);
  const std::string source(std::istreambuf_iterator<char>(in), {});
  auto text = exp::create_kernel_bundle_from_source(queue.get_context(), exp::source_language::sycl, source);
  return exp::build(text, {queue.get_device()});
}

// Reuses blocks of each power of two, counts as usmq's statistics do, and lets several owners share a block. It does
// not know which commands use a block.
class Pool {
public:
  explicit Pool(const sycl::queue &queue) : queue_(queue) {}
  Pool(const Pool &) = delete;
  ~Pool() {
    for (const auto &blocks : free_) {
      for (void *block : blocks) {
        sycl::free(block, queue_);
      }
    }
  }

  std::shared_ptr<void> allocate(std::size_t bytes) {
    void *block = take(bytes);
    const auto used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    auto peak = peak_.load(std::memory_order_relaxed);
    while (used > peak && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
    }
    allocations_.fetch_add(1, std::memory_order_relaxed);
    return {block, [this, bytes](void *freed) {
              used_.fetch_sub(bytes, std::memory_order_relaxed);
              releases_.fetch_add(1, std::memory_order_relaxed);
              const std::lock_guard<std::mutex> guard(lock_);
              free_[size_class(bytes)].push_back(freed);
            }};
  }

private:
  static std::size_t size_class(std::size_t bytes) {
    return bytes <= 1 ? 0 : std::size_t{64} - static_cast<std::size_t>(__builtin_clzll(bytes - 1));
  }

  void *take(std::size_t bytes) {
    {
      const std::lock_guard<std::mutex> guard(lock_);
      auto &blocks = free_[size_class(bytes)];
      if (!blocks.empty()) {
        void *block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    return sycl::malloc_device(std::size_t{1} << size_class(bytes), queue_);
  }

  sycl::queue queue_;
  std::mutex lock_;
  std::array<std::vector<void *>, 65> free_;
  std::atomic<std::size_t> used_{0}, peak_{0}, allocations_{0}, releases_{0};
};

class Peer {
public:
  explicit Peer(const char *kernel_file)
      : queue_(sycl::property::queue::in_order{}),
        other_(queue_.get_context(), queue_.get_device(),
               {sycl::property::queue::in_order{}, sycl::property::queue::enable_profiling{}}),
        bundle_(build(queue_, kernel_file)), axpy_(bundle_.ext_oneapi_get_kernel("axpy")),
        spin_(bundle_.ext_oneapi_get_kernel("spin")), x_(sycl::malloc_device<char>(kLarge, queue_)),
        y_(sycl::malloc_device<char>(kLarge, queue_)) {
    current = &queue_;
    queue_.memset(x_, 0, kLarge);
    queue_.memset(y_, 0, kLarge).wait();
    rows_["rust.current_queue"] = [this](std::size_t count) {
      return time(count, [] {
        auto *queue = current_queue();
        asm volatile("" : : "r"(queue) : "memory");
      });
    };
    for (const std::size_t bytes : {std::size_t{64}, kSmall, std::size_t{1} << 20, kLarge}) {
      rows_["rust.alloc_free." + std::to_string(bytes)] = [this, bytes](std::size_t count) {
        return time(count, [&] { sycl::free(sycl::malloc_device(bytes, queue_), queue_); });
      };
    }
    rows_["rust.launch_wait"] = [this](std::size_t count) { return time(count, [&] { launch().wait(); }); };
    rows_["rust.launch_throughput"] = [this](std::size_t count) {
      return time(count / kLaunches, [&] { launch_many(); }) / kLaunches;
    };
    rows_["rust.long_kernel"] = [this](std::size_t count) { return time(count, [&] { launch_long().wait(); }); };
    rows_["cpp.launch_wait"] = rows_["rust.launch_wait"];
    rows_["cpp.launch_async"] = rows_["rust.launch_throughput"];
    rows_["cpp.pool"] = [this](std::size_t count) {
      Pool pool(queue_);
      return time(count, [&] { pool.allocate(kLarge); });
    };
    rows_["cpp.thread"] = [this](std::size_t count) { return threads({&queue_}, count); };
    rows_["cpp.threads"] = [this](std::size_t count) { return threads({&queue_, &other_}, count); };
    rows_["cpp.host_copy"] = [this](std::size_t count) { return host_copy(count); };
    rows_["profile.off_wait"] = rows_["rust.launch_wait"];
    rows_["profile.off_throughput"] = rows_["rust.launch_throughput"];
    rows_["py.small_program_cpp"] = [this](std::size_t count) { return time(count, [&] { small_program(); }); };
    rows_["rust.copy_4k_wait"] = [this](std::size_t count) {
      return time(count, [&] { queue_.memcpy(y_, x_, kSmall).wait(); });
    };
    rows_["rust.copy_64m"] = [this](std::size_t count) {
      return time(count, [&] { queue_.memcpy(y_, x_, kLarge).wait(); });
    };
    rows_["replay.chain10"] = [this](std::size_t count) { return time(count, [&] { launches(kChain); }); };
    rows_["replay.py_chain100"] = [this](std::size_t count) { return time(count, [&] { launches(10 * kChain); }); };
    rows_["replay.graph"] = [this](std::size_t count) {
      const auto graph = chain_graph();
      return time(count, [&] { queue_.ext_oneapi_graph(graph).wait(); });
    };
    rows_["rust.two_queue_chain"] = [this](std::size_t count) { return time(count / kHops, [&] { chain(); }) / kHops; };
  }

  ~Peer() {
    sycl::free(x_, queue_);
    sycl::free(y_, queue_);
    sycl::free(warm_, queue_);
  }

  double round(const std::string &row, std::size_t count) const { return rows_.at(row)(count); }

private:
  template <typename Operation> static double time(std::size_t count, Operation operation) {
    for (std::size_t i = 0; i < count / 8 + 1; ++i) {
      operation();
    }
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      operation();
    }
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count() / static_cast<double>(count);
  }

  void set_launch(sycl::handler &handler) { set_launch(handler, x_, y_); }

  void set_launch(sycl::handler &handler, const void *x, void *y) {
    handler.set_arg(0, 2.0f);
    handler.set_arg(1, x);
    handler.set_arg(2, y);
    handler.set_arg(3, kItems);
    handler.parallel_for(sycl::range<1>(kItems), axpy_);
  }

  sycl::event launch() {
    return queue_.submit([&](sycl::handler &handler) { set_launch(handler); });
  }

  void launches(std::size_t count) {
    for (std::size_t i = 1; i < count; ++i) {
      launch();
    }
    launch().wait();
  }

  exp::command_graph<exp::graph_state::executable> chain_graph() {
    exp::command_graph<exp::graph_state::modifiable> graph(queue_.get_context(), queue_.get_device());
    auto last = graph.add([&](sycl::handler &handler) { set_launch(handler); });
    for (std::size_t i = 1; i < kChain; ++i) {
      last = graph.add([&](sycl::handler &handler) { set_launch(handler); }, {exp::property::node::depends_on(last)});
    }
    return graph.finalize();
  }

  // Allocates, fills, launches twice, reads.
  void small_program() {
    const std::size_t bytes = kItems * sizeof(float);
    auto *x = sycl::malloc_device<float>(kItems, queue_), *y = sycl::malloc_device<float>(kItems, queue_);
    std::vector<float> result(kItems);
    queue_.fill(x, 1.0f, kItems);
    for (int i = 0; i < 2; ++i) {
      queue_.submit([&](sycl::handler &handler) { set_launch(handler, x, y); });
    }
    queue_.memcpy(result.data(), y, bytes).wait();
    sycl::free(x, queue_);
    sycl::free(y, queue_);
  }

  sycl::event launch_long() {
    return queue_.submit([&](sycl::handler &handler) {
      handler.set_arg(0, kLongSteps);
      handler.set_arg(1, y_);
      handler.parallel_for(sycl::range<1>(kLongItems), spin_);
    });
  }

  void launch_many() {
    for (std::size_t i = 0; i < kLaunches; ++i) {
      launch();
    }
    queue_.wait();
  }

  // As rust.threads, but with a wait for each launch: plain C++ must not free memory that a kernel uses.
  double threads(const std::vector<sycl::queue *> &queues, std::size_t count) {
    std::vector<double> times(queues.size());
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < queues.size(); ++i) {
      running.emplace_back([&, i] {
        times[i] = time(count, [&] {
          auto *x = sycl::malloc_device<float>(kItems, *queues[i]);
          queues[i]->submit([&](sycl::handler &handler) { set_launch(handler, x, x); }).wait();
          sycl::free(x, *queues[i]);
        });
      });
    }
    for (auto &thread : running) {
      thread.join();
    }
    return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  }

  // Copies a GiB into warm host USM, half of it in each of two threads.
  double host_copy(std::size_t count) {
    constexpr std::size_t half = std::size_t{1} << 29;
    if (!plain_) {
      plain_ = std::make_unique<char[]>(2 * half);
      warm_ = sycl::malloc_host<char>(2 * half, queue_);
      std::memset(plain_.get(), 1, 2 * half);
    }
    return time(count, [&] {
      std::thread first([&] { std::memcpy(warm_, plain_.get(), half); });
      std::memcpy(warm_ + half, plain_.get() + half, half);
      first.join();
    });
  }

  // Each copy reads the result of the previous one, on the other queue.
  void chain() {
    auto last = queue_.memcpy(y_, x_, kSmall);
    for (std::size_t i = 1; i < kHops; ++i) {
      last = i % 2 == 0 ? queue_.memcpy(y_, x_, kSmall, last) : other_.memcpy(x_, y_, kSmall, last);
    }
    last.wait();
  }

  sycl::queue queue_, other_;
  sycl::kernel_bundle<sycl::bundle_state::executable> bundle_;
  sycl::kernel axpy_, spin_;
  char *x_, *y_, *warm_ = nullptr;
  std::unique_ptr<char[]> plain_;
  std::map<std::string, std::function<double(std::size_t)>> rows_;
};

} // namespace

int main(int, char **argv) try {
  Peer peer(argv[1]);
  std::cout << "ready" << std::endl;
  std::string row, side;
  std::size_t count;
  while (std::cin >> row >> side >> count) {
    std::cout << peer.round(row, count) << std::endl;
  }
} catch (const std::exception &error) {
  std::cerr << "peer: " << error.what() << std::endl;
  return 1;
}
