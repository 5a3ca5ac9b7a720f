// A Python extension in C++: it works on the queue that its Python caller chose, and returns USM without a copy.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <usmq.hpp>
#include <usmq/dlpack.hpp>

namespace nb = nanobind;

namespace {

// An array that every library with DLPack for USM can take: usmq, dpnp.
class Filled {
public:
  Filled(std::vector<std::int64_t> shape, float value) : shape_(std::move(shape)), queue_(usmq::current_queue()) {
    const std::size_t size = usmq::dlpack::count_of<float>(shape_); // throws if an address space is too small for it
    // Without the GIL: a command of another library may need it.
    nb::gil_scoped_release unlocked;
    memory_ = usmq::allocate<float>(size, queue_, USMQ_SHARED);
    if (size > 0) {
      queue_.fill(memory_.get(), value, size);
    }
  }

  std::pair<int, int> device() const {
    const auto found = usmq::dlpack::device_of(queue_);
    return {found.type, found.id};
  }

  nb::object capsule(const nb::kwargs &options) {
    if (!options.contains("max_version") || options["max_version"].is_none()) {
      throw nb::buffer_error("this array needs a consumer of DLPack 1.0 or newer, which passes max_version");
    }
    {
      nb::gil_scoped_release unlocked;
      queue_.wait_and_throw(); // any consumer may use the memory at once, on any queue
    }
    auto exported = usmq::dlpack::export_memory(memory_.get(), shape_, queue_, memory_);
    PyObject *capsule = PyCapsule_New(exported.get(), usmq::dlpack::capsule_name, [](PyObject *unused) {
      // A consumer renames the capsule and calls the deleter itself.
      if (PyCapsule_IsValid(unused, usmq::dlpack::capsule_name)) {
        const auto *name = usmq::dlpack::capsule_name;
        usmq::dlpack::handle(static_cast<usmq::dlpack::managed_tensor *>(PyCapsule_GetPointer(unused, name)));
      }
    });
    if (capsule == nullptr) {
      throw nb::python_error();
    }
    exported.release(); // the capsule owns it
    return nb::steal(capsule);
  }

private:
  std::vector<std::int64_t> shape_;
  sycl::queue queue_;
  std::shared_ptr<float[]> memory_; // shared by this object and its exports
};

} // namespace

NB_MODULE(filled, module) {
  nb::class_<Filled>(module, "Filled")
      .def(nb::init<std::vector<std::int64_t>, float>(), nb::arg("shape"), nb::arg("value"))
      .def("__dlpack__", &Filled::capsule)
      .def("__dlpack_device__", [](const Filled &self) {
        const auto [type, id] = self.device();
        return nb::make_tuple(type, id);
      });
}
