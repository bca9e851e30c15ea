// The Python module of the stand-in device.
#include <torch/extension.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/gpu/stand_in/allocator.hpp"
#include "tests/gpu/stand_in/streams.hpp"

namespace stand_in {

/// For sprat.torch's add_device_kind().
const void* sprat_device_kind();
void set_capturing(bool capturing);
/// Sprat's copies fail from here on, and with each its stream for ever.
void fail_copies(bool failing);

}  // namespace stand_in

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  using namespace stand_in;
  using Released = py::call_guard<py::gil_scoped_release>;
  module.doc() = "A device of the host's memory with streams that are threads; see README.md.";
  module.attr("devices") = devices;
  module.def("current_device", &current_device);
  module.def("set_device", &set_current_device);
  module.def("synchronize", &synchronize_device, py::arg("device") = 0, Released());
  module.def("set_delays", &set_delays, py::arg("seed"), py::arg("microseconds") = 200);
  module.def("set_operator_time", &set_operator_time, py::arg("microseconds"));
  module.def("set_capturing", &set_capturing);
  module.def("fail_copies", &fail_copies);
  module.def("host_waits", &host_waits);
  module.def("used", &used);
  module.def("start_trace", &start_trace);
  module.def("take_trace", [] {
    py::list out;
    for (const Ran& ran : take_trace()) {
      out.append(py::make_tuple(ran.name, ran.stream, ran.queued, ran.began, ran.ended));
    }
    return out;
  });
  // As c10d does in a collective's call. Its own binding registers a holder, and not the Work.
  module.def("register_work", [](const at::Tensor& tensor, c10d::Work& work) {
    c10d::register_work(tensor,
                        c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(&work));
  });
  module.def("sprat_device_kind", [] { return py::capsule(sprat_device_kind()); });
}
