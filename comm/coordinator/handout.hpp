// What an exchange gave travels once to each host: what all ranks say grows with the job, and so it
// is the one thing that the coordinator should not say to every rank.
//
// The lowest rank of a host is its leader. It puts what it got into memory, and says where; the
// coordinator passes that on to the others of the host. Nothing rests on the leader: whoever cannot
// read there, and everyone whose leader leaves, dies or is slow, gets the whole frame. All that is
// short goes to each rank on its own connection, so a leader's end is no more than that of any
// rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "comm/coordinator/control_frame.hpp"

namespace sprat::comm {

/// Of one job. A value; knows no clock but the times it is given. What functions return is to be
/// said, in that order.
class Handout {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Fewer bytes go to every rank, which takes one step less.
  static constexpr std::size_t least_bytes = std::size_t{64} << 10;
  /// A leader that has not shared by then is stopped, or starved. Shorter than the time that ranks
  /// wait beyond their deadline for the coordinator to answer.
  static constexpr std::chrono::milliseconds patience{1'000};
  /// Those who need the whole frame after all get it together: packing it takes longer than sending
  /// it, and where one cannot read another's memory, thousands cannot.
  static constexpr std::chrono::milliseconds lull{10};

  /// Of a job of so many ranks.
  explicit Handout(int ranks)
      : hosts_(static_cast<std::size_t>(ranks)), unable_(static_cast<std::size_t>(ranks)) {}
  /// As Part's host.
  void shares_on(int rank, std::uint64_t host) { hosts_[static_cast<std::size_t>(rank)] = host; }

  /// `parts`, which were made of so many bytes, are for the ranks `to`, ascending.
  std::vector<FrameTo> give(Parts parts, std::vector<int> to, std::size_t bytes, Time now);
  std::vector<FrameTo> placed(int rank, const PartsPlace& place, Time now);
  std::vector<FrameTo> taken(int rank, const PartsTaken& taken, Time now);
  /// The rank has left, or is dead.
  std::vector<FrameTo> gone(int rank);
  std::vector<FrameTo> tick(Time now);
  /// The coordinator ends, and hears nobody any more: those who have not said that they have the
  /// parts get them now. Whoever has them drops what comes again.
  std::vector<FrameTo> rest();
  /// When tick() has something to do next. Cost: no look at the hosts.
  std::optional<Time> deadline() const;

 private:
  /// Those of a host, some of which have not said that they have the parts.
  struct Group {
    int leader = 0;
    std::vector<int> followers = {};  ///< Who has not. Ascending.
    bool told = false;                ///< Where the parts are.
  };
  using Groups = std::map<std::uint64_t, Group>;  ///< By host.

  std::vector<int> form_groups(const std::vector<int>& ranks);
  void give_directly(const std::vector<int>& ranks, Time when);
  void give_directly(Groups::iterator untold, Time when);
  std::vector<FrameTo> strike_out(Groups::iterator group, int follower);
  void forget_if_done();
  Groups::iterator group_of(int rank) {
    return groups_.find(hosts_[static_cast<std::size_t>(rank)]);
  }

  std::vector<std::uint64_t> hosts_;  ///< By rank.
  std::vector<bool> unable_;          ///< By rank: could not read what another one shared.
  Groups groups_;
  std::size_t untold_ = 0;  ///< Groups.
  Time told_by_ = {};       ///< All of them.
  std::vector<int> directly_;
  Time directly_at_ = {};
  Parts parts_;  ///< As long as there are groups, or who gets them directly.
};

}  // namespace sprat::comm
