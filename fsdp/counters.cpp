#include "fsdp/counters.hpp"

#include <cmath>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// Optimizers take their powers step by step: a number without a limit would take for ever.
constexpr double limit = 0x1p32;

}  // namespace

std::int64_t step_counter(const std::map<std::string, double>& counters, const std::string& name) {
  const auto found = counters.find(name);
  require(found != counters.end(), "the counter \"", name, "\" is missing");
  const double value = found->second;
  require(value >= 0 && value < limit && value == std::floor(value), "the counter \"", name,
          "\" is ", value, "; it is a whole number from 0 to below 2^32");
  return static_cast<std::int64_t>(value);
}

}  // namespace sprat::fsdp
