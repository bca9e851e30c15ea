#include "comm/context/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/rank_ranges.hpp"
#include "comm/base/signals.hpp"
#include "comm/host/topology.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// A rank that leaves keeps its wire for others for so long, and looks at it so often.
constexpr auto longest_linger = 1s;
constexpr std::chrono::microseconds first_look = 20us, last_look = 1ms;
/// The coordinator ends a round of gather(): so much later it does not answer at all.
constexpr auto gather_grace = 2s;

}  // namespace

Context::Context(const Config& config, Environment environment, MemoryMap memory)
    : config_(config),
      wait_policy_(std::move(environment.wait_policy)),
      rendezvous_(std::move(environment.rendezvous)),
      survivor_listener_(std::move(environment.survivor_listener)),
      rank_(rendezvous_->rank()),
      memory_(std::move(memory)),
      bells_(*wait_policy_, memory_.header(), rank_),
      progress_(*wait_policy_, bells_, environment.progress),
      failure_(*wait_policy_, bells_,
               {.size = rendezvous_->size(),
                .record_may_hang = !config_.flight_recorder.empty() || !config_.trace.empty()}) {}

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
  const Joining::Wires wires = environment.wires;
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
  try {
    Joining joining(
        {.config = context->config_,
         .rendezvous = *context->rendezvous_,
         .survivor_listener = context->survivor_listener_.get(),
         .deadline = context->wait_policy_->now() + std::min(config.join_timeout, longest_timeout),
         .open_wire = wires,
         .may_share_process = keep != nullptr});
    context->join_by(joining, world_bytes);
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

// Told as a loss: to the others, who wait for it, a rank that cannot join is one that has gone.
void Context::cannot_join(Rendezvous& rendezvous, std::string_view why) noexcept {
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = rendezvous.rank();
  message.code = static_cast<int>(ErrorCode::lost_peer);
  try {
    message.text = text("rank ", message.rank, " cannot join: ", why);
  } catch (const std::bad_alloc&) {
    message.text.clear();  // they hear at least who it is
  }
  rendezvous.tell(std::move(message));
}

void Context::join_by(Joining& joining, std::size_t world_bytes) {
  const auto& infos = joining.meet(memory_.offer(), reinterpret_cast<std::uintptr_t>(this));
  const bool one_process = joining.neighbours().one_process;
  if (one_process) {
    for (const PeerInfo& info : infos) {
      siblings_.push_back(reinterpret_cast<Context*>(info.context));
    }
  }
  joining.map_memory(memory_);
  peers_ = joining.peers();
  connect_bells();
  // Before anybody can end joining, and fail.
  const status::About shown = about(infos.front().memory.nonce);
  status_ = std::make_unique<status::Writer>(shown);
  if (!config_.digests.folder.empty()) {
    call_log_ = std::make_unique<status::CallLog>(
        config_.digests.folder, text("sprat-", std::string(shown.job), "-rank", rank_));
  }
  keep_timeline(infos, shown.job);
  name_log(rank_, size(), one_process ? "thread" : joining.host().name);
  if (!joining.unmapped().empty()) {
    log().warn(
        "cannot map {}; the ranks of this host talk as if they were on several, which is "
        "slower (sprat doctor says why)",
        joining.unmapped());
  }
  world_control_ = allocate_control(world_bytes);
  wait_policy_->share_cores(joining.neighbours().ranks_a_core);
  const auto ring_one = [this](int peer) { ring(std::span(&peer, 1)); };
  progress_.open(joining.open_transports(memory_, ring_one), status_->waiting_threads(),
                 status_->waited_ns(), joining.neighbours().oversubscribed());
}

// All ranks do or none, for comparing clocks and collecting are calls of all. Launchers give a
// variable to the ranks of one host more easily than to all of them, so who has none goes by the
// first who has.
void Context::keep_timeline(const std::vector<PeerInfo>& infos, const std::string& job) {
  if (config_.trace.empty()) {
    const auto traced =
        std::ranges::find_if(infos, [](const PeerInfo& info) { return !info.trace.empty(); });
    if (traced == infos.end()) {
      return;
    }
    config_.trace = traced->trace;
    failure_.expect_slow_record();
    log().info("this rank keeps a timeline since rank {} has SPRAT_TRACE={}",
               traced - infos.begin(), config_.trace);
  }
  record_ = std::make_unique<timeline::RankRecord>(
      timeline::RankRecord::About{.path = config_.trace,
                                  .rank = rank_,
                                  .size = size(),
                                  .host = *peers_[rank_].host,
                                  .job = job});
  progress_.trace_waits(&record_->ring());
}

void Context::connect_bells() {
  std::vector<Bells::Bell> bells;
  bool light = true;  // every local rank registered its fences
  for (int rank = 0; rank < size(); ++rank) {
    ControlHeader* header = memory_.header(rank);
    bells.push_back({header, peers_[rank].pid});
    light &= !peers_[rank].local || header->fences.load(std::memory_order_relaxed) == 1;
  }
  bells_.connect(bells, light);
}

status::About Context::about(std::uint64_t nonce) const {
  using namespace std::chrono;
  status::About about{
      .pid = getpid(),
      .rank = rank_,
      .size = rendezvous_->size(),
      .hosts = std::ranges::max(hosts()) + 1,
      .reserved = 0,
      .started_ns = duration_cast<nanoseconds>(wait_policy_->now().time_since_epoch()).count(),
      .started_unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count(),
      .host = {},
      .job = {}};
  status::put(about.host, *peers_[rank_].host);
  status::put(about.job, text(peers_[0].pid, "-", fmt::format("{:08x}", nonce & 0xffffffff)));
  return about;
}

Context::~Context() {
  linger();
  if (record_ && here()) {
    record_->leave_part();
  }
  progress_.stop();
  reachability_.stop();
  // No control message arrives from here on. One that is being handled may still tell: the pointer
  // stays until the rendezvous is gone, which reset() would clear first.
  delete rendezvous_.get();
  static_cast<void>(rendezvous_.release());
}

/// Peers may not have taken yet what this rank has sent, and would lose it with the wire. Those
/// that leave, too, need nothing any more; others have a second.
void Context::linger() noexcept {
  const bool needed = here() && failure() == nullptr && failure_.scopes().some_ended_well() &&
                      progress_.has_wire() && !progress_.wire_messages().keeps_what_came();
  if (!needed) {
    return;
  }
  rendezvous_->say_farewell();
  const auto others_stay = [this] {
    for (int rank = 0; rank < size(); ++rank) {
      if (!peers_[rank].local && !departed(rank) && !lost(rank)) {
        return true;
      }
    }
    return false;
  };
  const Clock::time_point end = Clock::now() + longest_linger;
  for (std::chrono::microseconds pause = first_look;
       failure() == nullptr && Clock::now() < end && others_stay();
       pause = std::min<std::chrono::microseconds>(2 * pause, last_look)) {
    {
      // Providers that move data in our calls alone finish what peers take of them. Nothing tells
      // when there is such work, so it is looked for.
      const auto token = take_token();
      progress_.wire_messages().progress();
    }
    std::this_thread::sleep_for(pause);
  }
}

[[gnu::hot]] void Context::require_here() const {
  need(here(), "this process was forked by rank ", rank_,
       ", whose communicators are not usable here; join a job of its own after fork()");
}

Config Context::own_config() const {
  Config own = config_;
  own.host = named_host(config_.host, survivor_listener_ ? survivor_listener_->number() : rank_);
  return own;
}

std::vector<int> Context::hosts() const {
  std::vector<int> hosts;
  for (const Peer& peer : peers_) {
    hosts.push_back(peer.host_index);
  }
  return hosts;
}

std::string Context::describe_peer(int rank) const {
  const Peer& peer = peers_[rank];
  return memory_.in_process() ? text("rank ", rank)
                              : text("rank ", rank, " (", *peer.host, ", pid ", peer.pid, ")");
}

[[gnu::hot]] void Context::drive_until(const std::function<bool()>& done) {
  require_here();
  progress_.drive_until(done);
}

void Context::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  const auto token = take_token();
  progress_.drivers().note_freed(communicator, calls);
}

void Context::fail(const Error& error) noexcept {
  if (failure() != nullptr || !failure_.set(error)) {
    return;
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = error.rank();
  message.code = static_cast<int>(error.code());
  message.text = error.what();
  rendezvous_->tell(std::move(message));
  failure_.start_record(error.what());
}

// Others know it already: nobody is told.
void Context::learn_failure(const Error& error) noexcept {
  if (failure_.set(error)) {
    failure_.start_record(error.what());
  }
}

// A rank may be lost while a communicator with it is being made: whoever comes second, the loss or
// the communicator, finds the other.
std::shared_ptr<const FailureScope> Context::open_scope(FailureScope::About about) {
  const std::vector<int> members = about.world_ranks;
  const bool on_wire = std::ranges::any_of(members, [&](int rank) { return !shares_memory(rank); });
  about.with_job = on_wire && !progress_.wire_messages().drops_unreceived();
  auto scope = failure_.scopes().open(std::move(about));
  for (const int rank : members) {
    if (failure_.lost(rank) && scope->first() == nullptr) {
      learn_failure(scope->domain(), Error(ErrorCode::lost_peer,
                                           text("lost ", describe_peer(rank), " before"), rank));
    }
  }
  if (const Error* failure = scope->first()) {
    fail_job_if_due(*failure);
  }
  return scope;
}

void Context::fail(const FailureScope& scope, const Error& error, Record record) noexcept {
  if (scope.with_job()) {
    return fail(error);
  }
  if (scope.first() != nullptr || !failure_.set(scope.domain(), error)) {
    return;
  }
  tell_failure(scope.domain(), error, record);
  fail_job_if_due(error);  // another one of the domain may take the job along
  if (record == Record::leave) {
    failure_.start_record(error.what());
  }
}

void Context::fail_unmade(std::uint64_t communicator, const Error& error) noexcept {
  failure_.set(communicator, error);
  tell_failure(communicator, error, Record::leave);
}

void Context::tell_failure(std::uint64_t domain, const Error& error, Record record) noexcept {
  ControlMessage message;
  message.kind = ControlMessage::Kind::domain_failed;
  message.comm = domain;
  message.sequence = record == Record::leave ? 0 : 1;
  message.rank = error.rank();
  message.code = static_cast<int>(error.code());
  message.text = error.what();
  rendezvous_->tell(std::move(message));
}

void Context::learn_failure(std::uint64_t domain, const Error& error) noexcept {
  if (failure_.set(domain, error)) {
    failure_.start_record(error.what());
    fail_job_if_due(error);
  }
}

// What a failed communicator has on a wire that does not drop it would hold up all others there, so
// they fail, too.
void Context::fail_job_if_due(const Error& error) noexcept {
  if (!failure_.scopes().job_follows()) {
    return;
  }
  if (failure_.scopes().has_failed(0)) {
    learn_failure(error);  // all ranks are in the world, and hear of it as this one did
  } else {
    fail(error);
  }
}

void Context::quiesce(const FailureScope& scope) {
  const Error* failure = scope.first();
  if (failure == nullptr) {
    return;  // one operation failed, such as a message whose communicator is gone, and nothing else
  }
  for (Context* sibling : siblings_) {
    if (sibling != this) {
      sibling->learn_failure(scope.domain(), *failure);
      // Whoever drives the sibling sees the failure before its next step; what has begun ends
      // first.
      sibling->progress_.await_tasks(scope.communicator());
    }
  }
}

// Half of the numbers that tags can tell apart stay for communicators that live: who proposes one
// looks for a free one from the last on.
bool Context::is_like_another(std::uint64_t number) {
  constexpr std::size_t most_spent = std::size_t{1} << (communicator_bits - 1);
  const std::size_t spent = failure_.scopes().spent();
  need(spent < most_spent, spent,
       " communicators of this rank have failed, and their numbers are not used again; join a new "
       "job");
  return progress_.drivers().is_like_another(number) ||
         failure_.scopes().is_spent(number, communicator_bits);
}

GatherResult Context::gather(std::uint64_t communicator, std::uint64_t round,
                             const GatherPart& part) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::gather;
  message.rank = rank_;
  message.comm = communicator;
  message.sequence = round;
  message.payload = encode(part);
  rendezvous_->tell(std::move(message));
  const auto end = wait_policy_->now() +
                   std::min<std::chrono::milliseconds>(std::chrono::milliseconds(part.patience_ms),
                                                       longest_timeout) +
                   gather_grace;
  std::optional<GatherResult> result;
  drive_until([&] {  // other communicators go on meanwhile
    std::lock_guard lock(gathered_mutex_);
    if (const auto found = gathered_.find({communicator, round}); found != gathered_.end()) {
      result = std::move(found->second);
      gathered_.erase(found);
    }
    return result || failure() != nullptr || wait_policy_->now() > end;
  });
  if (!result && failure() != nullptr) {
    throw Error(*failure());
  }
  if (!result) {
    throw Error(ErrorCode::timeout, "the hub beside rank 0 did not answer", 0);
  }
  return std::move(*result);
}

void Context::report_stall(std::uint64_t communicator, std::uint64_t sequence, Blob signature,
                           std::span<const int> members) {
  // A message's text is cut beyond this; members that are so many ranges are asked with all others.
  constexpr std::size_t most_bytes = std::size_t{32} << 10;
  ControlMessage message;
  message.kind = ControlMessage::Kind::stalled;
  message.rank = rank_;
  message.comm = communicator;
  message.sequence = sequence;
  message.payload = std::move(signature);
  if (static_cast<int>(members.size()) < size()) {
    std::vector<int> ascending(members.begin(), members.end());
    std::ranges::sort(ascending);
    const Blob ranges = encode_ranks(ascending);
    if (ranges.size() <= most_bytes) {
      message.text.assign(reinterpret_cast<const char*>(ranges.data()), ranges.size());
    }
  }
  rendezvous_->tell(std::move(message));
}

void Context::on_failure(std::function<void()> leave) {
  failure_.on_failure([this, leave = std::move(leave)](const std::string& cause) {
    status_->fail(cause);
    leave();
    if (record_) {
      record_->leave_part();
    }
  });
}

void Context::look_for(const std::vector<int>& ranks, std::shared_ptr<const FailureScope> scope) {
  if (!survivor_listener_) {
    return;
  }
  std::vector<ReachabilityCheck::Target> targets;
  for (const int rank : ranks) {
    targets.push_back({rank, survivor_listener_->addresses_of(numbers_[rank])});
  }
  reachability_.start(
      std::move(targets), [scope] { return scope->first() != nullptr; },
      [this, scope](int rank) {
        fail(*scope, Error(ErrorCode::lost_peer,
                           text(describe_peer(rank_), " cannot reach ", describe_peer(rank),
                                ": nothing has come from it, and its host takes no connection"),
                           rank));
      });
}

// What the rank takes part in has failed, and no more, unless nobody can hear of anything any more:
// the coordinator lives beside rank 0.
void Context::learn_loss(const ControlMessage& message) {
  const std::string what = text("lost ", describe_peer(message.rank), ": ", message.text);
  const Error error(ErrorCode::lost_peer, what, message.rank);
  if (message.rank == 0 && !memory_.in_process()) {
    return hear_failure(error, [&] { return failure_.set(error); });
  }
  hear_failure(error, [&] {
    const std::vector<std::uint64_t> failed = failure_.set_lost(message.rank, error);
    for (const std::uint64_t domain : failed) {
      // Of a domain there may be communicators elsewhere that the lost rank was not in. The world
      // has all ranks, who hear of the loss itself.
      if (domain != 0) {
        tell_failure(domain, error, Record::leave);
      }
    }
    return !failed.empty();
  });
}

// A loss is said here too, not only thrown: a launcher may end this process before anyone catches.
template <class Set>
void Context::hear_failure(const Error& error, const Set& set) {
  const bool lost = error.code() == ErrorCode::lost_peer;
  const std::string during = lost ? progress_.operation_under_way() : std::string();
  if (!set()) {
    return;
  }
  fail_job_if_due(error);
  failure_.start_record(error.what());
  if (!lost) {
    return;
  }
  log().failure(error.what(),
                text(" during ", during,
                     config_.flight_recorder.empty()
                         ? "; SPRAT_FLIGHT_RECORDER=DIR keeps the last operations of each rank"
                         : ""));
}

void Context::on_control(const ControlMessage& message) {
  using Kind = ControlMessage::Kind;
  switch (message.kind) {
    case Kind::lost: {
      failure_.note_lost(message.rank);
      if (failure() == nullptr && message.rank != rank_) {
        learn_loss(message);
      }
      return;
    }
    case Kind::failed: {
      const Error error(static_cast<ErrorCode>(message.code), message.text, message.rank);
      return hear_failure(error, [&] { return failure_.set(error); });
    }
    case Kind::domain_failed: {
      const Error error(static_cast<ErrorCode>(message.code), message.text, message.rank);
      if (message.sequence == 0) {
        return hear_failure(error, [&] { return failure_.set(message.comm, error); });
      }
      failure_.set(message.comm, error);  // a revocation leaves no record
      fail_job_if_due(error);
      return;
    }
    case Kind::query:
      answer(message);
      return;
    case Kind::verdict:
      if (static_cast<ErrorCode>(message.code) == ErrorCode::mismatch) {
        learn_mismatch(message);
      } else {
        failure_.note_lateness(message.comm, message.sequence, decode_lateness(message.payload));
      }
      return;
    case Kind::farewell:
      failure_.note_departed(message.rank);
      ring_self();  // somebody may wait for a message to it
      return;
    case Kind::gathered:
      if (auto result = decode_gather_result(message.payload)) {
        {
          std::lock_guard lock(gathered_mutex_);
          gathered_.insert_or_assign({message.comm, message.sequence}, std::move(*result));
        }
        ring_self();
      }
      return;
    case Kind::stalled:
    case Kind::answer:
    case Kind::gather:
      return;
  }
}

// The coordinator tells all ranks, but knows no domains.
void Context::learn_mismatch(const ControlMessage& message) {
  const Error error(ErrorCode::mismatch, message.text, message.rank);
  const std::uint64_t domain = failure_.scopes().domain_of(message.comm);
  learn_failure(domain, error);
  if (domain != message.comm) {
    tell_failure(domain, error, Record::leave);
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
  // What is called after a failure is no disagreement.
  if (failure() != nullptr || failure_.scopes().has_failed(query.comm)) {
    reply.code = static_cast<int>(Recall::State::forgotten);
    reply.payload.clear();
  }
  rendezvous_->tell(std::move(reply));
}

std::shared_ptr<Context> Context::shrink(std::size_t world_bytes, int at_least,
                                         std::chrono::milliseconds patience) {
  need(survivor_listener_ != nullptr,
       "ranks that are threads of one process live and die together: their job ",
       "does not shrink");
  require(survivor_listener_->members() == numbers_,
          "this job has shrunk already; use the communicator that shrink() returned");
  require(at_least >= 1 && at_least <= size(), "at_least is ", at_least, "; it must be 1 to ",
          size());
  // What is still under way here never ends otherwise: not everybody may be left to do their part.
  fail(Error(ErrorCode::aborted, text(describe_peer(rank_), " shrinks the job"), rank_));
  const auto deadline = wait_policy_->now() + patience;
  for (;;) {
    for (int rank = 0; rank < size(); ++rank) {
      if (failure_.lost(rank)) {
        survivor_listener_->mourn(numbers_[rank]);
      }
    }
    SurvivorListener::Gathered gathered = survivor_listener_->gather(at_least, deadline);
    try {
      auto smaller = join(
          config_,
          {.rendezvous = std::move(gathered.rendezvous), .survivor_listener = survivor_listener_},
          world_bytes);
      survivor_listener_->commit(gathered.numbers);
      smaller->numbers_ = std::move(gathered.numbers);
      return smaller;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::lost_peer || wait_policy_->now() > deadline) {
        throw;
      }
      log().info("shrinking again: {}", error.what());
    }
  }
}

}  // namespace sprat::comm
