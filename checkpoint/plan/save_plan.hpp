// Who writes which box into which file. Pure: the same on every rank.
//
// A rank holds a part of a unit's flat buffer, which may begin and end inside a row of a parameter,
// or of the box that its model has of one. Files hold whole rows of these, since a box is all that
// other readers know: the rank that holds a row's first element writes the row, and the ranks after
// it send it the rest. Unit u is written by copy u % copies, so that copies share the work. What is
// tied is written by who has what it is tied to.
// Cost: at most one row for each tensor and part is sent, once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/plan/contents.hpp"
#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// Elements of a part, which the rank that holds it gives.
struct PartRange {
  int rank = 0;
  std::size_t unit = 0, state = 0;
  std::size_t offset = 0, count = 0;  ///< Within the part.
};

/// A part of one tensor. Its ranges follow each other; the first is the writer's own.
struct SavedBox {
  std::string name;                 ///< As stored_name() makes it.
  std::vector<std::int64_t> shape;  ///< Of the whole tensor.
  Box box;
  std::vector<PartRange> ranges;
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(element_count(box)) * sizeof(float);
  }
};

struct SavedFile {
  int writer = 0;
  std::string name;
  std::vector<SavedBox> boxes;
};

/// Files in the order of their writers, parameters before optimizer state; none is empty, and none
/// has two boxes of a name: a writer that has several parts of a tensor has more files. Only
/// what is the same on every rank is read from `held`. Throws as check_names() does.
std::vector<SavedFile> plan_save(const ModelState& held);

/// The boxes that `rank` writes or gives elements to, in their files; the rest grows with the job.
std::vector<SavedFile> part_of(std::vector<SavedFile> plan, int rank);

/// The bytes of a file before its data: as torch.distributed.checkpoint's
/// HuggingFaceStorageReader reads them.
std::string header_of(const SavedFile& file);

/// What the files will hold; records are those of `headers` and data, without checksums.
Contents contents_of(const std::vector<SavedFile>& files);

}  // namespace sprat::fsdp
