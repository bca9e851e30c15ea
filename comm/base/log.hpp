// Logging with one prefix, `[sprat 3/8 host7]`. Nothing is logged per message.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace sprat {

/// The library's logger, to standard error. Any thread.
spdlog::logger& log();
/// Sets the level ("trace" … "off") and, once joined, who speaks.
void configure_log(std::string_view level);
void name_log(int rank, int size, std::string_view host);

}  // namespace sprat
