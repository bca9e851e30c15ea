// One rank's state in a job: its peers, the memory it shares with them, and whoever drives.
//
// Whoever waits, drives. A Context has one token (a mutex); its holder moves the transports and
// every registered Driver. A progress thread takes the token only for work that nobody waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/fork.hpp"
#include "comm/context/wait_policy.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "comm/memory/segment.hpp"
#include "comm/status/status_page.hpp"
#include "comm/survival/survivor_listener.hpp"
#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// What a communicator called at a sequence number, as far as it can tell.
struct Recall {
  /// Numbered as in ControlMessage::Kind::answer. Forgotten: long over.
  enum class State : std::uint8_t {
    called = 0,
    not_yet = 1,
    forgotten = 2,
    no_member = 3,
    freed = 4  ///< It has gone before that call.
  };
  State state = State::not_yet;
  Blob words = {};  ///< Of what was called: equal on all ranks that called the same.
};

/// Something that has operations in flight. Its calls are made with the token held.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Moves its operations on by at most a slice of 50 to 100 µs; returns whether anything moved.
  /// Fails all of them once Context::failure() is set.
  virtual bool advance() noexcept = 0;
  /// Which communicator it is, and what it called at a sequence number.
  static constexpr std::uint64_t no_communicator = ~std::uint64_t{0};
  virtual std::uint64_t communicator() const noexcept = 0;
  virtual Recall called(std::uint64_t sequence) const = 0;
  /// Text of the oldest operation in flight; empty if there is none.
  virtual std::string under_way() const = 0;
};

/// What a Context stands on. The defaults are the machine's; a simulation brings its own.
struct Environment {
  using Wires =
      std::function<std::unique_ptr<MessageTransport>(const Config& config, int rank, int size)>;
  std::unique_ptr<Rendezvous> rendezvous;
  std::shared_ptr<SurvivorListener> survivor_listener =
      nullptr;  ///< Null: this job does not shrink.
  std::unique_ptr<WaitPolicy> wait_policy = real_wait_policy();
  Wires wires = {};             ///< Messages between hosts; libfabric's if empty.
  bool progress_thread = true;  ///< Otherwise all work must be waited for.
  /// Not null: whoever starts these ranks keeps all their contexts until the last has ended, and
  /// gets this one before any peer sees it. Only then may ranks that share a process look into each
  /// other's contexts; otherwise each goes when it likes, and they are to each other as processes.
  std::shared_ptr<class Context>* keep = nullptr;
};

/// What is known of a peer. Immutable after joining.
struct Peer {
  pid_t pid = 0;
  std::string host;              ///< Name for people.
  int host_index = 0;            ///< Equal where memory is shared.
  bool local = false;            ///< Shares memory with this rank.
  std::byte* control = nullptr;  ///< Its control segment, if local.
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
  WaitPolicy& wait_policy() const { return *wait_policy_; }
  const Peer& peer(int rank) const { return peers_[rank]; }
  std::vector<int> hosts() const;
  /// It has said farewell: it calls nothing any more. Any thread.
  bool departed(int rank) const { return departed_[rank].load(std::memory_order_acquire); }
  /// "rank 3 (host7, pid 42)".
  std::string describe_peer(int rank) const;

  // --- memory that local peers see -------------------------------------------------------------
  /// Bytes of the control segment, 64-byte aligned: zero, or as free_control() got them. Throws
  /// Error{unavailable} when it is full.
  std::size_t allocate_control(std::size_t bytes);
  void free_control(std::size_t offset, std::size_t bytes);
  std::size_t world_control() const { return world_control_; }
  std::byte* control(std::size_t offset) { return control_->data() + offset; }
  std::byte* peer_control(int rank, std::size_t offset) { return peers_[rank].control + offset; }
  /// How peers may reach [data, data + bytes).
  MemoryRef describe(const void* data, std::size_t bytes) const noexcept;
  /// A local peer's memory, read-only. Of a process's private memory, an address to read() only.
  /// Token held.
  PeerMemory view(int rank, const MemoryRef& ref);
  /// On every host of the job, local peers can read each other's private memory. All ranks agree.
  bool everybody_readable() const { return everybody_readable_; }
  /// Copies private memory of a local peer's; false if it cannot be had.
  bool read(int rank, const std::byte* from, std::byte* to, std::size_t bytes) const noexcept;

  /// What `sprat status` sees of this rank.
  status::Writer& status() { return *status_; }

  // --- messages; token held ---------------------------------------------------------------------
  MessageTransport& messages(int rank);
  /// Polled only while someone has messages in flight.
  void begin_messages(int count) { messages_in_flight_ += count; }
  void end_messages(int count) { messages_in_flight_ -= count; }

  // --- driving ----------------------------------------------------------------------------------
  /// The token, while somebody has it. Who lets it go then gives the notices of what ended
  /// meanwhile.
  class Token {
   public:
    Token(Context& context, std::unique_lock<std::mutex> lock)
        : context_(&context), lock_(std::move(lock)) {}
    Token(Token&&) = default;
    ~Token() { unlock(); }
    explicit operator bool() const { return lock_.owns_lock(); }
    void unlock();

   private:
    Context* context_;
    std::unique_lock<std::mutex> lock_;
  };
  Token take_token() {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    wait_policy_->lock(token_);
    wanted_.fetch_sub(1, std::memory_order_relaxed);
    taken_.fetch_add(1, std::memory_order_relaxed);
    return {*this, std::unique_lock(token_, std::adopt_lock)};
  }
  /// Another thread waits in take_token(). A hint.
  bool token_wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }
  /// Empty if another thread has it.
  Token try_token() { return {*this, std::unique_lock(token_, std::try_to_lock)}; }
  /// Calls `notice` once the token has been let go. Token held.
  void after_token(std::function<void()> notice) { notices_.push_back(std::move(notice)); }
  /// Operations of drivers that are under way, each counted by its driver. Token held.
  void begin_operation() { ++operations_; }
  void end_operation() { --operations_; }
  /// Nothing but the caller's own call needs driving. Token held.
  bool idle() const {
    return operations_ == 0 && messages_in_flight_.load(std::memory_order_relaxed) == 0;
  }
  /// Ranks outnumber the cores they may use.
  bool oversubscribed() const { return oversubscribed_; }
  void add(Driver* driver);     ///< Token held.
  void remove(Driver* driver);  ///< Takes the token.
  /// A communicator goes that has called so many operations: peers that wait for another one are
  /// told so. Takes the token.
  void note_freed(std::uint64_t communicator, std::uint64_t calls);
  /// Drives until `done` is true. What makes it true rings this rank's bell. Throws in a child of
  /// fork(), where it would move its parent's shared memory, and wait for ever.
  void drive_until(const std::function<bool()>& done);
  /// One round of driving; false if nothing moved or another thread drives.
  bool drive_once();
  /// There is (delta > 0) or is no longer work in flight that nobody promised to wait for.
  void count_unattended(int delta);
  /// Wakes local peers that sleep: this rank has written something they may wait for.
  void ring(std::span<const int> local_peers);
  /// Wakes threads of this rank that sleep: an operation of theirs is done.
  void ring_self();
  void add_waited(Clock::duration time) {
    waited_ns_.fetch_add(time.count(), std::memory_order_relaxed);
  }
  /// Seconds that threads have spent in drive_until().
  double seconds_waited() const {
    return 1e-9 * static_cast<double>(waited_ns_.load(std::memory_order_relaxed));
  }

  // --- failure ----------------------------------------------------------------------------------
  /// Null while the job is well. Set once, never changes. Any thread.
  const Error* failure() const noexcept { return failure_.load(std::memory_order_acquire); }
  /// A local peer has failed, so its memory may hold anything by now. What was read of it before
  /// this returned false was good. Any thread.
  bool peer_failed(int rank) const noexcept;
  /// The job has failed here; tells every other rank. The first failure stays. Any thread.
  void fail(const Error& error) noexcept;
  /// Nothing has come from these ranks of other hosts for long: looks in the background whether
  /// their processes can be reached from here, and fails the job if not. A stopped one can. Any
  /// thread.
  void look_for(const std::vector<int>& ranks);
  /// `leave` runs once if the job fails, after the other ranks were told, in a thread of its own:
  /// what it writes to may hang. It takes no token and does not throw.
  void on_failure(std::function<void()> leave);
  /// Until `leave` is through, so that the caller may end the process; not for ever.
  void await_record() noexcept;
  /// Until no peer thread of this process can be reading this rank's memory. Token not held.
  void quiesce();
  /// This rank has waited unusually long at (communicator, sequence). Ends in a failure, or
  /// nothing.
  void report_stall(std::uint64_t communicator, std::uint64_t sequence, Blob signature);
  /// World ranks known not to have called (communicator, sequence), or to have fallen silent after
  /// that, from the last verdict about it.
  Lateness lateness(std::uint64_t communicator, std::uint64_t sequence);

  /// A communicator number that no communicator of this rank has; the caller agrees it with others.
  std::uint64_t next_communicator = 1;  ///< Guarded by the token.
  /// So many of its lowest bits are in the tags of messages.
  static constexpr int communicator_bits = 15;
  /// A communicator of this rank has the same lowest bits: messages of the two would be mixed up.
  /// Token held.
  bool is_like_another(std::uint64_t number) const;

 private:
  struct Header;
  Context(const Config& config, Environment environment);
  status::About about(std::uint64_t nonce) const;  ///< Rank 0's.
  void meet(Clock::time_point deadline);
  void open_transports(std::size_t world_bytes, Clock::time_point deadline);
  void on_control(const ControlMessage& message);
  void learn_loss(const std::string& what, int rank);
  void answer(const ControlMessage& query);
  Recall recall(std::uint64_t communicator, std::uint64_t sequence) const;
  /// False if the job had failed before.
  bool set_failure(const Error& error) noexcept;
  void start_record() noexcept;
  void leave_record() noexcept;
  void give_way();
  void run_progress_thread();
  /// At most for `with_wire` while messages are in flight.
  void sleep_until_rung(const std::function<bool()>& done, std::chrono::nanoseconds with_wire);
  void ring_bell(int rank);
  static Header& header(const Segment& segment);
  Header& header(int rank) const;
  std::string operation_under_way();

  ProcessMark mark_;
  Config config_;
  std::unique_ptr<WaitPolicy> wait_policy_;
  Environment::Wires open_wires_;
  const bool kept_, may_start_progress_thread_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<SurvivorListener>
      survivor_listener_;     ///< Of this job, before and after it shrinks; null: none.
  std::vector<int> numbers_;  ///< The survivor listener's, by rank.
  int rank_ = 0;
  bool oversubscribed_ = false;  ///< More ranks than cores on this machine: never spin.
  bool readable_ = false;        ///< Every local peer can read this process's private memory.
  bool everybody_readable_ = false;
  bool light_bells_ = false;  ///< Every local rank registered its fences.
  bool in_process_ = false;   ///< Peers are threads of this process.
  std::vector<Peer> peers_;
  std::unique_ptr<std::atomic<bool>[]> departed_, lost_;
  std::vector<Context*> siblings_;  ///< The other ranks of this process, alive as long as the job.
  std::unique_ptr<Segment> control_;
  std::vector<std::unique_ptr<PeerMapping>> control_mappings_;
  std::vector<std::unique_ptr<PeerMappings>> mappings_;
  std::vector<std::pair<std::size_t, std::size_t>> free_control_;  ///< (bytes, offset); token.
  std::size_t world_control_ = 0;
  std::size_t control_used_ = 0;  ///< Token.
  std::unique_ptr<MessageTransport> local_messages_, wire_messages_;
  std::atomic<int> messages_in_flight_ = 0;  ///< Written with the token held; relaxed.

  std::mutex token_;
  std::atomic<int> wanted_ = 0;           ///< Threads in take_token(). Relaxed: a hint.
  std::atomic<std::uint32_t> taken_ = 0;  ///< How often take_token() had it. The same.
  std::vector<Driver*> drivers_;          ///< Guarded by the token.
  struct Freed {
    std::uint64_t communicator, calls;
  };
  std::deque<Freed> freed_;                     ///< The last ones. The same.
  int operations_ = 0;                          ///< The same.
  std::vector<std::function<void()>> notices_;  ///< The same.
  std::atomic<std::int64_t> waited_ns_ = 0;

  std::mutex progress_mutex_;  ///< Guards the three below.
  std::condition_variable progress_wake_;
  int unattended_ = 0;
  bool stopping_ = false;
  std::thread progress_thread_;  ///< Started with the first unattended work.

  std::mutex search_mutex_;  ///< Guards the two below.
  bool searching_ = false;
  std::thread search_thread_;  ///< Looks for silent ranks, for some seconds.
  std::unique_ptr<status::Writer> status_;
  std::mutex leave_mutex_;  ///< Guards the four below.
  std::condition_variable left_;
  std::function<void()> leave_;
  bool leaving_ = false;  ///< leave_ runs, or was not there to be run.
  std::thread leave_thread_;

  std::atomic<const Error*> failure_ = nullptr;  ///< Release on set: the Error is complete. Owned.
  std::mutex verdict_mutex_;                     ///< Guards the three below.
  std::uint64_t verdict_communicator_ = 0, verdict_sequence_ = 0;
  Lateness verdict_lateness_;
};

inline void Context::Token::unlock() {
  if (!lock_.owns_lock()) {
    return;
  }
  std::vector<std::function<void()>> notices;
  notices.swap(context_->notices_);
  lock_.unlock();  // a notice may end the last Work that keeps the context
  for (const auto& notice : notices) {
    notice();
  }
}

}  // namespace sprat::comm
