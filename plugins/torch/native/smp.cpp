#include "plugins/torch/native/smp.hpp"

#include <variant>

#include "plugins/torch/native/errors.hpp"
#include "sprat/smp.hpp"

namespace py = pybind11;

namespace sprat::pytorch {
namespace {

py::object as_python(const SmpValue& value) {
  struct Convert {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool flag) const { return py::bool_(flag); }
    py::object operator()(std::int64_t whole) const { return py::int_(whole); }
    py::object operator()(double number) const { return py::float_(number); }
    py::object operator()(const std::string& word) const { return py::str(word); }
  };
  return std::visit(Convert{}, value);
}

}  // namespace

py::dict smp_parameters(const std::string& json) {
  const SmpParameters parameters = guard([&] {
    SmpParameters parsed = parse_smp_parameters(json);
    require_served(parsed);
    return parsed;
  });
  py::dict values;
  for (const SmpKey& key : smp_keys()) {
    if (key.version == parameters.version) {
      const std::string name(key.name);
      values[py::str(name)] = as_python(parameters.values.at(name));
    }
  }
  return py::dict(py::arg("generation") = std::string(name(parameters.version)),
                  py::arg("values") = values);
}

}  // namespace sprat::pytorch
