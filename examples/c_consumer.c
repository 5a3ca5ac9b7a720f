/* A consumer of Arrow device arrays in plain C, without an Arrow library.
 *
 *     cc -std=c11 -shared -fPIC -o libc_consumer.so c_consumer.c
 *
 * The structs are those of the specification: https://arrow.apache.org/docs/format/CDeviceDataInterface.html
 * tests/python/test_arrow_c_examples.py drives this from Python with what usmq exports. */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_ONEAPI 14

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

struct ArrowDeviceArray {
  struct ArrowArray array;
  int64_t device_id;
  int32_t device_type;
  void *sync_event;
  int64_t reserved[3];
};

/* What the struct says, without reading a buffer: those may be on a device. */
void consumer_print(const struct ArrowSchema *schema, const struct ArrowDeviceArray *array) {
  printf("column \"%s\" of format \"%s\"\n", schema->name ? schema->name : "", schema->format);
  printf("device type %" PRId32 ", device %" PRId64 "\n", array->device_type, array->device_id);
  printf("%" PRId64 " values, ", array->array.length);
  if (array->array.null_count >= 0)
    printf("%" PRId64 " of them null\n", array->array.null_count);
  else
    printf("nulls not counted\n");
  if (array->device_type == ARROW_DEVICE_ONEAPI && array->sync_event)
    printf("to be read after the sycl::event at sync_event: it takes SYCL to wait for it\n");
  else if (array->device_type == ARROW_DEVICE_ONEAPI)
    printf("to be read at once, by oneAPI device %" PRId64 "\n", array->device_id);
  else if (array->device_type == ARROW_DEVICE_CPU)
    printf("to be read at once, by the host\n");
  fflush(stdout);
}

/* Bits are counted from the lowest, and a column without a bitmap has no nulls. */
static int is_valid(const uint8_t *bitmap, int64_t at) { return !bitmap || (bitmap[at / 8] >> (at % 8) & 1); }

static double value(char format, const void *values, int64_t at) {
  switch (format) {
  case 'i':
    return ((const int32_t *)values)[at];
  case 'I':
    return ((const uint32_t *)values)[at];
  case 'l':
    return (double)((const int64_t *)values)[at];
  case 'f':
    return ((const float *)values)[at];
  default:
    return ((const double *)values)[at];
  }
}

/* Adds up what is not null of a column in host memory, and releases both structs. Returns NULL, or says what is wrong;
 * then the structs are still the caller's. */
const char *consumer_sum(struct ArrowSchema *schema, struct ArrowDeviceArray *array, double *sum, int64_t *count) {
  if (!schema->release || !array->array.release)
    return "a struct is released";
  /* Before anything else: the buffers of another device are not for the host to read. */
  if (array->device_type != ARROW_DEVICE_CPU)
    return "the column is not in host memory";
  if (strlen(schema->format) != 1 || !strchr("iIlfg", schema->format[0]))
    return "the column is not of int32, uint32, int64, float or double";

  /* Moved, as the specification says: copied by the bytes, and the source marked as released. */
  struct ArrowArray own = array->array;
  array->array.release = NULL;
  struct ArrowSchema type = *schema;
  schema->release = NULL;

  const uint8_t *bitmap = own.buffers[0];
  *sum = 0;
  *count = 0;
  for (int64_t at = own.offset; at < own.offset + own.length; ++at) {
    if (is_valid(bitmap, at)) {
      *sum += value(type.format[0], own.buffers[1], at);
      ++*count;
    }
  }

  /* Once each, and the two in any order. */
  own.release(&own);
  type.release(&type);
  return NULL;
}
