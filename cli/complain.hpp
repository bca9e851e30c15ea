// What people are told on standard error.
#pragma once

#include <string_view>

namespace sprat::cli {

/// `message`, which may be a list, as one line. Never throws: whoever reads may be gone.
void complain(std::string_view message) noexcept;

}  // namespace sprat::cli
