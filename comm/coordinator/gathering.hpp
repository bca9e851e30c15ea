// What ranks of one communicator give each other through the coordinator when some of them may be
// gone: everyone gets the same parts, of those who came.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {

/// Payload of ControlMessage::Kind::gather.
struct GatherPart {
  std::uint64_t patience_ms = 0;  ///< Whoever lives and has not come by then is left behind.
  /// Whom the round waits for, as encode_ranks() has them; the same on each of them. Each says it,
  /// since any of them may be the first to come.
  Blob members;
  Blob blob;
  bool operator==(const GatherPart&) const = default;
};
Blob encode(const GatherPart& part);
std::optional<GatherPart> decode_gather_part(const Blob& payload);

/// Payload of ControlMessage::Kind::gathered.
struct GatherResult {
  std::vector<int> ranks;  ///< Who came, ascending.
  std::vector<Blob> blobs;
  bool operator==(const GatherResult&) const = default;
};
Blob encode(const GatherResult& result);
std::optional<GatherResult> decode_gather_result(const Blob& payload);

/// The rounds of a job's communicators. A value; knows no clock but the times it is given.
class Gatherings {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Answer {
    std::vector<int> to;
    ControlMessage message;
  };

  /// A rank of a job of so many gives its part. What makes no sense is dropped.
  void came(int rank, const ControlMessage& message, int size, Time now);
  /// Ranks that have not come to rounds whose time is up are left behind.
  void expire(Time now);
  /// Ends the rounds to which all have come, or are `gone`, or left behind, and answers those who
  /// came; who comes later gets the same answer.
  std::vector<Answer> settle(const std::vector<bool>& gone);
  /// When expire() has something to do next.
  std::optional<Time> deadline() const;

 private:
  struct GatheringRound {
    std::uint64_t communicator, number;
    Blob names;                 ///< Of the members, as the first one said them.
    std::vector<int> members;   ///< Ascending; empty once it is over.
    std::size_t need_not = 0;   ///< So many members, the first ones, have come or have gone.
    std::map<int, Blob> parts;  ///< By rank.
    Time deadline;
    bool expired = false, over = false;
    ControlMessage result;        ///< Once it is over.
    std::vector<int> unanswered;  ///< Came, and have not been answered.
  };
  GatheringRound* find(const ControlMessage& message);
  GatheringRound& begin(GatheringRound round);
  static bool has_ended(GatheringRound& round, const std::vector<bool>& gone);
  static ControlMessage result_of(GatheringRound& round, const std::vector<bool>& gone);

  std::deque<GatheringRound> rounds_;  ///< Oldest first.
};

}  // namespace sprat::comm
