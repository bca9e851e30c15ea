// What a checkpoint holds, whole tensors of it, to be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_reader.hpp"

namespace sprat::fsdp {

/// Every element of every tensor, and what is counted.
struct SavedValues {
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, double> counters;
  friend bool operator==(const SavedValues&, const SavedValues&) = default;
};

inline SavedValues saved_values(const std::string& folder) {
  const Opened opened = open_any(folder);
  TensorReader reader(opened.manifest.contents);
  SavedValues result{.tensors = {}, .counters = opened.manifest.counters};
  for (const StoredTensor& tensor : opened.manifest.contents.tensors) {
    result.tensors[tensor.name].resize(tensor.elements());
    reader.read(tensor, 0, result.tensors[tensor.name]);
  }
  return result;
}

}  // namespace sprat::fsdp
