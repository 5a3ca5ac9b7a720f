// A program without Python: it chooses a queue, a function deep inside asks for it.
//
//     program [target]        as "cpu" or "gpu:1"

#include <cstdio>
#include <string>
#include <usmq.hpp>
#include <vector>

namespace {

// A library function without a queue argument: it runs on the queue that its caller chose.
std::vector<unsigned char> filled(std::size_t bytes, int value) {
  sycl::queue queue = usmq::current_queue();
  usmq::block<unsigned char> block = usmq::allocate<unsigned char>(bytes, queue);
  queue.memset(block.get(), value, bytes);
  std::vector<unsigned char> host(bytes);
  queue.memcpy(host.data(), block.get(), bytes).wait();
  return host;
}

std::string name(const sycl::queue &queue) { return queue.get_device().get_info<sycl::info::device::name>(); }

} // namespace

int main(int argc, char **argv) try {
  std::printf("usmq %s\n", usmq_version());
  std::printf("default: %s\n", name(usmq::current_queue()).c_str());

  const char *target = argc > 1 ? argv[1] : "cpu";
  {
    usmq::scope scope(target);
    std::printf("%s: %s\n", target, name(usmq::current_queue()).c_str());
    if (usmq::current_queue() != usmq::queue(target))
      return 1;
    // The scope owns its queue, also while a scope inside it has another one.
    sycl::queue &chosen = scope.queue();
    {
      usmq::scope inner(sycl::queue(chosen.get_device()));
      if (inner.queue() != usmq::current_queue() || chosen == inner.queue() || &chosen != &scope.queue())
        return 1;
    }
    usmq::scope here;
    if (here.queue() != chosen)
      return 1;
    long sum = 0;
    for (unsigned char value : filled(1000, 7))
      sum += value;
    std::printf("sum: %ld\n", sum);
  }

  try {
    usmq::scope nowhere("gpu:99");
  } catch (const usmq::error &error) {
    std::printf("as expected: %s\n", error.what());
  }
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
