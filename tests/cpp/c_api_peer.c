/* A library in plain C99 over usmq.h, as another package would have one: each function of the header once, and calls
 * on a thread that Python does not know. */

#include <pthread.h>
#include <usmq.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *peer_header_version(void) { return USMQ_VERSION; }
const char *peer_version(void) { return usmq_version(); }
const char *peer_last_error(void) { return usmq_last_error(); }
int peer_current_queue(void **queue) { return usmq_current_queue(queue); }
int peer_queue_of(const char *target, void **queue) { return usmq_queue_of(target, queue); }
int peer_queue_release(void *queue) { return usmq_queue_release(queue); }
int peer_scope_enter(const char *target, usmq_scope *scope) { return usmq_queue_scope_enter(target, scope); }
int peer_scope_enter_on(void *queue, usmq_scope *scope) { return usmq_queue_scope_enter_on(queue, scope); }
int peer_scope_leave(usmq_scope scope) { return usmq_queue_scope_leave(scope); }
int peer_set_default_queue(const char *target) { return usmq_set_default_queue(target); }
int peer_set_default_queue_to(void *queue) { return usmq_set_default_queue_to(queue); }
int peer_allocate(size_t bytes, int kind, void *queue, void **memory) {
  return usmq_allocate(bytes, (usmq_kind)kind, queue, memory);
}
int peer_use_on(void *memory, void *queue) { return usmq_use_on(memory, queue); }
int peer_free(void *memory) { return usmq_free(memory); }
int peer_copy(void *to, const void *from, size_t bytes) { return usmq_copy(to, from, bytes); }
int peer_event_wait(void *event, void *queue) { return usmq_event_wait(event, queue); }
int peer_arrow_export(void *memory, const char *format, int64_t length, void *schema, void *array) {
  return usmq_arrow_export(memory, format, length, (struct ArrowSchema *)schema, (struct ArrowDeviceArray *)array);
}

struct visit {
  const char *target;
  void *before, *inside, *after;
  int status, order;
};

static void *visiting(void *argument) {
  struct visit *visit = (struct visit *)argument;
  usmq_scope outer = 0, inner = 0;
  visit->status = usmq_current_queue(&visit->before);
  if (!visit->status)
    visit->status = usmq_queue_scope_enter(visit->target, &outer);
  if (!visit->status)
    visit->status = usmq_queue_scope_enter(NULL, &inner);
  visit->order = usmq_queue_scope_leave(outer);
  if (!visit->status)
    visit->status = usmq_queue_scope_leave(inner);
  if (!visit->status)
    visit->status = usmq_current_queue(&visit->inside);
  if (!visit->status)
    visit->status = usmq_queue_scope_leave(outer);
  if (!visit->status)
    visit->status = usmq_current_queue(&visit->after);
  /* Left open: it ends with its thread. */
  if (!visit->status)
    visit->status = usmq_queue_scope_enter(visit->target, &outer);
  return NULL;
}

/* On a thread of its own: the current queue before, inside and after a scope, and what it says of a scope that is left
 * while another is open inside it. */
int peer_visit(const char *target, void **before, void **inside, void **after, int *order) {
  struct visit visit = {target, NULL, NULL, NULL, 0, 0};
  pthread_t thread;
  if (pthread_create(&thread, NULL, visiting, &visit) || pthread_join(thread, NULL))
    return -1;
  *before = visit.before;
  *inside = visit.inside;
  *after = visit.after;
  *order = visit.order;
  return visit.status;
}

#ifdef __cplusplus
}
#endif
