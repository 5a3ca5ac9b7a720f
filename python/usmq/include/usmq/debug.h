// Checked pointers for kernels that are built with debug=True. usmq puts this text before the source, and replaces
// pointers in it by `usmq::debug::pointer`: `const float *x` becomes `usmq::debug::pointer<const float> x`.
//
// An element outside of its array is recorded in the report of the launch, and replaced by unused memory.
// src/kernel/debug.rs writes and reads the same layout.
#ifndef USMQ_DEBUG
#define USMQ_DEBUG 1

#define USMQ_DEBUG_CALL __attribute__((sycl_device))
#define USMQ_DEBUG_INLINE inline __attribute__((always_inline))

// Declared as in usmq/kernel.h and in the SYCL headers.
USMQ_DEBUG_CALL __attribute__((const)) decltype(sizeof 0) __spirv_BuiltInGlobalInvocationId(int);

namespace usmq {
namespace debug {

using word = unsigned long;

/// The largest element whose accesses are redirected.
enum : word { largest = 4096 };

/// The first access outside of an array, and the number of all.
struct report {
  unsigned count;
  unsigned argument;
  long offset;
  word size;
  word is_const;
  word work_item[3];
  word unused[57];
  /// Takes the place of elements that do not exist.
  char replacement[largest];
};

/// The memory of one argument.
struct extent {
  word report;
  word begin;
  word bytes;
  word argument;
};

// Not inlined: the driver for CPUs crashes on some kernels otherwise.
inline __attribute__((noinline)) word record(const extent &of, word at, word size, bool is_const) {
  auto &to = *(report *)of.report;
  auto count = (__attribute__((opencl_global)) unsigned *)&to.count;
  if (__spirv_AtomicIAdd(count, 1, 0, 1u) == 0) {
    to.argument = (unsigned)of.argument;
    to.offset = (long)(at - of.begin);
    to.size = size;
    to.is_const = is_const;
    for (int i = 0; i < 3; ++i)
      to.work_item[i] = __spirv_BuiltInGlobalInvocationId(i);
  }
  return (word)&to.replacement;
}

template <class T_> class pointer;
template <class T_> struct is_const {
  static constexpr bool value = false;
};
template <class T_> struct is_const<const T_> {
  static constexpr bool value = true;
};

/// An address, and the array that it came from; none for a pointer to other memory, which is not checked.
class address {
protected:
  word at;
  word of;

  USMQ_DEBUG_INLINE word element(word size, bool constant) const {
    if (of == 0)
      return at;
    const auto &array = *(const extent *)of;
    if (at >= array.begin && size <= array.bytes && at - array.begin <= array.bytes - size)
      return at;
    return record(array, at, size, constant);
  }
  /// For code that takes a plain pointer, which may also be one past the last element.
  USMQ_DEBUG_INLINE word plain(word size, bool constant) const {
    if (of == 0 || at == ((const extent *)of)->begin + ((const extent *)of)->bytes)
      return at;
    return element(size, constant);
  }

public:
  address() = default;
  USMQ_DEBUG_INLINE address(word at, word of) : at(at), of(of) {}
  USMQ_DEBUG_INLINE word usmq_at() const { return at; }
  USMQ_DEBUG_INLINE word usmq_of() const { return of; }
  USMQ_DEBUG_INLINE explicit operator bool() const { return at != 0; }
};

// A pointer to T is also one to const T, so that templates deduce both.
template <class T_> struct base_of {
  using type = pointer<const T_>;
};
template <class T_> struct base_of<const T_> {
  using type = address;
};

template <class T_> class pointer : public base_of<T_>::type {
  using base = typename base_of<T_>::type;

public:
  pointer() = default;
  USMQ_DEBUG_INLINE pointer(word at, word of) : base(at, of) {}
  USMQ_DEBUG_INLINE pointer(T_ *plain) : base((word)plain, 0) {}
  USMQ_DEBUG_INLINE pointer(decltype(nullptr)) : base(0, 0) {}
  USMQ_DEBUG_INLINE explicit pointer(address other) : base(other.usmq_at(), other.usmq_of()) {}
  template <class U_> USMQ_DEBUG_INLINE explicit pointer(pointer<U_> other) : base(other.usmq_at(), other.usmq_of()) {}
  template <class U_> USMQ_DEBUG_INLINE explicit pointer(U_ *plain) : base((word)plain, 0) {}

  USMQ_DEBUG_INLINE T_ &operator*() const {
    static_assert(sizeof(T_) <= largest, "debug=True checks elements of at most 4096 bytes");
    return *(T_ *)this->element(sizeof(T_), is_const<T_>::value);
  }
  USMQ_DEBUG_INLINE T_ *operator->() const { return &**this; }
  USMQ_DEBUG_INLINE T_ &operator[](long i) const { return *(*this + i); }
  USMQ_DEBUG_INLINE operator T_ *() const { return (T_ *)this->plain(sizeof(T_), is_const<T_>::value); }
  template <class U_> USMQ_DEBUG_INLINE explicit operator U_ *() const { return (U_ *)(T_ *)*this; }

  USMQ_DEBUG_INLINE pointer &operator+=(long i) {
    this->at += (word)i * sizeof(T_);
    return *this;
  }
  USMQ_DEBUG_INLINE pointer &operator-=(long i) { return *this += -i; }
  USMQ_DEBUG_INLINE pointer &operator++() { return *this += 1; }
  USMQ_DEBUG_INLINE pointer &operator--() { return *this += -1; }
  USMQ_DEBUG_INLINE pointer operator++(int) {
    auto old = *this;
    *this += 1;
    return old;
  }
  USMQ_DEBUG_INLINE pointer operator--(int) {
    auto old = *this;
    *this += -1;
    return old;
  }
};

template <class T_> USMQ_DEBUG_INLINE pointer<T_> operator+(pointer<T_> p, long i) { return p += i; }
template <class T_> USMQ_DEBUG_INLINE pointer<T_> operator+(long i, pointer<T_> p) { return p += i; }
template <class T_> USMQ_DEBUG_INLINE pointer<T_> operator-(pointer<T_> p, long i) { return p -= i; }
template <class T_, class U_> USMQ_DEBUG_INLINE long operator-(pointer<T_> p, pointer<U_> q) {
  return (long)(p.usmq_at() - q.usmq_at()) / (long)sizeof(T_);
}
template <class T_, class U_> USMQ_DEBUG_INLINE long operator-(pointer<T_> p, U_ *q) { return p - pointer<U_>(q); }
template <class T_, class U_> USMQ_DEBUG_INLINE long operator-(U_ *p, pointer<T_> q) { return pointer<U_>(p) - q; }
#define USMQ_DEBUG_COMPARE(op)                                                                                         \
  template <class T_, class U_> USMQ_DEBUG_INLINE bool operator op(pointer<T_> p, pointer<U_> q) {                     \
    return p.usmq_at() op q.usmq_at();                                                                                 \
  }                                                                                                                    \
  template <class T_, class U_> USMQ_DEBUG_INLINE bool operator op(pointer<T_> p, U_ *q) {                             \
    return p.usmq_at() op(word) q;                                                                                     \
  }                                                                                                                    \
  template <class T_, class U_> USMQ_DEBUG_INLINE bool operator op(U_ *p, pointer<T_> q) {                             \
    return (word)p op q.usmq_at();                                                                                     \
  }
USMQ_DEBUG_COMPARE(==)
USMQ_DEBUG_COMPARE(!=)
USMQ_DEBUG_COMPARE(<)
USMQ_DEBUG_COMPARE(>)
USMQ_DEBUG_COMPARE(<=)
USMQ_DEBUG_COMPARE(>=)
#undef USMQ_DEBUG_COMPARE
template <class T_> USMQ_DEBUG_INLINE bool operator==(pointer<T_> p, decltype(nullptr)) { return p.usmq_at() == 0; }
template <class T_> USMQ_DEBUG_INLINE bool operator!=(pointer<T_> p, decltype(nullptr)) { return p.usmq_at() != 0; }

// The type of a parameter whose declaration shows no pointer, but whose name may stand for one.
template <class T_> struct argument {
  using type = T_;
};
template <class T_> struct argument<T_ *> {
  using type = pointer<T_>;
};
template <class T_> struct argument<T_ *const> {
  using type = const pointer<T_>;
};
template <class T_> using argument_t = typename argument<T_>::type;

} // namespace debug
} // namespace usmq

#undef USMQ_DEBUG_CALL
#undef USMQ_DEBUG_INLINE
#endif // USMQ_DEBUG
