/* usmq.h: the current queue, USM from its pools, and Arrow export, for C and C++ (C99, C++11 and newer; Linux).
 *
 * A SYCL library in C++ asks here on which queue to work, whoever chose it: Python code around it, the application, or
 * nobody. usmq.hpp beside this file wraps the functions for C++; docs/c-api.md says how to build.
 *
 * Which usmq answers. There is one per process, found at the first call:
 *   1. the Python package, when it is imported;
 *   2. functions of these names in the program itself or in a library it is linked with;
 *   3. libusmq.so.0, loaded from the run path or LD_LIBRARY_PATH. Not in a process with Python: `import usmq` there.
 * So nothing needs to be linked; a program without Python needs libusmq.so.0 where it can be found.
 *
 * Errors. Functions return a usmq_status, and fill their results only with USMQ_OK. usmq_last_error() has the text.
 * No C++ exception and no panic comes out of them.
 *
 * Threads. Every function may be called on any thread. On a thread of Python, with the GIL held or not, those that ask
 * for the current queue or enter or leave a scope take the GIL for a moment; on other threads they never do.
 *
 * Queues are `sycl::queue*` as void*, of the libsycl of this process. A queue that a function gives belongs to the
 * caller, who releases it with usmq_queue_release. A queue that a function takes is copied, and stays the caller's.
 *
 * Targets are SYCL's filter strings in UTF-8: [backend:][device_type][:index], as "gpu", "opencl:cpu", "gpu:1".
 *
 * The first call that needs a device starts the SYCL runtime. In a child forked after that, calls are USMQ_ERROR_FORK.
 */
#ifndef USMQ_H
#define USMQ_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The version of this header; usmq_version() is that of the library. */
#define USMQ_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum usmq_status {
  USMQ_OK = 0,
  USMQ_ERROR_SELECTOR = 1,         /* a filter string that SYCL would not understand */
  USMQ_ERROR_DEVICE_NOT_FOUND = 2, /* no visible device matches */
  USMQ_ERROR_PLACEMENT = 3,        /* memory and a queue that do not go together */
  USMQ_ERROR_ALLOCATION = 4,       /* memory that cannot be had; the text has the numbers */
  USMQ_ERROR_KERNEL_BUILD = 5,     /* this and the next: not given by the functions here so far */
  USMQ_ERROR_LAUNCH = 6,
  USMQ_ERROR_INTEROP = 7,            /* memory or a queue that cannot be named to others */
  USMQ_ERROR_VALUE = 8,              /* an argument outside its domain, null where it must not be */
  USMQ_ERROR_TYPE = 9,               /* a type that does not fit */
  USMQ_ERROR_INDEX = 10,             /* not given so far */
  USMQ_ERROR_RUNTIME_NOT_FOUND = 11, /* no usmq in this process, or no SYCL runtime */
  USMQ_ERROR_RUNTIME_CONFLICT = 12,  /* two SYCL runtimes in this process */
  USMQ_ERROR_FORK = 13,              /* the process was forked after the runtime had started */
  USMQ_ERROR_SYCL = 14,              /* the runtime refused; the text names operation, code and cause */
  USMQ_ERROR_INTERNAL = 15,          /* a defect of usmq */
  USMQ_ERROR_INTERRUPTED = 16,       /* a wait was given up; only under a Rust caller that asked for that */
} usmq_status;

/* Where memory lives, and who can reach it. */
typedef enum usmq_kind {
  USMQ_DEVICE = 0, /* in the device's memory; not for the host */
  USMQ_SHARED = 1, /* moves between host and device by itself */
  USMQ_HOST = 2,   /* in the host's memory; every device of the context can reach it */
} usmq_kind;

/* A scope that is open. */
typedef uint64_t usmq_scope;

/* The structs of the Arrow C data and C Device data interfaces, as Arrow's own headers define them. */
struct ArrowSchema;
struct ArrowDeviceArray;

/* The version of the usmq of this process, as "0.1.0"; NULL when there is none. Never freed. */
static inline const char *usmq_version(void);

/* What is wrong with the last call on this thread that failed; "" when none has. Valid until the next one fails. */
static inline const char *usmq_last_error(void);

/* --- queues */

/* The queue where work goes when neither an argument nor the data says otherwise: of the innermost scope, else the
 * default of the process, else on SYCL's default device. On a thread of Python the scope is that of the Python code
 * that is running (`with usmq.use_queue(...)`). The caller releases *queue. */
static inline usmq_status usmq_current_queue(void **queue);

/* The in-order queue of a target, the same for the same target; NULL: of SYCL's default device. The caller releases
 * *queue. */
static inline usmq_status usmq_queue_of(const char *target, void **queue);

/* Ends the caller's ownership. The queue itself, and work on it, goes on. NULL is valid. */
static inline usmq_status usmq_queue_release(void *queue);

/* Makes the queue of a target current until usmq_queue_scope_leave; NULL changes nothing, and is left likewise. On a
 * thread of Python it is a scope of the Python code that is running, as `with usmq.use_queue(target)`, else one of
 * this thread. */
static inline usmq_status usmq_queue_scope_enter(const char *target, usmq_scope *scope);

/* The same with a queue of any origin. */
static inline usmq_status usmq_queue_scope_enter_on(void *queue, usmq_scope *scope);

/* Ends a scope: once, innermost first, on the thread that entered it; in Python in the same context (asyncio task). */
static inline usmq_status usmq_queue_scope_leave(usmq_scope scope);

/* Sets the default of the process, for all threads; NULL returns to SYCL's default device. */
static inline usmq_status usmq_set_default_queue(const char *target);

/* The same with a queue of any origin. */
static inline usmq_status usmq_set_default_queue_to(void *queue);

/* --- memory */

/* Gets uninitialised memory for use on a queue, from the pool of its context and device; NULL: the current queue. The
 * first command on that queue may use it at once. No bytes are valid, too, and have an address of their own. */
static inline usmq_status usmq_allocate(size_t bytes, usmq_kind kind, void *queue, void **memory);

/* Says that a block from usmq_allocate is used on this queue, too. The caller orders the commands; usmq_free and Arrow
 * consumers then wait for those on this queue as well. */
static inline usmq_status usmq_use_on(void *memory, void *queue);

/* Gives a block back: at once, without a wait, while commands on its queues may still use it. It is reused after
 * whatever was submitted to them before this call. NULL is valid. */
static inline usmq_status usmq_free(void *memory);

/* Fills *array with the first `length` values of a block as an Arrow column without nulls, not copied, of device type
 * ARROW_DEVICE_ONEAPI. Its sync_event, a `sycl::event*`, is complete after what was submitted to the queues of the
 * block before this call. `format` is one of Arrow's numbers: c C s S i I l L e f g. `schema` may be NULL, else the
 * type goes there. The caller, or whoever it hands them to, releases both structs; the memory lives until then and
 * until usmq_free. Only memory of a root device in its platform's default context can be exported. */
static inline usmq_status usmq_arrow_export(void *memory, const char *format, int64_t length,
                                            struct ArrowSchema *schema, struct ArrowDeviceArray *array);

/* --- how the functions above find usmq; nothing below is for use */

static __thread char usmq_missing_[512];

/* The Python package's extension, when it is imported. Python loads it where dlsym does not look by itself. */
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

/* 1 when this process runs Python. */
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
      library = dlopen("libusmq.so.0", RTLD_NOW | RTLD_LOCAL);
      if (!library) {
        const char *why = dlerror();
        snprintf(usmq_missing_, sizeof usmq_missing_,
                 "libusmq.so.0 cannot be loaded: %s; `python -m usmq --lib-dir` prints its folder, which belongs on "
                 "the run path or on LD_LIBRARY_PATH",
                 why ? why : "");
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

/* Each place that calls looks once; two threads may both do so, and find the same. */
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
    usmq_missing_[0] = '\0'; /* nothing has failed: nothing was called */
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
