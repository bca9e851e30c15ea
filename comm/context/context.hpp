// One rank's state in a job: its peers, the memory it shares with them, and whoever drives.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/fork.hpp"
#include "comm/context/bells.hpp"
#include "comm/context/driver.hpp"
#include "comm/context/failure_state.hpp"
#include "comm/context/joining.hpp"
#include "comm/context/memory_map.hpp"
#include "comm/context/progress.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/coordinator/gathering.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "comm/status/call_log.hpp"
#include "comm/status/status_page.hpp"
#include "comm/survival/reachability.hpp"
#include "comm/survival/survivor_listener.hpp"
#include "comm/timeline/rank_record.hpp"
#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// What a Context stands on. The defaults are the machine's; a simulation brings its own.
struct Environment {
  std::unique_ptr<Rendezvous> rendezvous;
  std::shared_ptr<SurvivorListener> survivor_listener =
      nullptr;  ///< Null: this job does not shrink.
  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  Joining::Wires wires = {};  ///< Messages between hosts; the table's if empty.
  Progress::Options progress = {};
  /// Not null: whoever starts these ranks keeps all their contexts until the last has ended, and
  /// gets this one before any peer sees it. Only then may ranks that share a process look into each
  /// other's contexts; otherwise each goes when it likes, and they are to each other as processes.
  std::shared_ptr<class Context>* keep = nullptr;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Joins a job over the rendezvous. Throws like Communicator::join. Every rank gets `world_bytes`
  /// of control memory for the communicator of all ranks, at world_control() on every local peer.
  static std::shared_ptr<Context> join(const Config& config, Environment environment,
                                       std::size_t world_bytes);
  /// Tells the others why this rank does not join, unless they have failed before it.
  static void cannot_join(Rendezvous& rendezvous, std::string_view why) noexcept;
  ~Context();
  /// A job of the ranks that are left of this one and call this too. This one stays as it is.
  /// Throws Error{unavailable}, also if fewer than `at_least` are left, Error{timeout}, or
  /// Error{lost_peer} if the others went on without this rank.
  std::shared_ptr<Context> shrink(std::size_t world_bytes, int at_least,
                                  std::chrono::milliseconds patience);

  /// False in a child of fork(): nothing of it may be used there.
  bool here() const { return mark_.here(); }
  /// Throws Error{unavailable} there.
  void require_here() const;
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Config& config() const { return config_; }
  /// The same for this rank alone: of a list by rank its own entry.
  Config own_config() const;
  WaitPolicy& wait_policy() const { return *wait_policy_; }
  const Peer& peer(int rank) const { return peers_[rank]; }
  std::vector<int> hosts() const;
  /// "rank 3 (host7, pid 42)".
  std::string describe_peer(int rank) const;

  // --- memory that local peers see: contracts are in comm/context/memory_map.hpp
  // ------------------------
  MemoryMap& memory() { return memory_; }
  std::size_t allocate_control(std::size_t bytes) { return memory_.allocate(bytes); }
  void free_control(std::size_t offset, std::size_t bytes) { memory_.release(offset, bytes); }
  void free_control_when(std::size_t offset, std::size_t bytes, std::function<bool()> is_unused) {
    memory_.release_when(offset, bytes, std::move(is_unused));
  }
  std::size_t world_control() const { return world_control_; }
  std::byte* control(std::size_t offset) { return memory_.control(offset); }
  std::byte* peer_control(int rank, std::size_t offset) { return memory_.control_of(rank, offset); }
  MemoryRef describe(const void* data, std::size_t bytes) const noexcept {
    return memory_.describe(data, bytes);
  }
  PeerMemory view(int rank, const MemoryRef& ref) { return memory_.view(rank, ref); }
  bool everybody_readable() const { return memory_.everybody_readable(); }
  bool read(int rank, const std::byte* from, std::byte* to, std::size_t bytes) const noexcept {
    return memory_.read(rank, from, to, bytes);
  }

  /// What `sprat status` sees of this rank.
  status::Writer& status() { return *status_; }
  /// Where digests of this rank's calls are kept; null: nowhere.
  status::CallLog* call_log() { return call_log_.get(); }
  /// What this rank keeps for the job's trace; null: nothing.
  timeline::RankRecord* record() { return record_.get(); }

  // --- progress: contracts are in comm/context/progress.hpp
  // ---------------------------------------------
  using Token = Progress::Token;
  Progress& progress() { return progress_; }
  Token take_token() { return progress_.take_token(); }
  Token try_token() { return progress_.try_token(); }
  bool token_wanted() const { return progress_.token_wanted(); }
  void after_token(std::function<void()> call) { progress_.after_token(std::move(call)); }
  /// Messages between it and this rank go through memory: it is on this host, or in this process.
  bool shares_memory(int rank) const { return memory_.in_process() || peers_[rank].local; }
  /// Token held.
  MessageTransport& messages(int rank) {
    return shares_memory(rank) ? progress_.local_messages() : progress_.wire_messages();
  }
  void begin_messages(int count) { progress_.begin_messages(count); }
  void end_messages(int count) { progress_.end_messages(count); }
  void begin_operation() { progress_.begin_operation(); }
  void end_operation() { progress_.end_operation(); }
  bool idle() const { return progress_.idle(); }
  bool oversubscribed() const { return progress_.oversubscribed(); }
  /// Throws in a child of fork(), where it would move its parent's shared memory, and wait for
  /// ever.
  void drive_until(const std::function<bool()>& done);
  bool drive_once() { return progress_.drive_once(); }
  void count_unattended(int delta) { progress_.count_unattended(delta); }
  void ring(std::span<const int> local_peers) { bells_.ring(local_peers); }
  void ring_self() { bells_.ring_self(); }
  void add_waited(Clock::time_point since, Clock::time_point now) {
    progress_.add_waited(since, now);
  }
  double seconds_waited() const { return progress_.seconds_waited(); }
  void add(Driver* driver) { progress_.drivers().add(driver); }  ///< Token held.
  void remove(Driver* driver) { progress_.remove(driver); }      ///< Takes the token.
  /// A communicator goes that has called so many operations: peers that wait for another one are
  /// told so. Takes the token.
  void note_freed(std::uint64_t communicator, std::uint64_t calls);
  /// The same of its messages. Token held.
  void note_messages(std::uint64_t communicator, std::vector<Drivers::Exchanged> exchanged) {
    progress_.drivers().note_messages(communicator, std::move(exchanged));
  }

  // --- failure; any thread. More is said in comm/context/failure_state.hpp
  // ------------------------------
  /// Of the whole job, which all of its communicators fail with.
  const Error* failure() const noexcept { return failure_.first(); }
  /// It has said farewell: it calls nothing any more.
  bool departed(int rank) const { return failure_.departed(rank); }
  /// It is known to be dead.
  bool lost(int rank) const { return failure_.lost(rank); }
  /// As FailureState's.
  std::shared_ptr<void> watch_ends(std::function<void(int rank)> told) {
    return failure_.watch_ends(std::move(told));
  }
  /// The job has failed here; tells every other rank. The first failure stays.
  void fail(const Error& error) noexcept;

  /// A communicator of this rank begins; it may have failed before, with what it belongs to.
  std::shared_ptr<const FailureScope> open_scope(FailureScope::About about);
  /// It ends: from here on its peers are not shown whether it has failed.
  void close_scope(const FailureScope& scope) noexcept {
    failure_.scopes().close(scope);
    failure_.forget_lateness(scope.communicator());
  }
  enum class Record { leave, none };
  /// The communicator has failed here, with all of its domain; tells every other rank. The first
  /// failure stays.
  void fail(const FailureScope& scope, const Error& error, Record record = Record::leave) noexcept;
  /// A communicator that others may have, and this rank has not: it was to be made of one that has
  /// failed meanwhile.
  void fail_unmade(std::uint64_t communicator, const Error& error) noexcept;
  /// Nothing has come from these ranks of other hosts for long: looks in the background whether
  /// their processes can be reached from here, and fails the communicator if not. A stopped one
  /// can.
  void look_for(const std::vector<int>& ranks, std::shared_ptr<const FailureScope> scope);
  /// `leave` runs once, with the first failure of a communicator or of the job, after the other
  /// ranks were told, in a thread of its own: what it writes to may hang. It takes no token and
  /// does not throw.
  void on_failure(std::function<void()> leave);
  void await_record() noexcept { failure_.await_record(); }
  /// Members of a communicator, this rank among them, give each other parts through the
  /// coordinator, each with its own of the same round. Everyone gets those of the members that came
  /// before `part.patience_ms` was over and are not gone. Throws what failed the job, or
  /// Error{timeout}.
  GatherResult gather(std::uint64_t communicator, std::uint64_t round, const GatherPart& part);
  /// Of a communicator that has failed: until no peer thread of this process can be reading this
  /// rank's memory for it. Token not held.
  void quiesce(const FailureScope& scope);
  /// This rank has waited unusually long at (communicator, sequence), of whose `members` nobody
  /// else need be asked. Ends in a failure, or nothing.
  void report_stall(std::uint64_t communicator, std::uint64_t sequence, Blob signature,
                    std::span<const int> members);
  Lateness lateness(std::uint64_t communicator, std::uint64_t sequence) {
    return failure_.lateness(communicator, sequence);
  }

  /// A communicator number that no communicator of this rank has; the caller agrees it with others.
  std::uint64_t next_communicator = 1;  ///< Guarded by the token.
  static constexpr int communicator_bits = Drivers::communicator_bits;
  /// Token held.
  /// The number is like that of one that lives, or that has failed: see Drivers and FailureScopes.
  /// Throws Error{unavailable} if failed ones have used up too many.
  bool is_like_another(std::uint64_t number);

 private:
  Context(const Config& config, Environment environment, MemoryMap memory);
  void join_by(Joining& joining, std::size_t world_bytes);
  void connect_bells();
  void keep_timeline(const std::vector<PeerInfo>& infos, const std::string& job);
  status::About about(std::uint64_t nonce) const;  ///< Rank 0's.
  void on_control(const ControlMessage& message);
  void learn_loss(const ControlMessage& message);
  void learn_mismatch(const ControlMessage& message);
  template <class Set>
  void hear_failure(const Error& error, const Set& set);
  void answer(const ControlMessage& query);
  void linger() noexcept;
  void learn_failure(const Error& error) noexcept;
  void learn_failure(std::uint64_t domain, const Error& error) noexcept;
  void fail_job_if_due(const Error& error) noexcept;
  void tell_failure(std::uint64_t domain, const Error& error, Record record) noexcept;

  ProcessMark mark_;
  Config config_;
  std::unique_ptr<WaitPolicy> wait_policy_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<SurvivorListener>
      survivor_listener_;     ///< Of this job, before and after it shrinks; null: none.
  std::vector<int> numbers_;  ///< The survivor listener's, by rank.
  int rank_ = 0;
  std::vector<Peer> peers_;
  std::vector<Context*> siblings_;  ///< The other ranks of this process, alive as long as the job.
  MemoryMap memory_;
  std::size_t world_control_ = 0;
  Bells bells_;
  Progress progress_;
  std::unique_ptr<status::Writer> status_;
  std::unique_ptr<status::CallLog> call_log_;
  std::unique_ptr<timeline::RankRecord> record_;
  FailureState failure_;
  ReachabilityCheck reachability_;  ///< Of silent ranks.
  std::mutex gathered_mutex_;       ///< Guards the one below.
  /// By (communicator, round): what has come and nobody has taken yet.
  std::map<std::pair<std::uint64_t, std::uint64_t>, GatherResult> gathered_;
};

}  // namespace sprat::comm
