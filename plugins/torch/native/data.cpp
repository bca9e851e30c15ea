#include "plugins/torch/native/data.hpp"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/extension.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/torch/native/record_values.hpp"
#include "sprat/data.hpp"
#include "sprat/error.hpp"

namespace py = pybind11;

namespace sprat::pytorch {
namespace {

using namespace std::chrono_literals;
/// How long a wait goes on until Python is asked whether somebody pressed Ctrl-C.
constexpr auto slice = 100ms;

/// Words that name files, whose names may be in no encoding: such bytes are shown as "\xff".
[[noreturn]] void raise_as(PyObject* type, const char* words) {
  const auto shown = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(words, static_cast<Py_ssize_t>(std::strlen(words)), "backslashreplace"));
  if (shown) {
    PyErr_SetObject(type, shown.ptr());
  }
  throw py::error_already_set();
}

[[noreturn]] void throw_as_python(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid_argument:
      raise_as(PyExc_ValueError, error.what());
    case ErrorCode::timeout:
      raise_as(PyExc_TimeoutError, error.what());
    case ErrorCode::unavailable:
    case ErrorCode::lost_peer:
    case ErrorCode::mismatch:
    case ErrorCode::aborted:
    case ErrorCode::internal:
      break;
  }
  raise_as(PyExc_RuntimeError, error.what());
}

/// Calls `function` without Python's lock, since the loader's threads may want it for decoding.
template <class Function>
auto released(Function&& function) {
  try {
    const py::gil_scoped_release release;
    return function();
  } catch (const Error& error) {
    throw_as_python(error);
  }
}

/// One rank's part of a batch.
class PythonBatch final {
 public:
  explicit PythonBatch(DataBatch batch) : batch_(std::move(batch)) {}

  std::uint64_t index() const { return batch_.index(); }
  std::uint64_t first() const { return batch_.first(); }
  std::size_t size() const { return batch_.size(); }

  /// [size, row]; `row` counts where there is no sample to tell.
  at::Tensor elements(std::int64_t row) const {
    const auto rows = static_cast<std::int64_t>(batch_.size());
    const at::ScalarType type = scalar_type(batch_.element_type());
    const std::span<const std::byte> bytes = batch_.elements();
    if (rows > 0) {
      row = static_cast<std::int64_t>(bytes.size() / c10::elementSize(type)) / rows;
    }
    return tensor_over(batch_, bytes, {rows, row}, type);
  }

  py::list records() const {
    py::list samples;
    for (std::size_t sample = 0; sample < batch_.size(); ++sample) {
      py::dict fields;
      for (std::size_t field = 0; field < batch_.fields(sample); ++field) {
        const DataField part = batch_.field(sample, field);
        fields[str_of(part.name)] = value_of(sample, part);
      }
      samples.append(std::move(fields));
    }
    return samples;
  }

  py::list epochs() const {
    return of_each([](const DataBatch& batch, std::size_t i) { return batch.epoch(i); });
  }
  py::list sources() const {
    return of_each([](const DataBatch& batch, std::size_t i) { return batch.source(i); });
  }
  py::list record_numbers() const {
    return of_each([](const DataBatch& batch, std::size_t i) { return batch.record(i); });
  }
  py::list lengths() const {
    return of_each([](const DataBatch& batch, std::size_t i) {
      const std::span<const std::uint32_t> lengths = batch.lengths(i);
      return std::vector<std::uint32_t>(lengths.begin(), lengths.end());
    });
  }

 private:
  /// What is no JSON, as a member of a tar may be, says whose it is.
  py::object value_of(std::size_t sample, const DataField& part) const {
    try {
      return value_in_batch(batch_, part);
    } catch (py::error_already_set& error) {
      const std::string who = "field \"" + std::string(part.name) + "\" of record " +
                              std::to_string(batch_.record(sample)) + " of source " +
                              std::to_string(batch_.source(sample)) + " is no " +
                              std::string(part.type);
      py::raise_from(error, PyExc_ValueError, who.c_str());
      throw py::error_already_set();
    }
  }
  template <class Value>
  py::list of_each(Value value) const {
    py::list values;
    for (std::size_t sample = 0; sample < batch_.size(); ++sample) {
      values.append(value(batch_, sample));
    }
    return values;
  }

  DataBatch batch_;
};

/// Called with Python's lock, which it lets go of while it waits.
class PythonLoader final {
 public:
  /// `paths` are those of each source, as the system has them.
  PythonLoader(const std::string& json, const std::vector<std::vector<std::string>>& paths,
               const std::vector<std::pair<std::string, py::function>>& decode,
               std::shared_ptr<DataPeers> peers)
      : loader_(open(json, paths, decode, std::move(peers))) {}
  ~PythonLoader() { close(); }
  PythonLoader(const PythonLoader&) = delete;
  PythonLoader& operator=(const PythonLoader&) = delete;

  void close() {
    if (process_ != ::getpid()) {
      // A child of fork() has none of the threads that this would wait for.
      static_cast<void>(loader_.release());
    }
    if (loader_ != nullptr) {
      const py::gil_scoped_release release;  // a decode stage may wait for the lock
      loader_.reset();
    }
  }

  std::optional<PythonBatch> next() {
    Loader& loader = here();
    std::optional<DataBatch> batch;
    // One release for both calls: each costs as much as either of them where a batch lies ready.
    const auto has_come = [&] {
      const bool has = loader.wait(slice);
      if (has) {
        batch = loader.next();
      }
      return has;
    };
    while (!released(has_come)) {
      if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
      }
    }
    return batch ? std::optional<PythonBatch>(std::move(*batch)) : std::nullopt;
  }

  std::string state() {
    Loader& loader = here();
    return released([&] { return loader.state(); });
  }
  void resume(const std::string& state) {
    Loader& loader = here();
    released([&] { loader.resume(state); });
  }
  std::uint64_t samples_per_epoch() { return here().samples_per_epoch(); }
  std::uint64_t fingerprint() { return here().fingerprint(); }
  py::str describe() { return str_of(here().describe()); }
  /// JSON, and a line for people.
  std::pair<std::string, py::str> report() {
    Loader& loader = here();
    LoaderReport report = released([&] { return loader.report(); });
    return {std::move(report.json), str_of(report.text)};
  }
  void note_step(double seconds) {
    here().note_step(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds)));
  }

 private:
  static std::unique_ptr<Loader> open(
      const std::string& json, const std::vector<std::vector<std::string>>& paths,
      const std::vector<std::pair<std::string, py::function>>& decode,
      std::shared_ptr<DataPeers> peers) {
    std::vector<DecodeStage> stages;
    for (const auto& [name, function] : decode) {
      stages.push_back(stage_of(name, function));
    }
    return released([&] {
      LoaderOptions options = parse_loader_options(json);
      // JSON has no form for names in no encoding.
      for (std::size_t source = 0; source < paths.size(); ++source) {
        options.sources.at(source).paths = paths[source];
      }
      options.decode = std::move(stages);
      options.cache.peers = std::move(peers);
      return std::make_unique<Loader>(std::move(options));
    });
  }

  Loader& here() {
    if (loader_ == nullptr) {
      throw py::value_error("the loader is closed; make another one");
    }
    if (process_ != ::getpid()) {
      throw std::runtime_error("the loader was made before fork() by process " +
                               std::to_string(process_) +
                               ", whose threads serve it; make one in this process");
    }
    return *loader_;
  }

  const pid_t process_ = ::getpid();
  std::unique_ptr<Loader> loader_;
};

}  // namespace

void bind_data(py::module_& module) {
  bind_record_values(module);
  py::class_<PythonBatch>(module, "DataBatch")
      .def_property_readonly("index", &PythonBatch::index)
      .def_property_readonly("first", &PythonBatch::first)
      .def_property_readonly("size", &PythonBatch::size)
      .def_property_readonly("epochs", &PythonBatch::epochs)
      .def_property_readonly("sources", &PythonBatch::sources)
      .def_property_readonly("records", &PythonBatch::record_numbers)
      .def_property_readonly("lengths", &PythonBatch::lengths)
      .def("_elements", &PythonBatch::elements)
      .def("_values", &PythonBatch::records);
  py::class_<DataPeers, std::shared_ptr<DataPeers>>(module, "DataPeers")
      .def(py::init([](const std::string& host, const std::string& address,
                       std::function<std::vector<std::string>(const std::string&)> gather) {
        return std::make_shared<DataPeers>(
            DataPeersOptions{.host = host, .address = address, .gather = std::move(gather)});
      }));
  py::class_<PythonLoader>(module, "DataLoader")
      .def(py::init<const std::string&, const std::vector<std::vector<std::string>>&,
                    const std::vector<std::pair<std::string, py::function>>&,
                    std::shared_ptr<DataPeers>>())
      .def("close", &PythonLoader::close)
      .def("next", &PythonLoader::next)
      .def("state", &PythonLoader::state)
      .def("resume", &PythonLoader::resume)
      .def("samples_per_epoch", &PythonLoader::samples_per_epoch)
      .def("fingerprint", &PythonLoader::fingerprint)
      .def("report", &PythonLoader::report)
      .def("note_step", &PythonLoader::note_step)
      .def("describe", &PythonLoader::describe);
}

}  // namespace sprat::pytorch
