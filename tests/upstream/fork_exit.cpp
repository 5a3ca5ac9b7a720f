// CPU driver: a child that is forked while a command runs does not end by `exit`.
#include "upstream.h"

#include <csignal>
#include <sycl/sycl.hpp>
#include <sys/wait.h>
#include <unistd.h>

int main() {
  sycl::queue queue(sycl::property::queue::in_order{});
  constexpr std::size_t kBytes = std::size_t{1} << 28;
  void *memory = sycl::malloc_device(kBytes, queue);
  queue.memset(memory, 1, kBytes).wait();
  for (int i = 0; i < 10; ++i) {
    queue.memset(memory, i, kBytes);
  }
  const pid_t child = fork();
  if (child == 0) {
    std::exit(0);
  }
  int status = 0;
  if (!upstream::within(5000, [&] { return waitpid(child, &status, WNOHANG) == child; })) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return upstream::seen("the child did not end in 5 s");
  }
  queue.wait();
  if (WIFSIGNALED(status)) {
    return upstream::seen("signal " + std::to_string(WTERMSIG(status)) + " ended the child");
  }
  return upstream::fixed("the child ended", "src/runtime/exit.rs (a child ends by _exit)");
}
