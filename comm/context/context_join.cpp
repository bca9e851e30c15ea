// How a Context comes to be: ranks meet, map each other's memory, and open their transports.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/signals.hpp"
#include "comm/context/context.hpp"
#include "comm/context/context_header.hpp"
#include "comm/context/fences.hpp"
#include "comm/host/grouping.hpp"
#include "comm/host/topology.hpp"
#include "comm/memory/foreign_memory.hpp"
#include "comm/transports/libfabric/libfabric.hpp"
#include "comm/transports/shm/ring.hpp"

namespace sprat::comm {
namespace {

using nlohmann::json;

// Sparse: pages are taken as they are touched.
constexpr std::size_t control_bytes = std::size_t{256} << 20;

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

std::unique_ptr<Segment> make_control() {
  auto control = std::make_unique<Segment>(control_bytes);
  auto* header = new (control->data()) ControlHeader;
  header->fences.store(register_fences() ? 1 : 0, std::memory_order_relaxed);
  return control;
}

std::uint64_t make_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device() | 1;
}

}  // namespace

Context::Context(const Config& config, Environment environment, std::unique_ptr<Segment> control)
    : config_(config),
      wait_policy_(std::move(environment.wait_policy)),
      open_wires_(environment.wires ? std::move(environment.wires) : open_libfabric),
      kept_(environment.keep != nullptr),
      rendezvous_(std::move(environment.rendezvous)),
      survivor_listener_(std::move(environment.survivor_listener)),
      rank_(rendezvous_->rank()),
      peers_(rendezvous_->size()),
      departed_(std::make_unique<std::atomic<bool>[]>(peers_.size())),
      lost_(std::make_unique<std::atomic<bool>[]>(peers_.size())),
      control_(std::move(control)),
      control_used_((sizeof(ControlHeader) + 63) / 64 * 64),
      bells_(*wait_policy_, header(*control_), rank_),
      progress_(*wait_policy_, bells_, environment.progress_thread) {}

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
  std::unique_ptr<Segment> control;
  try {
    control = make_control();
  } catch (const std::exception& error) {
    cannot_join(*environment.rendezvous, error.what());
    throw;
  }
  std::shared_ptr<Context> context(new Context(config, std::move(environment), std::move(control)),
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
    if (rank != self->rank_ && self->peers_[rank].local && !self->in_process_) {
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
  const std::uint64_t nonce = make_nonce();
  header(*control_).nonce.store(nonce, std::memory_order_release);
  const MemoryRef mine = control_->ref();
  json greeting = {{"pid", getpid()},
                   {"label", host.label},
                   {"machine", host.machine},
                   {"name", host.name},
                   {"cores", allowed_cores()},
                   {"fd", mine.fd},
                   {"inode", mine.inode},
                   {"bytes", mine.segment_bytes},
                   {"nonce", nonce},
                   {"address", reinterpret_cast<std::uintptr_t>(this)},
                   {"nonce_at", reinterpret_cast<std::uintptr_t>(&header(*control_).nonce)}};
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
  in_process_ =
      kept_ && std::all_of(greetings.begin(), greetings.end(), [&](const json& theirs) {
        return theirs["pid"] == greeting["pid"] && theirs["machine"] == greeting["machine"];
      });

  Reach reach{host.label, {}};
  std::vector<int> readable;
  std::set<int> cores;
  int machine_ranks = 0;
  control_mappings_.resize(peers_.size());
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
    if (in_process_) {
      auto* sibling = reinterpret_cast<Context*>(theirs["address"].get<std::uintptr_t>());
      siblings_.push_back(sibling);
      peer.control = sibling->control_->data();
    } else if (rank == rank_) {
      peer.control = control_->data();
    } else if (theirs["label"] == greeting["label"]) {
      const MemoryRef ref{MemoryRef::Kind::segment, theirs["fd"], theirs["inode"], theirs["bytes"],
                          0};
      auto mapping = PeerMapping::open(peer.pid, ref, PeerMapping::Access::ring);
      if (mapping &&
          reinterpret_cast<ControlHeader*>(mapping->data())->nonce.load() == theirs["nonce"]) {
        peer.control = mapping->data();
        control_mappings_[rank] = std::move(mapping);
      } else if (unmapped.empty()) {
        unmapped = text("the memory of rank ", rank, " (pid ", peer.pid,
                        "): ", mapping ? "it is another process's" : std::strerror(errno));
      }
    }
    if (peer.control != nullptr && theirs["label"] == greeting["label"]) {
      reach.mapped.push_back(rank);
      std::uint64_t seen = 0;
      if (config_.cross_memory && !in_process_ &&
          read_foreign(peer.pid, theirs["nonce_at"], reinterpret_cast<std::byte*>(&seen),
                       sizeof seen) &&
          seen == theirs["nonce"]) {
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
  everybody_readable_ = in_process_ || all_read_each_other(host_of, readable_by);
  readable_ = true;
  bool light_bells = true;  // every local rank registered its fences
  std::vector<ControlHeader*> headers;
  for (int rank = 0; rank < size(); ++rank) {
    peers_[rank].host_index = host_of[rank];
    peers_[rank].local = host_of[rank] == host_of[rank_];
    readable_ &= !peers_[rank].local || std::ranges::count(readable_by[rank], rank_) > 0;
    headers.push_back(peers_[rank].control != nullptr ? &header(rank) : nullptr);
    light_bells &=
        !peers_[rank].local || headers.back()->fences.load(std::memory_order_relaxed) == 1;
    mappings_.push_back(std::make_unique<PeerMappings>(peers_[rank].pid));
  }
  bells_.connect(std::move(headers), light_bells);
  // Before anybody can end joining, and fail.
  status_ = std::make_unique<status::Writer>(about(greetings[0]["nonce"]));
  name_log(rank_, size(), in_process_ ? "thread" : host.name);
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
    if (in_process_ || peers_[rank].local) {
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
    return in_process_ || peer.host_index == peers_[0].host_index;
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
    const bool ring = in_process_ || peers_[rank].local;
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

// Said here too, not only thrown: a launcher may end this process before anyone catches.
void Context::learn_loss(const std::string& what, int rank) {
  const std::string during = progress_.operation_under_way();
  if (set_failure(Error(ErrorCode::lost_peer, what, rank))) {
    start_record();
  }
  log().failure(what,
                text(" during ", during,
                     config_.flight_recorder.empty()
                         ? "; SPRAT_FLIGHT_RECORDER=DIR keeps the last operations of each rank"
                         : ""));
}

void Context::on_control(const ControlMessage& message) {
  using Kind = ControlMessage::Kind;
  switch (message.kind) {
    case Kind::lost: {
      lost_[message.rank].store(true, std::memory_order_release);
      if (failure() == nullptr && message.rank != rank_) {
        learn_loss(text("lost ", describe_peer(message.rank), ": ", message.text), message.rank);
      }
      return;
    }
    case Kind::failed:
      if (static_cast<ErrorCode>(message.code) == ErrorCode::lost_peer && failure() == nullptr) {
        learn_loss(message.text, message.rank);
      } else if (set_failure(
                     Error(static_cast<ErrorCode>(message.code), message.text, message.rank))) {
        start_record();
      }
      return;
    case Kind::query:
      answer(message);
      return;
    case Kind::verdict:
      if (static_cast<ErrorCode>(message.code) == ErrorCode::mismatch) {
        if (set_failure(Error(ErrorCode::mismatch, message.text, message.rank))) {
          start_record();
        }
      } else {
        std::lock_guard lock(verdict_mutex_);
        verdict_communicator_ = message.comm;
        verdict_sequence_ = message.sequence;
        verdict_lateness_ = decode_lateness(message.payload);
      }
      return;
    case Kind::farewell:
      departed_[message.rank].store(true, std::memory_order_release);
      ring_self();  // somebody may wait for a message to it
      return;
    case Kind::stalled:
    case Kind::answer:
      return;
  }
}

void Context::answer(const ControlMessage& query) {
  ControlMessage reply = query;
  reply.kind = ControlMessage::Kind::answer;
  reply.rank = rank_;
  {
    const auto token = take_token();
    Recall recalled = progress_.drivers().recall(query.comm, query.sequence);
    reply.code = static_cast<int>(recalled.state);
    reply.payload = std::move(recalled.words);
  }
  if (failure() != nullptr) {  // what is called after a failure is no disagreement
    reply.code = static_cast<int>(Recall::State::forgotten);
    reply.payload.clear();
  }
  rendezvous_->tell(std::move(reply));
}

}  // namespace sprat::comm
