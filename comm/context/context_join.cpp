// How a Context comes to be: ranks meet, map each other's memory, and open their transports.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/signals.hpp"
#include "comm/context/context.hpp"
#include "comm/host/grouping.hpp"
#include "comm/host/topology.hpp"
#include "comm/memory/foreign_memory.hpp"
#include "comm/transports/libfabric/libfabric.hpp"
#include "comm/transports/shm/ring.hpp"

namespace sprat::comm {
namespace {

using nlohmann::json;

Blob to_blob(const json& value) {
  const auto bytes = json::to_cbor(value);
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

json from_blob(const Blob& blob) {
  return json::from_cbor(reinterpret_cast<const std::uint8_t*>(blob.data()),
                         reinterpret_cast<const std::uint8_t*>(blob.data()) + blob.size());
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

json to_json(const SurvivorListener& survivor_listener) {
  json addresses = json::array();
  for (const SocketAddress& address : survivor_listener.addresses()) {
    addresses.push_back({address.host, address.port});
  }
  return {{"doors", addresses}, {"token", survivor_listener.secret()}};
}

/// The secret that survivors prove to each other is rank 0's.
void settle(SurvivorListener& survivor_listener, int rank, const std::vector<json>& greetings) {
  std::vector<std::vector<SocketAddress>> addresses;
  for (const json& theirs : greetings) {
    auto& of_rank = addresses.emplace_back();
    for (const json& address : theirs["refuge"]["doors"]) {
      of_rank.push_back({address[0], address[1]});
    }
  }
  survivor_listener.settle(rank, std::move(addresses), greetings.front()["refuge"]["token"]);
}

}  // namespace

Context::Context(const Config& config, Environment environment, MemoryMap memory)
    : config_(config),
      wait_policy_(std::move(environment.wait_policy)),
      open_wires_(environment.wires ? std::move(environment.wires) : open_libfabric),
      kept_(environment.keep != nullptr),
      rendezvous_(std::move(environment.rendezvous)),
      survivor_listener_(std::move(environment.survivor_listener)),
      rank_(rendezvous_->rank()),
      peers_(rendezvous_->size()),
      memory_(std::move(memory)),
      bells_(*wait_policy_, memory_.header(), rank_),
      progress_(*wait_policy_, bells_, environment.progress_thread),
      failure_(*wait_policy_, bells_,
               {.header = memory_.header(),
                .size = size(),
                .record_may_hang = !config_.flight_recorder.empty()}) {}

std::shared_ptr<Context> Context::join(const Config& config, Environment environment,
                                       std::size_t world_bytes) {
  configure_log(config.log_level);
  take_back_signals();
  const auto end = [](Context* ended) {
    if (ended->here()) {  // a child of fork() has none of its threads
      delete ended;
    }
  };
  std::shared_ptr<Context>* keep = environment.keep;
  std::optional<MemoryMap> memory;
  try {
    memory.emplace(environment.rendezvous->rank(), environment.rendezvous->size());
  } catch (const std::exception& error) {
    cannot_join(*environment.rendezvous, error.what());
    throw;
  }
  std::shared_ptr<Context> context(new Context(config, std::move(environment), std::move(*memory)),
                                   end);
  if (keep != nullptr) {
    *keep = context;
  }
  const auto deadline = context->wait_policy_->now() + config.join_timeout;
  try {
    context->meet(deadline);
    context->open_transports(world_bytes, deadline);
  } catch (const std::exception& error) {
    cannot_join(*context->rendezvous_, error.what());
    throw;
  }
  if (context->survivor_listener_) {
    context->numbers_ = context->survivor_listener_->members();
  }
  Context* self = context.get();  // its destructor ends the rendezvous, and so these calls
  self->rendezvous_->listen([self](const ControlMessage& message) { self->on_control(message); });
  for (int rank = 0; rank < self->size(); ++rank) {
    if (rank != self->rank_ && self->peers_[rank].local && !self->memory_.in_process()) {
      self->rendezvous_->watch(rank, self->peers_[rank].pid);
    }
  }
  return context;
}

status::About Context::about(std::uint64_t nonce) const {
  using namespace std::chrono;
  status::About about{
      .pid = getpid(),
      .rank = rank_,
      .size = size(),
      .started_ns = duration_cast<nanoseconds>(wait_policy_->now().time_since_epoch()).count(),
      .started_unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count(),
      .host = {},
      .job = {}};
  status::put(about.host, peers_[rank_].host);
  status::put(about.job, text(peers_[0].pid, "-", fmt::format("{:08x}", nonce & 0xffffffff)));
  return about;
}

void Context::meet(Clock::time_point deadline) {
  const bool shrunk = survivor_listener_ && survivor_listener_->settled();
  // SPRAT_HOST may be a list: of the ranks as the job first had them.
  const HostIdentity host = host_identity(config_, shrunk ? survivor_listener_->number() : rank_);
  const MemoryMap::Offer mine = memory_.offer();
  json greeting = {{"pid", mine.pid},
                   {"label", host.label},
                   {"machine", host.machine},
                   {"name", host.name},
                   {"cores", allowed_cores()},
                   {"fd", mine.segment.fd},
                   {"inode", mine.segment.inode},
                   {"bytes", mine.segment.segment_bytes},
                   {"nonce", mine.nonce},
                   {"address", mine.address},
                   {"context", reinterpret_cast<std::uintptr_t>(this)}};
  if (config_.cross_memory) {
    allow_reading();
  }
  if (survivor_listener_ && !shrunk) {
    greeting["refuge"] = to_json(*survivor_listener_);
  }
  std::vector<json> greetings;
  for (const Blob& blob : rendezvous_->exchange(to_blob(greeting), "meeting", deadline)) {
    greetings.push_back(from_blob(blob));
  }
  if (survivor_listener_ && !shrunk) {
    settle(*survivor_listener_, rank_, greetings);
  }
  std::vector<MemoryMap::Offer> offers;
  for (const json& theirs : greetings) {
    const MemoryRef segment{MemoryRef::Kind::segment, theirs["fd"], theirs["inode"],
                            theirs["bytes"], 0};
    offers.push_back({theirs["pid"], segment, theirs["address"], theirs["nonce"]});
  }
  memory_.meet(std::move(offers));
  const bool in_process =
      kept_ && std::all_of(greetings.begin(), greetings.end(), [&](const json& theirs) {
        return theirs["pid"] == greeting["pid"] && theirs["machine"] == greeting["machine"];
      });
  if (in_process) {
    memory_.share_process();
    for (const json& theirs : greetings) {
      siblings_.push_back(reinterpret_cast<Context*>(theirs["context"].get<std::uintptr_t>()));
    }
  }

  Reach reach{host.label, {}};
  std::vector<int> readable;
  std::set<int> cores;
  int machine_ranks = 0;
  std::string unmapped;  // the first peer that ought to share memory, and does not
  for (int rank = 0; rank < size(); ++rank) {
    const json& theirs = greetings[rank];
    Peer& peer = peers_[rank];
    peer.pid = theirs["pid"];
    peer.host = theirs["name"];
    if (theirs["machine"] == greeting["machine"]) {
      ++machine_ranks;
      cores.insert(theirs["cores"].begin(), theirs["cores"].end());
    }
    const bool same_host = theirs["label"] == greeting["label"];
    if (same_host && !memory_.reaches(rank)) {
      if (const auto why = memory_.map(rank); why && unmapped.empty()) {
        unmapped = text("the memory of rank ", rank, " (pid ", peer.pid, "): ", *why);
      }
    }
    if (same_host && memory_.reaches(rank)) {
      reach.mapped.push_back(rank);
      if (config_.cross_memory && !in_process && memory_.try_reading(rank)) {
        readable.push_back(rank);
      }
    }
  }
  oversubscribed_ = machine_ranks > static_cast<int>(cores.size());

  std::vector<Reach> reaches;
  const json found = {{"label", reach.label}, {"mapped", reach.mapped}, {"readable", readable}};
  std::vector<std::vector<int>> readable_by;
  for (const Blob& blob : rendezvous_->exchange(to_blob(found), "mapping memory", deadline)) {
    const json theirs = from_blob(blob);
    reaches.push_back({theirs["label"], theirs["mapped"]});
    readable_by.push_back(theirs["readable"]);
  }
  const std::vector<int> host_of = group_hosts(reaches);
  MemoryMap::Readability readability{
      .mine = true, .everybodys = in_process || all_read_each_other(host_of, readable_by)};
  bool light_bells = true;  // every local rank registered its fences
  std::vector<ControlHeader*> headers;
  for (int rank = 0; rank < size(); ++rank) {
    peers_[rank].host_index = host_of[rank];
    peers_[rank].local = host_of[rank] == host_of[rank_];
    readability.mine &= !peers_[rank].local || std::ranges::count(readable_by[rank], rank_) > 0;
    headers.push_back(memory_.header(rank));
    light_bells &=
        !peers_[rank].local || headers.back()->fences.load(std::memory_order_relaxed) == 1;
  }
  memory_.settle(readability);
  bells_.connect(std::move(headers), light_bells);
  // Before anybody can end joining, and fail.
  status_ = std::make_unique<status::Writer>(about(greetings[0]["nonce"]));
  name_log(rank_, size(), memory_.in_process() ? "thread" : host.name);
  if (!unmapped.empty()) {
    log().warn(
        "cannot map {}; the ranks of this host talk as if they were on several, which is "
        "slower (sprat doctor says why)",
        unmapped);
  }
}

void Context::open_transports(std::size_t world_bytes, Clock::time_point deadline) {
  ShmRingOptions options;
  options.rank = rank_;
  for (int rank = 0; rank < size(); ++rank) {
    if (memory_.in_process() || peers_[rank].local) {
      options.ranks.push_back(rank);
    }
  }
  // The first allocations after the header, so they lie at the same offsets on every local rank.
  const std::size_t bytes = ShmRing::bytes_needed(options.ranks.size());
  const std::size_t offset = allocate_control(bytes);
  world_control_ = allocate_control(world_bytes);
  options.mine = {control(offset), bytes};
  for (const int rank : options.ranks) {
    options.memory.push_back(peer_control(rank, offset));
  }
  Progress::Transports transports;
  transports.local = std::make_unique<ShmRing>(options);
  const bool any_wire = !std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return memory_.in_process() || peer.host_index == peers_[0].host_index;
  });
  Blob wire_address;
  if (any_wire) {
    transports.wire = open_wires_(config_, rank_, size());
    wire_address = transports.wire->address();
  }
  const Blob ring_address = transports.local->address();
  std::vector<Blob> local(peers_.size()), remote(peers_.size());
  const json mine = {
      {"local", json::binary({reinterpret_cast<const std::uint8_t*>(ring_address.data()),
                              reinterpret_cast<const std::uint8_t*>(ring_address.data()) +
                                  ring_address.size()})},
      {"wire", json::binary({reinterpret_cast<const std::uint8_t*>(wire_address.data()),
                             reinterpret_cast<const std::uint8_t*>(wire_address.data()) +
                                 wire_address.size()})}};
  const auto all = rendezvous_->exchange(to_blob(mine), "opening transports", deadline);
  for (int rank = 0; rank < size(); ++rank) {
    const json theirs = from_blob(all[rank]);
    const bool ring = memory_.in_process() || peers_[rank].local;
    const auto& bytes_of = theirs[ring ? "local" : "wire"].get_binary();
    const auto* first = reinterpret_cast<const std::byte*>(bytes_of.data());
    (ring ? local : remote)[rank].assign(first, first + bytes_of.size());
  }
  transports.local->connect(local);
  if (transports.wire) {
    transports.wire->connect(remote);
  }
  progress_.open(std::move(transports), status_->waiting_threads(), oversubscribed_);
}

}  // namespace sprat::comm
