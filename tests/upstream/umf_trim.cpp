// UMF: a disjoint pool goes on counting blocks that a trim has returned, and keeps no more of their size.
#include "upstream.h"

#include <cstdlib>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/memory_provider_ops.h>
#include <umf/pools/pool_disjoint.h>

namespace {

long requests = 0;

umf_result_t start(const void *, void **provider) {
  *provider = &requests;
  return UMF_RESULT_SUCCESS;
}
umf_result_t end(void *) { return UMF_RESULT_SUCCESS; }
umf_result_t take(void *, size_t size, size_t alignment, void **pointer) {
  ++requests;
  return posix_memalign(pointer, alignment < 64 ? 64 : alignment, size) == 0 ? UMF_RESULT_SUCCESS
                                                                             : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}
umf_result_t give(void *, void *pointer, size_t) {
  std::free(pointer);
  return UMF_RESULT_SUCCESS;
}
umf_result_t error(void *, const char **text, int32_t *code) {
  *text = "";
  *code = 0;
  return UMF_RESULT_SUCCESS;
}
umf_result_t page(void *, size_t, size_t *size) {
  *size = 4096;
  return UMF_RESULT_SUCCESS;
}
umf_result_t least_page(void *, const void *, size_t *size) {
  *size = 4096;
  return UMF_RESULT_SUCCESS;
}
umf_result_t name(void *, const char **text) {
  *text = "counting";
  return UMF_RESULT_SUCCESS;
}

constexpr size_t kBytes = size_t{1} << 20;
constexpr int kBlocks = 4;

// Allocates and frees one block again and again; returns how often the provider was asked.
long requests_of_ten(umf_memory_pool_handle_t pool) {
  const long before = requests;
  for (int i = 0; i < 10; ++i) {
    umfPoolFree(pool, umfPoolMalloc(pool, kBytes));
  }
  return requests - before;
}

} // namespace

int main() {
  umf_memory_provider_ops_t ops{};
  ops.version = UMF_MAKE_VERSION(1, 1);
  ops.initialize = start;
  ops.finalize = end;
  ops.alloc = take;
  ops.free = give;
  ops.get_last_native_error = error;
  ops.get_recommended_page_size = page;
  ops.get_min_page_size = least_page;
  ops.get_name = name;
  umf_memory_provider_handle_t provider = nullptr;
  umf_disjoint_pool_params_handle_t params = nullptr;
  umf_memory_pool_handle_t pool = nullptr;
  if (umfMemoryProviderCreate(&ops, nullptr, &provider) != UMF_RESULT_SUCCESS ||
      umfDisjointPoolParamsCreate(&params) != UMF_RESULT_SUCCESS) {
    return upstream::not_tried("UMF made no provider");
  }
  umfDisjointPoolParamsSetMaxPoolableSize(params, kBytes);
  umfDisjointPoolParamsSetCapacity(params, kBlocks);
  if (umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &pool) != UMF_RESULT_SUCCESS) {
    return upstream::not_tried("UMF made no pool");
  }
  void *blocks[kBlocks];
  for (auto &block : blocks) {
    block = umfPoolMalloc(pool, kBytes);
  }
  for (auto *block : blocks) {
    umfPoolFree(pool, block);
  }
  const long before = requests_of_ten(pool);
  umfPoolTrimMemory(pool, 0);
  const long after = requests_of_ten(pool);
  const auto text = std::to_string(before) + " requests of the provider for ten allocations before a trim, " +
                    std::to_string(after) + " after it";
  return after > before + 1 ? upstream::seen(text)
                            : upstream::fixed(text, "src/memory/free_list.rs (Umf::trim) and cpp/pool.cc (pool_renew)");
}
