// The table of formats: every file of checkpoint/formats/.
#include "checkpoint/format.hpp"

#include <array>
#include <cstddef>

namespace sprat::fsdp {

// One entry a file; a test compares the list with the folder.
#define SPRAT_CHECKPOINT_FORM(file) extern const CheckpointFormat file##_format;
#include "sprat/checkpoint_forms.def"

std::span<const CheckpointFormat* const> all_checkpoint_formats() noexcept {
  static constexpr std::array formats = {
#define SPRAT_CHECKPOINT_FORM(file) &file##_format,
#include "sprat/checkpoint_forms.def"
  };
  return formats;
}

// The same list makes the enumeration, so a form is its row's place.
const CheckpointFormat& format_of(CheckpointForm form) noexcept {
  return *all_checkpoint_formats()[static_cast<std::size_t>(form)];
}

}  // namespace sprat::fsdp
