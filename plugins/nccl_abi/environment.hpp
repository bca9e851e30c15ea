// What can be set for the drop-in from outside: docs/nccl.md has a line for each.
#pragma once

#include <optional>
#include <string_view>

namespace sprat::nccl {

/// "2.28.9" as NCCL writes it in an int, 22809; nothing if it is no version that the list of
/// functions is complete for.
std::optional<int> version_code(std::string_view text);
/// SPRAT_NCCL_VERSION, or 2.28.9. Throws Error{invalid_argument} for one that is not known.
int answered_version();

}  // namespace sprat::nccl
