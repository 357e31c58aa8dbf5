// SPDX-License-Identifier: Apache-2.0
// The border to Python: dtypes and shapes are checked here, everything else
// behind it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "cpu.h"
#include "executor.h"

namespace py = pybind11;
namespace lk = layout_kernels;

namespace {

template <typename Number>
using Array = py::array_t<Number, py::array::c_style>;

void want_size(const char *name, const py::array &array, py::ssize_t axis,
               py::ssize_t size) {
  if (array.shape(axis) != size)
    throw std::invalid_argument(std::string(name) + " has " +
                                std::to_string(array.shape(axis)) +
                                " along axis " + std::to_string(axis) +
                                "; wanted " + std::to_string(size));
}

void want_rank(const char *name, const py::array &array, py::ssize_t rank) {
  if (array.ndim() != rank)
    throw std::invalid_argument(std::string(name) + " has rank " +
                                std::to_string(array.ndim()) + "; wanted " +
                                std::to_string(rank));
}

std::vector<lk::Shape> shapes(const Array<int64_t> &extent,
                              const Array<int64_t> &source_stride,
                              const Array<int64_t> &target_stride,
                              const Array<int32_t> &element,
                              const Array<int32_t> &cast) {
  want_rank("extent", extent, 2);
  want_rank("source_stride", source_stride, 2);
  want_rank("target_stride", target_stride, 2);
  want_rank("element", element, 1);
  want_rank("cast", cast, 1);
  const py::ssize_t count = extent.shape(0), rank = extent.shape(1);
  for (py::ssize_t axis = 0; axis < 2; ++axis) {
    want_size("source_stride", source_stride, axis, extent.shape(axis));
    want_size("target_stride", target_stride, axis, extent.shape(axis));
  }
  want_size("element", element, 0, count);
  want_size("cast", cast, 0, count);
  std::vector<lk::Shape> all;
  for (py::ssize_t i = 0; i < count; ++i) {
    lk::Shape shape{{}, element.at(i), lk::Cast{cast.at(i)}};
    for (py::ssize_t j = 0; j < rank; ++j)
      shape.digits.push_back(
          {extent.at(i, j), source_stride.at(i, j), target_stride.at(i, j)});
    all.push_back(std::move(shape));
  }
  return all;
}

std::vector<lk::Block> blocks(const Array<int32_t> &shape,
                              const Array<uint64_t> &source,
                              const Array<uint64_t> &target) {
  want_rank("shape", shape, 1);
  want_rank("source", source, 1);
  want_rank("target", target, 1);
  want_size("source", source, 0, shape.shape(0));
  want_size("target", target, 0, shape.shape(0));
  std::vector<lk::Block> all;
  for (py::ssize_t i = 0; i < shape.shape(0); ++i)
    all.push_back({shape.at(i), source.at(i), target.at(i)});
  return all;
}

std::unique_ptr<lk::Executor>
make_executor(const Array<int64_t> &extent, const Array<int64_t> &source_stride,
              const Array<int64_t> &target_stride,
              const Array<int32_t> &element, const Array<int32_t> &cast,
              const Array<int32_t> &shape, const Array<uint64_t> &source,
              const Array<uint64_t> &target, int threads) {
  const lk::Table table{
      shapes(extent, source_stride, target_stride, element, cast),
      blocks(shape, source, target)};
  return std::make_unique<lk::Executor>(table, threads);
}

} // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() =
      "The CPU executor: runs a table of strided copies between addresses.";

  py::class_<lk::Executor>(module, "Executor",
                           "A block table, ready to run as often as wanted.")
      .def(py::init(&make_executor), py::arg("extent").noconvert(),
           py::arg("source_stride").noconvert(),
           py::arg("target_stride").noconvert(), py::arg("element").noconvert(),
           py::arg("cast").noconvert(), py::arg("shape").noconvert(),
           py::arg("source").noconvert(), py::arg("target").noconvert(),
           py::arg("threads"))
      .def("run", &lk::Executor::run, py::call_guard<py::gil_scoped_release>(),
           "Copy every block.")
      .def_property_readonly("nbytes", &lk::Executor::nbytes,
                             "Target bytes that one run writes.")
      .def_property_readonly("blocks", &lk::Executor::blocks,
                             "Blocks in the table.")
      .def_property_readonly("threads", &lk::Executor::threads,
                             "Most threads that one run uses.");

  module.def("copy", &lk::copy, py::arg("target_address"),
             py::arg("source_address"), py::arg("nbytes"), py::arg("threads"),
             py::arg("streaming"), py::call_guard<py::gil_scoped_release>(),
             "Copy contiguous bytes, through the caches or past them: what "
             "other copies are measured against.");
  module.def("features", &lk::features,
             "Instruction sets of this machine that the kernels use.");
}
