// Who called what: the coordinator's question to all ranks about one operation, and its verdict.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
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

  /// `members`, ascending, are the ranks that are asked; empty: all of a job of `size`. Rank
  /// numbers below are of the job.
  Inquiry(std::uint64_t comm, std::uint64_t sequence, std::vector<int> members, int size);

  /// A rank waits in the operation. Returns the ranks to be queried now; `gone` ranks cannot
  /// answer.
  std::vector<int> asked(int rank, Blob signature, const std::vector<bool>& gone, Time now);
  /// The last verdict, if it answers `rank` still.
  bool still_answers(int rank, const Blob& signature, Time now) const;
  void answered(int rank, int code, Blob signature);
  /// It cannot answer any more.
  void has_gone(int rank);
  /// True once a verdict is due: all that can answer have, or patience is over. Cost: none, however
  /// many ranks there are, for it is asked with every answer.
  bool due(Time now) const;
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
    bool heard = false;    ///< Since this inquiry opened. What was called does not change.
    bool awaited = false;  ///< It was there when the inquiry opened, and has not gone since.
    std::size_t call = 0;  ///< If it has called: which of calls_.
  };
  /// What some ranks have called, all the same.
  struct Called {
    Blob signature;
    std::size_t ranks = 0;
    int lowest = 0;
  };
  /// How many are awaited and have not been heard, or have never said a thing.
  struct Due {
    int unheard = 0, unknown = 0;
  };
  RankAnswer* answer_of(int rank);
  std::size_t place_of(int rank) const;
  std::size_t call_of(int rank, Blob signature);
  void hear(RankAnswer& answer, State state);
  bool find_mismatch();
  bool find_freed();
  void list_late();

  std::vector<int> members_;
  std::vector<RankAnswer> answers_;  ///< By member.
  std::vector<Called> calls_;
  std::map<std::string, std::size_t> call_by_signature_;  ///< In calls_.
  std::vector<int> askers_;
  bool open_ = false;
  Due due_;
  Time opened_{}, settled_{};
  ControlMessage verdict_;
};

}  // namespace sprat::comm
