// How the C API's arguments become those of C++.
#include "plugins/c/handles.hpp"

#include <limits>

namespace sprat::c {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

DType dtype_from(sprat_dtype dtype) {
  // C passes any number as an enumeration. A negative one becomes a large one here.
  const auto number = static_cast<std::size_t>(dtype);
  if (number >= all_dtypes().size()) {
    refuse("dtype " + std::to_string(number) + " is none of sprat_dtype");
  }
  return all_dtypes()[number];
}

Communicator& communicator_of(sprat_comm* comm) { return deref(comm, "comm").communicator; }

std::size_t whole_count(Communicator& communicator, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  // A product that wraps would pass all later checks as a small count.
  if (count > std::numeric_limits<std::size_t>::max() / ranks) {
    refuse("count " + std::to_string(count) + " times " + std::to_string(ranks) +
           " ranks is more than memory can hold");
  }
  return ranks * count;
}

Options options_from(const sprat_options* options, bool blocking) {
  Options result{.timeout = {}, .blocking = blocking};
  if (options != nullptr && options->timeout_ms < 0) {
    refuse("timeout_ms is " + std::to_string(options->timeout_ms) + "; it must not be negative");
  }
  if (options != nullptr && options->timeout_ms > 0) {
    result.timeout = std::chrono::milliseconds(options->timeout_ms);
  }
  return result;
}

DType output_dtype(const sprat_options* options, DType input) {
  return options != nullptr && options->f32_output != 0 ? DType::f32 : input;
}

std::span<const std::size_t> counts_from(Communicator& communicator, const std::size_t* counts) {
  return {counts, counts == nullptr ? 0 : static_cast<std::size_t>(communicator.size())};
}

std::size_t total(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (count > std::numeric_limits<std::size_t>::max() - sum) {
      refuse("counts add up to more than memory can hold");
    }
    sum += count;
  }
  return sum;
}

}  // namespace sprat::c
