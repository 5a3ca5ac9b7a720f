// A libcuda.so.1 without a GPU: streams are threads that run their work in order, in host memory. It shows the calls
// of usmq, their order, and the releases; the tests marked `cuda` check the same on a GPU. As on a GPU, a copy from or
// to host memory that is not registered returns at its end, and until then the calls of other threads block.
//
// MOCK_DRIVER in the environment makes it fail: "old" driver, "broken" cuInit, "none" of devices, "full" memory. A
// program makes single calls fail by mock_driver_fail; those that give something back, and those that describe an
// error, do not.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef struct Stream *CUstream;
typedef struct Event *CUevent;
typedef void *CUcontext;
typedef unsigned long long CUdeviceptr;

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, BROKEN = 999, NO_DEVICE = 100 };

struct Event {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int done, references;
};

enum Kind { COPY, RECORD, WAIT, CALL, FREE, WAIT_WORD, SET_WORD };

struct Task {
  enum Kind kind;
  void *a;
  void *b;
  size_t bytes;
  void (*function)(void *);
  struct Task *next;
};

struct Stream {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct Task *first, *last;
};

static struct Block {
  char *start;
  size_t bytes;
  struct Block *next;
} *blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct Range {
  char *start;
  size_t bytes;
  struct Range *next;
} *registered;                                             // host memory, guarded by blocks_lock
static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER; // held by a call that waits for a stream
static long live_blocks, live_events, pinned, copies, contexts_entered;
static int is_gone; // the process exits, and the streams do no more work
static int context; // its address is the primary context
static struct Stream *defaults[3];

static int asked_for(const char *failure) {
  const char *wish = getenv("MOCK_DRIVER");
  return wish && strcmp(wish, failure) == 0;
}

static long fail_in, failed; // calls until one fails, 0 for none; how many have
static int fail_on;
static pthread_mutex_t fail_lock = PTHREAD_MUTEX_INITIALIZER;

/// For tests: the `at`-th call from now on fails, with `on` those after it, too; 0 ends that. How many failed before.
long mock_driver_fail(long at, int on) {
  pthread_mutex_lock(&fail_lock);
  long before = failed;
  fail_in = at, fail_on = on, failed = 0;
  pthread_mutex_unlock(&fail_lock);
  return before;
}

// Called first by each function that may fail: waits while another thread waits inside the driver.
static int fails(void) {
  pthread_mutex_lock(&inside);
  pthread_mutex_unlock(&inside);
  pthread_mutex_lock(&fail_lock);
  int now = fail_in == 1;
  if (fail_in > 1 || (now && !fail_on))
    fail_in--;
  failed += now;
  pthread_mutex_unlock(&fail_lock);
  return now;
}

/// For tests: blocks, events, pinned ranges, copies so far, contexts that were entered and not left.
void mock_driver_counts(long *out) {
  pthread_mutex_lock(&blocks_lock);
  out[0] = live_blocks, out[1] = live_events, out[2] = pinned, out[3] = copies, out[4] = contexts_entered;
  pthread_mutex_unlock(&blocks_lock);
}

static void add_range(char *start, size_t bytes) {
  struct Range *range = malloc(sizeof *range);
  pthread_mutex_lock(&blocks_lock);
  *range = (struct Range){.start = start, .bytes = bytes, .next = registered};
  registered = range;
  pthread_mutex_unlock(&blocks_lock);
}

static int remove_range(char *start) {
  struct Range *gone = NULL;
  pthread_mutex_lock(&blocks_lock);
  for (struct Range **at = &registered; *at && !gone; at = &(*at)->next)
    if ((*at)->start == start) {
      gone = *at;
      *at = gone->next;
      break;
    }
  pthread_mutex_unlock(&blocks_lock);
  free(gone);
  return gone != NULL;
}

// Whether the driver knows the memory: its own, or registered memory of the host.
static int is_known(char *address) {
  int known = 0;
  pthread_mutex_lock(&blocks_lock);
  for (struct Block *block = blocks; block; block = block->next)
    known |= address >= block->start && address < block->start + block->bytes;
  for (struct Range *range = registered; range; range = range->next)
    known |= address >= range->start && address < range->start + range->bytes;
  pthread_mutex_unlock(&blocks_lock);
  return known;
}

static void add(long *count, long by) { __atomic_add_fetch(count, by, __ATOMIC_SEQ_CST); }

static void drop(struct Event *event) {
  if (__atomic_sub_fetch(&event->references, 1, __ATOMIC_SEQ_CST) == 0)
    free(event);
}

static void wait_for(struct Event *event) {
  pthread_mutex_lock(&event->lock);
  while (!event->done)
    pthread_cond_wait(&event->changed, &event->lock);
  pthread_mutex_unlock(&event->lock);
}

static void release(char *start) {
  pthread_mutex_lock(&blocks_lock);
  for (struct Block **at = &blocks; *at; at = &(*at)->next)
    if ((*at)->start == start) {
      struct Block *gone = *at;
      *at = gone->next;
      memset(gone->start, 0xdd, gone->bytes);
      free(gone->start);
      free(gone);
      live_blocks--;
      break;
    }
  pthread_mutex_unlock(&blocks_lock);
}

static void run(struct Task *task) {
  switch (task->kind) {
  case COPY:
    usleep(2000);
    memcpy(task->a, task->b, task->bytes);
    break;
  case RECORD: {
    struct Event *event = task->a;
    pthread_mutex_lock(&event->lock);
    event->done = 1;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    drop(event);
    break;
  }
  case WAIT:
    wait_for(task->a);
    drop(task->a);
    break;
  case CALL:
    task->function(task->a);
    break;
  case FREE:
    release(task->a);
    break;
  case WAIT_WORD:
    while (__atomic_load_n((uint32_t *)task->a, __ATOMIC_ACQUIRE) != task->bytes)
      usleep(50);
    break;
  case SET_WORD:
    __atomic_store_n((uint32_t *)task->a, (uint32_t)task->bytes, __ATOMIC_RELEASE);
    break;
  }
}

static void *serve(void *argument) {
  struct Stream *stream = argument;
  for (;;) {
    pthread_mutex_lock(&stream->lock);
    while (!stream->first)
      pthread_cond_wait(&stream->changed, &stream->lock);
    struct Task *task = stream->first;
    stream->first = task->next;
    pthread_mutex_unlock(&stream->lock);
    while (__atomic_load_n(&is_gone, __ATOMIC_SEQ_CST))
      sleep(1);
    run(task);
    free(task);
  }
  return NULL;
}

static struct Stream *make_stream(void) {
  struct Stream *stream = calloc(1, sizeof *stream);
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, serve, stream);
  pthread_detach(thread);
  return stream;
}

static struct Stream *resolve(CUstream stream) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  uintptr_t number = (uintptr_t)stream;
  if (number > 2)
    return stream;
  if (number == 0)
    abort(); // usmq never uses the ambiguous stream
  pthread_mutex_lock(&lock);
  if (!defaults[number])
    defaults[number] = make_stream();
  pthread_mutex_unlock(&lock);
  return defaults[number];
}

static CUresult submit(CUstream handle, struct Task wanted) {
  struct Stream *stream = resolve(handle);
  struct Task *task = malloc(sizeof *task);
  *task = wanted;
  task->next = NULL;
  pthread_mutex_lock(&stream->lock);
  if (stream->first)
    stream->last->next = task;
  else
    stream->first = task;
  stream->last = task;
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  return OK;
}

CUresult cuDriverGetVersion(int *version) { return *version = asked_for("old") ? 11040 : 12040, OK; }
static void leave(void) { __atomic_store_n(&is_gone, 1, __ATOMIC_SEQ_CST); }
CUresult cuInit(unsigned flags) {
  static int registered_exit;
  if (!registered_exit++)
    atexit(leave);
  return asked_for("broken") || flags ? BROKEN : OK;
}
CUresult cuDeviceGetCount(int *count) { return *count = !asked_for("none"), OK; }
CUresult cuDeviceGet(int *device, int ordinal) {
  if (fails())
    return BROKEN;
  return ordinal == 0 ? (*device = 0, OK) : INVALID;
}
CUresult cuDeviceGetName(char *name, int length, int device) {
  if (fails())
    return BROKEN;
  return snprintf(name, length, "mock device %d", device), OK;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, int device) {
  if (fails())
    return BROKEN;
  return *out = &context, device;
}
CUresult cuCtxPushCurrent_v2(CUcontext entered) {
  if (fails())
    return BROKEN;
  add(&contexts_entered, 1);
  return entered == &context ? OK : INVALID;
}
CUresult cuCtxPopCurrent_v2(CUcontext *left) { return add(&contexts_entered, -1), *left = &context, OK; }
CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error == BROKEN ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR";
  return OK;
}
CUresult cuGetErrorString(CUresult error, const char **text) { return *text = "on purpose", error & 0; }

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  if (fails())
    return BROKEN;
  return *out = make_stream(), flags == 1 ? OK : INVALID;
}

static struct Event *make_event(void) {
  struct Event *event = calloc(1, sizeof *event);
  pthread_mutex_init(&event->lock, NULL);
  pthread_cond_init(&event->changed, NULL);
  event->references = 1;
  return event;
}
CUresult cuEventCreate(CUevent *out, unsigned flags) {
  if (fails())
    return BROKEN;
  add(&live_events, 1);
  return *out = make_event(), flags & 2 ? OK : INVALID;
}
CUresult cuEventDestroy_v2(CUevent event) { return add(&live_events, -1), drop(event), OK; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (fails())
    return BROKEN;
  __atomic_add_fetch(&event->references, 1, __ATOMIC_SEQ_CST);
  return submit(stream, (struct Task){.kind = RECORD, .a = event});
}
CUresult cuEventSynchronize(CUevent event) { return fails() ? BROKEN : (wait_for(event), OK); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  if (fails())
    return BROKEN;
  __atomic_add_fetch(&event->references, 1, __ATOMIC_SEQ_CST);
  return flags ? INVALID : submit(stream, (struct Task){.kind = WAIT, .a = event});
}
#ifndef WITHOUT_STREAM_WAITS
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, unsigned value, unsigned flags) {
  if (fails())
    return BROKEN;
  void *at = (void *)(uintptr_t)word;
  return flags != 1 ? INVALID : submit(stream, (struct Task){.kind = WAIT_WORD, .a = at, .bytes = value});
}
#endif
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, unsigned value, unsigned flags) {
  if (fails())
    return BROKEN;
  void *at = (void *)(uintptr_t)word;
  return flags ? INVALID : submit(stream, (struct Task){.kind = SET_WORD, .a = at, .bytes = value});
}
// For the tests' own work on streams; usmq does not call it.
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument) {
  if (fails())
    return BROKEN;
  return submit(stream, (struct Task){.kind = CALL, .a = argument, .function = function});
}
CUresult cuStreamSynchronize(CUstream stream) {
  CUevent event;
  cuEventCreate(&event, 2);
  cuEventRecord(event, stream);
  wait_for(event);
  return cuEventDestroy_v2(event);
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
  if (fails())
    return BROKEN;
  if (asked_for("full") || !stream)
    return NO_MEMORY;
  struct Block *block = malloc(sizeof *block);
  *block = (struct Block){.start = malloc(bytes), .bytes = bytes};
  memset(block->start, 0xee, bytes);
  pthread_mutex_lock(&blocks_lock);
  block->next = blocks, blocks = block, live_blocks++;
  pthread_mutex_unlock(&blocks_lock);
  return *out = (CUdeviceptr)(uintptr_t)block->start, OK;
}
CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) { return *unused = 0, *total = 1 << 20, OK; }
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return submit(stream, (struct Task){.kind = FREE, .a = (void *)(uintptr_t)pointer});
}
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  if (fails())
    return BROKEN;
  add(&copies, 1);
  void *to = (void *)(uintptr_t)target, *from = (void *)(uintptr_t)source;
  const struct Task copy = {.kind = COPY, .a = to, .b = from, .bytes = bytes};
  if (is_known(to) && is_known(from))
    return submit(stream, copy);
  pthread_mutex_lock(&inside);
  struct Event *end = make_event();
  submit(stream, copy);
  end->references++;
  submit(stream, (struct Task){.kind = RECORD, .a = end});
  wait_for(end);
  drop(end);
  pthread_mutex_unlock(&inside);
  return OK;
}
CUresult cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
  if (fails())
    return BROKEN;
  add(&pinned, 1);
  add_range(start, bytes);
  return start && bytes && flags == 1 ? OK : INVALID;
}
CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  if (fails())
    return BROKEN;
  *out = malloc(bytes ? bytes : 1);
  add_range(*out, bytes);
  return flags & ~3u ? INVALID : OK;
}
CUresult cuMemFreeHost(void *start) { return remove_range(start) ? (free(start), OK) : INVALID; }
CUresult cuMemHostUnregister(void *start) { return add(&pinned, -1), remove_range(start) ? OK : INVALID; }
CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr pointer) {
  if (fails())
    return BROKEN;
  CUresult result = INVALID;
  pthread_mutex_lock(&blocks_lock);
  for (struct Block *block = blocks; block; block = block->next)
    if (pointer >= (uintptr_t)block->start && pointer < (uintptr_t)block->start + block->bytes)
      result = OK;
  pthread_mutex_unlock(&blocks_lock);
  if (result == OK && attribute == 9)
    *(int *)out = 0;
  if (result == OK && attribute == 1)
    *(void **)out = &context;
  return result;
}
