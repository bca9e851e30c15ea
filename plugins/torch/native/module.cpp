// The Python module sprat.torch._native.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plugins/torch/native/backend.hpp"
#include "plugins/torch/native/data.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/memory.hpp"
#include "plugins/torch/native/planners.hpp"
#include "plugins/torch/native/smp.hpp"
#include "plugins/torch/native/wire.hpp"
#include "sprat/sprat.h"

namespace py = pybind11;

namespace sprat::pytorch {
namespace {

Backend::Membership membership_of(const c10d::DistributedBackendOptions& options) {
  return {.store = options.store,
          .rank = options.group_rank,
          .size = options.group_size,
          .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout),
          .group = options.group_id};
}

c10::intrusive_ptr<Backend> join(std::shared_ptr<Groups> groups,
                                 const c10d::DistributedBackendOptions& options) {
  Backend::Membership membership = membership_of(options);
  membership.groups = std::move(groups);
  return Backend::join(std::move(membership));
}

c10::intrusive_ptr<Backend> create_group(Backend& parent, const std::vector<int>& ranks,
                                         const c10d::DistributedBackendOptions& options) {
  return parent.create_group(ranks, membership_of(options));
}

at::Tensor empty(const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  return guard([&] { return empty_shared(sizes, dtype); });
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Sprat under torch.distributed; see sprat.torch.";
  // Calls that may wait let go of Python's lock, so that its other threads can go on.
  using Released = py::call_guard<py::gil_scoped_release>;
  // It registers c10d.Backend, the base class below.
  py::module_::import("torch.distributed");
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def("abort", &Backend::abort, Released())
      .def("shutdown", &Backend::shutdown, Released())
      // PyTorch calls this name; each of its own backends binds it for itself.
      .def("_set_default_timeout", &Backend::setTimeout, Released())
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("flight_record", &Backend::flight_record, Released());
  py::class_<Groups, std::shared_ptr<Groups>>(module, "Groups")
      .def(py::init<>())
      .def("__len__", &Groups::size)
      .def("leave", &Groups::leave, Released());
  module.def("join", &join, Released());
  module.def("create_group", &create_group, Released());
  module.def("serves_cuda", [] { return serves(at::kCUDA); });
  module.def("empty", &empty, Released());
  module.def("is_shared", &is_shared);
  module.def("memory_use", [] {
    const MemoryUse use = memory_use();
    return py::dict(py::arg("used") = use.used, py::arg("kept") = use.kept);
  });
  module.def("release_kept_memory", &release_kept_memory, Released());
  module.def("encoded_bytes", &encoded_bytes);
  module.def("encode", &encode, Released());
  module.def("decode", &decode, Released());
  module.def("sum_encoded", &sum_encoded, Released());
  module.def("smp_parameters", &smp_parameters);
  module.def("partition", &partition, py::arg("model"), py::arg("method"), py::arg("partitions"),
             py::arg("goal") = "memory", py::arg("memory_weight") = 0.8,
             py::arg("any_order") = false);
  module.def("make_schedule", &make_schedule, py::arg("kind"), py::arg("ranks"),
             py::arg("microbatches"), py::arg("stages_per_rank") = 1,
             py::arg("active_microbatches") = 0, py::arg("recomputed") = std::vector<bool>{},
             py::arg("unsharded_stages") = 0, py::arg("reduces") = false);
  bind_data(module);
  module.def("version", [] { return std::string(sprat_version()); });
}

}  // namespace sprat::pytorch
