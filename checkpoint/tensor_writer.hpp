// Writes a plan's tensors, and finds a place for what is written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "io/checked_file.hpp"
#include "io/formats/safetensors.hpp"

namespace sprat::fsdp {

/// The tensors of a file in f32, one after another.
std::vector<io::SafeTensor> described(const CopyPlan& plan);
/// A file of `header` and the plan's tensors behind it. Memory: one tensor, if it is transposed.
io::FileRecord write_tensors(const std::string& path, const std::string& header,
                             const Contents& contents, const CopyPlan& plan);
/// CheckpointFormat::write of the forms that are one safetensors file: model.safetensors in a
/// folder, or in what ends with /.
void write_one_file(Manifest from, const CopyPlan& plan, const std::string& to);

/// Throws Error{invalid_argument} if a file at `path` would spoil a checkpoint, or take the place
/// of what is no file, such as a device.
void check_place(const std::string& path);
/// A name beside `path` that nobody else uses.
std::string unfinished_name(const std::string& path);
std::string parent_of(const std::string& path);

/// Calls `visit` with the values of a tensor, piece by piece.
template <class Visit>
void each_piece(TensorReader& reader, const StoredTensor& tensor, Visit visit) {
  constexpr std::uint64_t piece_elements = std::uint64_t{1} << 20;
  std::vector<float> piece;
  for (std::uint64_t first = 0; first < tensor.elements(); first += piece.size()) {
    piece.resize(std::min(piece_elements, tensor.elements() - first));
    reader.read(tensor, first, piece);
    visit(std::span<const float>(piece));
  }
}

}  // namespace sprat::fsdp
