// Runs the plans of one communicator, one operation at a time, in call order.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/engine/control_block.hpp"
#include "collectives/engine/history.hpp"
#include "collectives/engine/plan_cache.hpp"
#include "collectives/engine/stragglers.hpp"
#include "collectives/engine/work.hpp"
#include "collectives/plan/windows.hpp"
#include "collectives/record/recorder.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// One collective call, checked. Buffers belong to the library until it is done.
class Operation final : public Work::State {
 public:
  Operation(std::shared_ptr<comm::Context> context, Problem what)
      : State(std::move(context)), problem(std::move(what)), signature(signature_of(problem)) {}

  const Problem problem;
  const Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// The output overwrites blocks of the input that peers have yet to read.
  bool stage_input = false;
  std::chrono::milliseconds timeout{0};

  using State::fail;
  using State::finish;

  std::uint64_t sequence = 0;
  std::uint64_t prior_calls_hash =
      0;  ///< Digest of the calls before it that completes_locally(); 0: none.
  comm::Clock::time_point posted{}, deadline{};
};

/// Who takes part: world ranks in communicator order, and their control blocks' offsets.
struct Membership {
  std::uint64_t id = 0;
  std::string name;
  int rank = 0;
  std::vector<int> world_ranks;
  std::vector<std::size_t> control_blocks;  ///< In control segments; used for local peers.
};

class Executor final : public comm::Driver {
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
  bool call_eagerly(const Signature& signature, const std::byte* input, std::byte* output,
                    const std::function<std::shared_ptr<Operation>()>& make);
  /// Queues an operation and moves it as far as it goes at once; stays with a short one that the
  /// caller would wait for anyway. Any thread.
  void post(const std::shared_ptr<Operation>& operation, bool blocking);
  /// Until nothing is in flight. The token is not held.
  void drain();

  const Membership& membership() const { return membership_; }
  const Grouping& grouping() const { return *grouping_; }
  Recorder& recorder() { return recorder_; }

  bool advance() noexcept override;
  std::uint64_t communicator() const noexcept override { return membership_.id; }
  comm::Recall called(std::uint64_t sequence) const override;
  std::string under_way() const override;

 private:
  /// EagerPlan operations meet, others gather, run and leave.
  enum class Phase { idle, meeting, gathering, running, leaving };
  enum class StepState : std::uint8_t { pending, posted, done };

  /// A peer's buffers in the active operation, as seen from here.
  struct View {
    const std::byte* base = nullptr;
    std::size_t block_stride = 0;         ///< Elements.
    const BlockCounts* counts = nullptr;  ///< Where blocks lie, if they differ.
    std::size_t skip = 0;                 ///< Elements before the window, in each block.
    bool foreign = false;                 ///< `base` is an address to fetch() from.
    std::size_t bytes = std::numeric_limits<std::size_t>::max();  ///< From `base` on, if checked.
    std::shared_ptr<const comm::PeerMapping> mapping =
        nullptr;  ///< Kept while it is used; or null.
  };
  struct PeerState {
    ControlBlock* control_block = nullptr;  ///< Null for ranks of other hosts.
    bool announced = false;                 ///< Seen, and its signature agrees.
    View views[3];  ///< By Buffer; base null until first used in this window.
  };

  // executor_brief.cpp
  void show_eager(const EagerPlan& eager, const std::byte* input, Slot& slot);
  bool all_announced(std::uint64_t sequence, const Signature& signature) const;
  bool poll_peers(std::uint64_t sequence, const Signature& signature) const;
  bool find_inputs(const EagerPlan& eager, std::uint64_t sequence, const std::byte* input);
  bool meet();
  void remember(const Operation& operation);

  // executor_calls.cpp
  static Recorder::Call call_of(const Operation& operation);
  void enqueue(const std::shared_ptr<Operation>& operation);
  void poll_alone(const Operation& operation);

  // executor.cpp: phases
  bool advance_active();
  void begin_active();
  bool choose_plan();
  void announce();
  bool choose_windows();
  void begin_window(std::size_t index);
  bool slice_is_over() const;
  bool run_steps();
  bool end_window();
  bool leave();
  bool all_inlined() const;
  bool read_good_memory();
  void finish_active();
  void fail_all(const Error& failure);
  void watch_clock();
  void ask_who_differs();
  void report_stall(std::uint64_t sequence, comm::Clock::time_point now);
  void time_out();
  void look_for_silent_peers();

  // executor_steps.cpp: verbs
  bool run_step(std::uint32_t index);
  bool ready(const Step& step);
  bool run_share(const Step& step);
  void run_signal();
  bool run_copy(const Step& step);
  bool run_reduce(const Step& step);
  std::size_t fetch_terms(const Step& step, std::size_t count);
  bool is_foreign(const Operand& operand) const;
  void fetch(int rank, const std::byte* from, std::byte* to, std::size_t bytes) const;
  bool run_message(std::uint32_t index);
  void refuse_length(const Operand& operand, const comm::MessageRequest& request) const;
  std::uint64_t message_tag(const Step& step) const;

  // executor_memory.cpp: where operands lie
  bool announced(int rank);
  bool signalled(int rank, std::uint32_t needs);
  bool has_signalled(int rank, std::uint32_t needs) const;
  const std::byte* address(const Operand& operand);
  std::byte* own_address(const Operand& operand);
  View view_of(int rank, Buffer buffer);
  std::size_t element_bytes(Buffer buffer) const;
  bool somebody_stages() const;
  std::size_t buffer_bytes(Buffer buffer, int rank) const;
  std::size_t staging_offset(Buffer buffer, int rank) const;
  std::byte* staged(Buffer buffer);
  View staged_view(Buffer buffer) const;
  View whole_view(const std::byte* base, Buffer buffer) const;
  void prepare_memory();
  void show_buffers(Slot& slot);

  // executor_peers.cpp: whom it waits for
  void watch_peers(comm::Clock::time_point now);
  void tell_who_came(comm::Clock::time_point now, const std::vector<int>& ranks);
  comm::Clock::time_point waits_since() const;
  bool lowest_that_waits() const;
  std::string named(const std::vector<int>& world_ranks) const;
  std::vector<int> awaited() const;
  void await_step(std::uint32_t index, const std::function<void(int)>& await) const;

  /// Thrown within advance(): a peer's memory cannot be had. The step may be run again.
  struct Unmapped {
    int world_rank;
    int error;  ///< As errno.
  };
  void wait_for_news(const Unmapped& peer);
  bool exposes_memory() const;
  std::string describe_active() const;
  std::vector<int> late() const;

  std::shared_ptr<comm::Context> context_;  ///< Shared by the communicators of a rank.
  Membership membership_;
  std::shared_ptr<const Grouping> grouping_;
  PlanCache plans_;
  ControlBlock* control_block_ = nullptr;  ///< Mine.
  std::vector<PeerState> peers_;
  std::vector<int> local_peers_;        ///< Communicator ranks, without this one.
  std::vector<int> local_world_ranks_;  ///< The same, as world ranks.
  std::unique_ptr<comm::Segment> staging_, scratch_;

  // All below: guarded by the context's token.
  std::deque<std::shared_ptr<Operation>> queue_;
  std::atomic<int> in_flight_ = 0;
  History history_;
  std::uint64_t prior_calls_hash_ = 0;  ///< Of the next operation.
  Recorder recorder_;
  /// EagerPlan calls that were made before, by their signatures' digests.
  struct Known {
    Signature signature;
    std::shared_ptr<const EagerPlan> eager;  ///< Shared with its place in the cache of plans.
    Arithmetic arithmetic;
    const Algorithm* algorithm = nullptr;
    std::uint64_t bytes = 0;  ///< Of the caller's larger buffer.
  };
  std::array<Known, 16> known_;
  std::vector<const std::byte*> inputs_;  ///< Of a eager call, by rank.
  std::vector<Term> terms_;               ///< Of the reduction at hand.
  std::vector<std::byte> room_;           ///< For what is fetched of other processes.
  Stragglers stragglers_;
  comm::Clock::time_point looked_{};  ///< At who is late.

  // The active operation: the queue's front.
  Phase phase_ = Phase::idle;
  Operation* active_ = nullptr;
  Slot* slot_ = nullptr;
  const Algorithm* algorithm_ = nullptr;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Planned> out_of_place_;  ///< Instead, if no rank calls in place; or null.
  std::shared_ptr<const EagerPlan> eager_;       ///< Null unless the operation is eager.
  bool inlined_ = false;
  bool streams_ = false;  ///< Its results go past the caches.
  Windows windows_;
  Window window_;
  std::uint32_t signals_ = 0;  ///< Given in this window.
  std::vector<StepState> states_;
  std::uint32_t first_open_ = 0;
  std::vector<comm::MessageRequest> requests_;
  std::size_t partial_done_ = 0;  ///< How much is done of the one step that is under way in slices.
  std::uint32_t partial_step_ = 0;
  std::size_t slice_traffic_ = 0;  ///< Bytes read and written since advance() was called.
  std::uint32_t idle_calls_ = 0;
  comm::Clock::time_point reported_{}, unmapped_{}, stuck_since_{}, peer_failed_{};
  int unmapped_error_ = 0;  ///< Why, at first; as errno.
  /// The first message of the operation that a wire could not deliver: it never will.
  struct WireFailure {
    comm::Clock::time_point since{};
    int world_rank = -1, error = 0;
    bool sends = false;
  };
  std::optional<WireFailure> wire_failure_;
  std::chrono::seconds next_look_{0};  ///< After stuck_since_.
  bool timed_out_ = false;
};

}  // namespace sprat::collectives
