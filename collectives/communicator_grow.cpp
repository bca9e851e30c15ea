// How communicators take ranks that come later.
//
// Members and newcomers form a job of their own: with a coordinator, memory, endpoints and numbers
// that nothing of the old job knows. So nothing that is still on its way there can reach it,
// whoever comes back as a newcomer, and the old communicator needs not stand still.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "collectives/communicator_impl.hpp"
#include "collectives/timeline.hpp"
#include "comm/base/check.hpp"
#include "comm/coordinator/rendezvous.hpp"

namespace sprat {
namespace {

using Meet =
    std::function<std::unique_ptr<comm::Rendezvous>(const Config& config, const comm::Growth&)>;

/// While ranks meet, the old job hears who of them ends, and tells the new one's coordinator: those
/// who have not come there yet have no connection whose end would show it.
std::shared_ptr<void> watch_ends(comm::Context& context, const collectives::Membership& old,
                                 comm::Rendezvous& rendezvous) {
  return context.watch_ends([&](int world_rank) {
    const auto found = std::ranges::find(old.world_ranks, world_rank);
    if (found == old.world_ranks.end()) {
      return;
    }
    comm::ControlMessage message;
    message.kind = comm::ControlMessage::Kind::lost;
    message.rank = static_cast<int>(found - old.world_ranks.begin());
    message.code = static_cast<int>(ErrorCode::lost_peer);
    message.text =
        text(context.describe_peer(world_rank), " of ", old.name, ", which grows, has ended");
    rendezvous.tell(std::move(message));
  });
}

/// Has the old job's wires looked at while this lives: a peer may have to send before it comes.
class Attended {
 public:
  explicit Attended(comm::Context& context) : context_(context) { context_.count_unattended(+1); }
  ~Attended() { context_.count_unattended(-1); }
  Attended(const Attended&) = delete;
  Attended& operator=(const Attended&) = delete;

 private:
  comm::Context& context_;
};

comm::Growth growth_of(const collectives::Membership& membership, int newcomers) {
  require(newcomers >= 1, "newcomers is ", newcomers, "; at least one must come for ",
          membership.name, " to grow");
  return {.rank = membership.rank,
          .members = static_cast<int>(membership.world_ranks.size()),
          .newcomers = newcomers};
}

}  // namespace

std::unique_ptr<Communicator::Impl> Communicator::Impl::grow(
    int newcomers, std::optional<std::chrono::milliseconds> patience, const Meet& meet) {
  context->require_here();
  const collectives::Membership& old = executor.membership();
  comm::Growth growth = growth_of(old, newcomers);
  const comm::FailureScope& scope = *executor.scope();
  if (scope.first() != nullptr) {
    throw Error(*scope.first());
  }
  const Config config = context->own_config();
  Config hurried = config;  // the job to come has the patience of the old one
  hurried.join_timeout = patience.value_or(config.join_timeout);
  growth.watch = [&](comm::Rendezvous& rendezvous) {
    return watch_ends(*context, old, rendezvous);
  };
  const Attended attended(*context);
  try {
    return join(config, [&] { return meet(hurried, growth); });
  } catch (const Error& error) {
    // Who has waited for rank 0 in vain is told so at the deadline, and not why it did not come.
    if (error.code() != ErrorCode::timeout || scope.first() == nullptr) {
      throw;
    }
    throw Error(scope.first()->code(),
                text("growing ", old.name, ": ", scope.first()->what(), "; ", error.what()),
                scope.first()->rank());
  }
}

Communicator Communicator::grow(int newcomers, Store& store,
                                std::optional<std::chrono::milliseconds> patience) {
  return collectives::with_clock(
      Communicator(impl_->grow(newcomers, patience, [&](const Config& config, const auto& growth) {
        return comm::open_rendezvous(config, growth, store);
      })));
}

Communicator Communicator::grow(int newcomers, std::string_view rendezvous,
                                std::optional<std::chrono::milliseconds> patience) {
  return collectives::with_clock(
      Communicator(impl_->grow(newcomers, patience, [&](Config config, const auto& growth) {
        config.rendezvous = rendezvous;
        return comm::open_rendezvous(config, growth);
      })));
}

Communicator Communicator::join_growing(const Config& config, Store& store) {
  return collectives::with_clock(Communicator(
      Impl::join(config, [&] { return comm::open_rendezvous(config, comm::Growth{}, store); })));
}

Communicator Communicator::join_growing(const Config& config) {
  return collectives::with_clock(Communicator(
      Impl::join(config, [&] { return comm::open_rendezvous(config, comm::Growth{}); })));
}

}  // namespace sprat
