// Where the operands of the active operation lie, here and on local peers.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/engine/executor.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

std::size_t round_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::size_t Executor::element_bytes(Buffer buffer) const {
  return size_of(element_type(active_->problem, buffer));
}

/// Of one host, all of whose ranks have announced: whether a buffer that peers read is none that
/// they can.
bool Executor::somebody_stages() const {
  for (int rank = 0; rank < active_->problem.ranks(); ++rank) {
    const Slot& slot = peers_[rank].control_block->of(active_->sequence);
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      const comm::MemoryRef& ref = buffer == Buffer::input ? slot.input : slot.output;
      if (ref.kind == comm::MemoryRef::Kind::unreachable &&
          may_be_read(active_->problem, buffer, rank)) {
        return true;
      }
    }
  }
  return false;
}

std::size_t Executor::buffer_bytes(Buffer buffer, int rank) const {
  return elements_of(active_->problem, buffer, rank) * element_bytes(buffer);
}

// Announces where peers find my buffers. Inlined inputs are copied into the slot now.
void Executor::show_buffers(Slot& slot) {
  const std::size_t input_bytes = buffer_bytes(Buffer::input, membership_.rank);
  const std::size_t output_bytes = buffer_bytes(Buffer::output, membership_.rank);
  const Plan::Traits& traits = plan_->traits;
  inlined_ = traits.shares_input && !traits.shares_output && plan_->scratch_count == 0 &&
             traits.signals == 1 && input_bytes <= Slot::inline_bytes;
  slot.inlined = inlined_ ? 1 : 0;
  const bool in_place = static_cast<const void*>(active_->input) == active_->output;
  slot.in_place = in_place ? 1 : 0;
  if (inlined_) {
    std::memcpy(input_bytes <= Slot::short_bytes ? slot.short_payload : slot.payload,
                active_->input, input_bytes);
    return;
  }
  const auto shown = [&](const std::byte* data, std::size_t bytes) {
    const comm::MemoryRef ref = context_->describe(data, bytes);
    const bool foreign = ref.kind == comm::MemoryRef::Kind::process;
    return foreign && is_better_staged(active_->problem) ? comm::MemoryRef{} : ref;
  };
  const bool private_input = active_->stage_input || (traits.snapshot && in_place);
  slot.input = private_input ? comm::MemoryRef{} : shown(active_->input, input_bytes);
  slot.output = shown(active_->output, output_bytes);
}

bool Executor::exposes_memory() const {
  return !inlined_ &&
         (plan_->traits.shares_input || plan_->traits.shares_output || plan_->scratch_count > 0);
}

// Staging holds the window's input blocks, then its output blocks; odd windows use the second half.
std::size_t Executor::staging_offset(Buffer buffer, int rank) const {
  const std::size_t half = window_.index % 2 * round_to_line(context_->config().staging_bytes / 2);
  const std::size_t input =
      elements_of(active_->problem, window_, Buffer::input, rank) * element_bytes(Buffer::input);
  return buffer == Buffer::input ? half : half + round_to_line(input);
}

std::byte* Executor::staged(Buffer buffer) {
  return staging_->data() + staging_offset(buffer, membership_.rank);
}

// Memory that holds the window's part of every block, and memory that holds the blocks whole.
Executor::View Executor::staged_view(Buffer buffer) const {
  const bool differ = block_counts(active_->problem, buffer) != nullptr;
  return {nullptr, window_.count, differ ? window_.counts.get() : nullptr, 0};
}

Executor::View Executor::whole_view(const std::byte* base, Buffer buffer) const {
  return {base, active_->problem.count, block_counts(active_->problem, buffer), window_.first};
}

// Makes what the plan needs of this rank's shared memory, and shows peers where it is.
void Executor::prepare_memory() {
  const auto show = [&](const comm::Segment& segment) {
    // Threads of one process read through pointers; describe() knows.
    const comm::MemoryRef ref = context_->describe(segment.data(), segment.bytes());
    return ref.kind == comm::MemoryRef::Kind::address ? ref : segment.ref();
  };
  const bool may_stage = !inlined_ && (exposes_memory() || active_->stage_input) &&
                         (slot_->input.kind == comm::MemoryRef::Kind::unreachable ||
                          slot_->output.kind == comm::MemoryRef::Kind::unreachable);
  // An input that is staged although this rank is alone on its host comes whole, in no windows.
  const std::size_t alone = active_->stage_input && local_peers_.empty()
                                ? buffer_bytes(Buffer::input, membership_.rank)
                                : 0;
  const std::size_t staging_bytes = std::max(context_->config().staging_bytes, alone) + 4096;
  if (may_stage && (!staging_ || staging_->bytes() < staging_bytes)) {
    staging_ = std::make_unique<comm::Segment>(staging_bytes, comm::Segment::Pages::huge);
    control_block_->staging = show(*staging_);
  }
  if (plan_->scratch_count > 0) {
    const std::size_t half = round_to_line(plan_->scratch_count * element_bytes(Buffer::scratch));
    if (window_.index == 0) {
      const std::size_t bytes = std::min<std::size_t>(windows_.number, 2) * half;
      if (!scratch_ || scratch_->bytes() < bytes) {
        scratch_ = std::make_unique<comm::Segment>(bytes, comm::Segment::Pages::huge);
      }
      slot_->scratch = show(*scratch_);
      slot_->scratch_half_bytes = half;
    }
  }
  if (active_->stage_input && !inlined_ && window_.count > 0) {
    const std::size_t bytes = window_.count * size_of(active_->problem.input);
    const auto blocks = static_cast<std::size_t>(active_->problem.ranks());  // of an all-to-all
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t skip =
          (block * active_->problem.count + window_.first) * size_of(active_->problem.input);
      std::memcpy(staged(Buffer::input) + block * bytes, active_->input + skip, bytes);
    }
  }
}

// True once the peer is in the same operation. If it called another, it never becomes true: the
// coordinator says so to every rank, for control blocks hold no more than a hash of what must
// agree.
bool Executor::announced(int rank) {
  PeerState& peer = peers_[rank];
  if (peer.announced) {
    return true;
  }
  const Slot& slot = peer.control_block->of(active_->sequence);
  if (slot.announced.load(std::memory_order_acquire) != active_->sequence + 1) {
    return false;
  }
  if (!(slot.signature == slot_->signature)) {
    ask_who_differs();
    return false;
  }
  peer.announced = true;
  return true;
}

bool Executor::signalled(int rank, std::uint32_t needs) {
  return announced(rank) && has_signalled(rank, needs);
}

// Of a rank that has announced.
bool Executor::has_signalled(int rank, std::uint32_t needs) const {
  const Slot& slot = peers_[rank].control_block->of(active_->sequence);
  const std::uint64_t wanted = Slot::progress(window_.index, needs);
  return needs == 0 || (slot.inlined != 0 && needs == 1) ||
         slot.signals.load(std::memory_order_acquire) >= wanted;
}

Executor::View Executor::view_of(int rank, Buffer buffer) {
  const bool mine = rank == membership_.rank;
  if (mine && buffer != Buffer::scratch && !(active_->stage_input && buffer == Buffer::input)) {
    return whole_view(buffer == Buffer::input ? active_->input : active_->output, buffer);
  }
  const Slot& slot = peers_[rank].control_block->of(active_->sequence);
  const int world = membership_.world_ranks[rank];
  if (buffer == Buffer::input && slot.inlined != 0) {
    const bool eager = buffer_bytes(buffer, rank) <= Slot::short_bytes;
    View view = whole_view(eager ? slot.short_payload : slot.payload, buffer);
    view.bytes = eager ? Slot::short_bytes : Slot::inline_bytes;
    return view;
  }
  comm::MemoryRef ref = buffer == Buffer::input    ? slot.input
                        : buffer == Buffer::output ? slot.output
                                                   : slot.scratch;
  View view;
  if (buffer == Buffer::scratch) {
    ref.offset += window_.index % 2 * slot.scratch_half_bytes;
  } else if (ref.kind == comm::MemoryRef::Kind::unreachable) {
    ref = peers_[rank].control_block->staging;
    ref.offset += staging_offset(buffer, rank);
    view = staged_view(buffer);
  } else {
    view = whole_view(nullptr, buffer);
  }
  if (mine && ref.kind == comm::MemoryRef::Kind::segment) {
    view.base = buffer == Buffer::scratch
                    ? scratch_->data() + window_.index % 2 * slot.scratch_half_bytes
                    : staged(buffer);
    return view;
  }
  comm::PeerMemory memory = context_->view(world, ref);
  if (memory.data == nullptr) {
    throw Unmapped{world, errno};
  }
  view.base = memory.data;
  view.bytes = memory.bytes;
  view.mapping = std::move(memory.mapping);
  view.foreign = ref.kind == comm::MemoryRef::Kind::process;
  return view;
}

const std::byte* Executor::address(const Operand& operand) {
  View& view = peers_[operand.rank].views[static_cast<int>(operand.buffer)];
  if (view.base == nullptr) {
    view = view_of(operand.rank, operand.buffer);
  }
  const std::size_t block = view.counts != nullptr
                                ? view.counts->offset(operand.block)
                                : static_cast<std::size_t>(operand.block) * view.block_stride;
  const std::size_t size = element_bytes(operand.buffer);
  const std::size_t offset = (block + view.skip + operand.offset) * size;
  if (view.bytes < offset || view.bytes - offset < operand.count * size) [[unlikely]] {
    throw Unmapped{membership_.world_ranks[operand.rank],
                   EFAULT};  // it said nonsense of where that lies
  }
  return view.base + offset;
}

std::byte* Executor::own_address(const Operand& operand) {
  return const_cast<std::byte*>(address(operand));  // a rank's own buffers are its own to write
}

}  // namespace sprat::collectives
