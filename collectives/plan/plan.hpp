// What one rank does in a collective: steps that depend on earlier steps.
//
// A plan speaks of buffers by name. `input` and `output` are the caller's, made of blocks
// (problem.counts, or problem.count each). Two more are the rank's own shared memory: `scratch`, of
// Problem::accumulator() for reductions and of the input type otherwise; and `contributions`, of
// the input type, where a reduction keeps what other ranks contribute, each as it was called. The
// rank may read any peer's buffer on its own host, and writes only its own. Between hosts there are
// messages; collectives that exchange() have them everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

enum class Buffer : std::uint8_t { input, output, scratch, contributions };
inline constexpr std::size_t buffer_kinds = 4;  ///< Enumerators of Buffer.
const char* name(Buffer buffer) noexcept;

/// Neither the caller's input nor output.
constexpr bool is_own(Buffer buffer) {
  return buffer == Buffer::scratch || buffer == Buffer::contributions;
}

/// `count` elements at `offset` of block `block` of a rank's buffer. scratch and contributions have
/// one block, 0.
struct Operand {
  int rank = 0;
  Buffer buffer = Buffer::input;
  int block = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// A term of a reduction: the partial result of ranks [covers.first, covers.last); in a plan whose
/// order is `any`, of the ranks at these places of whatever line it has them stand in.
/// In scratch it is a partial; elsewhere one rank's contribution (covers one rank).
struct Source {
  Operand from;
  RankRange covers;
};

/// A half-open range of indices into Plan::steps or Plan::sources.
struct IndexRange {
  std::uint32_t first = 0, last = 0;
};

enum class Verb : std::uint8_t {
  share,   ///< Peers on this host will read `from` (mine). Copies it if it is in private memory.
  signal,  ///< Tells every rank of this host: my signal count is now one higher.
  wait,    ///< Until `peer` (of this host) has signalled `needs` times.
  copy,    ///< from -> to; a peer's `from` is a pull.
  reduce,  ///< sources -> to, as a tree (problem.hpp). To output: complete, op applied, rounded
           ///< once. To scratch: a partial over the sources' joint range.
  send,    ///< from (mine) -> peer. Its k-th recv from me gets my k-th send to it.
  recv,    ///< peer's message -> to (mine).
};
const char* name(Verb verb) noexcept;

struct Step {
  Verb verb = Verb::wait;
  std::uint32_t needs = 0;  ///< Every peer whose memory this step reads has signalled this often.
  std::int32_t peer = -1;   ///< send, recv, wait.
  std::uint32_t message =
      0;               ///< send, recv: its ordinal among this pair's messages of that direction.
  IndexRange after;    ///< These steps are complete before this one starts.
  IndexRange sources;  ///< reduce.
  /// These receives are complete before it starts. It needs nothing of them: who sends no faster
  /// than it receives crowds nobody's wire.
  IndexRange behind;
  /// share: peers read a copy made now even of shared memory, for this rank may overwrite `from`
  /// (in place) while they read.
  bool snapshot = false;
  Operand from, to;
};

class Plan;

/// A step that a builder of Plan has added: where it stands, and what it waits for if that is not
/// the round before it. It refers to the plan, which must outlive it.
class AddedStep {
 public:
  AddedStep(Plan& plan, std::uint32_t index) : plan_(plan), index_(index) {}

  /// Sets Step::after. Returns itself.
  const AddedStep& after(IndexRange steps) const;
  /// Sets Step::behind. Returns itself.
  const AddedStep& behind(IndexRange steps) const;
  /// This step alone, for those that come after it.
  IndexRange alone() const { return {index_, index_ + 1}; }
  /// Its index into Plan::steps.
  operator std::uint32_t() const { return index_; }

 private:
  Plan& plan_;
  std::uint32_t index_;
};

/// Built by an algorithm, immutable afterwards. Steps of a round run in any order.
class Plan {
 public:
  explicit Plan(const Problem& problem) : rank_(problem.rank) {}

  std::vector<Step> steps;
  std::vector<Source> sources;
  std::size_t scratch_count = 0;        ///< Elements of scratch.
  std::size_t contributions_count = 0;  ///< Elements of contributions.
  std::string algorithm;
  ReduceOrder order = ReduceOrder::canonical;

  /// What executors ask of it over and over; settle() works it out.
  struct Traits {
    /// From this step on, none reads a peer's memory on this host; 0: none at all does.
    std::uint32_t reads_until = 0;
    bool shares_input = false;   ///< Peers read this rank's input,
    bool shares_output = false;  ///< its output,
    bool snapshot = false;       ///< or a copy of its input made when it is shared.
    std::uint32_t signals = 0;   ///< How often this rank signals.
    /// The plan begins with so many steps that share what the caller gave and then signal: they
    /// need nothing that comes before them.
    std::uint32_t opening = 0;
  };
  Traits traits;

  /// Builders. Each adds a step to the current round.
  AddedStep share(const Operand& mine);
  AddedStep share_snapshot(const Operand& mine);
  /// Comes after all that this round holds so far. A plan's signals must be ordered among
  /// themselves.
  AddedStep signal();
  AddedStep wait(int peer, std::uint32_t needs);
  AddedStep copy(const Operand& from, const Operand& to, std::uint32_t needs = 0);
  AddedStep reduce(std::span<const Source> terms, const Operand& to, std::uint32_t needs = 0);
  AddedStep send(int peer, const Operand& from);
  AddedStep recv(int peer, const Operand& to);
  /// The index that the next step gets, and all steps from `first` on.
  std::uint32_t next_index() const { return static_cast<std::uint32_t>(steps.size()); }
  IndexRange since(std::uint32_t first) const { return {first, next_index()}; }
  /// What is added from now on starts only when all that the last round added is complete.
  void next_round();
  /// Starts an independent lane: what is added from now on depends on nothing before it.
  void next_lane();
  /// Elements of scratch to use, each call a new piece aligned to 64 elements.
  Operand scratch(std::size_t count);
  /// The same for what a reduction holds of these ranks: in contributions if it is one rank, else
  /// in scratch.
  Operand room_for(RankRange covers, std::size_t count);
  /// Elements that are neither the caller's input nor output.
  std::size_t own_count() const { return scratch_count + contributions_count; }

  /// After the last step.
  void settle();

 private:
  Step& add(Verb verb);
  AddedStep last();
  Operand take(Buffer buffer, std::size_t& taken, std::size_t count) const;
  int rank_;
  std::uint32_t round_begin_ = 0;
  IndexRange previous_;
  std::vector<std::uint32_t> sent_, received_;  ///< Messages so far, by peer.
};

/// What a plan moves, as an algorithm predicts it and as a plan counts it, for one rank.
struct Cost {
  int rounds = 0;                  ///< Longest chain of messages, waits and reads of peers.
  std::size_t bytes_sent = 0;      ///< By messages.
  std::size_t bytes_received = 0;  ///< By messages.
  std::size_t bytes_pulled = 0;    ///< Read from peers on this host.
  bool operator==(const Cost&) const = default;
};

Cost count(const Problem& problem, const Plan& plan);

/// The element type of a buffer.
DType element_type(const Problem& problem, Buffer buffer);
/// Bytes of an element of what a reduction holds of these ranks; see Plan::room_for().
std::size_t partial_size(const Problem& problem, RankRange covers);
/// Blocks that a rank's input or output has: none where only the root has that buffer.
int blocks_of(const Problem& problem, Buffer buffer, int rank);
/// The counts of a buffer's blocks where they differ, else null.
const BlockCounts* block_counts(const Problem& problem, Buffer buffer);
/// Elements of one of these blocks, and elements of the buffer before it.
std::size_t count_of(const Problem& problem, Buffer buffer, int rank, int block);
std::size_t offset_of(const Problem& problem, Buffer buffer, int block);
/// All elements of a rank's input or output.
std::size_t elements_of(const Problem& problem, Buffer buffer, int rank);
/// A whole block of a rank's buffer, and a piece of an operand.
Operand input_of(const Problem& problem, int rank, int block = 0);
Operand output_of(const Problem& problem, int rank, int block = 0);
Operand piece_of(const Operand& whole, const Slice& slice);

/// A readable listing, a line a step.
std::string describe(const Plan& plan);

}  // namespace sprat::collectives
