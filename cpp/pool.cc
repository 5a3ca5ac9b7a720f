// UMF's disjoint pool over a provider that allocates memory from SYCL.
#include "usmq/src/ffi.rs.h"

#include <algorithm>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/memory_provider_ops.h>
#include <umf/pools/pool_disjoint.h>
#include <utility>

namespace usmq {

namespace {

// Sufficient for vector loads of every device and for Arrow's recommendation.
constexpr std::size_t kAlignment = 64;
// Half a slab, the largest block that UMF takes from one: SMALL in src/memory/free_list.rs. Larger blocks do not
// reach this.
constexpr std::size_t kLargest = std::size_t{32} << 10;

void check(umf_result_t result, const char *what) {
  if (result != UMF_RESULT_SUCCESS) {
    throw std::runtime_error(coded("memory_allocation", what));
  }
}

// Callbacks of UMF are C: they must not throw.
umf_result_t initialize(const void *params, void **provider) {
  *provider = const_cast<void *>(params);
  return UMF_RESULT_SUCCESS;
}

umf_result_t finalize(void *) { return UMF_RESULT_SUCCESS; }

// Null if the limit or the runtime cannot provide the memory. Zero bytes have an address and do not count.
void *ask(const UsmSource &source, std::size_t size, std::size_t alignment) noexcept {
  if (!source.budget.take(size)) {
    return nullptr;
  }
  void *pointer = nullptr;
  try {
    USMQ_FAULT_POINT("sycl::aligned_alloc");
    pointer = sycl::aligned_alloc(std::max(alignment, kAlignment), std::max<std::size_t>(size, 1), source.device,
                                  source.context, source.kind);
  } catch (...) {
  }
  if (pointer == nullptr) {
    source.budget.taken.fetch_sub(size);
    return nullptr;
  }
  source.budget.requests.fetch_add(1);
  return pointer;
}

bool free_at_runtime(const UsmBudget &budget, const UsmBlock &block) noexcept {
  try {
    USMQ_FAULT_POINT("sycl::free");
    sycl::free(block.pointer, block.context);
  } catch (...) {
    return false;
  }
  budget.taken.fetch_sub(block.size);
  return true;
}

// A block of this size that the release thread has not freed yet; null if there is none.
void *take_unused(const UsmSource &source, std::size_t size, std::size_t alignment) noexcept {
  if (!source.budget.has_unused.load()) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> guard(source.budget.lock);
  auto &unused = source.budget.unused;
  const auto serves = [&](const UsmBlock &block) {
    return block.size == size && block.context == source.context &&
           reinterpret_cast<std::uintptr_t>(block.pointer) % alignment == 0;
  };
  const auto found = std::find_if(unused.begin(), unused.end(), serves);
  if (found == unused.end()) {
    return nullptr;
  }
  void *const pointer = found->pointer;
  unused.erase(found);
  return pointer;
}

bool put_unused(const UsmSource &source, void *pointer, std::size_t size) noexcept {
  try {
    std::lock_guard<std::mutex> guard(source.budget.lock);
    source.budget.unused.push_back(UsmBlock{pointer, size, source.context});
    source.budget.has_unused.store(true);
  } catch (...) {
    return false; // No memory for one list entry: the block is leaked.
  }
  return true;
}

umf_result_t allocate(void *provider, std::size_t size, std::size_t alignment, void **pointer) {
  const auto &source = *static_cast<const UsmSource *>(provider);
  *pointer = take_unused(source, size, std::max(alignment, kAlignment));
  if (*pointer == nullptr) {
    *pointer = ask(source, size, alignment);
  }
  return *pointer == nullptr ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : UMF_RESULT_SUCCESS;
}

umf_result_t release(void *provider, void *pointer, std::size_t size) {
  const auto done = put_unused(*static_cast<const UsmSource *>(provider), pointer, size);
  return done ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
}

umf_result_t last_error(void *, const char **message, std::int32_t *code) {
  *message = "the SYCL runtime refused a request of the memory pool";
  *code = 0;
  return UMF_RESULT_SUCCESS;
}

umf_result_t recommended_page_size(void *, std::size_t, std::size_t *size) {
  *size = kAlignment;
  return UMF_RESULT_SUCCESS;
}

umf_result_t min_page_size(void *, const void *, std::size_t *size) {
  *size = kAlignment;
  return UMF_RESULT_SUCCESS;
}

umf_result_t name(void *, const char **text) {
  *text = "usmq";
  return UMF_RESULT_SUCCESS;
}

umf_memory_provider_ops_t provider_ops() {
  umf_memory_provider_ops_t ops{};
  // The members set below are all that UMF 1.1 has; UMF 1.2 accepts them and needs no others.
  ops.version = UMF_MAKE_VERSION(1, 1);
  ops.initialize = initialize;
  ops.finalize = finalize;
  ops.alloc = allocate;
  ops.free = release;
  ops.get_last_native_error = last_error;
  ops.get_recommended_page_size = recommended_page_size;
  ops.get_min_page_size = min_page_size;
  ops.get_name = name;
  return ops;
}

umf_memory_pool_t *disjoint_pool(umf_memory_provider_t *provider) {
  umf_disjoint_pool_params_handle_t params = nullptr;
  check(umfDisjointPoolParamsCreate(&params), "UMF could not create pool parameters");
  umfDisjointPoolParamsSetMinBucketSize(params, kAlignment);
  umfDisjointPoolParamsSetMaxPoolableSize(params, kLargest);
  umf_memory_pool_handle_t pool = nullptr;
  const auto result = umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &pool);
  umfDisjointPoolParamsDestroy(params);
  check(result, "UMF could not create a memory pool");
  return pool;
}

} // namespace

bool UsmBudget::take(std::uint64_t bytes) const noexcept {
  auto before = taken.load();
  do {
    const auto most = limit.load();
    if (bytes > 0 && (before > most || bytes > most - before)) {
      return false;
    }
  } while (!taken.compare_exchange_weak(before, before + bytes));
  return true;
}

UsmPool::~UsmPool() {
  if (pool != nullptr) {
    umfPoolDestroy(pool);
  }
  if (provider != nullptr) {
    umfMemoryProviderDestroy(provider);
  }
}

std::unique_ptr<UsmBudget> budget_new() { return std::make_unique<UsmBudget>(); }

void budget_set_limit(const UsmBudget &budget, std::uint64_t bytes) noexcept { budget.limit.store(bytes); }

BudgetStats budget_stats(const UsmBudget &budget) noexcept {
  BudgetStats stats;
  stats.reserved = budget.taken.load();
  stats.requests = budget.requests.load();
  return stats;
}

bool budget_has_unused(const UsmBudget &budget) noexcept { return budget.has_unused.load(); }

void budget_free(const UsmBudget &budget, rust::Fn<void(std::size_t)> before_free) noexcept {
  const ForeignCall counted;
  if (counted.is_late()) {
    return;
  }
  std::lock_guard<std::mutex> alone(budget.freeing);
  std::vector<UsmBlock> blocks;
  {
    std::lock_guard<std::mutex> guard(budget.lock);
    blocks.swap(budget.unused);
    budget.has_unused.store(false);
  }
  const auto freed = [&](const UsmBlock &block) {
    before_free(reinterpret_cast<std::size_t>(block.pointer));
    return free_at_runtime(budget, block);
  };
  blocks.erase(std::remove_if(blocks.begin(), blocks.end(), freed), blocks.end());
  if (blocks.empty()) {
    return;
  }
  // The runtime refused to free these; the next call retries.
  std::lock_guard<std::mutex> guard(budget.lock);
  try {
    budget.unused.insert(budget.unused.end(), blocks.begin(), blocks.end());
    budget.has_unused.store(true);
  } catch (...) { // NOLINT(bugprone-empty-catch): no memory for the list, so the blocks are leaked
  }
}

std::unique_ptr<UsmPool> pool_new(std::uint8_t kind, const Device &device, const Context &context,
                                  const UsmBudget &budget) {
  auto made = std::make_unique<UsmPool>(UsmSource(kind, device, context, budget));
  const auto ops = provider_ops();
  check(umfMemoryProviderCreate(&ops, &made->source, &made->provider), "UMF could not create a memory provider");
  made->pool = disjoint_pool(made->provider);
  return made;
}

void pool_renew(const UsmPool &pool) {
  auto *const next = disjoint_pool(pool.provider);
  umfPoolDestroy(std::exchange(pool.pool, next));
}

std::size_t pool_alloc(const UsmPool &pool, std::size_t bytes) noexcept {
  const ForeignCall counted;
  if (counted.is_late()) {
    return 0;
  }
  // UMF returns no address for zero bytes, but an array of zero elements needs a unique one.
  return reinterpret_cast<std::size_t>(umfPoolAlignedMalloc(pool.pool, std::max<std::size_t>(bytes, 1), kAlignment));
}

void pool_free(const UsmPool &pool, std::size_t pointer) {
  check(umfPoolFree(pool.pool, reinterpret_cast<void *>(pointer)), "UMF could not free a block");
}

void pool_trim(const UsmPool &pool) {
  const auto result = umfPoolTrimMemory(pool.pool, 0);
  if (result != UMF_RESULT_ERROR_NOT_SUPPORTED) {
    check(result, "UMF could not trim a pool");
  }
}

std::size_t block_alloc(const UsmPool &pool, std::size_t bytes) noexcept {
  const ForeignCall counted;
  if (counted.is_late()) {
    return 0;
  }
  return reinterpret_cast<std::size_t>(ask(pool.source, bytes, kAlignment));
}

void block_free(const UsmPool &pool, std::size_t pointer, std::size_t bytes) noexcept {
  put_unused(pool.source, reinterpret_cast<void *>(pointer), bytes);
}

} // namespace usmq
