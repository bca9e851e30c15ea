#include "plugins/torch/native/record_values.hpp"

#include <pybind11/stl.h>
#include <torch/extension.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "sprat/error.hpp"

namespace py = pybind11;

namespace sprat::pytorch {
namespace {

struct TypeName {
  std::string_view name;
  at::ScalarType type;
};

constexpr std::array type_names = {
    TypeName{"i8", at::kChar},
    TypeName{"u8", at::kByte},
    TypeName{"i16", at::kShort},
    TypeName{"u16", at::kUInt16},
    TypeName{"i32", at::kInt},
    TypeName{"u32", at::kUInt32},
    TypeName{"i64", at::kLong},
    TypeName{"u64", at::kUInt64},
    TypeName{"f16", at::kHalf},
    TypeName{"bf16", at::kBFloat16},
    TypeName{"f32", at::kFloat},
    TypeName{"f64", at::kDouble},
    TypeName{"f8e4m3", at::kFloat8_e4m3fn},
    TypeName{"f8e5m2", at::kFloat8_e5m2},
    TypeName{"boolean", at::kBool},
};

/// Keeps a batch for as long as Python has some of its memory. A child of fork() frees nothing: a
/// thread that it has not may have held the loader's lock.
class KeptBatch final {
 public:
  explicit KeptBatch(const DataBatch& batch) : batch_(std::make_unique<DataBatch>(batch)) {}
  KeptBatch(KeptBatch&&) noexcept = default;
  ~KeptBatch() {
    if (process_ != ::getpid()) {
      static_cast<void>(batch_.release());
    }
  }

 private:
  pid_t process_ = ::getpid();
  std::unique_ptr<DataBatch> batch_;
};

/// What a memoryview is made on.
struct RecordBytes {
  RecordBytes(const DataBatch& of, std::span<const std::byte> its) : batch(of), bytes(its) {}
  KeptBatch batch;
  std::span<const std::byte> bytes;
};

/// The same while a function of Python's looks at a record, whose memory ends with the call.
struct StageBytes {
  std::span<const std::byte> bytes;
};

py::str text_of(std::span<const std::byte> bytes) {
  return str_of(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

py::object json_of(const DataField& field) {
  return py::module_::import("json").attr("loads")(text_of(field.bytes));
}

std::vector<std::int64_t> sizes_of(const DataField& field, at::ScalarType type) {
  if (field.shape.empty() && field.bytes.size() != c10::elementSize(type)) {
    return {static_cast<std::int64_t>(field.bytes.size() / c10::elementSize(type))};
  }
  return {field.shape.begin(), field.shape.end()};
}

at::Tensor tensor_copy(std::span<const std::byte> bytes, at::IntArrayRef sizes,
                       at::ScalarType type) {
  at::Tensor copy = at::empty(sizes, at::TensorOptions().dtype(type));
  TORCH_CHECK(copy.nbytes() == bytes.size(), "a field's shape wants ", copy.nbytes(),
              " bytes, it has ", bytes.size());
  std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
  return copy;
}

/// The values of one record, while a function of Python's looks at them. Views end with it.
class RecordValues final {
 public:
  explicit RecordValues(const DecodedRecord& record) {
    for (std::size_t index = 0; index < record.fields(); ++index) {
      const DataField field = record.field(index);
      py::str name = str_of(field.name);
      given_.emplace_back(name, value(field));
      values_[name] = given_.back().second;
    }
  }

  const py::dict& values() const { return values_; }
  /// Whether it is what the record has of that name.
  bool is_as_given(const py::handle& name, const py::handle& value) const {
    for (const auto& [its_name, its_value] : given_) {
      if (its_name.equal(name)) {
        return its_value.is(value);
      }
    }
    return false;
  }
  const std::vector<std::pair<py::str, py::object>>& given() const { return given_; }

  ~RecordValues() { static_cast<void>(end()); }
  RecordValues(const RecordValues&) = delete;
  RecordValues& operator=(const RecordValues&) = delete;

  /// The record's memory may be gone after this. False if a view of it is still used.
  bool end() noexcept {
    values_.clear();
    given_.clear();
    bool all_released = true;
    for (const auto& [bytes, view] : std::exchange(views_, {})) {
      // A view that was released raises ValueError to all who look at it; one that was made of it
      // has the bytes themselves, and so another reference to them.
      PyObject* const none = PyObject_CallMethod(view.ptr(), "release", nullptr);
      all_released = all_released && none != nullptr && Py_REFCNT(bytes.ptr()) == 1;
      Py_XDECREF(none);
      PyErr_Clear();
    }
    return all_released;
  }

 private:
  py::object value(const DataField& field) {
    if (field.type == "text") {
      return text_of(field.bytes);
    }
    if (field.type == "json") {
      return json_of(field);
    }
    if (field.type == "bytes") {
      // Released in end(), so the memory may be the record's own.
      py::object bytes = py::cast(std::make_unique<StageBytes>(field.bytes));
      py::object view = py::memoryview(bytes);
      views_.push_back({std::move(bytes), view});
      return view;
    }
    const at::ScalarType type = scalar_type(field.type);
    return py::cast(tensor_copy(field.bytes, sizes_of(field, type), type));
  }

  py::dict values_;
  std::vector<std::pair<py::str, py::object>> given_;
  struct View {
    py::object bytes, view;
  };
  std::vector<View> views_;
};

/// A value that goes back into a record.
struct NewField {
  std::string name;
  std::string type = "bytes";
  std::vector<std::uint64_t> shape = {};
  std::vector<std::byte> bytes = {};
};

std::vector<std::byte> bytes_from(const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + size};
}

NewField tensor_field(std::string name, at::Tensor tensor) {
  tensor = tensor.detach().to(at::kCPU).contiguous();
  for (const TypeName& known : type_names) {
    if (known.type == tensor.scalar_type()) {
      const at::IntArrayRef sizes = tensor.sizes();
      return {.name = std::move(name),
              .type = std::string(known.name),
              .shape = {sizes.begin(), sizes.end()},
              .bytes = bytes_from(tensor.data_ptr(), tensor.nbytes())};
    }
  }
  throw py::value_error("field \"" + name + "\": tensors of " +
                        std::string(c10::toString(tensor.scalar_type())) +
                        " are no fields; convert it to a type that is not complex or quantized");
}

/// What text_of() was given.
std::string bytes_of(const py::handle& text) {
  return py::bytes(text.attr("encode")("utf-8", "surrogateescape")).cast<std::string>();
}

NewField text_field(std::string name, std::string type, const py::object& text) {
  const std::string bytes = bytes_of(text);
  return {.name = std::move(name),
          .type = std::move(type),
          .bytes = bytes_from(bytes.data(), bytes.size())};
}

NewField buffer_field(std::string name, const py::buffer& buffer) {
  const py::buffer_info info = buffer.request();
  // A copy in C's order, whatever the strides are.
  const std::string bytes = py::bytes(py::memoryview(buffer).attr("tobytes")()).cast<std::string>();
  return {.name = std::move(name), .bytes = bytes_from(bytes.data(), bytes.size())};
}

NewField new_field(const py::handle& key, const py::handle& value) {
  if (!py::isinstance<py::str>(key)) {
    throw py::type_error("a field's name is a str, not " + py::repr(key).cast<std::string>());
  }
  std::string name = bytes_of(key);
  if (THPVariable_Check(value.ptr())) {
    return tensor_field(std::move(name), value.cast<at::Tensor>());
  }
  if (py::isinstance<py::str>(value)) {
    return text_field(std::move(name), "text", py::reinterpret_borrow<py::object>(value));
  }
  // An array of numpy's has a shape and a type; from_numpy says what it cannot take.
  if (py::hasattr(value, "__array_interface__")) {
    const py::object numpy = py::module_::import("numpy").attr("ascontiguousarray")(value);
    return tensor_field(std::move(name),
                        py::module_::import("torch").attr("from_numpy")(numpy).cast<at::Tensor>());
  }
  if (PyObject_CheckBuffer(value.ptr()) != 0) {
    return buffer_field(std::move(name), py::reinterpret_borrow<py::buffer>(value));
  }
  return text_field(std::move(name), "json", py::module_::import("json").attr("dumps")(value));
}

/// What a function made of a record.
struct Changes {
  std::vector<NewField> set;
  std::vector<std::string> removed;
};

Changes changes_from(const RecordValues& before, const py::dict& after) {
  Changes changes;
  for (const auto& [name, value] : after) {
    if (!before.is_as_given(name, value)) {
      changes.set.push_back(new_field(name, value));
    }
  }
  for (const auto& [name, value] : before.given()) {
    if (!after.contains(name)) {
      changes.removed.push_back(bytes_of(name));
    }
  }
  return changes;
}

Changes decoded(const py::function& function, const DecodedRecord& record) {
  RecordValues values(record);
  Changes changes;
  {
    const py::object after = function(values.values(), record.sample());
    if (!after.is_none() && !py::isinstance<py::dict>(after)) {
      throw py::type_error("it returned " + py::repr(py::type::of(after)).cast<std::string>() +
                           "; give a dict of fields, or None for the one that it was given");
    }
    changes = changes_from(
        values, after.is_none() ? values.values() : py::reinterpret_borrow<py::dict>(after));
  }
  if (!values.end()) {
    throw py::value_error(
        "it keeps a view of a record's bytes, whose memory ends with the call; "
        "copy what is kept, as by bytes(value)");
  }
  return changes;
}

}  // namespace

py::str str_of(std::string_view bytes) {
  PyObject* const text =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::str>(text);
}

at::ScalarType scalar_type(std::string_view element_type) {
  for (const TypeName& known : type_names) {
    if (known.name == element_type) {
      return known.type;
    }
  }
  throw py::value_error("PyTorch has no tensors of \"" + std::string(element_type) + "\"");
}

at::Tensor tensor_over(const DataBatch& batch, std::span<const std::byte> bytes,
                       at::IntArrayRef sizes, at::ScalarType type) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  // A record's fields may begin anywhere, and PyTorch's kernels read whole elements.
  if (bytes.empty() || address % c10::elementSize(type) != 0) {
    return tensor_copy(bytes, sizes, type);
  }
  auto kept = std::make_shared<KeptBatch>(batch);
  return at::from_blob(
      const_cast<std::byte*>(bytes.data()), sizes, [kept](void*) mutable { kept.reset(); },
      at::TensorOptions().dtype(type));
}

py::object value_in_batch(const DataBatch& batch, const DataField& field) {
  if (field.type == "text") {
    return text_of(field.bytes);
  }
  if (field.type == "json") {
    return json_of(field);
  }
  if (field.type == "bytes") {
    return py::memoryview(py::cast(std::make_unique<RecordBytes>(batch, field.bytes)));
  }
  const at::ScalarType type = scalar_type(field.type);
  const std::vector<std::int64_t> sizes = sizes_of(field, type);
  TORCH_CHECK(c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(type)) ==
                  static_cast<std::int64_t>(field.bytes.size()),
              "field \"", std::string(field.name), "\" has ", field.bytes.size(),
              " bytes, which its shape of ", std::string(field.type), " has not");
  return py::cast(tensor_over(batch, field.bytes, sizes, type));
}

DecodeStage stage_of(const std::string& name, py::function function) {
  // Copies of a stage share the function, whose last reference goes with Python's lock held.
  const std::shared_ptr<py::function> shared(new py::function(std::move(function)),
                                             [](py::function* last) {
                                               const py::gil_scoped_acquire lock;
                                               delete last;
                                             });
  return {name, [name, shared](DecodedRecord& record) {
            Changes changes;
            {
              const py::gil_scoped_acquire lock;
              try {
                changes = decoded(*shared, record);
              } catch (const std::exception& error) {
                // Ended here, since Python's exceptions must not outlive the lock.
                throw Error(ErrorCode::unavailable,
                            "decode stage \"" + name + "\": " + error.what());
              }
            }
            for (NewField& field : changes.set) {
              record.set(field.name, field.type, std::move(field.shape), std::move(field.bytes));
            }
            for (const std::string& removed : changes.removed) {
              record.remove(removed);
            }
          }};
}

/// Its bytes as a read-only buffer of bytes.
template <class Bytes>
void bind_bytes(py::module_& module, const char* name) {
  py::class_<Bytes>(module, name, py::buffer_protocol()).def_buffer([](Bytes& record) {
    return py::buffer_info(const_cast<std::byte*>(record.bytes.data()), 1, "B", 1,
                           {static_cast<py::ssize_t>(record.bytes.size())}, {1},
                           /*readonly=*/true);
  });
}

void bind_record_values(py::module_& module) {
  bind_bytes<RecordBytes>(module, "_RecordBytes");
  bind_bytes<StageBytes>(module, "_StageBytes");
}

}  // namespace sprat::pytorch
