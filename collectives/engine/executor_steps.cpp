// How each verb of a plan is carried out.
#include <cerrno>
#include <cstring>

#include "collectives/engine/copy.hpp"
#include "collectives/engine/executor.hpp"
#include "collectives/kernels/reduce.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

// Bytes that one piece of a step reads and writes; see Executor::slice_is_over(). The fewer sources
// a reduction has, the longer its pieces; they are whole lines of every element type.
constexpr std::size_t piece_traffic = 1 << 20, piece_quantum = 4 << 10;
// What is fetched of other processes at a time, of all sources and of each: little enough to stay
// in the second-level cache.
constexpr std::size_t room_bytes = 128 << 10, least_room_bytes = 16 << 10;
constexpr std::size_t max_element_bytes = 8;

// A collective message's tag: communicator, signature, sequence, window, ordinal. The highest of a
// tag's bits is clear: it marks point-to-point messages. Messages of equal tags arrive in order, so
// a sequence or a window that wraps does no harm.
constexpr int communicator_bits = comm::Context::communicator_bits, signature_bits = 23,
              sequence_bits = 6, window_bits = 4, message_bits = 14;
static_assert(communicator_bits + signature_bits + sequence_bits + window_bits + message_bits ==
              comm::tag_bits - 1);

std::size_t piece_bytes(std::size_t sources) {
  return std::max(piece_traffic / (sources + 1) / piece_quantum, std::size_t{1}) * piece_quantum;
}

std::uint64_t low_bits(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace

bool Executor::ready(const Step& step) {
  for (const IndexRange& range : {step.after, step.behind}) {
    for (std::uint32_t before = range.first; before < range.last; ++before) {
      if (states_[before] != StepState::done) {
        return false;
      }
    }
  }
  if (step.needs == 0) {
    return true;
  }
  switch (step.verb) {
    case Verb::wait:
      return signalled(step.peer, step.needs);
    case Verb::copy:
      return step.from.rank == membership_.rank || signalled(step.from.rank, step.needs);
    case Verb::reduce:
      for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
        const int rank = plan_->sources[i].from.rank;
        if (rank != membership_.rank && !signalled(rank, step.needs)) {
          return false;
        }
      }
      return true;
    case Verb::share:
    case Verb::signal:
    case Verb::send:
    case Verb::recv:
      return true;
  }
  return true;
}

// True if the step moved; its state tells whether it is done.
bool Executor::run_step(std::uint32_t index) {
  const Step& step = plan_->steps[index];
  if (states_[index] == StepState::posted) {
    return run_message(index);
  }
  if (!ready(step)) {
    return false;
  }
  bool done = true;
  switch (step.verb) {
    case Verb::share:
      done = run_share(step);
      break;
    case Verb::signal:
      run_signal();
      break;
    case Verb::wait:
      break;
    case Verb::copy:
      done = run_copy(step);
      break;
    case Verb::reduce:
      done = run_reduce(step);
      break;
    case Verb::send:
    case Verb::recv:
      return run_message(index);
  }
  if (done) {
    partial_done_ = 0;
    states_[index] = StepState::done;
  }
  return true;
}

bool Executor::run_share(const Step& step) {
  if (inlined_ || (step.from.buffer == Buffer::input && active_->stage_input) ||
      step.from.count == 0) {
    return true;  // copied at the start, or nothing to copy
  }
  const comm::MemoryRef& ref = step.from.buffer == Buffer::input ? slot_->input : slot_->output;
  if (ref.kind == comm::MemoryRef::Kind::unreachable) {
    const std::size_t size = element_bytes(step.from.buffer);
    const View view = staged_view(step.from.buffer);
    const std::size_t block = view.counts != nullptr
                                  ? view.counts->offset(step.from.block)
                                  : static_cast<std::size_t>(step.from.block) * window_.count;
    const std::size_t bytes = step.from.count * size;
    const std::size_t piece = std::min(bytes - partial_done_, piece_bytes(1));
    const std::size_t skip = (block + step.from.offset) * size + partial_done_;
    std::memcpy(staged(step.from.buffer) + skip, address(step.from) + partial_done_, piece);
    partial_done_ += piece;
    slice_traffic_ += 2 * piece;
    return partial_done_ == bytes;
  }
  return true;
}

void Executor::run_signal() {
  ++signals_;
  if (!inlined_) {
    slot_->signals.store(Slot::progress(window_.index, signals_), std::memory_order_release);
    context_->ring(local_world_ranks_);
  }
}

// After address() was asked for it.
bool Executor::is_foreign(const Operand& operand) const {
  return peers_[operand.rank].views[static_cast<int>(operand.buffer)].foreign;
}

void Executor::fetch(int rank, const std::byte* from, std::byte* to, std::size_t bytes) const {
  const int world = membership_.world_ranks[rank];
  if (!context_->read(world, from, to, bytes)) {
    throw Unmapped{world, errno};
  }
}

bool Executor::run_copy(const Step& step) {
  const std::size_t size = element_bytes(step.to.buffer);
  const std::size_t bytes = step.to.count * size;
  const std::size_t piece = std::min(bytes - partial_done_, piece_bytes(1));
  const std::byte* from = address(step.from) + partial_done_;
  std::byte* to = own_address(step.to) + partial_done_;
  context_->wait_policy().point();
  if (is_foreign(step.from)) {
    fetch(step.from.rank, from, to, piece);
  } else if (from != to && piece > 0) {
    copy(to, from, piece, streams_ && step.to.buffer == Buffer::output);
  }
  partial_done_ += piece;
  slice_traffic_ += 2 * piece;
  return partial_done_ == bytes;
}

bool Executor::run_reduce(const Step& step) {
  const std::size_t size = element_bytes(step.to.buffer);
  const std::size_t sources = step.sources.last - step.sources.first;
  std::size_t piece = std::min(step.to.count - partial_done_, piece_bytes(sources) / size);
  terms_.clear();
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    const Source& source = plan_->sources[i];
    const bool partial = source.from.buffer == Buffer::scratch;
    terms_.push_back({address(source.from) + partial_done_ * element_bytes(source.from.buffer),
                      source.covers, partial});
  }
  context_->wait_policy().point();
  piece = fetch_terms(step, piece);
  Arithmetic arithmetic = arithmetic_of(active_->problem);
  arithmetic.complete = step.to.buffer == Buffer::output;
  arithmetic.past_cache = arithmetic.complete && streams_;
  std::byte* const to = own_address(step.to) + partial_done_ * size;
  reduce(arithmetic, terms_, to, piece);
  partial_done_ += piece;
  slice_traffic_ += (sources + 1) * piece * size;
  return partial_done_ == step.to.count;
}

/// Replaces terms in other processes by copies that stay in the cache. Returns how many of `count`
/// elements there is room for.
std::size_t Executor::fetch_terms(const Step& step, std::size_t count) {
  const auto foreign = [&](std::size_t term) {
    return is_foreign(plan_->sources[step.sources.first + term].from);
  };
  std::size_t fetched = 0;
  for (std::size_t term = 0; term < terms_.size(); ++term) {
    fetched += foreign(term) ? 1 : 0;
  }
  if (fetched == 0) {
    return count;
  }
  const std::size_t each = std::max(room_bytes / fetched, least_room_bytes) / max_element_bytes;
  count = std::min(count, each);
  room_.resize(fetched * each * max_element_bytes);
  std::byte* room = room_.data();
  for (std::size_t term = 0; term < terms_.size(); ++term) {
    if (foreign(term)) {
      const Operand& from = plan_->sources[step.sources.first + term].from;
      fetch(from.rank, static_cast<const std::byte*>(terms_[term].data), room,
            count * element_bytes(from.buffer));
      terms_[term].data = room;
      room += each * max_element_bytes;
    }
  }
  return count;
}

std::uint64_t Executor::message_tag(const Step& step) const {
  std::uint64_t tag = low_bits(membership_.id, communicator_bits);
  tag = tag << signature_bits |
        low_bits(digest(slot_->signature, active_->prior_calls_hash), signature_bits);
  tag = tag << sequence_bits | low_bits(active_->sequence, sequence_bits);
  tag = tag << window_bits | low_bits(window_.index, window_bits);
  return tag << message_bits | low_bits(step.message, message_bits);
}

/// A message came that is not as long as its receive. A transport that does not know how much
/// longer it is leaves request.bytes at 0.
void Executor::refuse_length(const Operand& operand, const comm::MessageRequest& request) const {
  const std::size_t size = element_bytes(operand.buffer);
  const bool cut = request.state == comm::MessageRequest::State::failed && request.bytes == 0;
  const std::string sent = cut ? text("more") : text(request.bytes / size);
  throw Error(ErrorCode::mismatch,
              text(context_->describe_peer(request.peer), " sends ", sent, " ",
                   name(element_type(active_->problem, operand.buffer)), " to ",
                   context_->describe_peer(context_->rank()), ", which expects ", operand.count),
              request.peer);
}

bool Executor::run_message(std::uint32_t index) {
  using State = comm::MessageRequest::State;
  const Step& step = plan_->steps[index];
  comm::MessageRequest& request = requests_[index];
  const bool sends = step.verb == Verb::send;
  const Operand& operand = sends ? step.from : step.to;
  const std::size_t bytes = operand.count * element_bytes(operand.buffer);
  const int world = membership_.world_ranks[step.peer];
  if (states_[index] == StepState::pending) {
    request = {};
    if (sends) {
      context_->messages(world).send(request, world, message_tag(step), {address(operand), bytes});
    } else {
      context_->messages(world).recv(request, world, message_tag(step),
                                     {own_address(operand), bytes});
    }
    request.peer = world;
    context_->begin_messages(1);
    if (context_->peer(world).local) {
      context_->messages(world).progress();
      context_->ring(std::span(&world, 1));
    }
    states_[index] = StepState::posted;
    return true;
  }
  switch (request.state) {
    case State::posted:
    case State::idle:
      return false;
    case State::failed:
      if (request.error == EMSGSIZE) {
        refuse_length(operand, request);
      }
      if (!wire_failure_) {
        wire_failure_ = {context_->wait_policy().now(), world, request.error, sends};
      }
      return false;
    case State::done:
      break;
  }
  if (!sends && request.bytes != bytes) {
    refuse_length(operand, request);
  }
  context_->end_messages(1);
  states_[index] = StepState::done;
  return true;
}

}  // namespace sprat::collectives
