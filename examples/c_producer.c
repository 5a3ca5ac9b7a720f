/* A producer of Arrow device arrays in plain C, without an Arrow library.
 *
 *     cc -std=c11 -shared -fPIC -o libc_producer.so c_producer.c
 *
 * The structs are those of the specification: https://arrow.apache.org/docs/format/CDeviceDataInterface.html
 * tests/python/test_arrow_c_examples.py gives the record batch to usmq, which copies it to a device. */

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define ARROW_DEVICE_CPU 1
#define ARROW_FLAG_NULLABLE 2

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

/* Atomic, since a consumer may release on any thread. */
static atomic_llong batches_released, columns_released, schemas_released;

long long producer_batches_released(void) { return atomic_load(&batches_released); }
long long producer_columns_released(void) { return atomic_load(&columns_released); }
long long producer_schemas_released(void) { return atomic_load(&schemas_released); }

/* --- the schema: a struct that is never null, of two fields */

struct fields {
  struct ArrowSchema all[2];
  struct ArrowSchema *pointers[2];
};

/* Names and formats are constants, so that a field owns nothing. */
static void release_field(struct ArrowSchema *schema) { schema->release = NULL; }

static void release_schema(struct ArrowSchema *schema) {
  /* A child that the consumer has moved out is marked as released, and is the consumer's. */
  for (int64_t n = 0; n < schema->n_children; ++n)
    if (schema->children[n]->release)
      schema->children[n]->release(schema->children[n]);
  free(schema->private_data);
  schema->release = NULL;
  atomic_fetch_add(&schemas_released, 1);
}

static int make_schema(struct ArrowSchema *out) {
  struct fields *fields = malloc(sizeof *fields);
  if (!fields)
    return ENOMEM;
  fields->all[0] = (struct ArrowSchema){.format = "l", .name = "id", .release = release_field};
  fields->all[1] =
      (struct ArrowSchema){.format = "g", .name = "miles", .flags = ARROW_FLAG_NULLABLE, .release = release_field};
  for (int n = 0; n < 2; ++n)
    fields->pointers[n] = &fields->all[n];
  *out = (struct ArrowSchema){.format = "+s",
                              .name = "",
                              .n_children = 2,
                              .children = fields->pointers,
                              .release = release_schema,
                              .private_data = fields};
  return 0;
}

/* --- the columns: each owns its memory, so that it can outlive the batch when it is moved out */

struct column {
  const void *buffers[2];
  uint8_t *bitmap;
  void *values;
};

static void release_column(struct ArrowArray *array) {
  struct column *column = array->private_data;
  free(column->bitmap);
  free(column->values);
  free(column);
  array->release = NULL;
  atomic_fetch_add(&columns_released, 1);
}

/* A column of `rows` values of 8 bytes that the caller is to fill. */
static int make_column(int64_t rows, int nullable, struct ArrowArray *out) {
  struct column *column = calloc(1, sizeof *column);
  if (!column)
    return ENOMEM;
  /* Never of size 0, for which an allocator may answer NULL. */
  column->values = malloc((size_t)rows * 8 + 8);
  column->bitmap = nullable ? calloc((size_t)rows / 8 + 1, 1) : NULL;
  column->buffers[0] = column->bitmap;
  column->buffers[1] = column->values;
  *out = (struct ArrowArray){
      .length = rows, .n_buffers = 2, .buffers = column->buffers, .release = release_column, .private_data = column};
  if (column->values && (column->bitmap || !nullable))
    return 0;
  release_column(out);
  return ENOMEM;
}

/* --- the record batch */

struct batch {
  struct ArrowArray columns[2];
  struct ArrowArray *pointers[2];
  const void *buffers[1];
};

static void release_batch(struct ArrowArray *array) {
  for (int64_t n = 0; n < array->n_children; ++n)
    if (array->children[n]->release)
      array->children[n]->release(array->children[n]);
  free(array->private_data);
  array->release = NULL;
  atomic_fetch_add(&batches_released, 1);
}

static int make_batch(int64_t rows, struct ArrowDeviceArray *out) {
  struct batch *batch = calloc(1, sizeof *batch);
  if (!batch)
    return ENOMEM;
  struct ArrowArray *id = &batch->columns[0], *miles = &batch->columns[1];
  if (make_column(rows, 0, id) || make_column(rows, 1, miles)) {
    if (id->release)
      id->release(id);
    free(batch);
    return ENOMEM;
  }
  struct column *ids = id->private_data, *distances = miles->private_data;
  for (int64_t row = 0; row < rows; ++row) {
    ((int64_t *)ids->values)[row] = row;
    ((double *)distances->values)[row] = row * 0.5;
    if (row % 3 == 0)
      ++miles->null_count;
    else
      distances->bitmap[row / 8] |= (uint8_t)(1u << row % 8);
  }
  batch->pointers[0] = id;
  batch->pointers[1] = miles;
  /* The reserved bytes are 0, and so is the event: host memory may be read at once. Nothing points to `out` itself,
   * which the consumer moves. */
  *out = (struct ArrowDeviceArray){.array = {.length = rows,
                                             .n_buffers = 1,
                                             .buffers = batch->buffers,
                                             .n_children = 2,
                                             .children = batch->pointers,
                                             .release = release_batch,
                                             .private_data = batch},
                                   .device_id = -1,
                                   .device_type = ARROW_DEVICE_CPU};
  return 0;
}

/* A record batch of `id`, 0 to rows - 1, and `miles`, half the id, where every third is null. The caller owns both
 * structs. Returns 0 or an errno. */
int producer_batch(int64_t rows, struct ArrowSchema *schema, struct ArrowDeviceArray *array) {
  /* 8 bytes a row, and a few more, in an address space. */
  if (rows < 0 || rows > PTRDIFF_MAX / 8 - 1)
    return EINVAL;
  int status = make_schema(schema);
  if (status)
    return status;
  status = make_batch(rows, array);
  if (status)
    schema->release(schema);
  return status;
}
