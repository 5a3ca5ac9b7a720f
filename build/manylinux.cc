// Replaces symbols of newer glibc and compilers than manylinux_2_28 by older ones. Compiled only with
// USMQ_MANYLINUX=1 (`make wheel`); the check of the wheel names any symbol that is missing here. glibc and libstdc++
// keep the old symbols for existing programs, so the result runs on old and new systems.

#include <new>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden"), used))

// --- glibc functions with newer versions. The linker redirects calls of NAME to __wrap_NAME, with the options that
// build/manylinux.rs derives from these lines.
#define OLD(name, version)                                                                                             \
  __asm__(".symver usmq_old_" #name "," #name "@" version "\n"                                                         \
          ".globl __wrap_" #name "\n"                                                                                  \
          ".hidden __wrap_" #name "\n"                                                                                 \
          ".type __wrap_" #name ",@function\n"                                                                         \
          "__wrap_" #name ": jmp *usmq_old_" #name "@GOTPCREL(%rip)\n");

OLD(dladdr, "GLIBC_2.2.5")
OLD(dlclose, "GLIBC_2.2.5")
OLD(dlerror, "GLIBC_2.2.5")
OLD(dlopen, "GLIBC_2.2.5")
OLD(dlsym, "GLIBC_2.2.5")
OLD(pthread_attr_getguardsize, "GLIBC_2.2.5")
OLD(pthread_attr_getstack, "GLIBC_2.2.5")
OLD(pthread_attr_setguardsize, "GLIBC_2.2.5")
OLD(pthread_attr_setstacksize, "GLIBC_2.2.5")
OLD(pthread_create, "GLIBC_2.2.5")
OLD(pthread_detach, "GLIBC_2.2.5")
OLD(pthread_getattr_np, "GLIBC_2.2.5")
OLD(pthread_getspecific, "GLIBC_2.2.5")
OLD(pthread_join, "GLIBC_2.2.5")
OLD(pthread_key_create, "GLIBC_2.2.5")
OLD(pthread_key_delete, "GLIBC_2.2.5")
OLD(pthread_kill, "GLIBC_2.2.5")
OLD(pthread_once, "GLIBC_2.2.5")
OLD(pthread_setname_np, "GLIBC_2.12")
OLD(pthread_setspecific, "GLIBC_2.2.5")
OLD(pthread_sigmask, "GLIBC_2.2.5")

// --- glibc functions that were inline functions over others.
#define REPLACED(name)

extern "C" {
struct stat64;
int usmq_old_xstat64(int version, const char *path, struct stat64 *to);
int usmq_old_fxstat64(int version, int file, struct stat64 *to);
int usmq_old_lxstat64(int version, const char *path, struct stat64 *to);
int usmq_old_fxstatat64(int version, int folder, const char *path, struct stat64 *to, int flags);
__asm__(".symver usmq_old_xstat64,__xstat64@GLIBC_2.2.5\n"
        ".symver usmq_old_fxstat64,__fxstat64@GLIBC_2.2.5\n"
        ".symver usmq_old_lxstat64,__lxstat64@GLIBC_2.2.5\n"
        ".symver usmq_old_fxstatat64,__fxstatat64@GLIBC_2.4\n");

// The layout of struct stat64 on x86-64.
constexpr int kStatVersion = 1;

REPLACED(stat64)
HIDDEN int __wrap_stat64(const char *path, struct stat64 *to) { return usmq_old_xstat64(kStatVersion, path, to); }
REPLACED(fstat64)
HIDDEN int __wrap_fstat64(int file, struct stat64 *to) { return usmq_old_fxstat64(kStatVersion, file, to); }
REPLACED(lstat64)
HIDDEN int __wrap_lstat64(const char *path, struct stat64 *to) { return usmq_old_lxstat64(kStatVersion, path, to); }
REPLACED(fstatat64)
HIDDEN int __wrap_fstatat64(int folder, const char *path, struct stat64 *to, int flags) {
  return usmq_old_fxstatat64(kStatVersion, folder, path, to, flags);
}
REPLACED(gettid)
HIDDEN int __wrap_gettid() { return static_cast<int>(syscall(SYS_gettid)); }

// Set to 0, the hint to omit atomic operations is off.
HIDDEN char __libc_single_threaded = 0;

// --- libstdc++: parts of std::exception_ptr that are inline since GCC 11, implemented by the functions exported
// since 4.4.
void usmq_copy_exception_ptr(void *to, const void *from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void usmq_end_exception_ptr(void *pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

// A copy that is never destroyed adds one reference.
HIDDEN void usmq_add_reference(void *pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
HIDDEN void usmq_add_reference(void *pointer) {
  alignas(void *) unsigned char copy[sizeof(void *)];
  usmq_copy_exception_ptr(copy, pointer);
}

HIDDEN void usmq_release(void *pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
HIDDEN void usmq_release(void *pointer) { usmq_end_exception_ptr(pointer); }

[[noreturn]] HIDDEN void usmq_bad_array_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
[[noreturn]] HIDDEN void usmq_bad_array_length() { throw std::bad_array_new_length(); }
}
