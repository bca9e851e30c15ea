// How communicators come to be: joining a job, splitting, ranks as threads.
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "collectives/agreement.hpp"
#include "collectives/communicator_impl.hpp"
#include "collectives/record/flight_file.hpp"
#include "collectives/remainder.hpp"
#include "collectives/timeline.hpp"
#include "comm/base/check.hpp"
#include "comm/base/thread.hpp"
#include "comm/coordinator/rendezvous.hpp"

namespace sprat {

using collectives::ControlBlock;
using collectives::Membership;

namespace {

/// What ranks tell each other in a split. Plain numbers, for it travels by all_gather.
struct Ticket {
  std::int64_t color, key, control_block, id;
};

std::vector<Ticket> exchange_tickets(Communicator& parent, const Ticket& mine) {
  std::vector<Ticket> tickets(static_cast<std::size_t>(parent.size()));
  constexpr std::size_t words = sizeof(Ticket) / sizeof(std::int64_t);
  parent
      .all_gather({&mine, words, DType::i64}, {tickets.data(), words * tickets.size(), DType::i64},
                  {.timeout = {}, .blocking = true, .digested = false})
      .wait();
  return tickets;
}

/// The first of `count` communicator numbers that no rank of the parent has had; this rank's is
/// `mine` after that. Ranks propose their lowest free number and take the highest proposal. Other
/// threads may be making communicators at the same time, so a number that was free may be taken a
/// moment later: if it is on any rank, all of them try again.
/// `given_up` is called if the parent fails so late that others may have the numbers all the same.
std::uint64_t reserve_ids(
    Communicator& parent, std::size_t count, std::optional<std::uint64_t> mine,
    const std::function<void(std::uint64_t first, const Error& cause)>& given_up) {
  comm::Context& context = *parent.impl().context;
  // The tags of messages hold only some bits of a communicator's number. A number that looks like
  // that of one that lives here would give each the other's messages, so it is skipped.
  const auto is_taken = [&](std::uint64_t first) {
    return mine && context.is_like_another(first + *mine);
  };
  for (;;) {
    std::int64_t first = 0;
    {
      const auto token = context.take_token();
      std::uint64_t own = context.next_communicator;
      while (is_taken(own)) {
        ++own;  // it ends: fewer communicators live than those bits can tell apart
      }
      first = static_cast<std::int64_t>(own);
    }
    for (const Ticket& ticket : exchange_tickets(parent, {0, 0, 0, first})) {
      first = std::max(first, ticket.id);
    }
    std::int64_t free = 0;
    // Reserved in the same step in which it is looked at, and kept even if another rank refuses:
    // numbers are never used again, so that no late message finds a new communicator.
    {
      const auto token = context.take_token();
      const auto agreed = static_cast<std::uint64_t>(first);
      if (agreed >= context.next_communicator) {
        context.next_communicator = agreed + count;
        free = is_taken(agreed) ? 0 : 1;
      }
    }
    std::vector<Ticket> answers;
    try {
      answers = exchange_tickets(parent, {0, 0, 0, free});
    } catch (const Error& error) {
      given_up(static_cast<std::uint64_t>(first), error);
      throw;
    }
    if (std::ranges::all_of(answers, [](const Ticket& answer) { return answer.id != 0; })) {
      return static_cast<std::uint64_t>(first);
    }
  }
}

/// A number is free on the members only, and two splits at the same time may give it to two groups.
/// The coordinator compares the calls of all ranks, so the number that it hears of has the members
/// in it.
std::uint64_t identity(std::uint64_t number, const std::vector<int>& world_ranks) {
  const std::uint64_t members =
      XXH3_64bits(world_ranks.data(), world_ranks.size() * sizeof world_ranks[0]);
  return members << 16 | (number & 0xffff);
}

/// Those of a color, in the order of their keys; of equal keys, in the order that they have in the
/// parent.
Membership members_of(const Membership& parent, const std::vector<Ticket>& tickets, int color) {
  std::vector<std::size_t> members;
  for (std::size_t rank = 0; rank < tickets.size(); ++rank) {
    if (tickets[rank].color == color) {
      members.push_back(rank);
    }
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](std::size_t a, std::size_t b) { return tickets[a].key < tickets[b].key; });
  Membership membership;
  for (const std::size_t rank : members) {
    if (static_cast<int>(rank) == parent.rank) {
      membership.rank = static_cast<int>(membership.world_ranks.size());
    }
    membership.world_ranks.push_back(parent.world_ranks[rank]);
    membership.control_blocks.push_back(static_cast<std::size_t>(tickets[rank].control_block));
  }
  return membership;
}

void check_members(std::span<const int> ranks, int me, int size) {
  std::set<int> seen;
  for (const int rank : ranks) {
    require(rank >= 0 && rank < size, "a group has rank ", rank, "; it must be 0 to ", size - 1);
    require(seen.insert(rank).second, "a group has rank ", rank, " twice");
  }
  require(seen.contains(me), "rank ", me, " makes a group that it is not in; only members call");
}

std::size_t make_control_block(comm::Context& context) {
  const auto token = context.take_token();
  const std::size_t offset = context.allocate_control(sizeof(ControlBlock));
  reinterpret_cast<ControlBlock*>(context.control(offset))->clear();
  return offset;
}

}  // namespace

std::unique_ptr<Communicator::Impl> Communicator::Impl::join(
    const Config& config, const std::function<std::unique_ptr<comm::Rendezvous>()>& meet) {
  // Rules that do not parse are an error of this rank alone, so they are read before others wait
  // for it.
  auto rules = std::make_shared<const collectives::Rules>(collectives::rules_of(config));
  auto rendezvous = meet();
  std::shared_ptr<comm::SurvivorListener> survivor_listener;
  try {
    survivor_listener = comm::SurvivorListener::open(config);
  } catch (const std::exception& error) {
    comm::Context::cannot_join(*rendezvous, error.what());
    throw;
  }
  auto context = comm::Context::join(
      config,
      {.rendezvous = std::move(rendezvous), .survivor_listener = std::move(survivor_listener)},
      sizeof(ControlBlock));
  return world(std::move(context), std::move(rules));
}

std::unique_ptr<Communicator::Impl> Communicator::Impl::world(
    std::shared_ptr<comm::Context> context, std::shared_ptr<const collectives::Rules> rules) {
  Membership membership;
  membership.id = 0;
  membership.name = "world";
  membership.rank = context->rank();
  membership.world_ranks.resize(context->size());
  std::iota(membership.world_ranks.begin(), membership.world_ranks.end(), 0);
  membership.control_blocks.assign(context->size(), context->world_control());
  context->on_failure([raw = context.get()] { collectives::leave_flight_record(*raw); });
  try {
    return std::make_unique<Impl>(context, std::move(membership), std::move(rules));
  } catch (const std::exception& error) {
    // The others have joined already and would wait for this rank until their deadline.
    context->fail(Error(ErrorCode::lost_peer,
                        text("rank ", context->rank(), " cannot join: ", error.what()),
                        context->rank()));
    throw;
  }
}

Communicator Communicator::join(const Config& config) {
  return collectives::with_clock(
      Communicator(Impl::join(config, [&] { return comm::open_rendezvous(config); })));
}

Communicator Communicator::join(const Config& config, Store& store) {
  return collectives::with_clock(
      Communicator(Impl::join(config, [&] { return comm::open_rendezvous(config, store); })));
}

Communicator Communicator::shrink(int at_least, std::optional<std::chrono::milliseconds> patience) {
  comm::Context& context = *impl_->context;
  context.require_here();
  const auto longest = std::min(patience.value_or(context.config().join_timeout), longest_timeout);
  const bool has_failed = context.failure() != nullptr;
  if (impl_->executor.membership().id != 0 && !(has_failed && size() == context.size())) {
    require(!has_failed, "the whole job has failed, not ", name(),
            " alone; shrink a communicator of all ranks, then split it again");
    return Communicator(impl_->shrink(at_least, longest));
  }
  auto smaller = context.shrink(sizeof(ControlBlock), at_least, longest);
  return collectives::with_clock(Communicator(Impl::world(std::move(smaller), impl_->rules)));
}

// What is under way on it never ends otherwise: not everybody may be left to do their part.
std::unique_ptr<Communicator::Impl> Communicator::Impl::shrink(int at_least,
                                                               std::chrono::milliseconds patience) {
  const Membership& old = executor.membership();
  require(at_least >= 1 && at_least <= grouping->ranks(), "at_least is ", at_least,
          "; it must be 1 to ", grouping->ranks());
  need(!executor.scope()->with_job(), old.name,
       " has ranks on several hosts, whose wire lets no communicator fail alone; shrink the world, "
       "then split it again");
  context->fail(
      *executor.scope(),
      Error(ErrorCode::aborted,
            text(context->describe_peer(context->rank()), " shrinks ", old.name), context->rank()),
      comm::Context::Record::none);
  const std::size_t control_block = make_control_block(*context);
  // If this throws, the control block stays out of use: the others may count on it.
  collectives::Remainder rest = collectives::agree_on_remainder(
      *context, old, {.control_block = control_block, .attempt = shrinks++, .patience = patience});
  if (static_cast<int>(rest.members.size()) < at_least) {  // which all of them see
    const auto token = context->take_token();
    context->free_control(control_block, sizeof(ControlBlock));
    throw Error(ErrorCode::unavailable,
                text(rest.members.size(), " of the ", grouping->ranks(), " ranks of ", old.name,
                     " are left; ", at_least, " are needed"));
  }
  Membership membership;
  for (const int member : rest.members) {
    if (member == old.rank) {
      membership.rank = static_cast<int>(membership.world_ranks.size());
    }
    membership.world_ranks.push_back(old.world_ranks[static_cast<std::size_t>(member)]);
  }
  membership.name = old.name;
  membership.id = membership.domain = identity(rest.id, membership.world_ranks);
  membership.control_blocks = std::move(rest.control_blocks);
  return std::make_unique<Impl>(context, std::move(membership), rules);
}

std::optional<Communicator> Communicator::split(int color, int key, std::string_view name_,
                                                Failing failing) {
  comm::Context& context = *impl_->context;
  context.require_here();  // before anything is taken from memory shared with the parent process
  const Membership& parent = impl_->executor.membership();
  const std::vector<Ticket> tickets = exchange_tickets(
      *this, {color, key, static_cast<std::int64_t>(make_control_block(context)), 0});
  std::set<std::int64_t> colors;
  for (const Ticket& ticket : tickets) {
    if (ticket.color >= 0) {
      colors.insert(ticket.color);
    }
  }
  std::optional<std::uint64_t> place;  // of this rank's color
  if (color >= 0) {
    place = static_cast<std::uint64_t>(std::distance(colors.begin(), colors.find(color)));
  }
  Membership membership = members_of(parent, tickets, color);
  // The last step of a split ends on some ranks and fails on others, if the parent fails just then.
  // Those that have the communicator must not wait in it for those that have not.
  const auto given_up = [&](std::uint64_t first, const Error& cause) {
    if (place) {
      context.fail_unmade(
          identity(first + *place, membership.world_ranks),
          Error(cause.code(), text("made of ", parent.name, ": ", cause.what()), cause.rank()));
    }
  };
  // All ranks reserve the numbers of all colors, those without a color as well, so that they agree
  // on what is free next time.
  const std::uint64_t first_id = reserve_ids(*this, colors.size(), place, given_up);
  const int child = impl_->children++;
  if (color < 0) {
    const auto token = context.take_token();
    context.free_control(static_cast<std::size_t>(tickets[rank()].control_block),
                         sizeof(ControlBlock));
    return std::nullopt;
  }
  membership.name = name_.empty() ? text(parent.name, ".", child, "/", color) : std::string(name_);
  membership.id = identity(first_id + *place, membership.world_ranks);
  membership.domain = failing == Failing::together ? parent.domain : membership.id;
  return Communicator(std::make_unique<Impl>(impl_->context, std::move(membership), impl_->rules));
}

Communicator Communicator::create_group(std::span<const int> ranks, std::string_view name_,
                                        Options options) {
  comm::Context& context = *impl_->context;
  context.require_here();
  check_members(ranks, rank(), size());
  collectives::Founding founding;
  founding.name = name_;
  founding.members.assign(ranks.begin(), ranks.end());
  founding.me = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  founding.control_block = make_control_block(context);
  founding.timeout = std::min(options.timeout.value_or(context.config().timeout), longest_timeout);
  Membership membership;
  membership.name = name_;
  membership.rank = founding.me;
  for (const int rank : ranks) {
    membership.world_ranks.push_back(impl_->messages.world_rank(rank));
  }
  founding.given_up = [&](std::uint64_t id, const Error& cause) {
    context.fail_unmade(identity(id, membership.world_ranks),
                        Error(cause.code(), cause.what(), cause.rank()));
  };
  collectives::Agreement agreement = collectives::agree(context, impl_->messages, founding);
  membership.id = membership.domain = identity(agreement.id, membership.world_ranks);
  membership.control_blocks = std::move(agreement.control_blocks);
  return Communicator(std::make_unique<Impl>(impl_->context, std::move(membership), impl_->rules));
}

Communicator Communicator::duplicate(std::string_view name_, Failing failing) {
  return *split(0, rank(), name_.empty() ? text(name(), ".", impl_->children) : std::string(name_),
                failing);
}

void collectives::follow(Communicator& communicator, Rules rules) {
  communicator.impl().context->require_here();
  auto shared = std::make_shared<const Rules>(std::move(rules));
  communicator.impl().rules = shared;
  communicator.impl().executor.follow(std::move(shared));
}

namespace {

/// For a rank that gets no thread: the others wait for it.
void cannot_start(comm::Rendezvous& rendezvous, const std::exception& why) noexcept {
  const auto* error = dynamic_cast<const Error*>(&why);
  comm::ControlMessage message;
  message.kind = comm::ControlMessage::Kind::failed;
  message.rank = rendezvous.rank();
  message.code = static_cast<int>(error != nullptr ? error->code() : ErrorCode::unavailable);
  try {
    message.text = why.what();
  } catch (const std::bad_alloc&) {
    message.text.clear();  // they hear at least who it is
  }
  rendezvous.tell(std::move(message));
}

}  // namespace

void run_virtual_ranks(int size, const Config& config,
                       const std::function<void(Communicator&)>& body) {
  require(size >= 1, "size is ", size, "; a job has at least one rank");
  const auto rules = std::make_shared<const collectives::Rules>(collectives::rules_of(config));
  auto rendezvous = comm::open_rendezvous_in_process(size);
  // Ranks look into each other's memory, so every context outlives all of the threads.
  std::vector<std::shared_ptr<comm::Context>> contexts(size);
  std::mutex mutex;  // guards first
  std::exception_ptr first;
  const auto remember = [&] {
    const std::lock_guard lock(mutex);
    first = first ? first : std::current_exception();
  };
  const auto live = [&](int rank) {
    try {
      comm::Context::join(config,
                          {.rendezvous = std::move(rendezvous[rank]), .keep = &contexts[rank]},
                          sizeof(ControlBlock));
      Communicator world(
          collectives::with_clock(Communicator(Communicator::Impl::world(contexts[rank], rules))));
      try {
        body(world);
      } catch (const std::exception& error) {
        remember();
        // The other ranks would wait for this one until their deadline, on any communicator.
        world.abort(error.what());
      }
    } catch (...) {
      remember();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));  // so that none is started and then lost
  try {
    for (int rank = 0; rank < size; ++rank) {
      const auto purpose = text("a thread for rank ", rank, " of ", size);
      threads.push_back(start_thread(purpose, [&live, rank] { live(rank); }));
    }
  } catch (const std::exception& error) {
    // The ranks that were started wait for all others to join: they are told that one cannot.
    remember();
    cannot_start(*rendezvous[threads.size()], error);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace sprat
