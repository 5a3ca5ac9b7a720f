// Writes reports; refuses what is not carried out.
#include "report.h"

#include "switches.h"

#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

namespace front {
namespace {

// A status that neither Python nor a test uses.
constexpr int REFUSED = 97;

void write_line(const std::string &line) {
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  const std::string &path = switches().reports;
  if (path.empty()) {
    return;
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0) {
    // One write, so that lines of several processes do not mix.
    if (write(file, line.data(), line.size()) < 0) {
      std::perror("usmq's Level Zero driver: reports");
    }
    close(file);
  }
}

} // namespace

void report(const std::string &what) {
  static auto &one = *new std::mutex;
  const std::lock_guard<std::mutex> lock(one);
  write_line("usmq's Level Zero driver: report: " + what + "\n");
}

void refuse(const std::string &what) {
  write_line("usmq's Level Zero driver: not carried out: " + what + "\n");
  _exit(REFUSED);
}

std::string hexadecimal(const void *address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

} // namespace front
