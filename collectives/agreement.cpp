#include "collectives/agreement.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/communicator_numbers.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat::collectives {
namespace {

/// A list of members in a length that does not depend on it: a hash, by which lists are compared,
/// and its beginning, which people are shown where two differ.
struct MemberList {
  struct Run {
    std::int32_t first, last;
  };
  static constexpr std::size_t most_runs = 16;  ///< As many as ranks_text() shows.

  std::uint64_t hash, count, runs;
  std::array<Run, most_runs> run;
};

MemberList summary_of(const std::vector<int>& members) {
  MemberList list{.hash = XXH3_64bits(members.data(), members.size() * sizeof members[0]),
                  .count = members.size(),
                  .runs = 0,
                  .run = {}};
  for (std::size_t at = 0; at < members.size(); ++at) {
    if (list.runs > 0 && members[at] == list.run[list.runs - 1].last + 1) {
      ++list.run[list.runs - 1].last;
    } else if (list.runs < MemberList::most_runs) {
      list.run[list.runs++] = {members[at], members[at]};
    } else {
      break;
    }
  }
  return list;
}

/// Of another process: a run is as long as a job can have ranks, at most.
std::string members_text(const MemberList& list) {
  constexpr int most_ranks = 1 << 20;
  std::vector<int> shown;
  for (std::size_t at = 0; at < std::min<std::size_t>(list.runs, MemberList::most_runs); ++at) {
    const auto [first, last] = list.run[at];
    for (int rank = first; rank >= 0 && rank <= last && rank < most_ranks; ++rank) {
      shown.push_back(rank);
    }
  }
  return comm::ranks_text(shown) +
         (list.count > shown.size() ? text(", and ", list.count - shown.size(), " more") : "");
}

/// What members send each other in each round. Its length is the same whatever the members are, for
/// each of them has one of every other.
struct Proposal {
  std::uint64_t id;             ///< The smallest number that is free here.
  std::uint64_t control_block;  ///< Offset of the sender's.
  std::uint64_t accepts;        ///< Not 0: the number agreed on in the round before is free here.
  MemberList members;           ///< As the sender has them.
};

class FoundingAgreement final {
 public:
  FoundingAgreement(comm::Context& context, PointToPoint& parent, const Founding& founding)
      : context_(context),
        parent_(parent),
        founding_(founding),
        mine_(summary_of(founding.members)) {}

  /// Each round proposes numbers and takes the largest, if it is still free on every member.
  Agreement run() {
    Agreement agreement;
    bool accepted = false;
    while (!accepted) {
      const std::vector<Proposal> proposals =
          exchange({free_number(context_), founding_.control_block, 0, mine_});
      agreement.id = std::ranges::max(proposals, {}, &Proposal::id).id;
      agreement.control_blocks.clear();
      for (const Proposal& proposal : proposals) {
        agreement.control_blocks.push_back(proposal.control_block);
      }
      // Threads of a member may be forming other communicators, so the largest number may be taken
      // there by now. The second exchange asks whether it was free everywhere.
      const std::uint64_t accepts = reserve_number(context_, agreement.id) ? 1 : 0;
      const auto answers = ask_all({agreement.id, founding_.control_block, accepts, mine_});
      accepted = std::ranges::all_of(answers, [](const Proposal& one) { return one.accepts != 0; });
    }
    return agreement;
  }

 private:
  std::vector<Proposal> ask_all(const Proposal& proposal) {
    try {
      return exchange(proposal);
    } catch (const Error& error) {
      if (founding_.given_up) {
        founding_.given_up(proposal.id, error);
      }
      throw;
    }
  }

  std::vector<Proposal> exchange(Proposal proposal) {
    const auto size = founding_.members.size();
    std::vector<Proposal> proposals(size, proposal);
    std::vector<std::shared_ptr<Message>> messages;
    for (std::size_t member = 0; member < size; ++member) {
      if (static_cast<int>(member) == founding_.me) {
        continue;
      }
      messages.push_back(post(member, false, proposals[member]));
      messages.push_back(post(member, true, proposal));
    }
    wait_for(messages);
    for (std::size_t member = 0; member < size; ++member) {
      const MemberList& theirs = proposals[member].members;
      if (theirs.hash != mine_.hash || theirs.count != mine_.count) {
        differ(theirs, static_cast<int>(member));
      }
    }
    return proposals;
  }

  /// Waits for all of them even if one fails, for their buffers go away when this returns.
  static void wait_for(const std::vector<std::shared_ptr<Message>>& messages) {
    std::optional<Error> first;
    for (const auto& message : messages) {
      try {
        message->wait();
      } catch (const Error& error) {
        if (!first) {
          first = error;
        }
      }
    }
    if (first) {
      throw *first;
    }
  }

  std::shared_ptr<Message> post(std::size_t member, bool sends, Proposal& data) {
    auto message = std::make_shared<Message>(context_.shared_from_this());
    message->sends = sends;
    message->peer = founding_.members[member];
    // Groups that are formed at the same time are told apart by their names.
    message->tag = static_cast<int>(XXH3_64bits(founding_.name.data(), founding_.name.size()));
    message->purpose = text("creating group \"", founding_.name, "\"");
    message->data = reinterpret_cast<std::byte*>(&data);
    message->bytes = sizeof data;
    message->timeout = founding_.timeout;
    parent_.post(message);
    return message;
  }

  [[noreturn]] void differ(const MemberList& theirs, int member) {
    const int world = parent_.world_rank(founding_.members[member]);
    const Error error(
        ErrorCode::mismatch,
        text("group \"", founding_.name, "\": ", context_.describe_peer(world), " calls it with ",
             members_text(theirs), ", ", context_.describe_peer(context_.rank()), " with ",
             comm::ranks_text(founding_.members), "; members, and their order, must be the same"),
        world);
    context_.fail(parent_.scope(), error);
    throw error;
  }

  comm::Context& context_;
  PointToPoint& parent_;
  const Founding& founding_;
  const MemberList mine_;
};

}  // namespace

Agreement agree(comm::Context& context, PointToPoint& parent, const Founding& founding) {
  return FoundingAgreement(context, parent, founding).run();
}

}  // namespace sprat::collectives
