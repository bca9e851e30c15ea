// What the sections of a configuration share: refusals, and the readers that have their own files.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "sprat/error.hpp"
#include "train/config/config.hpp"
#include "train/config/json_section.hpp"

namespace sprat::train {

template <class... Args>
void check(bool holds, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) {
    throw Error(ErrorCode::invalid_argument, fmt::format(message, std::forward<Args>(args)...));
  }
}

inline void check_at_least(const char* key, int value, int least) {
  check(value >= least, "{} is {}; it is at least {}", key, value, least);
}

inline void check_at_most(const char* key, int value, int most) {
  check(value <= most, "{} is {}; it is at most {}", key, value, most);
}

/// The section train.precision.
void read_precision(JsonSection& train, FsdpOptions& sharding);
/// The section parallel, by our names and SMP's; also train.clip_norm where SMP's name gives it.
void read_parallel(const nlohmann::json& root, FsdpOptions& sharding);

}  // namespace sprat::train
