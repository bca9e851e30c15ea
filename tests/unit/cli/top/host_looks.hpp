// Jobs on paper, as `sprat top` would see them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/top/look.hpp"

namespace sprat::cli {

/// A rank of a job of two, that joined at 10 s and was read at `taken`.
inline RankLook rank_look(int rank, double taken, double waited = 0) {
  RankLook look{.pid = 100 + rank, .record = {}};
  look.record.pid = 100 + rank;
  look.record.rank = rank;
  look.record.size = 2;
  look.record.hosts = 1;
  look.record.host = "host7";
  look.record.job = "100-aa";
  look.record.started = 10;
  look.record.taken = taken;
  look.record.unix_offset = 1000;
  look.record.waited = waited;
  return look;
}

/// The rank's part in "world": it has called `posted`, of which the last one is in flight since
/// `since`, or has ended if that is 0.
inline void show_world(RankLook& look, std::uint64_t posted, double since) {
  const bool runs = since != 0;
  look.record.communicators.push_back({.id = 1,
                                       .name = "world",
                                       .rank = look.record.rank,
                                       .size = 2,
                                       .world_ranks = {0, 1},
                                       .posted = posted,
                                       .ended = posted - (runs ? 1 : 0),
                                       .operations = {},
                                       .messages = {}});
  if (posted > 0) {
    look.record.communicators.back().operations.push_back(
        {.sequence = posted - 1,
         .call = "all_reduce of 4 f32, sum",
         .signature = "",
         .bytes = 16,
         .algorithm = "one_shot",
         .state = runs ? collectives::CallState::running : collectives::CallState::done,
         .posted = runs ? since : 1,
         .started = runs ? since : 1,
         .ended = runs ? 0.0 : 2.0,
         .late = {},
         .waits_for = {}});
  }
}

inline HostLook host_look(std::vector<RankLook> ranks) {
  HostLook look{.taken = 0, .ranks = {}, .processes = {}, .gpus = {}, .unreadable = {}};
  for (const RankLook& one : ranks) {
    look.taken = one.record.taken;
    look.processes[one.pid] = {.command = "./train --lr 1",
                               .user = "",
                               .state = 'R',
                               .cpu_seconds = 0,
                               .resident_bytes = 64 << 20};
  }
  look.ranks = std::move(ranks);
  return look;
}

}  // namespace sprat::cli
