// The verbs of a plan: carries out its steps on this rank.
//
// A step is started when all that it depends on is complete, and is asked from then on until it is
// complete itself. A message is asked of its transport. Copies and reductions go piece by piece: a
// small piece is done at once, a larger one is left for whoever drives, who does it without the
// token. One of them is under way at once: the processor has nothing to gain from two, and what it
// has just read is still in its caches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/engine/bulk_work.hpp"
#include "collectives/engine/local_peers.hpp"
#include "collectives/engine/operand_memory.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/engine/stall_watch.hpp"
#include "collectives/engine/step_order.hpp"
#include "collectives/plan/plan.hpp"
#include "collectives/plan/windows.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// Of one window of one operation at a time. Its context's token is held.
class StepRunner final {
 public:
  /// All that is borrowed outlives it.
  StepRunner(comm::Context& context, const Membership& membership, LocalPeers& peers,
             OperandMemory& memory);

  /// Begins a window, as `memory` does before the next advance(). Operation, plan and window live
  /// until it is over.
  void begin(const Operation& operation, const Plan& plan, const Window& window);
  /// Starts and asks steps until all are complete, nothing more can be done now, a slice has been
  /// read and written, or a piece of work is left. False if nothing moved. Throws Unmapped, after
  /// which it may be called again, and Error{mismatch}.
  bool advance();
  /// What is left: it is to be run before the next advance(). Null: nothing.
  comm::BulkTask* left() { return work_.waits() ? &work_ : nullptr; }
  bool begun() const { return order_.first_open() > 0; }
  bool over() const { return order_.over(); }
  /// Some step of this window or of one before it reads peers' memory.
  bool reads_peers() const { return reads_peers_; }
  /// Withdraws all messages, and what is left.
  void cancel() noexcept;

  /// Pieces that read and write fewer bytes are done at once, with the token, from the next step
  /// on. As long as nobody else wants it that is the fastest for all of them.
  void leave_work_from(std::size_t traffic) { least_left_ = traffic; }

  void begin_slice() { slice_traffic_ = 0; }
  /// Others may want the token.
  bool slice_is_over() const;
  /// It is over now: whoever drives did bulk work of another kind. True, for that has moved.
  bool end_slice();

  /// Communicator ranks that its steps wait for now; a rank may come up more than once.
  std::vector<int> awaited() const;
  /// World ranks of other hosts with whom messages are under way.
  std::vector<int> far_peers() const;
  /// The first of the operation.
  const std::optional<WireFailure>& wire_failure() const { return wire_failure_; }
  void forget_wire_failure() { wire_failure_.reset(); }

 private:
  /// A copy, share or reduction that has been started.
  struct Bulk {
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    std::uint32_t step = none;
    std::size_t done = 0;     ///< Bytes of a copy, elements of a reduction.
    std::size_t piece = 0;    ///< The same of what is being done.
    std::size_t traffic = 0;  ///< Bytes that the piece reads and writes.
  };

  bool advance_steps();
  void tell_left();
  bool signals_have_come(const Step& step);
  bool move(std::uint32_t index);
  void start(std::uint32_t index);
  bool is_complete(std::uint32_t index);
  void start_signal();
  bool bulk_is_over(const Step& step);
  void cut_piece(const Step& step);
  void cut_copy(const BulkWork::Origin& from, const BulkWork::Target& to);
  void cut_reduction(const Step& step);
  std::size_t piece_bytes(std::size_t sources) const;
  void start_message(std::uint32_t index);
  bool message_is_over(std::uint32_t index);
  [[noreturn]] void refuse_length(const Operand& operand,
                                  const comm::MessageRequest& request) const;
  BulkWork::Origin source_of(const Operand& operand);
  std::size_t bytes_of(const Operand& operand) const;
  std::uint64_t tag_of(const Step& step) const;

  comm::Context& context_;
  const Membership& membership_;
  LocalPeers& peers_;
  OperandMemory& memory_;

  const Operation* operation_ = nullptr;
  const Plan* plan_ = nullptr;
  const Window* window_ = nullptr;
  bool streams_ = false;  ///< Results go past the caches.
  std::uint32_t signals_ = 0;
  StepOrder order_;
  bool reads_peers_ = false;
  bool has_told_left_ = false;  ///< That it reads nothing of its peers any more in this window.
  std::vector<comm::MessageRequest> requests_;
  Bulk bulk_;
  BulkWork work_;
  std::size_t least_left_;
  std::size_t slice_traffic_ = 0;  ///< Bytes read and written since begin_slice().
  bool has_sent_ = false;          ///< To another host, since the wire was flushed.
  std::optional<WireFailure> wire_failure_;
};

}  // namespace sprat::collectives
