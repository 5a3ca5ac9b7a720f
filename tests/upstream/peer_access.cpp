// UR: the OpenCL adapter ends the process when it is asked about peer access.
#include "parts.h"
#include "upstream.h"

int main() {
  std::vector<sycl::device> parts = upstream::two_parts();
  if (parts.empty()) {
    return upstream::not_tried("needs a CPU device with two sub-devices");
  }
  upstream::trying();
  std::string answer;
  try {
    answer = parts[0].ext_oneapi_can_access_peer(parts[1]) ? "yes" : "no";
  } catch (const sycl::exception &error) {
    answer = error.what();
  }
  return upstream::fixed("the answer is " + answer, "src/device/backend.rs (Capabilities::peer_access)");
}
