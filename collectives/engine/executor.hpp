// Runs the plans of one communicator, one operation at a time, in call order.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/digests/digest_recorder.hpp"
#include "collectives/engine/eager_calls.hpp"
#include "collectives/engine/history.hpp"
#include "collectives/engine/local_peers.hpp"
#include "collectives/engine/operand_memory.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/engine/plan_cache.hpp"
#include "collectives/engine/stall_watch.hpp"
#include "collectives/engine/step_runner.hpp"
#include "collectives/plan/windows.hpp"
#include "collectives/record/recorder.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// The queue of a communicator's operations, and the phases of the one in front: it is announced,
/// cut into windows, each of which runs a plan, and left. What a phase does lies with its parts.
class Executor final : public comm::Driver, private WatchedCall {
 public:
  Executor(std::shared_ptr<comm::Context> context, Membership membership,
           std::shared_ptr<const Grouping> grouping, std::shared_ptr<const Rules> rules);
  ~Executor() override;

  /// Waits until nothing is in flight, then plans by these rules. Nobody calls meanwhile.
  void follow(std::shared_ptr<const Rules> rules);

  /// A blocking call, if it is eager, was made before and finds everything else at rest: begins,
  /// and waits for as long as it pays to hold the token. False if it is none of these, and nothing
  /// happened. A call that outlasts this goes on as the operation that `make` gives. Throws what
  /// Work::wait() does.
  bool call_eagerly(const Signature& signature, DType results, const std::byte* input,
                    std::byte* output, const std::function<std::shared_ptr<Operation>()>& make);
  /// Queues an operation and moves it as far as it goes at once; stays with a short one that the
  /// caller would wait for anyway. Any thread.
  void post(const std::shared_ptr<Operation>& operation, bool blocking);
  /// Until nothing is in flight. The token is not held.
  void drain();

  const Membership& membership() const { return membership_; }
  const Grouping& grouping() const { return *grouping_; }
  /// How the communicator fails. Shared with works, which outlast it.
  const std::shared_ptr<const comm::FailureScope>& scope() const { return scope_; }
  Recorder& recorder() { return recorder_; }
  digests::DigestRecorder& digests() { return digests_; }

  comm::Advance advance() noexcept override;
  std::uint64_t communicator() const noexcept override { return membership_.id; }
  comm::Recall called(std::uint64_t sequence) const override;
  std::string under_way() const override;

 private:
  /// Eager operations meet, others gather, run and leave.
  enum class Phase { idle, opening, meeting, gathering, running, leaving };

  void enqueue(const std::shared_ptr<Operation>& operation);
  bool is_short(const Problem& problem) const;
  void poll_alone(const Operation& operation);
  void run_first(comm::Context::Token token, comm::BulkTask& task);

  comm::Advance advance_queue();
  bool advance_active();
  void begin_active();
  bool announce();
  std::size_t most_shown_bytes() const;
  bool has_met();
  bool meet();
  bool choose_windows();
  bool choose_plan();
  void begin_window(std::size_t index);
  bool run_window();
  bool end_window();
  bool leave();
  bool read_good_memory();
  void finish_active();
  void fail_active(const Error& error);
  void fail_all(const Error& failure);
  static Recorder::PostedCall call_of(const Operation& operation);
  static digests::CallMemory memory_of(const Operation& operation);
  static digests::CallMemory memory_of(const EagerCalls::Known& known,
                                       const EagerCalls::Announcement& call, const std::byte* input,
                                       std::byte* output);
  bool is_digested() const { return digests_.on() && active_->digested; }

  // Of the active operation.
  Times times() const override;
  std::string words() const override;
  std::string name_of(int rank) const override { return context_->describe_peer(rank); }
  const WireFailure* wire_failure() const override;
  std::vector<int> members_of(std::vector<int> ranks) const;
  std::vector<int> late() const override;
  std::vector<int> silent() const override;
  std::vector<int> awaited() const override;
  bool departed(int rank) const override { return context_->departed(rank); }
  bool speaks_for_host() const override;
  void show(const std::vector<int>& ranks, std::size_t late) override;
  void report() override;
  void search() override;

  std::shared_ptr<comm::Context> context_;  ///< Shared by the communicators of a rank.
  const Membership membership_;
  std::shared_ptr<const Grouping> grouping_;

  // All below: guarded by the context's token.
  PlanCache plans_;
  Recorder recorder_;
  digests::DigestRecorder digests_;
  LocalPeers peers_;
  std::shared_ptr<const comm::FailureScope> scope_;
  OperandMemory memory_;
  StepRunner steps_;
  EagerCalls eager_;
  StallWatch stalls_;
  History history_;
  std::uint64_t prior_calls_hash_ = 0;  ///< Of the next operation.
  std::deque<std::shared_ptr<Operation>> queue_;
  std::atomic<int> in_flight_ = 0;

  // The active operation: the queue's front.
  Phase phase_ = Phase::idle;
  Operation* active_ = nullptr;
  std::shared_ptr<const Planned> planned_;
  const Planned* chosen_ = nullptr;          ///< That, or what is better if nobody calls in place.
  std::shared_ptr<const Plan> window_plan_;  ///< Of the window at hand, if there are several.
  Windows windows_;
  Window window_;
  std::uint32_t idle_calls_ = 0;
  comm::Clock::time_point peer_failed_{};  ///< When it was first seen.
};

}  // namespace sprat::collectives
