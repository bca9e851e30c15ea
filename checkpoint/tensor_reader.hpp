// Reads tensors of a checkpoint or of safetensors files piece by piece, as f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/plan/contents.hpp"
#include "io/checked_file.hpp"

namespace sprat::fsdp {

/// What lies at a path, and where it says it is in training.
struct Opened {
  std::string path;      ///< Of the checkpoint, or as given.
  Manifest manifest;     ///< With its contents alone if there is no manifest.
  bool checked = false;  ///< There are checksums.
};
/// A checkpoint, the latest one in a folder, a safetensors file, or a folder of them. Throws
/// Error{unavailable} if it is none of these.
Opened open_any(const std::string& path);

/// One thread at a time.
class TensorReader {
 public:
  /// `contents` outlives it.
  explicit TensorReader(const Contents& contents) : contents_(contents) {}
  /// Elements from `first` on, in row-major order. F32, F16 and BF16 can be read; others throw
  /// Error{invalid_argument}.
  void read(const StoredTensor& tensor, std::uint64_t first, std::span<float> into);

 private:
  io::CheckedFile& open(std::size_t file);
  void read_box(const StoredTensor& tensor, std::size_t file, std::uint64_t begin,
                std::span<float> into);

  const Contents& contents_;
  std::map<std::size_t, io::CheckedFile> files_;  // by their numbers
  std::vector<std::uint16_t> narrow_;
};

}  // namespace sprat::fsdp
