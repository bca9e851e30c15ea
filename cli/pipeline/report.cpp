#include "cli/pipeline/report.hpp"

#include <fmt/core.h>

#include <cstddef>
#include <vector>

#include "cli/svg.hpp"
#include "cli/tree.hpp"
#include "mp/draw.hpp"

namespace sprat::cli {
namespace {

/// Micro-batches whose activations the rank holds at most; a stage of two is half of one.
double held(const PlayedSchedule& played, std::size_t rank) {
  const std::uint64_t whole =
      played.microbatch_bytes == 0 ? nominal_bytes : played.microbatch_bytes;
  return double(played.made.ranks[rank].peak_activation_bytes) / double(whole);
}

/// Most are 0 or of the order of a step, so "0 µs" would look measured.
std::string seconds_text(double seconds) {
  return seconds == 0 ? "0 s" : readable_seconds(seconds);
}

/// "0,4" for each rank.
std::vector<std::string> stage_lists(const mp::Schedule& schedule) {
  std::vector<std::string> lists(std::size_t(schedule.ranks()));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    std::string& list = lists[std::size_t(schedule.rank_of_stage[std::size_t(stage)])];
    list += fmt::format("{}{}", list.empty() ? "" : ",", stage);
  }
  return lists;
}

std::string validity(const PlayedSchedule& played) {
  if (!played.messages) {
    return "valid";
  }
  if (!played.message_capacity) {
    return "valid, but its ranks wait for each other, whatever room messages have";
  }
  if (*played.message_capacity == 0) {
    return "valid, message capacity 0: sends may wait for their receives";
  }
  return fmt::format("valid, message capacity {}: as many must have room on their way",
                     *played.message_capacity);
}

std::string rank_table(const PlayedSchedule& played) {
  const bool in_bytes = played.microbatch_bytes > 0;
  std::string out = fmt::format("#{:>5} {:>10} {:>10} {:>10} {:>10} {:>7}{}  {}\n", "rank",
                                "computes", "bubble", "exposed", "stalls", "holds",
                                in_bytes ? fmt::format(" {:>10}", "bytes") : "", "stages");
  const std::vector<std::string> stages = stage_lists(played.schedule);
  for (std::size_t rank = 0; rank < played.made.ranks.size(); ++rank) {
    const mp::RankUse& use = played.made.ranks[rank];
    const std::string bytes =
        in_bytes ? fmt::format(" {:>10}", readable_bytes(use.peak_activation_bytes)) : "";
    out += fmt::format("{:>6} {:>10} {:>8.2f} % {:>10} {:>10} {:>7.4g}{}  {}\n", rank,
                       seconds_text(use.busy), 100 * use.bubble,
                       seconds_text(use.exposed_communication), seconds_text(use.load_stall),
                       held(played, rank), bytes, stages[rank]);
  }
  return out;
}

}  // namespace

std::vector<int> stages_by_rank(const mp::Schedule& schedule) {
  std::vector<int> stages(std::size_t(schedule.ranks()));
  for (const int rank : schedule.rank_of_stage) {
    ++stages[std::size_t(rank)];
  }
  return stages;
}

std::string page_of(const PlayedSchedule& played) {
  const auto& [schedule, made, messages, capacity, bytes] = played;
  return fmt::format("# {}: {} ranks, {} stages, {} micro-batches\n", schedule.name,
                     schedule.ranks(), schedule.stages(), schedule.microbatches) +
         draw(schedule, made) +
         fmt::format("\n{}\nmakespan {}, bubble {:.2f} %\n\n", validity(played),
                     readable_seconds(made.makespan), 100 * made.bubble) +
         rank_table(played);
}

nlohmann::ordered_json json_of(const PlayedSchedule& played) {
  const auto& [schedule, made, messages, capacity, bytes] = played;
  nlohmann::ordered_json json = {
      {"schedule", schedule.name},   {"ranks", schedule.ranks()},
      {"stages", schedule.stages()}, {"microbatches", schedule.microbatches},
      {"makespan_s", made.makespan}, {"bubble", made.bubble}};
  if (messages) {
    json["message_capacity"] = capacity ? nlohmann::ordered_json(*capacity) : nullptr;
  }
  json["by_rank"] = nlohmann::ordered_json::array();
  const std::vector<int> stages = stages_by_rank(schedule);
  for (std::size_t rank = 0; rank < made.ranks.size(); ++rank) {
    const mp::RankUse& use = made.ranks[rank];
    json["by_rank"].push_back({{"stages", stages[rank]},
                               {"busy_s", use.busy},
                               {"bubble", use.bubble},
                               {"exposed_communication_s", use.exposed_communication},
                               {"load_stall_s", use.load_stall},
                               {"peak_microbatches", use.peak_microbatches},
                               {"held_microbatches", held(played, rank)}});
    // Bytes that nobody named are of no use to a program.
    if (bytes > 0) {
      json["by_rank"].back()["peak_activation_bytes"] = use.peak_activation_bytes;
    }
  }
  return json;
}

std::string comparison_heading() {
  return fmt::format("#{:>16} {:>9} {:>10} {:>9}  {}\n", "schedule", "bubble", "makespan",
                     "blocking", "micro-batches held, by rank");
}

std::string comparison_line(const PlayedSchedule& played, double blocking_bubble) {
  std::string holds;
  for (std::size_t rank = 0; rank < played.made.ranks.size(); ++rank) {
    holds += fmt::format("{}{:.4g}", rank == 0 ? "" : " ", held(played, rank));
  }
  return fmt::format("{:>17} {:>7.2f} % {:>10} {:>7.2f} %  {}\n", played.schedule.name,
                     100 * played.made.bubble, readable_seconds(played.made.makespan),
                     100 * blocking_bubble, holds);
}

}  // namespace sprat::cli
