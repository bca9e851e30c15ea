// Fields of records as Python's values, and back.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "sprat/data.hpp"

namespace sprat::pytorch {

/// Of an element type's name, "u16". Throws ValueError.
at::ScalarType scalar_type(std::string_view element_type);

/// Of bytes that may be in no encoding, as names of files: str.encode(errors="surrogateescape")
/// gives them back.
pybind11::str str_of(std::string_view bytes);

/// A tensor whose memory is the batch's until it is gone.
at::Tensor tensor_over(const DataBatch& batch, std::span<const std::byte> bytes,
                       at::IntArrayRef sizes, at::ScalarType type);

/// "bytes" are a memoryview and elements a tensor on the batch's memory; "text" is a str, "json"
/// what it says.
pybind11::object value_in_batch(const DataBatch& batch, const DataField& field);

/// A stage that gives `function` the record's dictionary and sample number, and takes a dictionary
/// for it. Called with Python's lock; what it holds of Python is let go of with the lock too.
DecodeStage stage_of(const std::string& name, pybind11::function function);

/// The class behind memoryviews.
void bind_record_values(pybind11::module_& module);

}  // namespace sprat::pytorch
