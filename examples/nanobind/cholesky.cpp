// A Python extension in C++: oneMKL factors a matrix of usmq in place, on the queue of its Python caller.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <oneapi/mkl/lapack.hpp>
#include <usmq.hpp>

namespace nb = nanobind;
namespace lapack = oneapi::mkl::lapack;

namespace {

// The address of an array in USM. Reading the attribute also orders the earlier commands of usmq on the array before
// those of this library, on any queue.
double *address_of(const nb::object &array) {
  const auto interface = nb::cast<nb::dict>(array.attr("__sycl_usm_array_interface__"));
  const auto type = nb::cast<std::string>(interface["typestr"]);
  if (type != "<f8" && type != "|f8") { // dpnp names no byte order
    throw nb::type_error("the matrix must be of type float64");
  }
  if (interface.contains("strides") && !interface["strides"].is_none()) {
    throw nb::value_error("the matrix must be contiguous: pass matrix.copy()");
  }
  const auto offset = interface.contains("offset") ? nb::cast<std::ptrdiff_t>(interface["offset"]) : 0;
  return reinterpret_cast<double *>(nb::cast<std::uintptr_t>(nb::cast<nb::tuple>(interface["data"])[0])) + offset;
}

// Replaces a symmetric positive definite matrix by its Cholesky factor: the lower triangle of a row-major matrix,
// which is the upper one for LAPACK.
void cholesky(const nb::object &matrix) {
  const auto shape = nb::cast<nb::tuple>(matrix.attr("shape"));
  if (shape.size() != 2 || !shape[0].equal(shape[1])) {
    throw nb::value_error("the matrix must be square");
  }
  const auto n = nb::cast<std::int64_t>(shape[0]);
  double *data = address_of(matrix);
  sycl::queue queue = usmq::current_queue();
  nb::gil_scoped_release unlocked;
  const auto upper = oneapi::mkl::uplo::upper;
  const auto size = lapack::potrf_scratchpad_size<double>(queue, upper, n, n);
  auto scratch = usmq::allocate<double>(static_cast<std::size_t>(size), queue);
  lapack::potrf(queue, upper, n, data, n, scratch.get(), size).wait_and_throw(); // it throws for other matrices
}

} // namespace

NB_MODULE(cholesky, module) { module.def("cholesky", &cholesky, nb::arg("matrix")); }
