// Device functions for kernels that include no other header: builds in about 0.1 s, without a C++ standard library.
//
//     #include <usmq/kernel.h>
//
//     USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {
//       auto i = global_id(0);
//       y[i] += a * x[i];
//     }
//
// usmq passes this file to the runtime's compiler by itself. It may come before or after <sycl/sycl.hpp>.
//
// All names are in the namespace usmq and, for convenience, also in the global one. Define USMQ_NO_NAMES before the
// include to keep them in usmq only, for example beside `using namespace sycl`.
//
// Macros:
//     USMQ_DIMENSIONS    defined by usmq: the dimensions of the kernel, if the source shows them; else defined by you
//     where the
//                        driver does not tell kernels (Level Zero)
//     USMQ_SYCL_HEADERS  defined by you: declare kernels by the SYCL headers, if the runtime refuses the others
//
// Sources: SPIR-V 1.6, section 3.21 (BuiltIn); OpenCL Extended Instruction Set 1.0, section 2.1 (math);
// sycl_ext_oneapi_free_function_kernels (kernels), sycl_ext_oneapi_work_group_memory and _static (local memory).
#ifndef USMQ_KERNEL_H
#define USMQ_KERNEL_H

#ifdef USMQ_SYCL_HEADERS
#include <sycl/sycl.hpp>
/// Declares a kernel over an nd-range of 1, 2 or 3 dimensions.
#define USMQ_KERNEL(dimensions)                                                                                        \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<dimensions>))
#else
/// Declares a kernel over an nd-range of 1, 2 or 3 dimensions.
#define USMQ_KERNEL(dimensions)                                                                                        \
  extern "C" [[__sycl_detail__::add_ir_attributes_function("sycl-nd-range-kernel", dimensions)]]                       \
  __attribute__((sycl_device))
#endif

using size_t = decltype(sizeof 0);
using int8_t = __INT8_TYPE__;
using int16_t = __INT16_TYPE__;
using int32_t = __INT32_TYPE__;
using int64_t = __INT64_TYPE__;
using uint8_t = __UINT8_TYPE__;
using uint16_t = __UINT16_TYPE__;
using uint32_t = __UINT32_TYPE__;
using uint64_t = __UINT64_TYPE__;

#define USMQ_DEVICE __attribute__((sycl_device))
#define USMQ_INLINE inline __attribute__((always_inline))

// Declared as in the SYCL headers, so that either may come first.
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInGlobalInvocationId(int);
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInGlobalSize(int);
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInNumWorkgroups(int);
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInWorkgroupSize(int);
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInWorkgroupId(int);
USMQ_DEVICE __attribute__((const)) size_t __spirv_BuiltInLocalInvocationId(int);
USMQ_DEVICE __attribute__((const)) uint32_t __spirv_BuiltInSubgroupSize();
USMQ_DEVICE __attribute__((const)) uint32_t __spirv_BuiltInSubgroupMaxSize();
USMQ_DEVICE __attribute__((const)) uint32_t __spirv_BuiltInNumSubgroups();
USMQ_DEVICE __attribute__((const)) uint32_t __spirv_BuiltInSubgroupId();
USMQ_DEVICE __attribute__((const)) uint32_t __spirv_BuiltInSubgroupLocalInvocationId();
template <typename... Args>
extern USMQ_DEVICE int __spirv_ocl_printf(const __attribute__((opencl_constant)) char *Format, Args... args);

namespace usmq {

// Template parameters end in an underscore: kernels are built with macros such as -DN=3 and -DT=float.

using half = _Float16;

namespace detail {

#ifdef USMQ_DIMENSIONS
USMQ_INLINE int dimensions() { return USMQ_DIMENSIONS; }
#else
extern USMQ_DEVICE __attribute__((const)) int work_dimensions() __asm__("_Z22__spirv_BuiltInWorkDimv");
USMQ_INLINE int dimensions() { return work_dimensions(); }
#endif

template <class T_> struct same {
  using type = T_;
};
template <class T_> using same_t = typename same<T_>::type;

// Integers become double in mathematical functions, as in C++.
USMQ_INLINE half real(half x) { return x; }
USMQ_INLINE float real(float x) { return x; }
template <class T_> USMQ_INLINE double real(T_ x) { return x; }
template <class T_> using real_t = decltype(real(T_()));
template <class T_, class U_> using common_t = real_t<decltype(T_() + U_())>;

enum scope { device_scope = 1, work_group_scope = 2, sub_group_scope = 3 };
// Sequentially consistent, for global and local memory.
enum { all_memory = 0x10 | 0x100 | 0x200, relaxed = 0 };
enum operation { reduce = 0, inclusive = 1, exclusive = 2 };

} // namespace detail

// The position of a work-item. Dimension 0 is the first of the range and changes slowest, as in SYCL and numpy. Beyond
// the kernel's dimensions, an id is 0 and a size 1.

#define USMQ_POSITION(name, builtin, beyond)                                                                           \
  USMQ_INLINE size_t name(int dimension) {                                                                             \
    switch (detail::dimensions() - 1 - dimension) {                                                                    \
    case 0:                                                                                                            \
      return builtin(0);                                                                                               \
    case 1:                                                                                                            \
      return builtin(1);                                                                                               \
    case 2:                                                                                                            \
      return builtin(2);                                                                                               \
    default:                                                                                                           \
      return beyond;                                                                                                   \
    }                                                                                                                  \
  }
USMQ_POSITION(global_id, __spirv_BuiltInGlobalInvocationId, 0)
USMQ_POSITION(global_size, __spirv_BuiltInGlobalSize, 1)
USMQ_POSITION(local_id, __spirv_BuiltInLocalInvocationId, 0)
USMQ_POSITION(local_size, __spirv_BuiltInWorkgroupSize, 1)
USMQ_POSITION(group_id, __spirv_BuiltInWorkgroupId, 0)
USMQ_POSITION(group_count, __spirv_BuiltInNumWorkgroups, 1)
#undef USMQ_POSITION

#define USMQ_LINEAR(name, id, size)                                                                                    \
  USMQ_INLINE size_t name() { return (id(2) * size(1) + id(1)) * size(0) + id(0); }
/// The number of a work-item in the range, of a work-item in its group, and of a group: the last dimension is fastest.
USMQ_LINEAR(global_linear_id, __spirv_BuiltInGlobalInvocationId, __spirv_BuiltInGlobalSize)
USMQ_LINEAR(local_linear_id, __spirv_BuiltInLocalInvocationId, __spirv_BuiltInWorkgroupSize)
USMQ_LINEAR(group_linear_id, __spirv_BuiltInWorkgroupId, __spirv_BuiltInNumWorkgroups)
#undef USMQ_LINEAR

/// The number of work-items in a group.
USMQ_INLINE size_t local_linear_size() {
  return __spirv_BuiltInWorkgroupSize(0) * __spirv_BuiltInWorkgroupSize(1) * __spirv_BuiltInWorkgroupSize(2);
}

// The position in sub-groups: the sub-group in its work-group, and the work-item in its sub-group.

USMQ_INLINE uint32_t sub_group_id() { return __spirv_BuiltInSubgroupId(); }
USMQ_INLINE uint32_t sub_group_count() { return __spirv_BuiltInNumSubgroups(); }
USMQ_INLINE uint32_t sub_group_size() { return __spirv_BuiltInSubgroupSize(); }
USMQ_INLINE uint32_t sub_group_max_size() { return __spirv_BuiltInSubgroupMaxSize(); }
USMQ_INLINE uint32_t sub_group_local_id() { return __spirv_BuiltInSubgroupLocalInvocationId(); }

// Barriers. All work-items of the group must reach the same one. Memory written before is visible after.

USMQ_INLINE void barrier() {
  __spirv_ControlBarrier(detail::work_group_scope, detail::work_group_scope, detail::all_memory);
}
USMQ_INLINE void sub_group_barrier() {
  __spirv_ControlBarrier(detail::sub_group_scope, detail::sub_group_scope, detail::all_memory);
}
/// Orders accesses of this work-item as seen by the whole device; waits for no other work-item.
USMQ_INLINE void memory_fence() { __spirv_MemoryBarrier(detail::device_scope, detail::all_memory); }

// Values of all work-items of a work-group or sub-group. Types: bool for any and all; int32_t, uint32_t, int64_t,
// uint64_t, float, double and half for the others.

#define USMQ_GROUP(prefix, scope)                                                                                      \
  USMQ_INLINE bool prefix##any(bool x) { return __spirv_GroupAny(detail::scope, x); }                                  \
  USMQ_INLINE bool prefix##all(bool x) { return __spirv_GroupAll(detail::scope, x); }                                  \
  USMQ_GROUP_OPERATIONS(prefix, scope, int32_t, IAdd, SMin, SMax)                                                      \
  USMQ_GROUP_OPERATIONS(prefix, scope, int64_t, IAdd, SMin, SMax)                                                      \
  USMQ_GROUP_OPERATIONS(prefix, scope, uint32_t, IAdd, UMin, UMax)                                                     \
  USMQ_GROUP_OPERATIONS(prefix, scope, uint64_t, IAdd, UMin, UMax)                                                     \
  USMQ_GROUP_OPERATIONS(prefix, scope, float, FAdd, FMin, FMax)                                                        \
  USMQ_GROUP_OPERATIONS(prefix, scope, double, FAdd, FMin, FMax)                                                       \
  USMQ_GROUP_OPERATIONS(prefix, scope, half, FAdd, FMin, FMax)
#define USMQ_GROUP_OPERATIONS(prefix, scope, T_, ADD, MIN, MAX)                                                        \
  USMQ_GROUP_KINDS(prefix, scope, T_, add, ADD)                                                                        \
  USMQ_GROUP_KINDS(prefix, scope, T_, min, MIN)                                                                        \
  USMQ_GROUP_KINDS(prefix, scope, T_, max, MAX)
#define USMQ_GROUP_KINDS(prefix, scope, T_, name, SPELLING)                                                            \
  USMQ_INLINE T_ prefix##reduce_##name(T_ x) { return __spirv_Group##SPELLING(detail::scope, detail::reduce, x); }     \
  USMQ_INLINE T_ prefix##inclusive_##name(T_ x) {                                                                      \
    return __spirv_Group##SPELLING(detail::scope, detail::inclusive, x);                                               \
  }                                                                                                                    \
  USMQ_INLINE T_ prefix##exclusive_##name(T_ x) { return __spirv_Group##SPELLING(detail::scope, detail::exclusive, x); }
/// group_any, group_all; group_reduce_add, _min, _max: the result of all; group_inclusive_…: of those up to this
/// work-item; group_exclusive_…: of those before it.
USMQ_GROUP(group_, work_group_scope)
/// The same for sub-groups: sub_group_any, …
USMQ_GROUP(sub_group_, sub_group_scope)
#undef USMQ_GROUP
#undef USMQ_GROUP_OPERATIONS
#undef USMQ_GROUP_KINDS

/// The value of one work-item of the sub-group, by its sub_group_local_id. Numbers only.
template <class T_> USMQ_INLINE T_ sub_group_broadcast(T_ x, uint32_t from) {
  return __spirv_GroupBroadcast(detail::sub_group_scope, x, from);
}
/// As sub_group_broadcast; each work-item chooses one.
template <class T_> USMQ_INLINE T_ sub_group_shuffle(T_ x, uint32_t from) {
  return __spirv_GroupNonUniformShuffle(detail::sub_group_scope, x, from);
}
template <class T_> USMQ_INLINE T_ sub_group_shuffle_xor(T_ x, uint32_t mask) {
  return __spirv_GroupNonUniformShuffleXor(detail::sub_group_scope, x, mask);
}
/// From the work-item `delta` below; undefined for the first `delta`.
template <class T_> USMQ_INLINE T_ sub_group_shuffle_up(T_ x, uint32_t delta) {
  return __spirv_GroupNonUniformShuffleUp(detail::sub_group_scope, x, delta);
}
/// From the work-item `delta` above; undefined for the last `delta`.
template <class T_> USMQ_INLINE T_ sub_group_shuffle_down(T_ x, uint32_t delta) {
  return __spirv_GroupNonUniformShuffleDown(detail::sub_group_scope, x, delta);
}

// Local memory, which the work-items of a group share.

/// Of a size that the source fixes: `static local_array<float, 64> tile;` in a kernel. For more dimensions:
/// `static local_array<float[8], 8> tile;`, used as tile[i][j].
template <class T_, size_t N_> class [[__sycl_detail__::wg_scope]] local_array {
  T_ values[N_];

public:
  static constexpr size_t size = N_;
  USMQ_INLINE T_ &operator[](size_t i) { return values[i]; }
  USMQ_INLINE T_ *data() { return values; }
};

/// Of a size that the launch fixes: a parameter `local_memory<float> tile`, launched with usmq.local(bytes).
template <class T_>
class __attribute__((sycl_special_class)) [[__sycl_detail__::sycl_type(work_group_memory)]] local_memory {
  __attribute__((opencl_local)) T_ *start;
  void __init(__attribute__((opencl_local)) T_ *to) { start = to; }

public:
  local_memory() = default;
  USMQ_INLINE T_ &operator[](size_t i) const { return start[i]; }
  USMQ_INLINE T_ *data() const { return start; }
};

// Atomic operations on one element of global or local memory, relaxed, for all work-items of the device. They return
// the old value. 64 bits need a device with the aspect atomic64, float and double one with atomics of floating point.

#define USMQ_ATOMIC(name, T_, spelling, as)                                                                            \
  USMQ_INLINE T_ name(T_ *at, detail::same_t<T_> x) {                                                                  \
    return (T_)spelling((as *)at, detail::device_scope, detail::relaxed, (as)x);                                       \
  }
#define USMQ_ATOMIC_INTEGER(T_, as, MIN, MAX)                                                                          \
  USMQ_ATOMIC(atomic_add, T_, __spirv_AtomicIAdd, as)                                                                  \
  USMQ_ATOMIC(atomic_sub, T_, __spirv_AtomicISub, as)                                                                  \
  USMQ_ATOMIC(atomic_min, T_, MIN, as)                                                                                 \
  USMQ_ATOMIC(atomic_max, T_, MAX, as)                                                                                 \
  USMQ_ATOMIC(atomic_and, T_, __spirv_AtomicAnd, as)                                                                   \
  USMQ_ATOMIC(atomic_or, T_, __spirv_AtomicOr, as)                                                                     \
  USMQ_ATOMIC(atomic_xor, T_, __spirv_AtomicXor, as)                                                                   \
  USMQ_ATOMIC(atomic_exchange, T_, __spirv_AtomicExchange, as)                                                         \
  USMQ_ATOMIC_COMPARE(T_, as)
#define USMQ_ATOMIC_FLOAT(T_, bits)                                                                                    \
  USMQ_ATOMIC(atomic_add, T_, __spirv_AtomicFAddEXT, T_)                                                               \
  USMQ_INLINE T_ atomic_sub(T_ *at, detail::same_t<T_> x) { return atomic_add(at, -x); }                               \
  USMQ_ATOMIC(atomic_min, T_, __spirv_AtomicFMinEXT, T_)                                                               \
  USMQ_ATOMIC(atomic_max, T_, __spirv_AtomicFMaxEXT, T_)                                                               \
  USMQ_ATOMIC(atomic_exchange, T_, __spirv_AtomicExchange, T_)                                                         \
  USMQ_ATOMIC_COMPARE(T_, bits)
#define USMQ_ATOMIC_COMPARE(T_, as)                                                                                    \
  /* Stores `desired` where the value is `expected`, compared by its bits. */                                          \
  USMQ_INLINE T_ atomic_compare_exchange(T_ *at, detail::same_t<T_> expected, detail::same_t<T_> desired) {            \
    return __builtin_bit_cast(T_, __spirv_AtomicCompareExchange((as *)at, detail::device_scope, detail::relaxed,       \
                                                                detail::relaxed, __builtin_bit_cast(as, desired),      \
                                                                __builtin_bit_cast(as, expected)));                    \
  }                                                                                                                    \
  USMQ_INLINE T_ atomic_load(const T_ *at) {                                                                           \
    return __builtin_bit_cast(T_, __spirv_AtomicLoad((as *)at, detail::device_scope, detail::relaxed));                \
  }                                                                                                                    \
  USMQ_INLINE void atomic_store(T_ *at, detail::same_t<T_> x) {                                                        \
    __spirv_AtomicStore((as *)at, detail::device_scope, detail::relaxed, __builtin_bit_cast(as, x));                   \
  }
USMQ_ATOMIC_INTEGER(int, int, __spirv_AtomicSMin, __spirv_AtomicSMax)
USMQ_ATOMIC_INTEGER(unsigned, unsigned, __spirv_AtomicUMin, __spirv_AtomicUMax)
USMQ_ATOMIC_INTEGER(long, long, __spirv_AtomicSMin, __spirv_AtomicSMax)
USMQ_ATOMIC_INTEGER(unsigned long, unsigned long, __spirv_AtomicUMin, __spirv_AtomicUMax)
USMQ_ATOMIC_INTEGER(long long, long, __spirv_AtomicSMin, __spirv_AtomicSMax)
USMQ_ATOMIC_INTEGER(unsigned long long, unsigned long, __spirv_AtomicUMin, __spirv_AtomicUMax)
USMQ_ATOMIC_FLOAT(float, unsigned)
USMQ_ATOMIC_FLOAT(double, unsigned long)
#ifdef USMQ_DEBUG
// Of the element at a checked pointer. Found by the type of the pointer.
namespace debug {
#define USMQ_ATOMIC_CHECKED(name)                                                                                      \
  template <class T_> USMQ_INLINE T_ name(pointer<T_> at, usmq::detail::same_t<T_> x) { return usmq::name(&*at, x); }
USMQ_ATOMIC_CHECKED(atomic_add)
USMQ_ATOMIC_CHECKED(atomic_sub)
USMQ_ATOMIC_CHECKED(atomic_min)
USMQ_ATOMIC_CHECKED(atomic_max)
USMQ_ATOMIC_CHECKED(atomic_and)
USMQ_ATOMIC_CHECKED(atomic_or)
USMQ_ATOMIC_CHECKED(atomic_xor)
USMQ_ATOMIC_CHECKED(atomic_exchange)
#undef USMQ_ATOMIC_CHECKED
template <class T_> USMQ_INLINE T_ atomic_load(pointer<T_> at) { return usmq::atomic_load(&*at); }
template <class T_> USMQ_INLINE void atomic_store(pointer<T_> at, usmq::detail::same_t<T_> x) {
  usmq::atomic_store(&*at, x);
}
template <class T_>
USMQ_INLINE T_ atomic_compare_exchange(pointer<T_> at, usmq::detail::same_t<T_> expected,
                                       usmq::detail::same_t<T_> desired) {
  return usmq::atomic_compare_exchange(&*at, expected, desired);
}
} // namespace debug
#endif
#undef USMQ_ATOMIC
#undef USMQ_ATOMIC_INTEGER
#undef USMQ_ATOMIC_FLOAT
#undef USMQ_ATOMIC_COMPARE

// Mathematical functions of half, float and double, and of integers as double. With several arguments of different
// types the result has the type of their sum. Templates, so that functions of <cmath> are preferred where included.

#define USMQ_MATH_1(name)                                                                                              \
  template <class T_> USMQ_INLINE detail::real_t<T_> name(T_ x) { return __spirv_ocl_##name(detail::real(x)); }
#define USMQ_MATH_2(name)                                                                                              \
  template <class T_, class U_> USMQ_INLINE detail::common_t<T_, U_> name(T_ x, U_ y) {                                \
    using C_ = detail::common_t<T_, U_>;                                                                               \
    return __spirv_ocl_##name(C_(x), C_(y));                                                                           \
  }
USMQ_MATH_1(acos)
USMQ_MATH_1(acosh)
USMQ_MATH_1(asin)
USMQ_MATH_1(asinh)
USMQ_MATH_1(atan)
USMQ_MATH_1(atanh)
USMQ_MATH_1(cbrt)
USMQ_MATH_1(ceil)
USMQ_MATH_1(cos)
USMQ_MATH_1(cosh)
USMQ_MATH_1(cospi)
USMQ_MATH_1(erf)
USMQ_MATH_1(erfc)
USMQ_MATH_1(exp)
USMQ_MATH_1(exp2)
USMQ_MATH_1(exp10)
USMQ_MATH_1(expm1)
USMQ_MATH_1(fabs)
USMQ_MATH_1(floor)
USMQ_MATH_1(lgamma)
USMQ_MATH_1(log)
USMQ_MATH_1(log2)
USMQ_MATH_1(log10)
USMQ_MATH_1(log1p)
USMQ_MATH_1(logb)
USMQ_MATH_1(rint)
USMQ_MATH_1(round)
USMQ_MATH_1(rsqrt)
USMQ_MATH_1(sin)
USMQ_MATH_1(sinh)
USMQ_MATH_1(sinpi)
USMQ_MATH_1(sqrt)
USMQ_MATH_1(tan)
USMQ_MATH_1(tanh)
USMQ_MATH_1(tgamma)
USMQ_MATH_1(trunc)
USMQ_MATH_2(atan2)
USMQ_MATH_2(copysign)
USMQ_MATH_2(fdim)
USMQ_MATH_2(fmax)
USMQ_MATH_2(fmin)
USMQ_MATH_2(fmod)
USMQ_MATH_2(hypot)
USMQ_MATH_2(nextafter)
USMQ_MATH_2(pow)
USMQ_MATH_2(remainder)
#undef USMQ_MATH_1
#undef USMQ_MATH_2

/// x * y + z, rounded once.
template <class T_, class U_, class V_> USMQ_INLINE auto fma(T_ x, U_ y, V_ z) {
  using C_ = detail::real_t<decltype(x * y + z)>;
  return C_(__spirv_ocl_fma(C_(x), C_(y), C_(z)));
}
/// x times 2 to the power of `exponent`.
template <class T_> USMQ_INLINE detail::real_t<T_> ldexp(T_ x, int exponent) {
  return __spirv_ocl_ldexp(detail::real(x), exponent);
}
template <class T_> USMQ_INLINE bool isnan(T_ x) { return x != x; }
template <class T_> USMQ_INLINE bool isinf(T_ x) { return fabs(x) == detail::real_t<T_>(__builtin_huge_val()); }
template <class T_> USMQ_INLINE bool isfinite(T_ x) { return x - x == 0; }
template <class T_> USMQ_INLINE bool signbit(T_ x) { return copysign(detail::real_t<T_>(1), x) < 0; }

// Of any arithmetic type.

template <class T_> USMQ_INLINE T_ abs(T_ x) { return x < 0 ? -x : x == 0 ? T_(0) : x; }
template <class T_, class U_> USMQ_INLINE auto min(T_ x, U_ y) { return y < x ? y : x; }
template <class T_, class U_> USMQ_INLINE auto max(T_ x, U_ y) { return x < y ? y : x; }
template <class T_> USMQ_INLINE T_ clamp(T_ x, detail::same_t<T_> low, detail::same_t<T_> high) {
  return x < low ? low : high < x ? high : x;
}
USMQ_INLINE int popcount(unsigned long x) { return __builtin_popcountl(x); }

/// Reads the bits of a value as another type of the same size.
template <class To, class From> USMQ_INLINE To bit_cast(From x) { return __builtin_bit_cast(To, x); }

/// 2 to 4 numbers side by side, without padding: float3 has 12 bytes, like a row of an (n, 3) array.
template <class T_, int N_> struct vec;
template <class T_> struct vec<T_, 2> {
  T_ x, y;
};
template <class T_> struct vec<T_, 3> {
  T_ x, y, z;
};
template <class T_> struct vec<T_, 4> {
  T_ x, y, z, w;
};

#define USMQ_VECTOR(op)                                                                                                \
  template <class T_> USMQ_INLINE vec<T_, 2> operator op(vec<T_, 2> a, vec<T_, 2> b) {                                 \
    return {T_(a.x op b.x), T_(a.y op b.y)};                                                                           \
  }                                                                                                                    \
  template <class T_> USMQ_INLINE vec<T_, 3> operator op(vec<T_, 3> a, vec<T_, 3> b) {                                 \
    return {T_(a.x op b.x), T_(a.y op b.y), T_(a.z op b.z)};                                                           \
  }                                                                                                                    \
  template <class T_> USMQ_INLINE vec<T_, 4> operator op(vec<T_, 4> a, vec<T_, 4> b) {                                 \
    return {T_(a.x op b.x), T_(a.y op b.y), T_(a.z op b.z), T_(a.w op b.w)};                                           \
  }                                                                                                                    \
  template <class T_> USMQ_INLINE vec<T_, 2> operator op(vec<T_, 2> a, detail::same_t<T_> b) {                         \
    return a op vec<T_, 2>{b, b};                                                                                      \
  }                                                                                                                    \
  template <class T_> USMQ_INLINE vec<T_, 3> operator op(vec<T_, 3> a, detail::same_t<T_> b) {                         \
    return a op vec<T_, 3>{b, b, b};                                                                                   \
  }                                                                                                                    \
  template <class T_> USMQ_INLINE vec<T_, 4> operator op(vec<T_, 4> a, detail::same_t<T_> b) {                         \
    return a op vec<T_, 4>{b, b, b, b};                                                                                \
  }                                                                                                                    \
  template <class T_, int N_, class B_> USMQ_INLINE vec<T_, N_> &operator op## = (vec<T_, N_> & a, B_ b) {             \
    return a = a op b;                                                                                                 \
  }
USMQ_VECTOR(+)
USMQ_VECTOR(-)
USMQ_VECTOR(*)
USMQ_VECTOR(/)
#undef USMQ_VECTOR
template <class T_, int N_> USMQ_INLINE vec<T_, N_> operator*(detail::same_t<T_> a, vec<T_, N_> b) { return b * a; }
template <class T_, int N_> USMQ_INLINE vec<T_, N_> operator-(vec<T_, N_> a) { return a * T_(-1); }
template <class T_> USMQ_INLINE T_ dot(vec<T_, 2> a, vec<T_, 2> b) { return a.x * b.x + a.y * b.y; }
template <class T_> USMQ_INLINE T_ dot(vec<T_, 3> a, vec<T_, 3> b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class T_> USMQ_INLINE T_ dot(vec<T_, 4> a, vec<T_, 4> b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
template <class T_, int N_> USMQ_INLINE T_ length(vec<T_, N_> a) { return sqrt(dot(a, a)); }

#define USMQ_VECTOR_TYPES(name, T_)                                                                                    \
  using name##2 = vec<T_, 2>;                                                                                          \
  using name##3 = vec<T_, 3>;                                                                                          \
  using name##4 = vec<T_, 4>;
USMQ_VECTOR_TYPES(char, int8_t)
USMQ_VECTOR_TYPES(uchar, uint8_t)
USMQ_VECTOR_TYPES(short, int16_t)
USMQ_VECTOR_TYPES(ushort, uint16_t)
USMQ_VECTOR_TYPES(int, int32_t)
USMQ_VECTOR_TYPES(uint, uint32_t)
USMQ_VECTOR_TYPES(long, int64_t)
USMQ_VECTOR_TYPES(ulong, uint64_t)
USMQ_VECTOR_TYPES(half, half)
USMQ_VECTOR_TYPES(float, float)
USMQ_VECTOR_TYPES(double, double)
#undef USMQ_VECTOR_TYPES

} // namespace usmq

/// Prints from a kernel, as C's printf: USMQ_PRINTF("%d: %g\n", int(i), x[i]). The format must be a literal. Devices
/// print when the kernel has ended, and may cut long output.
#define USMQ_PRINTF(format, ...)                                                                                       \
  do {                                                                                                                 \
    static const __attribute__((opencl_constant)) char usmq_format[] = format;                                         \
    __spirv_ocl_printf(usmq_format __VA_OPT__(, ) __VA_ARGS__);                                                        \
  } while (0)

/// Prints line, work-item and condition if the condition is false: USMQ_ASSERT(i < n). The kernel
/// continues. With NDEBUG defined, it does nothing.
#ifdef NDEBUG
#define USMQ_ASSERT(...) ((void)0)
#else
#define USMQ_ASSERT(...)                                                                                               \
  do {                                                                                                                 \
    if (!(__VA_ARGS__)) {                                                                                              \
      static const __attribute__((opencl_constant)) char usmq_condition[] = #__VA_ARGS__;                              \
      USMQ_PRINTF("line %d, work-item (%lu, %lu, %lu): assertion failed: %s\n", __LINE__, usmq::global_id(0),          \
                  usmq::global_id(1), usmq::global_id(2), usmq_condition);                                             \
    }                                                                                                                  \
  } while (0)
#endif

#ifndef USMQ_NO_NAMES
using namespace usmq;
#endif

#endif // USMQ_KERNEL_H
