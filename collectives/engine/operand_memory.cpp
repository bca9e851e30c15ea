#include "collectives/engine/operand_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/engine/stall_watch.hpp"

namespace sprat::collectives {
namespace {

using Kind = comm::MemoryRef::Kind;

// Bytes of an input copied between two looks at the rest of the world: some 50 µs, with the token.
constexpr std::size_t copied_at_once = 256 << 10;

std::size_t round_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

OperandMemory::OperandMemory(comm::Context& context, const Membership& membership,
                             LocalPeers& peers)
    : context_(context),
      membership_(membership),
      peers_(peers),
      views_(context, membership, peers.ranks()) {}

// Of the whole call, not of a window.
std::size_t OperandMemory::buffer_bytes(Buffer buffer, int rank) const {
  return elements_of(operation_->problem, buffer, rank) * element_bytes(buffer);
}

// Hosts do not see what each other's ranks announce, so they could only cut every such call if some
// ranks staged windows of theirs.
bool OperandMemory::copies_input_whole(const Operation& operation) {
  return operation.stage_input && operation.problem.count > 0 &&
         operation.problem.grouping->hosts() > 1;
}

[[gnu::hot]] bool OperandMemory::copy_input(const Operation& operation) {
  if (!copies_input_whole(operation)) {
    return true;
  }
  const Problem& problem = operation.problem;
  const std::size_t bytes = elements_of(problem, Buffer::input, membership_.rank) *
                            size_of(element_type(problem, Buffer::input));
  if (!copied_ || copied_->bytes() < bytes) {
    copied_.reset();  // both at once may be more than there is
    copied_ = std::make_unique<comm::Segment>(bytes, comm::Segment::Pages::given_back);
  }
  const std::size_t piece = std::min(bytes - copied_bytes_, copied_at_once);
  std::memcpy(copied_->data() + copied_bytes_, operation.input + copied_bytes_, piece);
  copied_bytes_ += piece;
  if (copied_bytes_ < bytes) {
    return false;
  }
  copied_bytes_ = 0;
  return true;
}

[[gnu::hot]] void OperandMemory::announce(const Operation& operation, const Plan& plan,
                                          bool is_chosen, Slot& slot) {
  operation_ = &operation;
  slot_ = &slot;
  const std::size_t input_bytes = buffer_bytes(Buffer::input, membership_.rank);
  const std::size_t output_bytes = buffer_bytes(Buffer::output, membership_.rank);
  const Plan::Traits& traits = plan.traits;
  // Of a plan that stays: another one may signal oftener, or ask who is in place.
  inlined_ = is_chosen && traits.shares_input && !traits.shares_output && plan.own_count() == 0 &&
             traits.signals == 1 && input_bytes <= Slot::inline_bytes;
  opened_ = inlined_;
  exposed_ = false;
  if (inlined_) {
    slot.marks = Slot::inlined;
    std::memcpy(peers_.mine().inlined_input(operation.sequence, input_bytes), operation.input,
                input_bytes);
    return;
  }
  const auto described = [&](const std::byte* data, std::size_t bytes) {
    const comm::MemoryRef ref = context_.describe(data, bytes);
    return ref.kind == Kind::process && is_better_staged(operation.problem) ? comm::MemoryRef{}
                                                                            : ref;
  };
  // What this rank overwrites while peers read must not be read where it lies.
  const bool in_place = static_cast<const void*>(operation.input) == operation.output;
  const bool whole = copies_input_whole(operation);
  const bool staged = operation.stage_input || (traits.snapshot && in_place);
  const comm::MemoryRef input = whole    ? shown(*copied_)
                                : staged ? comm::MemoryRef{}
                                         : described(operation.input, input_bytes);
  const comm::MemoryRef output = described(operation.output, output_bytes);
  stages_input_ = input.kind == Kind::unreachable;
  stages_output_ = output.kind == Kind::unreachable;
  opened_ = is_chosen && traits.opening > 0 && !(traits.shares_input && stages_input_) &&
            !(traits.shares_output && stages_output_);
  slot.places.input = input;
  slot.places.output = output;
  slot.marks = (opened_ ? Slot::opened : 0U) | (in_place ? Slot::in_place : 0U);
}

void OperandMemory::follow_inlined(const Operation& operation, Slot& slot) {
  operation_ = &operation;
  slot_ = &slot;
  inlined_ = true;
  opened_ = true;
  exposed_ = false;
}

bool OperandMemory::somebody_stages() const {
  const Problem& problem = operation_->problem;
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    const Slot& slot = peers_.slot(rank, operation_->sequence);
    if (slot.is(Slot::inlined)) {
      continue;
    }
    if ((slot.places.input.kind == Kind::unreachable &&
         may_be_read(problem, Buffer::input, rank)) ||
        (slot.places.output.kind == Kind::unreachable &&
         may_be_read(problem, Buffer::output, rank))) {
      return true;
    }
  }
  return false;
}

bool OperandMemory::somebody_in_place() const {
  const void* input = operation_->input;
  return input == operation_->output || std::ranges::any_of(peers_.ranks(), [&](int peer) {
           return peers_.slot(peer, operation_->sequence).is(Slot::in_place);
         });
}

[[gnu::hot]] void OperandMemory::begin(const Plan& plan, const Windows& windows,
                                       const Window& window) {
  window_ = &window;
  exposed_ |=
      !inlined_ && (plan.traits.shares_input || plan.traits.shares_output || plan.own_count() > 0);
  views_.begin_window();
  const bool stages_first = operation_->stage_input && stages_input_ && !inlined_;
  if (stages_first || (exposed_ && !inlined_ && (stages_input_ || stages_output_))) {
    prepare_staging();
  }
  if (plan.own_count() > 0) {
    prepare_own(plan, windows);
  }
  const auto blocks = static_cast<std::size_t>(operation_->problem.ranks());  // of an all-to-all
  unstaged_bytes_ = stages_first ? blocks * window.count * element_bytes(Buffer::input) : 0;
}

// Threads of one process read through pointers; describe() knows.
comm::MemoryRef OperandMemory::shown(const comm::Segment& segment) const {
  const comm::MemoryRef ref = context_.describe(segment.data(), segment.bytes());
  return ref.kind == Kind::address ? ref : segment.ref();
}

void OperandMemory::prepare_staging() {
  const std::size_t bytes = context_.config().staging_bytes + 4096;
  if (!staging_ || staging_->bytes() < bytes) {
    staging_ = std::make_unique<comm::Segment>(bytes, comm::Segment::Pages::huge);
    peers_.mine().staging = shown(*staging_);
  }
}

// Scratch, then contributions. Windows alternate between two halves, so that peers may still read
// the last one's partials.
void OperandMemory::prepare_own(const Plan& plan, const Windows& windows) {
  if (window_->index > 0) {
    return;  // the first window is the largest
  }
  const std::size_t scratch = round_to_line(plan.scratch_count * element_bytes(Buffer::scratch));
  const std::size_t half =
      scratch + round_to_line(plan.contributions_count * element_bytes(Buffer::contributions));
  const std::size_t bytes = std::min<std::size_t>(windows.number, 2) * half;
  if (!scratch_ || scratch_->bytes() < bytes) {
    scratch_ = std::make_unique<comm::Segment>(bytes, comm::Segment::Pages::huge);
  }
  slot_->scratch = shown(*scratch_);
  slot_->scratch_half_bytes = half;
  slot_->contributions_offset = scratch;
}

// Where in a rank's own shared memory that buffer lies in this window.
std::size_t OperandMemory::own_offset(const Slot& slot, Buffer buffer) const {
  const std::size_t half = window_->index % 2 * slot.scratch_half_bytes;
  return buffer == Buffer::contributions ? half + slot.contributions_offset : half;
}

// From the first block that is not copied whole.
[[gnu::hot]] bool OperandMemory::stage_input() {
  const Problem& problem = operation_->problem;
  const std::size_t size = size_of(problem.input), bytes = window_->count * size;
  for (std::size_t left = copied_at_once; unstaged_bytes_ > 0 && left > 0;) {
    const std::size_t done = bytes * static_cast<std::size_t>(problem.ranks()) - unstaged_bytes_;
    const std::size_t block = done / bytes, within = done % bytes;
    const std::size_t skip = (block * problem.count + window_->first) * size;
    const std::size_t piece = std::min(bytes - within, left);
    std::memcpy(staged(Buffer::input) + done, operation_->input + skip + within, piece);
    unstaged_bytes_ -= piece;
    left -= piece;
  }
  return unstaged_bytes_ == 0;
}

// Staging holds the window's input blocks, then its output blocks; odd windows use the second half.
std::size_t OperandMemory::staging_offset(Buffer buffer, int rank) const {
  const std::size_t half = window_->index % 2 * round_to_line(context_.config().staging_bytes / 2);
  const std::size_t input = elements_of(operation_->problem, *window_, Buffer::input, rank) *
                            element_bytes(Buffer::input);
  return buffer == Buffer::input ? half : half + round_to_line(input);
}

std::byte* OperandMemory::staged(Buffer buffer) {
  return staging_->data() + staging_offset(buffer, membership_.rank);
}

// Memory that holds the window's part of every block, and memory that holds the blocks whole.
OperandMemory::View OperandMemory::staged_view(Buffer buffer) const {
  const bool differ = block_counts(operation_->problem, buffer) != nullptr;
  return {nullptr, window_->count, differ ? window_->counts.get() : nullptr, 0};
}

OperandMemory::View OperandMemory::whole_view(const std::byte* base, Buffer buffer) const {
  return {base, operation_->problem.count, block_counts(operation_->problem, buffer),
          window_->first};
}

[[gnu::hot]] std::byte* OperandMemory::staged_for_peers(const Operand& operand) {
  const bool input = operand.buffer == Buffer::input;
  const bool stages = input ? stages_input_ : stages_output_;
  if (inlined_ || (input && operation_->stage_input) || operand.count == 0 || !stages) {
    return nullptr;  // it was copied before, or there is nothing to copy
  }
  const View view = staged_view(operand.buffer);
  const std::size_t block = view.counts != nullptr
                                ? view.counts->offset(operand.block)
                                : static_cast<std::size_t>(operand.block) * view.block_stride;
  return staged(operand.buffer) + (block + operand.offset) * element_bytes(operand.buffer);
}

[[gnu::hot]] OperandMemory::View OperandMemory::view_of(int rank, Buffer buffer) {
  const bool mine = rank == membership_.rank;
  if (mine && buffer == Buffer::input && !inlined_ && copies_input_whole(*operation_)) {
    return whole_view(copied_->data(), buffer);
  }
  if (mine && !is_own(buffer) && !(operation_->stage_input && buffer == Buffer::input)) {
    return whole_view(buffer == Buffer::input ? operation_->input : operation_->output, buffer);
  }
  const Slot& slot = peers_.slot(rank, operation_->sequence);
  if (buffer == Buffer::input && slot.is(Slot::inlined)) {
    const std::size_t bytes = buffer_bytes(buffer, rank);
    View view =
        whole_view(peers_.control_block(rank).inlined_input(operation_->sequence, bytes), buffer);
    view.bytes = bytes <= Slot::short_bytes ? Slot::short_bytes : Slot::inline_bytes;
    return view;
  }
  return view_of_announced(rank, buffer);
}

// By what its owner has announced of it: read only after an announcement has been seen, which
// acquires it.
[[gnu::hot]] OperandMemory::View OperandMemory::view_of_announced(int rank, Buffer buffer) {
  const Slot& slot = peers_.slot(rank, operation_->sequence);
  comm::MemoryRef ref = buffer == Buffer::input    ? slot.places.input
                        : buffer == Buffer::output ? slot.places.output
                                                   : slot.scratch;
  View view;
  if (is_own(buffer)) {
    ref.offset += own_offset(slot, buffer);
  } else if (ref.kind == Kind::unreachable) {
    ref = peers_.control_block(rank).staging;
    ref.offset += staging_offset(buffer, rank);
    view = staged_view(buffer);
  } else {
    view = whole_view(nullptr, buffer);
  }
  if (rank == membership_.rank && ref.kind == Kind::segment) {
    view.base = is_own(buffer) ? scratch_->data() + own_offset(slot, buffer) : staged(buffer);
    return view;
  }
  const comm::PeerMemory& memory = views_.memory_at(ref, rank, buffer);
  view.base = memory.data;
  view.bytes = memory.bytes;
  view.foreign = ref.kind == Kind::process;
  return view;
}

[[gnu::hot]] const std::byte* OperandMemory::address(const Operand& operand) {
  const View* found = views_.find(operand.rank, operand.buffer);
  const View& view = found != nullptr ? *found
                                      : views_.keep(operand.rank, operand.buffer,
                                                    view_of(operand.rank, operand.buffer));
  const std::size_t block = view.counts != nullptr
                                ? view.counts->offset(operand.block)
                                : static_cast<std::size_t>(operand.block) * view.block_stride;
  const std::size_t size = element_bytes(operand.buffer);
  const std::size_t offset = (block + view.skip + operand.offset) * size;
  if (view.bytes < offset || view.bytes - offset < operand.count * size) [[unlikely]] {
    // Its owner said nonsense of where that lies.
    throw Unmapped{membership_.world_ranks[operand.rank], EFAULT};
  }
  return view.base + offset;
}

}  // namespace sprat::collectives
