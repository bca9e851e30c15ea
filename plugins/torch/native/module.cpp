// The Python module sprat.torch._native.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plugins/torch/native/backend.hpp"
#include "plugins/torch/native/data.hpp"
#include "plugins/torch/native/devices/registry.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/memory.hpp"
#include "plugins/torch/native/planners.hpp"
#include "plugins/torch/native/smp.hpp"
#include "plugins/torch/native/wire.hpp"
#include "sprat/sprat.h"

namespace py = pybind11;

namespace sprat::pytorch {
namespace {

Membership membership_of(const c10d::DistributedBackendOptions& options) {
  Membership membership{
      .store = options.store,
      .rank = options.group_rank,
      .size = options.group_size,
      .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout),
      .group = options.group_id,
      .ranks = {options.global_ranks_in_group.begin(), options.global_ranks_in_group.end()}};
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  membership.reconfigurable = options.enable_reconfigure;
#endif
  return membership;
}

c10::intrusive_ptr<Backend> join(std::shared_ptr<Groups> groups,
                                 const c10d::DistributedBackendOptions& options) {
  Membership membership = membership_of(options);
  membership.groups = std::move(groups);
  return Backend::join(std::move(membership));
}

c10::intrusive_ptr<Backend> create_group(Backend& parent, const std::vector<int>& ranks,
                                         const c10d::DistributedBackendOptions& options) {
  return parent.create_group(ranks, membership_of(options));
}

py::bytes dump_trace(const Groups& groups, bool operations, bool frames, bool only_active) {
  std::string dump;
  {
    const py::gil_scoped_release released;
    dump = groups.trace()->dump(
        {.operations = operations, .frames = frames, .only_active = only_active});
  }
  return py::bytes(dump);
}

void bind_groups(py::module_& module) {
  py::class_<Groups, std::shared_ptr<Groups>>(module, "Groups")
      .def(py::init<bool>(), py::arg("records"))
      .def("__len__", &Groups::size)
      // For groups that are left at another time; the record is the same.
      .def("beside", [](const Groups& groups) { return std::make_shared<Groups>(groups.trace()); })
      .def("_dump_fr_trace", &dump_trace, py::arg("operations"), py::arg("frames"),
           py::arg("only_active"))
      .def("_set_fr_version",
           [](const Groups& groups, const std::string& version) {
             groups.trace()->set_version(version);
           })
      .def("leave", &Groups::leave, py::call_guard<py::gil_scoped_release>());
}

/// After Work, c10d's, which the devices' is one of.
void bind_devices(py::module_& module) {
  py::class_<StreamWork, c10d::Work, c10::intrusive_ptr<StreamWork>>(module, "StreamWork")
      .def_property_readonly("timeout", &StreamWork::getTimeout);
  module.def("serves", [](const std::string& type) { return serves(at::Device(type).type()); });
  module.def("add_device_kind", [](const std::string& type, const py::capsule& kind) {
    add_device_kind(at::Device(type).type(), *kind.get_pointer<const DeviceKind>());
  });
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
      .def("renew", &Backend::renew, Released())
      .def("shutdown", &Backend::shutdown, Released())
      // PyTorch calls this name; each of its own backends binds it for itself.
      .def("_set_default_timeout", &Backend::setTimeout, Released())
      .def("_add_ephemeral_timeout", &Backend::addEphemeralTimeout, py::arg("timeout"), Released())
      .def("_enable_collectives_timing", &Backend::enableCollectivesTiming)
      .def("register_abort_hook", &Backend::registerAbortHook, py::arg("hook_id"), py::arg("hook"),
           Released())
      .def("unregister_abort_hook", &Backend::unregisterAbortHook, py::arg("hook_id"), Released())
      // NCCL splits a group with all its ranks, those that are left out too. Here members alone
      // make one, so these have nothing to do.
      .def(
          "perform_nocolor_split", [](Backend&, const at::Device&) {}, py::arg("device"))
      .def("get_error", &Backend::getError, Released())
      .def_property_readonly("supports_shrinking", &Backend::supportsShrinking)
      .def("shrink", &Backend::shrink, py::arg("ranks_to_exclude"), py::arg("shrink_flags") = 0,
           py::arg("opts_override") = nullptr, Released())
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("flight_record", &Backend::flight_record, Released())
      .def("write_trace", &Backend::write_trace, py::arg("path"), Released())
      .def("note", &Backend::note, py::arg("name"), py::arg("start_ns"), py::arg("end_ns"));
  // What operations with async_op=True return: PyTorch's Work, and what it had no name for yet.
  py::class_<Work, c10d::Work, c10::intrusive_ptr<Work>>(module, "Work")
      .def_property_readonly("timeout", &Work::getTimeout);
  bind_groups(module);
  module.def("join", &join, Released());
  module.def("create_group", &create_group, Released());
  bind_devices(module);
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
