/* usmq.h: the current queue, USM from its pools, and Arrow export, for C and C++ (C99, C++11 and newer; Linux).
 *
 * A SYCL library in C++ calls usmq_current_queue for the queue to use. Python code, the application or SYCL's default
 * selects that queue. usmq.hpp wraps the functions for C++; docs/c-api.md describes the build.
 *
 * Implementation. A process uses one implementation of these functions, found at the first call:
 *   1. the Python package, if it is imported;
 *   2. functions of these names in the program or in a library that is linked with it. An application in Rust exports
 *      those of the crate usmq if it is linked with -rdynamic;
 *   3. libusmq.so.0, loaded from the run path or LD_LIBRARY_PATH. Not in a process with Python: `import usmq` there.
 * Linking is therefore not required; a program without Python needs libusmq.so.0 on its library search path.
 *
 * Errors. Functions return a usmq_status, and set their results only with USMQ_OK. usmq_last_error() has the text.
 * They do not throw C++ exceptions, and Rust panics do not leave them.
 *
 * Threads. Every function may be called on any thread. On Python threads, with or without the GIL held, functions that
 * query the current queue or enter or leave a scope take the GIL briefly; on other threads they never take it.
 *
 * Queues are `sycl::queue*` as void*, of the libsycl of this process. The caller owns a returned queue and releases it
 * with usmq_queue_release. A queue argument is copied, and the caller keeps it.
 *
 * Targets are SYCL's filter strings in UTF-8: [backend:][device_type][:index], as "gpu", "opencl:cpu", "gpu:1".
 *
 * The first call that needs a device starts the SYCL runtime. In a child forked later, calls return USMQ_ERROR_FORK.
 */
#ifndef USMQ_H
#define USMQ_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The version of this header; usmq_version() returns that of the library. */
#define USMQ_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum usmq_status {
  USMQ_OK = 0,
  USMQ_ERROR_SELECTOR = 1,         /* a filter string with invalid SYCL syntax */
  USMQ_ERROR_DEVICE_NOT_FOUND = 2, /* no visible device matches */
  USMQ_ERROR_PLACEMENT = 3,        /* memory and a queue that cannot be used together */
  USMQ_ERROR_ALLOCATION = 4,       /* an allocation that failed; the text has the sizes */
  USMQ_ERROR_KERNEL_BUILD = 5,     /* this and the next: not yet returned by these functions */
  USMQ_ERROR_LAUNCH = 6,
  USMQ_ERROR_INTEROP = 7,            /* memory or a queue that cannot be exported */
  USMQ_ERROR_VALUE = 8,              /* an argument outside its domain, or an invalid null pointer */
  USMQ_ERROR_TYPE = 9,               /* a type that does not fit */
  USMQ_ERROR_INDEX = 10,             /* not yet returned */
  USMQ_ERROR_RUNTIME_NOT_FOUND = 11, /* no usmq in this process, or no SYCL runtime */
  USMQ_ERROR_RUNTIME_CONFLICT = 12,  /* two SYCL runtimes in this process */
  USMQ_ERROR_FORK = 13,              /* the process was forked after the runtime had started */
  USMQ_ERROR_SYCL = 14,              /* an error of the runtime; the text names operation, code and cause */
  USMQ_ERROR_INTERNAL = 15,          /* a bug in usmq */
  USMQ_ERROR_INTERRUPTED = 16,       /* an interrupted wait; only under a Rust caller that requested it */
  USMQ_ERROR_CAPTURE = 17,           /* a call that is not possible inside a capture of the caller */
  USMQ_ERROR_EXIT = 18,              /* the process is exiting, and usmq has ended its use of devices */
  USMQ_ERROR_THREAD = 19,            /* the operating system refused to start a thread */
} usmq_status;

/* The USM kind: the location of memory, and its access from host and devices. */
typedef enum usmq_kind {
  USMQ_DEVICE = 0, /* in device memory; the host cannot access it */
  USMQ_SHARED = 1, /* migrates between host and device automatically */
  USMQ_HOST = 2,   /* in host memory; every device of the context can access it */
} usmq_kind;

/* An open scope. */
typedef uint64_t usmq_scope;

/* The structs of the Arrow C data and C Device data interfaces, as Arrow's own headers define them. */
struct ArrowSchema;
struct ArrowDeviceArray;

/* Returns the version of usmq in this process, as "0.1.0"; NULL without usmq. Never freed. */
static inline const char *usmq_version(void);

/* Returns the message of the last failed call on this thread; "" if none failed. Valid until the next failure. */
static inline const char *usmq_last_error(void);

/* --- queues */

/* Returns the queue for work if neither an argument nor the data names one: that of the innermost scope, else the
 * default of the process, else one on SYCL's default device. On a Python thread this is the scope of the running
 * Python code (`with usmq.use_queue(...)`). The caller releases *queue. */
static inline usmq_status usmq_current_queue(void **queue);

/* Returns the in-order queue of a target, the same for the same target; NULL: SYCL's default device. The caller
 * releases *queue. */
static inline usmq_status usmq_queue_of(const char *target, void **queue);

/* Ends the caller's ownership. The queue stays valid for other owners, and its work continues. NULL is valid. */
static inline usmq_status usmq_queue_release(void *queue);

/* Makes the queue of a target current until usmq_queue_scope_leave. NULL changes nothing; its scope must also be left.
 * On a Python thread it is a scope of the running Python code, as `with usmq.use_queue(target)`, else a scope of this
 * thread. */
static inline usmq_status usmq_queue_scope_enter(const char *target, usmq_scope *scope);

/* The same with a queue of any origin. */
static inline usmq_status usmq_queue_scope_enter_on(void *queue, usmq_scope *scope);

/* Ends a scope. Call it once, innermost first, on the thread that entered it; in Python in the same context (asyncio
 * task). */
static inline usmq_status usmq_queue_scope_leave(usmq_scope scope);

/* Sets the default of the process, for all threads; NULL restores SYCL's default device. */
static inline usmq_status usmq_set_default_queue(const char *target);

/* The same with a queue of any origin. */
static inline usmq_status usmq_set_default_queue_to(void *queue);

/* --- memory */

/* Allocates uninitialised memory for use on a queue, from the pool of its context and device; NULL: the current queue.
 * The first command on that queue may use it immediately. 0 bytes are valid and return a unique address. */
static inline usmq_status usmq_allocate(size_t bytes, usmq_kind kind, void *queue, void **memory);

/* Declares that a block from usmq_allocate is also used on this queue. The caller orders the commands; usmq_free and
 * Arrow consumers then also wait for those on this queue. */
static inline usmq_status usmq_use_on(void *memory, void *queue);

/* Frees a block without a wait, also while commands on its queues use it. It is reused only after the commands
 * submitted to them before this call. NULL is valid. After usmq's exit handler it returns USMQ_ERROR_EXIT, and the
 * memory ends with the process. */
static inline usmq_status usmq_free(void *memory);

/* Copies bytes between two ranges that do not overlap, each in USM of the current queue's context or of a platform's
 * default context, or in other host memory. The copy waits for the commands of usmq that use the memory, and is
 * complete when the function returns. */
static inline usmq_status usmq_copy(void *to, const void *from, size_t bytes);

/* Waits for a `sycl::event*` of the queue's context, such as the sync_event of an ArrowDeviceArray, and for the
 * commands submitted to the queue before; NULL: the current queue. A NULL event is complete. */
static inline usmq_status usmq_event_wait(void *event, void *queue);

/* Exports the first `length` values of a block to *array as an Arrow column without nulls and without a copy, of device
 * type ARROW_DEVICE_ONEAPI. Its sync_event, a `sycl::event*`, completes after the commands submitted to the queues of
 * the block before this call. `format` is one of Arrow's number formats: c C s S i I l L e f g. `schema` receives the
 * type, unless it is NULL. The caller or its consumer releases both structs; the memory lives until then and until
 * usmq_free. Only memory of a root device in its platform's default context can be exported. */
static inline usmq_status usmq_arrow_export(void *memory, const char *format, int64_t length,
                                            struct ArrowSchema *schema, struct ArrowDeviceArray *array);

/* --- lookup of the functions above; everything below is private */

static __thread char usmq_missing_[768];

/* Returns the Python package's extension, if it is imported. Python loads it without RTLD_GLOBAL, so dlsym on the
 * program does not find it. */
static inline void *usmq_extension_(void) {
  char line[4352];
  void *found = NULL;
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps)
    return NULL;
  while (!found && fgets(line, sizeof line, maps)) {
    char *path = strchr(line, '/');
    if (path && strstr(path, "/usmq/_core.")) {
      path[strcspn(path, "\n")] = '\0';
      found = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    }
  }
  fclose(maps);
  return found;
}

/* Returns 1 if this process runs Python. */
static inline int usmq_with_python_(void *program) {
  int (*is_initialized)(void);
  void *symbol = dlsym(program, "Py_IsInitialized");
  if (!symbol)
    return 0;
  memcpy(&is_initialized, &symbol, sizeof symbol);
  return is_initialized();
}

static inline void *usmq_find_(const char *name) {
  void *symbol = NULL, *library = usmq_extension_();
  if (library) {
    symbol = dlsym(library, name);
  } else {
    void *program = dlopen(NULL, RTLD_LAZY);
    symbol = dlsym(program, name);
    if (!symbol && usmq_with_python_(program)) {
      snprintf(usmq_missing_, sizeof usmq_missing_,
               "usmq is not in this process: import usmq in Python before %s is called", name);
      return NULL;
    }
    if (!symbol) {
      /* libimf.so of the SYCL runtime uses functions of libm without depending on it. The dynamic linker crashes
       * if it has to bind them before it has relocated libm, which a plain C program has not loaded. */
      dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
      library = dlopen("libusmq.so.0", RTLD_NOW | RTLD_LOCAL);
      if (!library) {
        const char *why = dlerror();
        snprintf(usmq_missing_, sizeof usmq_missing_,
                 "the program exports no %s, and libusmq.so.0 cannot be loaded: %s; link an application in Rust that "
                 "depends on the crate usmq with -rdynamic, as by println!(\"cargo:rustc-link-arg-bins=-rdynamic\") in "
                 "its build.rs, so that C uses the same usmq; for another program put the folder that "
                 "`python -m usmq --lib-dir` prints on the run path or on LD_LIBRARY_PATH",
                 name, why ? why : "");
        return NULL;
      }
      symbol = dlsym(library, name);
    }
  }
  if (!symbol)
    snprintf(usmq_missing_, sizeof usmq_missing_,
             "the usmq of this process has no %s: it is older than its header, " USMQ_VERSION, name);
  return symbol;
}

/* Looks up each function once per translation unit; two threads may do so concurrently, with the same result. */
static inline void *usmq_cached_(void **cache, const char *name) {
  void *symbol = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
  if (!symbol) {
    symbol = usmq_find_(name);
    __atomic_store_n(cache, symbol, __ATOMIC_RELEASE);
  }
  if (symbol)
    usmq_missing_[0] = '\0';
  return symbol;
}

#define USMQ_CALL_(otherwise, type, name, parameters, arguments)                                                       \
  static inline type name parameters {                                                                                 \
    static void *cache;                                                                                                \
    type(*function) parameters;                                                                                        \
    void *symbol = usmq_cached_(&cache, #name);                                                                        \
    if (!symbol)                                                                                                       \
      return otherwise;                                                                                                \
    memcpy(&function, &symbol, sizeof symbol);                                                                         \
    return function arguments;                                                                                         \
  }
#define USMQ_STATUS_(name, parameters, arguments)                                                                      \
  USMQ_CALL_(USMQ_ERROR_RUNTIME_NOT_FOUND, usmq_status, name, parameters, arguments)

USMQ_CALL_(NULL, const char *, usmq_version, (void), ())
USMQ_STATUS_(usmq_current_queue, (void **queue), (queue))
USMQ_STATUS_(usmq_queue_of, (const char *target, void **queue), (target, queue))
USMQ_STATUS_(usmq_queue_release, (void *queue), (queue))
USMQ_STATUS_(usmq_queue_scope_enter, (const char *target, usmq_scope *scope), (target, scope))
USMQ_STATUS_(usmq_queue_scope_enter_on, (void *queue, usmq_scope *scope), (queue, scope))
USMQ_STATUS_(usmq_queue_scope_leave, (usmq_scope scope), (scope))
USMQ_STATUS_(usmq_set_default_queue, (const char *target), (target))
USMQ_STATUS_(usmq_set_default_queue_to, (void *queue), (queue))
USMQ_STATUS_(usmq_allocate, (size_t bytes, usmq_kind kind, void *queue, void **memory), (bytes, kind, queue, memory))
USMQ_STATUS_(usmq_use_on, (void *memory, void *queue), (memory, queue))
USMQ_STATUS_(usmq_free, (void *memory), (memory))
USMQ_STATUS_(usmq_copy, (void *to, const void *from, size_t bytes), (to, from, bytes))
USMQ_STATUS_(usmq_event_wait, (void *event, void *queue), (event, queue))
USMQ_STATUS_(usmq_arrow_export,
             (void *memory, const char *format, int64_t length, struct ArrowSchema *schema,
              struct ArrowDeviceArray *array),
             (memory, format, length, schema, array))

static inline const char *usmq_last_error(void) {
  static void *cache;
  const char *(*function)(void);
  void *symbol;
  if (usmq_missing_[0])
    return usmq_missing_;
  symbol = __atomic_load_n(&cache, __ATOMIC_ACQUIRE);
  if (!symbol)
    symbol = usmq_find_("usmq_last_error");
  __atomic_store_n(&cache, symbol, __ATOMIC_RELEASE);
  if (!symbol) {
    usmq_missing_[0] = '\0'; /* no call has failed, because none was possible */
    return "";
  }
  memcpy(&function, &symbol, sizeof symbol);
  return function();
}

#undef USMQ_CALL_
#undef USMQ_STATUS_

#ifdef __cplusplus
}
#endif

#endif
