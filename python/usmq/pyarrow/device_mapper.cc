// An arrow::Device for USM, registered as the mapper of ARROW_DEVICE_ONEAPI, over the functions of usmq.h.
//
// `python -m usmq pyarrow build` compiles this file against the headers and the libarrow of the installed pyarrow.
#include <arrow/array/array_base.h>
#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/device.h>
#include <arrow/io/memory.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/type.h>
#include <arrow/util/bitmap_ops.h>

#include <memory>
#include <string>
#include <usmq.h>
#include <vector>

namespace {

constexpr auto kType = arrow::DeviceAllocationType::kONEAPI;

arrow::Status checked(usmq_status status) {
  if (status == USMQ_OK)
    return arrow::Status::OK();
  if (status == USMQ_ERROR_ALLOCATION)
    return arrow::Status::OutOfMemory(usmq_last_error());
  return arrow::Status::IOError(usmq_last_error());
}

/// A queue of usmq, owned.
struct Queue {
  void *handle = nullptr;
  Queue() = default;
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;
  ~Queue() { usmq_queue_release(handle); }
};

/// Memory from the pool of usmq. Its destructor does not wait: usmq frees the block after its last use.
class PoolBuffer final : public arrow::MutableBuffer {
public:
  PoolBuffer(void *memory, int64_t size, std::shared_ptr<arrow::MemoryManager> manager)
      : arrow::MutableBuffer(static_cast<uint8_t *>(memory), size, std::move(manager)), memory_(memory) {}
  ~PoolBuffer() override { usmq_free(memory_); }

private:
  void *memory_;
};

class Device final : public arrow::Device {
public:
  explicit Device(int64_t number) : number_(number) {}

  const char *type_name() const override { return "usmq::Device"; }
  std::string ToString() const override { return "usmq.Device(\"" + target() + "\")"; }
  bool Equals(const arrow::Device &other) const override {
    return other.device_type() == kType && other.device_id() == number_;
  }
  int64_t device_id() const override { return number_; }
  arrow::DeviceAllocationType device_type() const override { return kType; }
  std::shared_ptr<arrow::MemoryManager> default_memory_manager() override;

  /// The filter string of a device: its number among all devices.
  std::string target() const { return std::to_string(number_); }

private:
  int64_t number_;
};

class MemoryManager final : public arrow::MemoryManager {
public:
  explicit MemoryManager(const std::shared_ptr<arrow::Device> &device) : arrow::MemoryManager(device) {}

  arrow::Result<std::unique_ptr<arrow::Buffer>> AllocateBuffer(int64_t size) override {
    if (size < 0)
      return arrow::Status::Invalid("cannot allocate ", size, " bytes");
    Queue queue;
    ARROW_RETURN_NOT_OK(find(&queue));
    void *memory = nullptr;
    ARROW_RETURN_NOT_OK(checked(usmq_allocate(static_cast<size_t>(size), USMQ_DEVICE, queue.handle, &memory)));
    return std::make_unique<PoolBuffer>(memory, size, shared_from_this());
  }

  arrow::Result<std::shared_ptr<arrow::io::RandomAccessFile>>
  GetBufferReader(std::shared_ptr<arrow::Buffer> buffer) override {
    ARROW_ASSIGN_OR_RAISE(auto copy, CopyBufferTo(buffer, arrow::default_cpu_memory_manager()));
    return std::make_shared<arrow::io::BufferReader>(std::move(copy));
  }

  arrow::Result<std::shared_ptr<arrow::io::OutputStream>> GetBufferWriter(std::shared_ptr<arrow::Buffer>) override {
    return arrow::Status::NotImplemented("usmq has no output stream to device memory; copy a complete buffer there");
  }

  /// Waits here. A buffer that Arrow slices, and a batch that pyarrow exports, lose the event of the import, so their
  /// readers could not wait for it later.
  arrow::Result<std::shared_ptr<arrow::Device::SyncEvent>>
  WrapDeviceSyncEvent(void *event, arrow::Device::SyncEvent::release_fn_t release) override {
    Queue queue;
    auto status = find(&queue);
    if (status.ok())
      status = checked(usmq_event_wait(event, queue.handle));
    if (release)
      release(event);
    ARROW_RETURN_NOT_OK(status);
    return std::shared_ptr<arrow::Device::SyncEvent>();
  }

protected:
  // Null means that this direction is not supported; Arrow then tries the next one.
  arrow::Result<std::shared_ptr<arrow::Buffer>>
  CopyBufferFrom(const std::shared_ptr<arrow::Buffer> &buffer,
                 const std::shared_ptr<arrow::MemoryManager> &from) override {
    return CopyNonOwnedFrom(*buffer, from);
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> CopyBufferTo(const std::shared_ptr<arrow::Buffer> &buffer,
                                                             const std::shared_ptr<arrow::MemoryManager> &to) override {
    return CopyNonOwnedTo(*buffer, to);
  }

  arrow::Result<std::unique_ptr<arrow::Buffer>>
  CopyNonOwnedFrom(const arrow::Buffer &buffer, const std::shared_ptr<arrow::MemoryManager> &from) override {
    if (!from->is_cpu() && from->device()->device_type() != kType)
      return nullptr;
    return copied(buffer, *this);
  }

  arrow::Result<std::unique_ptr<arrow::Buffer>>
  CopyNonOwnedTo(const arrow::Buffer &buffer, const std::shared_ptr<arrow::MemoryManager> &to) override {
    if (!to->is_cpu())
      return nullptr;
    return copied(buffer, *to);
  }

private:
  arrow::Status find(Queue *queue) const {
    return checked(usmq_queue_of(static_cast<const Device &>(*device_).target().c_str(), &queue->handle));
  }

  static arrow::Result<std::unique_ptr<arrow::Buffer>> copied(const arrow::Buffer &buffer, arrow::MemoryManager &to) {
    ARROW_ASSIGN_OR_RAISE(auto target, to.AllocateBuffer(buffer.size()));
    if (buffer.size() > 0) {
      // `address()` is valid for memory that the host cannot read; `data()` is not.
      auto *into = reinterpret_cast<void *>(target->address());
      auto *source = reinterpret_cast<const void *>(buffer.address());
      ARROW_RETURN_NOT_OK(checked(usmq_copy(into, source, static_cast<size_t>(buffer.size()))));
    }
    return target;
  }
};

std::shared_ptr<arrow::MemoryManager> Device::default_memory_manager() {
  return std::make_shared<MemoryManager>(shared_from_this());
}

arrow::Result<std::shared_ptr<arrow::MemoryManager>> map(int64_t number) {
  auto device = std::make_shared<Device>(number);
  Queue queue;
  // Fails here, not at the first copy, if no such device is visible.
  ARROW_RETURN_NOT_OK(checked(usmq_queue_of(device->target().c_str(), &queue.handle)));
  return device->default_memory_manager();
}

/// Counts the nulls of an array and its children where the count is not known. Arrow does this on the host when it
/// exports an array, with a null pointer for memory of a device.
arrow::Status count_nulls(arrow::ArrayData *data) {
  if (data->null_count == arrow::kUnknownNullCount && !data->buffers.empty() && data->type->id() != arrow::Type::NA) {
    int64_t nulls = 0;
    const auto &bitmap = data->buffers[0];
    if (bitmap && data->length > 0) {
      int64_t first = data->offset / 8, end = (data->offset + data->length + 7) / 8;
      std::vector<uint8_t> bits(static_cast<size_t>(end - first));
      auto *source = reinterpret_cast<const uint8_t *>(bitmap->address()) + first;
      ARROW_RETURN_NOT_OK(checked(usmq_copy(bits.data(), source, bits.size())));
      nulls = data->length - arrow::internal::CountSetBits(bits.data(), data->offset % 8, data->length);
    }
    data->null_count = nulls;
  }
  for (const auto &child : data->child_data)
    ARROW_RETURN_NOT_OK(count_nulls(child.get()));
  if (data->dictionary)
    ARROW_RETURN_NOT_OK(count_nulls(data->dictionary.get()));
  return arrow::Status::OK();
}

arrow::Status count_nulls_of(void *unwrap, bool is_batch, void *object) {
  if (!is_batch) {
    auto array = reinterpret_cast<std::shared_ptr<arrow::Array> (*)(void *)>(unwrap)(object);
    return array ? count_nulls(array->data().get()) : arrow::Status::Invalid("it is not an array of pyarrow");
  }
  auto batch = reinterpret_cast<std::shared_ptr<arrow::RecordBatch> (*)(void *)>(unwrap)(object);
  if (!batch)
    return arrow::Status::Invalid("it is not a batch of pyarrow");
  // These are the data that the batch exports; those of `column()` could be copies.
  for (const auto &column : batch->column_data())
    ARROW_RETURN_NOT_OK(count_nulls(column.get()));
  return arrow::Status::OK();
}

/// Returns NULL, or the reason of a failure, which stays valid until the next failure on this thread.
const char *text_of(const arrow::Status &status) {
  static thread_local std::string text;
  if (status.ok())
    return nullptr;
  text = status.ToString();
  return text.c_str();
}

} // namespace

#define USMQ_EXPORT extern "C" __attribute__((visibility("default")))

/// Registers the mapper; returns NULL or the reason of a failure.
USMQ_EXPORT const char *usmq_pyarrow_register() { return text_of(arrow::RegisterDeviceMapper(kType, map)); }

/// Counts the nulls of a batch or an array. `unwrap` is pyarrow's function for such objects; the caller has the GIL.
USMQ_EXPORT const char *usmq_pyarrow_count_nulls(void *unwrap, int is_batch, void *object) {
  return text_of(count_nulls_of(unwrap, is_batch != 0, object));
}
