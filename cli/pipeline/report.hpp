// What is said of a schedule that was played, for people and for machines.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mp/simulate.hpp"

namespace sprat::cli {

/// The activations of one micro-batch on all stages of a rank, where nobody said how long they are:
/// reports show parts of it.
constexpr std::uint64_t nominal_bytes = 1 << 30;

struct PlayedSchedule {
  mp::Schedule schedule;
  mp::Timeline made;
  bool messages = false;  ///< It has sends and receives.
  /// Of its messages, how many must have room on their way; none: however many there is room for,
  /// ranks wait for each other for ever.
  std::optional<int> message_capacity;
  std::uint64_t microbatch_bytes = 0;  ///< 0: nominal_bytes.
};

/// How many stages each rank has.
std::vector<int> stages_by_rank(const mp::Schedule& schedule);

/// The drawing, then a table of the ranks.
std::string page_of(const PlayedSchedule& played);
nlohmann::ordered_json json_of(const PlayedSchedule& played);

/// A table of schedules, one a line.
std::string comparison_heading();
/// With the bubble where each send waits for its receive.
std::string comparison_line(const PlayedSchedule& played, double blocking_bubble);

}  // namespace sprat::cli
