// libsycl's compiler: a kernel from source with group_local_memory ends the process.
#include "upstream.h"

#include <sycl/sycl.hpp>

namespace exp = sycl::ext::oneapi::experimental;

int main() {
  sycl::queue queue;
  const std::string source = R"(
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>))
void f(int *x) {
  auto &tile = *ext::group_local_memory_for_overwrite<int[4]>(ext::this_work_item::get_work_group<1>());
  tile[0] = 1;
  x[0] = tile[0];
}
)";
  auto text = exp::create_kernel_bundle_from_source(queue.get_context(), exp::source_language::sycl, source);
  upstream::trying();
  std::string answer = "it builds";
  try {
    exp::build(text);
  } catch (const sycl::exception &error) {
    answer = error.what();
  }
  return upstream::fixed(answer, "the note on local memory in docs/howto/kernels.md");
}
