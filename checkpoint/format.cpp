// The table of formats: every file of checkpoint/formats/.
#include "checkpoint/format.hpp"

#include <algorithm>
#include <array>

// One entry a file; a test compares the list with the folder.
#define SPRAT_CHECKPOINT_FORMATS(entry) entry(sprat) entry(single) entry(hf_gpt2)

namespace sprat::fsdp {

#define SPRAT_DECLARE(file) extern const CheckpointFormat file##_format;
SPRAT_CHECKPOINT_FORMATS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const CheckpointFormat* const> all_checkpoint_formats() noexcept {
#define SPRAT_ADDRESS(file) &file##_format,
  static constexpr std::array formats = {SPRAT_CHECKPOINT_FORMATS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return formats;
}

const CheckpointFormat& format_of(CheckpointForm form) noexcept {
  return **std::ranges::find(all_checkpoint_formats(), form, &CheckpointFormat::form);
}

}  // namespace sprat::fsdp
