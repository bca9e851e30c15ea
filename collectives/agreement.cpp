#include "collectives/agreement.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "collectives/communicator_numbers.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::collectives {
namespace {

/// What members send each other in each round; in the first one the list of members follows.
struct Proposal {
  std::uint64_t id;             ///< The smallest number that is free here.
  std::uint64_t control_block;  ///< Offset of the sender's.
  std::uint64_t accepts;        ///< Not 0: the number agreed on in the round before is free here.
};

class FoundingAgreement final {
 public:
  FoundingAgreement(comm::Context& context, PointToPoint& parent, const Founding& founding)
      : context_(context), parent_(parent), founding_(founding), mine_(encode(founding)) {}

  /// Each round proposes numbers and takes the largest, if it is still free on every member.
  Agreement run() {
    Agreement agreement;
    bool accepted = false;
    for (int round = 0; !accepted; ++round) {
      const std::vector<Proposal> proposals =
          exchange({free_number(context_), founding_.control_block, 0}, round == 0);
      agreement.id = std::ranges::max(proposals, {}, &Proposal::id).id;
      agreement.control_blocks.clear();
      for (const Proposal& proposal : proposals) {
        agreement.control_blocks.push_back(proposal.control_block);
      }
      // Threads of a member may be forming other communicators, so the largest number may be taken
      // there by now. The second exchange asks whether it was free everywhere.
      const std::uint64_t accepts = reserve_number(context_, agreement.id) ? 1 : 0;
      const auto answers = ask_all({agreement.id, founding_.control_block, accepts});
      accepted = std::ranges::all_of(answers, [](const Proposal& one) { return one.accepts != 0; });
    }
    return agreement;
  }

 private:
  static std::vector<std::byte> encode(const Founding& founding) {
    std::vector<std::byte> list(founding.members.size() * sizeof(int));
    std::memcpy(list.data(), founding.members.data(), list.size());
    return list;
  }

  std::vector<Proposal> ask_all(const Proposal& proposal) {
    try {
      return exchange(proposal, false);
    } catch (const Error& error) {
      if (founding_.given_up) {
        founding_.given_up(proposal.id, error);
      }
      throw;
    }
  }

  std::vector<Proposal> exchange(const Proposal& proposal, bool with_members) {
    const auto size = founding_.members.size();
    std::vector<std::byte> out(sizeof proposal);
    std::memcpy(out.data(), &proposal, sizeof proposal);
    if (with_members) {
      out.insert(out.end(), mine_.begin(), mine_.end());
    }
    std::vector<std::vector<std::byte>> in(size);
    std::vector<std::shared_ptr<Message>> messages;
    for (std::size_t member = 0; member < size; ++member) {
      if (static_cast<int>(member) == founding_.me) {
        continue;
      }
      // A member may have called with another list, which is read in full to say the difference.
      in[member].resize(with_members ? std::max(longest, out.size()) : out.size());
      messages.push_back(post(member, false, in[member]));
      messages.push_back(post(member, true, out));
    }
    wait_for(messages);
    std::vector<Proposal> proposals(size, proposal);
    for (std::size_t index = 0; index < messages.size(); index += 2) {
      const auto member = static_cast<std::size_t>(
          std::ranges::find(founding_.members, messages[index]->peer) - founding_.members.begin());
      in[member].resize(messages[index]->request.bytes);
      proposals[member] = read(in[member], static_cast<int>(member), with_members);
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

  std::shared_ptr<Message> post(std::size_t member, bool sends, std::vector<std::byte>& data) {
    auto message = std::make_shared<Message>(context_.shared_from_this());
    message->sends = sends;
    message->peer = founding_.members[member];
    // Groups that are formed at the same time are told apart by their names.
    message->tag = static_cast<int>(XXH3_64bits(founding_.name.data(), founding_.name.size()));
    message->purpose = text("creating group \"", founding_.name, "\"");
    message->data = data.data();
    message->bytes = data.size();
    message->timeout = founding_.timeout;
    parent_.post(message);
    return message;
  }

  Proposal read(const std::vector<std::byte>& data, int member, bool with_members) {
    Proposal proposal{};
    const std::size_t due = sizeof proposal + (with_members ? mine_.size() : 0);
    std::memcpy(&proposal, data.data(), std::min(data.size(), sizeof proposal));
    const bool same =
        data.size() == due &&
        (!with_members || std::equal(mine_.begin(), mine_.end(), data.begin() + sizeof proposal));
    if (!same) {
      differ(data, member);
    }
    return proposal;
  }

  [[noreturn]] void differ(const std::vector<std::byte>& data, int member) {
    std::vector<int> theirs((data.size() - std::min(data.size(), sizeof(Proposal))) / sizeof(int));
    if (!theirs.empty()) {
      std::memcpy(theirs.data(), data.data() + sizeof(Proposal), theirs.size() * sizeof(int));
    }
    const int world = parent_.world_rank(founding_.members[member]);
    const Error error(
        ErrorCode::mismatch,
        text("group \"", founding_.name, "\": ", context_.describe_peer(world), " calls it with ",
             comm::ranks_text(theirs), ", ", context_.describe_peer(context_.rank()), " with ",
             comm::ranks_text(founding_.members), "; members, and their order, must be the same"),
        world);
    context_.fail(parent_.scope(), error);
    throw error;
  }

  /// Receives that are longer could not take another list than their own.
  static constexpr std::size_t longest = comm::exact_bytes - 1;

  comm::Context& context_;
  PointToPoint& parent_;
  const Founding& founding_;
  const std::vector<std::byte> mine_;  ///< The list of members.
};

}  // namespace

Agreement agree(comm::Context& context, PointToPoint& parent, const Founding& founding) {
  return FoundingAgreement(context, parent, founding).run();
}

}  // namespace sprat::collectives
