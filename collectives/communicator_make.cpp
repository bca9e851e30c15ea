// How communicators come to be: joining a job, splitting, ranks as threads.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "collectives/communicator_impl.hpp"
#include "comm/base/check.hpp"
#include "comm/rendezvous.hpp"

namespace sprat {

using collectives::Board;
using collectives::Membership;

namespace {

/// What ranks tell each other to split. Plain numbers: it travels by all_gather.
struct Ticket {
  std::int64_t color, key, board, next_communicator;
};

std::size_t make_board(comm::Context& context) {
  const auto token = context.take_token();
  const std::size_t offset = context.allocate_control(sizeof(Board));
  new (context.control(offset)) Board;
  return offset;
}

}  // namespace

std::unique_ptr<Communicator::Impl> Communicator::Impl::world(
    std::shared_ptr<comm::Context> context) {
  Membership membership;
  membership.id = 0;
  membership.name = "world";
  membership.rank = context->rank();
  membership.world_ranks.resize(context->size());
  std::iota(membership.world_ranks.begin(), membership.world_ranks.end(), 0);
  membership.boards.assign(context->size(), context->world_control());
  auto rules = std::make_shared<const collectives::Rules>(
      collectives::rules_with(context->config().algorithm));
  return std::make_unique<Impl>(std::move(context), std::move(membership), std::move(rules));
}

Communicator Communicator::join(const Config& config) {
  // Parsed before anybody waits for us.
  collectives::rules_with(config.algorithm);
  auto context = comm::Context::join(config, comm::open_rendezvous(config), sizeof(Board));
  return Communicator(Impl::world(std::move(context)));
}

std::optional<Communicator> Communicator::split(int color, int key, std::string_view name_) {
  comm::Context& context = *impl_->context;
  const Membership& parent = impl_->executor.membership();
  Ticket mine{color, key, static_cast<std::int64_t>(make_board(context)), 0};
  {
    const auto token = context.take_token();
    mine.next_communicator = static_cast<std::int64_t>(context.next_communicator);
  }
  std::vector<Ticket> tickets(size());
  constexpr std::size_t words = sizeof(Ticket) / sizeof(std::int64_t);
  all_gather({&mine, words, DType::i64}, {tickets.data(), words * tickets.size(), DType::i64},
             {.timeout = {}, .blocking = true})
      .wait();

  std::set<std::int64_t> colors;
  std::int64_t first_id = 0;
  for (const Ticket& ticket : tickets) {
    first_id = std::max(first_id, ticket.next_communicator);
    if (ticket.color >= 0) {
      colors.insert(ticket.color);
    }
  }
  {
    const auto token = context.take_token();
    context.next_communicator = static_cast<std::uint64_t>(first_id) + colors.size();
  }
  const int child = impl_->children++;
  if (color < 0) {
    const auto token = context.take_token();
    context.free_control(static_cast<std::size_t>(mine.board), sizeof(Board));
    return std::nullopt;
  }
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    if (tickets[rank].color == color) {
      members.push_back(rank);
    }
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return tickets[a].key < tickets[b].key; });
  Membership membership;
  membership.id =
      static_cast<std::uint64_t>(first_id + std::distance(colors.begin(), colors.find(color)));
  membership.name = name_.empty() ? text(parent.name, ".", child, "/", color) : std::string(name_);
  for (const int rank : members) {
    if (rank == this->rank()) {
      membership.rank = static_cast<int>(membership.world_ranks.size());
    }
    membership.world_ranks.push_back(parent.world_ranks[rank]);
    membership.boards.push_back(static_cast<std::size_t>(tickets[rank].board));
  }
  return Communicator(std::make_unique<Impl>(impl_->context, std::move(membership), impl_->rules));
}

void run_virtual_ranks(int size, const Config& config,
                       const std::function<void(Communicator&)>& body) {
  require(size >= 1, "size is ", size, "; a job has at least one rank");
  auto rendezvous = comm::open_rendezvous_in_process(size);
  std::vector<std::shared_ptr<comm::Context>> contexts(size);  // outlive every rank's thread
  std::mutex mutex;                                            // guards first
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        contexts[rank] = comm::Context::join(config, std::move(rendezvous[rank]), sizeof(Board));
        Communicator world(Communicator::Impl::world(contexts[rank]));
        try {
          body(world);
        } catch (const std::exception& error) {
          {
            const std::lock_guard lock(mutex);
            first = first ? first : std::current_exception();
          }
          world.abort(error.what());
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        first = first ? first : std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace sprat
