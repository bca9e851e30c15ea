// Who is left of a communicator that has failed, and how they agree on the one that follows it.
//
// Rounds come in pairs. In the first, members say where their control blocks lie and which number
// is free, and the largest is taken; in the second, whether it still was free when they took it.
// The coordinator decides who came to a round, so all know the same. If somebody has gone between
// the two, or a thread of a member has taken the number, there is another pair, of those who are
// left.
#include "collectives/remainder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/communicator_numbers.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_ranges.hpp"

namespace sprat::collectives {
namespace {

using comm::Blob;
using std::chrono::milliseconds;

// Who has come to the first round is in the midst of this: it comes to the next ones at once,
// unless it dies, which is heard of, or is stopped.
constexpr milliseconds next_patience{5'000};

/// What members tell each other in a round.
struct Ballot {
  std::uint64_t id;             ///< The smallest number that is free here.
  std::uint64_t control_block;  ///< Offset of the sender's.
  std::uint64_t accepts;        ///< Not 0: the number of the round before is its own now.
};

Blob encode(const Ballot& ballot) {
  Blob blob(sizeof ballot);
  std::memcpy(blob.data(), &ballot, sizeof ballot);
  return blob;
}

class Shrinking final {
 public:
  Shrinking(comm::Context& context, const Membership& membership, const Leaving& leaving)
      : context_(context),
        membership_(membership),
        leaving_(leaving),
        patience_(std::max(leaving.patience, milliseconds(0))),
        round_(leaving.attempt << 32),
        left_(membership.world_ranks) {
    std::ranges::sort(left_);
  }

  Remainder run() {
    for (;;) {
      const Ballots proposals = vote({free_number(context_), leaving_.control_block, 0});
      const std::uint64_t id = std::ranges::max(proposals.ballots, {}, &Ballot::id).id;
      const Ballots answers =
          vote({id, leaving_.control_block, reserve_number(context_, id) ? 1u : 0u});
      const bool accepted = std::ranges::all_of(
          answers.ballots, [](const Ballot& ballot) { return ballot.accepts != 0; });
      if (accepted && answers.ranks == proposals.ranks) {
        return in_order(id, answers);
      }
    }
  }

 private:
  struct Ballots {
    std::vector<int> ranks;  ///< World ranks, ascending.
    std::vector<Ballot> ballots;
  };

  /// Of those who are left after it.
  Ballots vote(const Ballot& mine) {
    const comm::GatherResult result =
        context_.gather(membership_.id, round_++,
                        {.patience_ms = static_cast<std::uint64_t>(patience_.count()),
                         .members = comm::encode_ranks(left_),
                         .blob = encode(mine)});
    Ballots ballots{result.ranks, {}};
    for (const Blob& blob : result.blobs) {
      need(blob.size() == sizeof(Ballot), "shrinking ", membership_.name, ": a rank sent ",
           blob.size(), " bytes; every rank must run the same version of Sprat");
      std::memcpy(&ballots.ballots.emplace_back(), blob.data(), sizeof(Ballot));
    }
    if (std::ranges::count(ballots.ranks, context_.rank()) == 0) {
      throw Error(ErrorCode::lost_peer,
                  text("shrinking ", membership_.name, ": the others went on without rank ",
                       context_.rank(), ", which came too late"),
                  context_.rank());
    }
    left_ = ballots.ranks;
    patience_ = next_patience;
    return ballots;
  }

  Remainder in_order(std::uint64_t id, const Ballots& ballots) const {
    Remainder remainder;
    remainder.id = id;
    for (std::size_t member = 0; member < membership_.world_ranks.size(); ++member) {
      const auto found = std::ranges::find(ballots.ranks, membership_.world_ranks[member]);
      if (found != ballots.ranks.end()) {
        const auto index = static_cast<std::size_t>(found - ballots.ranks.begin());
        remainder.members.push_back(static_cast<int>(member));
        remainder.control_blocks.push_back(ballots.ballots[index].control_block);
      }
    }
    return remainder;
  }

  comm::Context& context_;
  const Membership& membership_;
  const Leaving& leaving_;
  milliseconds patience_;  ///< Of the next round.
  std::uint64_t round_;
  std::vector<int> left_;  ///< World ranks, ascending.
};

}  // namespace

Remainder agree_on_remainder(comm::Context& context, const Membership& membership,
                             const Leaving& leaving) {
  return Shrinking(context, membership, leaving).run();
}

}  // namespace sprat::collectives
