// Arrow C++ as the other side of device streams, asynchronous and not: a consumer for our producer and a producer for
// our consumer.
//
// Compiled by tests/arrow_async/peer.rs as a shared library, against the headers and the library of pyarrow's wheel.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "arrow/api.h"
#include "arrow/c/abi.h"
#include "arrow/c/bridge.h"
#include "arrow/util/async_generator.h"
#include "arrow/util/future.h"
#include "arrow/util/thread_pool.h"

namespace {

// What a function found, for the test to compare.
struct Found {
  int64_t batches;
  int64_t rows;
  int64_t sum;
  char error[256];
};

void note(const arrow::Status &status, Found *found) {
  std::snprintf(found->error, sizeof(found->error), "%s", status.ToString().c_str());
}

// A task on its way to Arrow's consumer, which may forget it (rule A20).
struct Passed {
  ArrowAsyncTask task;
  bool extracted;
};

// Arrow's handler behind one that counts.
struct Consumer {
  ArrowAsyncDeviceStreamHandler outer;
  ArrowAsyncDeviceStreamHandler inner;
  arrow::Future<arrow::AsyncRecordBatchGenerator> generator;
  std::mutex lock;
  std::deque<Passed> passed;
};

Consumer *own(ArrowAsyncDeviceStreamHandler *outer) { return static_cast<Consumer *>(outer->private_data); }

int pass_schema(ArrowAsyncDeviceStreamHandler *outer, ArrowSchema *schema) {
  auto *inner = &own(outer)->inner;
  inner->producer = outer->producer;
  return inner->on_schema(inner, schema);
}

int extract_passed(ArrowAsyncTask *task, ArrowDeviceArray *out) {
  auto *passed = static_cast<Passed *>(task->private_data);
  passed->extracted = true;
  return passed->task.extract_data(&passed->task, out);
}

int pass_task(ArrowAsyncDeviceStreamHandler *outer, ArrowAsyncTask *task, const char *metadata) {
  auto *inner = &own(outer)->inner;
  if (task == nullptr)
    return inner->on_next_task(inner, nullptr, metadata);
  ArrowAsyncTask counted{extract_passed, nullptr};
  {
    std::lock_guard<std::mutex> guard(own(outer)->lock);
    own(outer)->passed.push_back({*task, false});
    counted.private_data = &own(outer)->passed.back();
  }
  return inner->on_next_task(inner, &counted, metadata);
}

void pass_error(ArrowAsyncDeviceStreamHandler *outer, int code, const char *message, const char *metadata) {
  auto *inner = &own(outer)->inner;
  inner->on_error(inner, code, message, metadata);
}

void pass_release(ArrowAsyncDeviceStreamHandler *outer) {
  auto *inner = &own(outer)->inner;
  inner->release(inner);
  outer->release = nullptr;
}

struct Producer {
  arrow::Future<> done;
  std::thread thread;
};

arrow::Result<std::shared_ptr<arrow::RecordBatch>> batch_of(const std::shared_ptr<arrow::Schema> &schema,
                                                            int64_t number, int64_t rows) {
  arrow::Int64Builder builder;
  for (int64_t row = 0; row < rows; ++row)
    ARROW_RETURN_NOT_OK(builder.Append(number * rows + row));
  ARROW_ASSIGN_OR_RAISE(auto column, builder.Finish());
  return arrow::RecordBatch::Make(schema, rows, {column});
}

void add(const arrow::RecordBatch &batch, Found *found) {
  found->batches += 1;
  found->rows += batch.num_rows();
  auto status = batch.ValidateFull();
  if (!status.ok())
    note(status, found);
  const auto &column = static_cast<const arrow::Int64Array &>(*batch.column(0));
  for (int64_t row = 0; row < column.length(); ++row)
    found->sum += column.Value(row);
}

// So many batches, of which the one numbered `fails` is an error.
class Reader : public arrow::RecordBatchReader {
public:
  Reader(int64_t batches, int64_t rows, int64_t fails) : batches_(batches), rows_(rows), fails_(fails) {}
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch> *batch) override {
    const int64_t number = next_++;
    if (number == fails_)
      return arrow::Status::IOError("no such batch");
    if (number >= batches_) {
      batch->reset();
      return arrow::Status::OK();
    }
    return batch_of(schema_, number, rows_).Value(batch);
  }

private:
  std::shared_ptr<arrow::Schema> schema_ = arrow::schema({arrow::field("n", arrow::int64())});
  int64_t batches_, rows_, fails_, next_ = 0;
};

} // namespace

extern "C" {

int64_t peer_bytes() { return arrow::default_memory_pool()->bytes_allocated(); }

// A consumer; its handler is for one producer. peer_free frees both, after the handler's release.
Consumer *peer_consumer(uint64_t ahead, ArrowAsyncDeviceStreamHandler **handler) {
  auto *own = new Consumer{};
  own->outer = {pass_schema, pass_task, pass_error, pass_release, nullptr, own};
  auto *executor = arrow::internal::GetCpuThreadPool();
  own->generator = arrow::CreateAsyncDeviceStreamHandler(&own->inner, executor, ahead);
  *handler = &own->outer;
  return own;
}

// Takes at most `most` batches of one int64 column. What is left then is cancelled.
void peer_consume(Consumer *own, int64_t most, Found *found) {
  auto result = own->generator.result();
  if (!result.ok())
    return note(result.status(), found);
  auto stream = result.MoveValueUnsafe();
  while (found->batches < most) {
    auto next = stream.generator().result();
    if (!next.ok()) {
      note(next.status(), found);
      break;
    }
    auto batch = next->batch;
    if (batch == nullptr)
      break;
    add(*batch, found);
  }
  own->generator = {};
}

// How many tasks Arrow accepted and never extracted; they are discarded in its stead.
int64_t peer_free(Consumer *own) {
  int64_t forgotten = 0;
  for (auto &passed : own->passed) {
    if (passed.extracted)
      continue;
    passed.task.extract_data(&passed.task, nullptr);
    ++forgotten;
  }
  delete own;
  return forgotten;
}

// A producer of so many batches, of which the one numbered `fails` is an error. It runs on a thread of its own.
Producer *peer_producer(ArrowAsyncDeviceStreamHandler *handler, int64_t batches, int64_t rows, int64_t fails) {
  auto schema = arrow::schema({arrow::field("n", arrow::int64())});
  auto number = std::make_shared<int64_t>(0);
  auto generator = [=]() -> arrow::Future<std::shared_ptr<arrow::RecordBatch>> {
    using Batch = std::shared_ptr<arrow::RecordBatch>;
    int64_t current = (*number)++;
    if (current == fails)
      return arrow::Future<Batch>::MakeFinished(arrow::Status::IOError("no such batch"));
    if (current >= batches)
      return arrow::Future<Batch>::MakeFinished(Batch{});
    return arrow::Future<Batch>::MakeFinished(batch_of(schema, current, rows));
  };
  auto *own = new Producer{arrow::Future<>::Make(), {}};
  own->thread = std::thread([=]() {
    auto done = arrow::ExportAsyncRecordBatchReader(schema, generator, arrow::DeviceAllocationType::kCPU, handler);
    own->done.MarkFinished(done.status());
  });
  return own;
}

// Blocks until the stream is over.
void peer_finish(Producer *own, Found *found) {
  own->thread.join();
  auto status = own->done.status();
  if (!status.ok())
    note(status, found);
  delete own;
}

// Reads a device stream of one int64 column to its end.
void peer_read(ArrowDeviceArrayStream *stream, Found *found) {
  auto reader = arrow::ImportDeviceRecordBatchReader(stream);
  if (!reader.ok())
    return note(reader.status(), found);
  for (;;) {
    auto batch = (*reader)->Next();
    if (!batch.ok())
      return note(batch.status(), found);
    if (*batch == nullptr)
      return;
    add(**batch, found);
  }
}

// A device stream of host memory.
void peer_stream(int64_t batches, int64_t rows, int64_t fails, ArrowDeviceArrayStream *stream, Found *found) {
  auto reader = std::make_shared<Reader>(batches, rows, fails);
  auto status = arrow::ExportDeviceRecordBatchReader(std::move(reader), stream);
  if (!status.ok())
    note(status, found);
}
}
