// Who writes which rows into which file. Pure: the same on every rank.
//
// A rank holds a part of a unit's flat buffer, which may begin and end inside a row. Files hold
// whole rows, since a box of rows is all that other readers know: the rank that holds a row's first
// element writes the row, and the ranks after it send it the rest. Unit u is written by copy
// u % copies, so that copies share the work.
// Cost: at most one row for each tensor and part is sent, once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// Elements of a part, which the rank that holds it gives.
struct PartRange {
  int rank = 0;
  std::size_t unit = 0, state = 0;
  std::size_t offset = 0, count = 0;  ///< Within the part.
};

/// Rows of one tensor. Its ranges follow each other; the first is the writer's own.
struct SavedBox {
  std::string name;                 ///< As stored_name() makes it.
  std::vector<std::int64_t> shape;  ///< Of the whole tensor.
  std::uint64_t first_row = 0, rows = 0, row_elements = 1;
  std::vector<PartRange> ranges;
  std::uint64_t bytes() const { return rows * row_elements * sizeof(float); }
};

struct SavedFile {
  int writer = 0;
  std::string name;
  std::vector<SavedBox> boxes;
};

/// Files in the order of their writers, parameters before optimizer state; none is empty. Only
/// what is the same on every rank is read from `held`. Throws Error{invalid_argument} if two
/// parameters have one name.
std::vector<SavedFile> plan_save(const ModelState& held);

/// The bytes of a file before its data: as torch.distributed.checkpoint's
/// HuggingFaceStorageReader reads them.
std::string header_of(const SavedFile& file);

/// What the files will hold; records are those of `headers` and data, without checksums.
Contents contents_of(const std::vector<SavedFile>& files);

}  // namespace sprat::fsdp
