// Where the operands of an operation lie, on this rank and on its local peers.
//
// A rank's input and output lie with its caller. Peers read them there if they can, else in the
// rank's staging memory; scratch and contributions are shared memory of the library's own. A short
// input travels in the announcement itself: it is inlined.
#pragma once

#include <cstddef>
#include <memory>

#include "collectives/engine/local_peers.hpp"
#include "collectives/engine/local_views.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/plan/plan.hpp"
#include "collectives/plan/windows.hpp"
#include "comm/context/context.hpp"
#include "comm/memory/segment.hpp"

namespace sprat::collectives {

/// Of one operation at a time. Its context's token is held.
class OperandMemory final {
 public:
  /// All that is borrowed outlives it.
  OperandMemory(comm::Context& context, const Membership& membership, LocalPeers& peers);

  /// On several hosts, of a call whose input its output overwrites: copies the next piece of it.
  /// To be called until it returns true, before the call is announced.
  bool copy_input(const Operation& operation);
  /// Writes into `slot`, before it is announced, where peers find the buffers; or the input, if it
  /// is short. Operation and slot live as long as the operation is carried out. Only if the
  /// plan `is_chosen` for good, its opening is told with that.
  void announce(const Operation& operation, const Plan& plan, bool is_chosen, Slot& slot);
  /// The same of a call whose input is in the slot already.
  void follow_inlined(const Operation& operation, Slot& slot);
  /// Makes what the window needs of shared memory, and shows peers where it is. Plan and window
  /// live as long as it is the window.
  void begin(const Plan& plan, const Windows& windows, const Window& window);

  /// Of the window: copies the next piece of an input that the output overwrites. Peers are told of
  /// nothing, and the output is not written, until it has returned true: all of it is staged.
  bool stage_input();

  /// The input travelled in the announcement.
  bool inlined() const { return inlined_; }
  /// So did those of all local peers, as far as they have announced the same.
  bool all_inlined() const { return inlined_ && peers_.all_inlined(); }
  /// With the announcement all has been done that is the plan's opening.
  bool opened() const { return opened_; }
  /// Peers read this rank's memory, in this window or in one before it: they may still be there.
  bool exposed() const { return exposed_; }
  /// On one host, all of whose ranks have announced: a buffer that peers read is none that they
  /// can.
  bool somebody_stages() const;
  /// The same: a rank whose output lies over its input.
  bool somebody_in_place() const;

  std::size_t element_bytes(Buffer buffer) const {
    return size_of(element_type(operation_->problem, buffer));
  }
  /// Throws Unmapped.
  const std::byte* address(const Operand& operand);
  /// Of this rank.
  std::byte* own_address(const Operand& operand) {
    return const_cast<std::byte*>(address(operand));  // a rank's own buffers are its own to write
  }
  /// After address(): that is of another process, to be read through the kernel.
  bool is_foreign(const Operand& operand) const {
    return views_.find(operand.rank, operand.buffer)->foreign;
  }
  /// Where peers look for this rank's operand if that has to be copied for them; else null.
  std::byte* staged_for_peers(const Operand& operand);

 private:
  using View = LocalViews::View;

  static bool copies_input_whole(const Operation& operation);
  std::size_t buffer_bytes(Buffer buffer, int rank) const;
  std::size_t staging_offset(Buffer buffer, int rank) const;
  std::byte* staged(Buffer buffer);
  View staged_view(Buffer buffer) const;
  View whole_view(const std::byte* base, Buffer buffer) const;
  View view_of(int rank, Buffer buffer);
  View view_of_announced(int rank, Buffer buffer);
  comm::MemoryRef shown(const comm::Segment& segment) const;
  void prepare_staging();
  void prepare_own(const Plan& plan, const Windows& windows);
  std::size_t own_offset(const Slot& slot, Buffer buffer) const;

  comm::Context& context_;
  const Membership& membership_;
  LocalPeers& peers_;
  LocalViews views_;
  /// Kept from call to call: for windows, for partials, and the copy of an input that other hosts'
  /// blocks overwrite.
  std::unique_ptr<comm::Segment> staging_, scratch_, copied_;
  std::size_t copied_bytes_ = 0;    ///< Of the call that copies its input whole.
  std::size_t unstaged_bytes_ = 0;  ///< Of the window's input that is staged before it begins.
  const Operation* operation_ = nullptr;
  Slot* slot_ = nullptr;
  const Window* window_ = nullptr;
  bool inlined_ = false, opened_ = false, exposed_ = false;
  // Of what is not inlined. Kept here: peers are taking the slot's line away when it is asked.
  bool stages_input_ = false, stages_output_ = false;
};

}  // namespace sprat::collectives
