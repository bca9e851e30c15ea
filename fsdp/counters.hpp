// Counters that a checkpoint keeps, as somebody else's file may have them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sprat::fsdp {

/// A number of steps. Throws Error{invalid_argument} naming the counter if it is missing, or is not
/// a whole number from 0 to below 2^32.
std::int64_t step_counter(const std::map<std::string, double>& counters, const std::string& name);

}  // namespace sprat::fsdp
