// Who called what: the coordinator's question to all ranks about one operation, and its verdict.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/coordinator/rendezvous.hpp"

namespace sprat::comm {

/// About (comm, sequence). A value; knows no clock but the times it is given.
class Inquiry {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Ranks that do not answer within this count as not having called.
  static constexpr std::chrono::milliseconds patience{500};
  /// A rank that asks again within this gets the last verdict again.
  static constexpr std::chrono::milliseconds validity{200};

  Inquiry(std::uint64_t comm, std::uint64_t sequence, int size);

  /// A rank waits in the operation. Returns the ranks to be queried now; `gone` ranks cannot
  /// answer.
  std::vector<int> asked(int rank, Blob signature, const std::vector<bool>& gone, Time now);
  /// The last verdict, if it answers `rank` still.
  bool still_answers(int rank, const Blob& signature, Time now) const;
  void answered(int rank, int code, Blob signature);
  /// True once a verdict is due: all that can answer have, or patience is over.
  bool due(const std::vector<bool>& gone, Time now) const;
  bool open() const { return open_; }
  Time deadline() const { return opened_ + patience; }
  /// Closes the inquiry. For all ranks if mismatch(), else for askers().
  const ControlMessage& settle(Time now);
  const ControlMessage& verdict() const { return verdict_; }
  bool mismatch() const;
  const std::vector<int>& askers() const { return askers_; }

 private:
  enum class State : std::uint8_t { unknown, called, not_yet, forgotten, not_member, freed };
  struct RankAnswer {
    State state = State::unknown;
    bool heard = false;  ///< Since this inquiry opened. What was called does not change.
    Blob signature;
  };
  bool find_mismatch();
  bool find_freed();
  void list_late();

  std::vector<RankAnswer> answers_;
  std::vector<int> askers_;
  bool open_ = false;
  Time opened_{}, settled_{};
  ControlMessage verdict_;
};

}  // namespace sprat::comm
