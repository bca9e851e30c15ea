// The forms that parameters are written in: a table, one file of formats/ each.
#pragma once

#include <span>
#include <string>

#include "checkpoint/gpt2_names.hpp"

namespace sprat::fsdp {

struct Manifest;

/// A row of the table.
struct CheckpointFormat {
  const char* name;   ///< As `sprat checkpoint convert --form` takes it.
  const char* about;  ///< What is written, for its help.
  /// Writes the tensors of `plan` to `to`, which is not there yet. Of the manifest they come from
  /// are its step and notes, and where they lie.
  void (*write)(Manifest from, const CopyPlan& plan, const std::string& to);
};
/// In the order of CheckpointForm.
std::span<const CheckpointFormat* const> all_checkpoint_formats() noexcept;
const CheckpointFormat& format_of(CheckpointForm form) noexcept;

}  // namespace sprat::fsdp
