// What a checkpoint holds: tensors, as boxes in files. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/durable.hpp"
#include "sprat/parameters.hpp"

namespace sprat::fsdp {

/// A part of one tensor, row by row in one file.
struct StoredBox {
  std::size_t file = 0;     ///< Index in Contents::files.
  std::uint64_t begin = 0;  ///< Where its bytes begin in the file.
  Box box;
  bool operator==(const StoredBox&) const = default;
};

struct StoredTensor {
  std::string name;
  std::string dtype = "F32";  ///< As safetensors names it.
  std::vector<std::int64_t> shape;
  std::vector<StoredBox> boxes;  ///< Ascending by offset; together every element once.
  bool operator==(const StoredTensor&) const = default;

  std::uint64_t rows() const;          ///< Indices of the first dimension; 1 without dimensions.
  std::uint64_t row_elements() const;  ///< Of one row.
  std::uint64_t elements() const { return rows() * row_elements(); }
};

struct StoredFile {
  std::string name;
  io::FileRecord record;  ///< Without checksums if nobody wrote them down.
  bool operator==(const StoredFile&) const = default;
};

struct Contents {
  std::string folder;  ///< Where the files are.
  std::vector<StoredTensor> tensors;
  std::vector<StoredFile> files;
  /// Null if there is none of the name.
  const StoredTensor* find(const std::string& name) const;
};

/// Whether the box is whole along all dimensions but the first.
bool has_whole_rows(const Box& box, const std::vector<std::int64_t>& shape);

/// Puts a tensor's boxes in their order.
void sort_boxes(StoredTensor& tensor);

/// Throws Error{unavailable} naming `where` and the tensor whose boxes overlap, leave elements out,
/// lie in no file or reach beyond its end.
void check_contents(const std::string& where, const Contents& contents);

/// The names of optimizer state and of parameters (state "") in a checkpoint.
std::string stored_name(const std::string& state, const std::string& parameter);

}  // namespace sprat::fsdp
