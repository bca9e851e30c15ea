#include "tests/system/simulation/held_by_rank.hpp"

#include <malloc.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "collectives/engine/control_block.hpp"
#include "comm/base/check.hpp"
#include "comm/context/context.hpp"
#include "comm/context/peer_info.hpp"
#include "tests/system/simulation/rank_words.hpp"

namespace sprat::simulation {
namespace {

using comm::Blob;

/// Rank 0's membership of a job whose other ranks say what RankWords has for them.
class ReadOutRendezvous final : public comm::Rendezvous {
 public:
  ReadOutRendezvous(int hosts, int ranks_per_host)
      : size_(hosts * ranks_per_host), words_(ranks_per_host) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::vector<Blob> exchange(Blob mine, std::string_view purpose,
                             std::chrono::steady_clock::time_point) override {
    std::vector<Blob> told(static_cast<std::size_t>(size_));
    for (int rank = 1; rank < size_; ++rank) {
      told[static_cast<std::size_t>(rank)] = said_by(rank, mine, purpose);
    }
    told.front() = std::move(mine);
    return told;
  }
  void set_host(std::uint64_t) override {}
  void say_farewell() noexcept override {}
  void listen(std::function<void(const comm::ControlMessage&)>) override {}
  void tell(comm::ControlMessage) noexcept override {}
  void watch(int, pid_t) override {}

 private:
  Blob said_by(int rank, const Blob& mine, std::string_view purpose) {
    if (purpose == "meeting") {
      return encode(words_.greeting(rank));
    }
    // A wire's address has the form of this rank's: the wire is the machine's own.
    return purpose == "mapping memory" ? encode(words_.reach(rank)) : mine;
  }
  int size_;
  RankWords words_;
};

double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

HeldByRank held_in_job(int hosts, int ranks_per_host) {
  Config config;
  config.provider = "sockets";
  config.interface = "lo";
  const double before = heap_bytes();
  auto context =
      comm::Context::join(config,
                          {.rendezvous = std::make_unique<ReadOutRendezvous>(hosts, ranks_per_host),
                           .survivor_listener = comm::SurvivorListener::open(config)},
                          sizeof(collectives::ControlBlock));
  const double joined = heap_bytes();
  const auto world = Communicator::Impl::world(
      context, std::make_shared<const collectives::Rules>(collectives::rules_of(config)));
  const double made = heap_bytes();
  // A rank that leaves a job which is well stays a while for the others, who are not there.
  context->fail(Error(ErrorCode::aborted, "what it keeps is measured", 0));
  return {.context = joined - before, .communicator = made - joined};
}

}  // namespace

HeldByRank measure_held_by_rank(int hosts, int ranks_per_host) {
  const HeldByRank least = held_in_job(2, 1);
  const HeldByRank held = held_in_job(hosts, ranks_per_host);
  return {held.context - least.context, held.communicator - least.communicator};
}

}  // namespace sprat::simulation
