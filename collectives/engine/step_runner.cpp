#include "collectives/engine/step_runner.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "collectives/engine/copy.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

// Bytes read and written between two looks at the rest of the world: some 50 to 100 µs of work. A
// piece of a step is about as long, so that slices end soon after. Half of it took up to a fifth
// longer where four ranks reduce 16 MiB on two cores.
constexpr std::size_t most_traffic = 1 << 20;
// The same of a piece that keeps nobody waiting: a millisecond, after which failures are heard of.
constexpr std::size_t most_traffic_alone = 16 << 20;
// Pieces are whole lines of every element type.
constexpr std::size_t piece_quantum = 4 << 10;

// A collective message's tag: communicator, signature, sequence, window, ordinal. The highest of a
// tag's bits is clear: it marks point-to-point messages. Messages of equal tags arrive in order, so
// a sequence or a window that wraps does no harm.
constexpr int communicator_bits = comm::Context::communicator_bits, signature_bits = 23,
              sequence_bits = 6, window_bits = 4, message_bits = 14;
static_assert(communicator_bits + signature_bits + sequence_bits + window_bits + message_bits ==
              comm::tag_bits - 1);

std::uint64_t low_bits(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace

StepRunner::StepRunner(comm::Context& context, const Membership& membership, LocalPeers& peers,
                       OperandMemory& memory)
    : context_(context),
      membership_(membership),
      peers_(peers),
      memory_(memory),
      work_(context),
      least_left_(context.progress().least_task()) {}

[[gnu::hot]] void StepRunner::begin(const Operation& operation, const Plan& plan,
                                    const Window& window) {
  operation_ = &operation;
  plan_ = &plan;
  window_ = &window;
  streams_ = goes_past_cache(operation.problem, context_.oversubscribed());
  const std::uint32_t done = memory_.opened() && window.index == 0 ? plan.traits.opening : 0;
  signals_ = done > 0 ? 1 : 0;
  has_told_left_ = false;
  reads_peers_ = (window.index > 0 && reads_peers_) || plan.traits.reads_until > 0;
  bulk_ = {};
  work_.drop();
  order_.begin(plan, done);
  tell_left();
  if (requests_.size() < plan.steps.size()) {
    requests_.resize(plan.steps.size());
  }
}

[[gnu::hot]] bool StepRunner::slice_is_over() const { return slice_traffic_ >= most_traffic; }

bool StepRunner::end_slice() {
  slice_traffic_ = std::max(slice_traffic_, most_traffic);
  return true;
}

[[gnu::hot]] bool StepRunner::advance() {
  const bool moved = advance_steps();
  if (std::exchange(has_sent_, false)) {
    context_.progress().wire_messages().flush();
  }
  return moved;
}

[[gnu::hot]] bool StepRunner::advance_steps() {
  if (work_.waits()) {
    return false;
  }
  bool moved = bulk_.step != Bulk::none;
  if (moved) {
    move(bulk_.step);  // which ends before others of its verbs begin
  }
  // Steps that become ready meanwhile come behind the one that they waited for, and so in this
  // round.
  for (std::size_t at = 0; at < order_.ready().size(); ++at) {
    if (bulk_.step != Bulk::none || slice_is_over()) {
      return true;
    }
    const std::uint32_t index = order_.ready()[at];
    moved |= !order_.is_done(index) && move(index);
  }
  order_.tidy();
  return moved;
}

// Peers may go on once nothing of theirs is read any more, whatever this rank still does for
// itself. If all that could be read is in announcements, nobody waits for it.
[[gnu::hot]] void StepRunner::tell_left() {
  if (has_told_left_ || order_.first_open() < plan_->traits.reads_until) {
    return;
  }
  has_told_left_ = true;
  peers_.mine().of(operation_->sequence).left.store(window_->index + 1, std::memory_order_release);
  if (!memory_.all_inlined()) {
    peers_.ring();
  }
}

// Starts or asks the step. A message that has just been posted is asked in the next round: until
// then no transport can have moved it.
[[gnu::hot]] bool StepRunner::move(std::uint32_t index) {
  const Step& step = plan_->steps[index];
  const bool starts = order_.is_pending(index);
  if (starts) {
    if (step.needs > 0 && !signals_have_come(step)) {
      return false;
    }
    start(index);
    order_.start(index);
    if (step.verb == Verb::send || step.verb == Verb::recv) {
      return true;
    }
  }
  if (is_complete(index)) {
    order_.finish(index);
    tell_left();
    return true;
  }
  return starts;
}

[[gnu::hot]] bool StepRunner::signals_have_come(const Step& step) {
  const auto has_come = [&](int rank) {
    return rank == membership_.rank || peers_.signalled(rank, window_->index, step.needs);
  };
  switch (step.verb) {
    case Verb::wait:
      return peers_.signalled(step.peer, window_->index, step.needs);
    case Verb::copy:
      return has_come(step.from.rank);
    case Verb::reduce:
      return std::all_of(plan_->sources.begin() + step.sources.first,
                         plan_->sources.begin() + step.sources.last,
                         [&](const Source& source) { return has_come(source.from.rank); });
    case Verb::share:
    case Verb::signal:
    case Verb::send:
    case Verb::recv:
      return true;
  }
  return true;
}

void StepRunner::start(std::uint32_t index) {
  switch (plan_->steps[index].verb) {
    case Verb::signal:
      start_signal();
      break;
    case Verb::wait:
      break;
    case Verb::share:
    case Verb::copy:
    case Verb::reduce:
      bulk_ = {.step = index};
      break;
    case Verb::send:
    case Verb::recv:
      start_message(index);
      break;
  }
}

/// Of a step that has been started.
bool StepRunner::is_complete(std::uint32_t index) {
  const Step& step = plan_->steps[index];
  switch (step.verb) {
    case Verb::signal:
    case Verb::wait:
      return true;
    case Verb::share:
    case Verb::copy:
    case Verb::reduce:
      if (!bulk_is_over(step)) {
        return false;
      }
      bulk_ = {};
      return true;
    case Verb::send:
    case Verb::recv:
      return message_is_over(index);
  }
  return false;
}

[[gnu::hot]] void StepRunner::start_signal() {
  ++signals_;
  if (!memory_.inlined()) {  // else the announcement was the signal
    peers_.mine()
        .of(operation_->sequence)
        .signals.store(Slot::progress(window_->index, signals_), std::memory_order_release);
    peers_.ring();
  }
}

[[gnu::hot]] std::size_t StepRunner::bytes_of(const Operand& operand) const {
  return operand.count * memory_.element_bytes(operand.buffer);
}

BulkWork::Origin StepRunner::source_of(const Operand& operand) {
  const std::byte* data = memory_.address(operand);
  return {data, memory_.is_foreign(operand) ? membership_.world_ranks[operand.rank] : -1};
}

// Collects the piece that is over, and cuts the next one. Letting go of the token for a small one
// would cost more than it takes.
[[gnu::hot]] bool StepRunner::bulk_is_over(const Step& step) {
  const std::size_t all = step.verb == Verb::reduce  ? step.to.count
                          : step.verb == Verb::share ? bytes_of(step.from)
                                                     : bytes_of(step.to);
  if (step.verb == Verb::share && memory_.staged_for_peers(step.from) == nullptr) {
    return true;
  }
  for (;;) {
    if (work_.is_over()) {
      work_.collect();
      bulk_.done += bulk_.piece;
      if (bulk_.done == all) {
        return true;
      }
    }
    if (slice_is_over()) {
      return false;
    }
    cut_piece(step);
    if (bulk_.traffic >= least_left_) {
      return false;
    }
    slice_traffic_ += bulk_.traffic;
    work_.run();
  }
}

void StepRunner::cut_piece(const Step& step) {
  if (step.verb == Verb::reduce) {
    cut_reduction(step);
  } else if (step.verb == Verb::share) {
    cut_copy({memory_.address(step.from)},
             {memory_.staged_for_peers(step.from), bytes_of(step.from)});
  } else {
    const bool past_cache = streams_ && step.to.buffer == Buffer::output;
    const BulkWork::Origin from = source_of(step.from);
    cut_copy(from, {memory_.own_address(step.to), bytes_of(step.to), past_cache});
  }
}

// The fewer sources a reduction has, the longer its pieces. They are short where others may wait:
// for the token, for messages that somebody has to look after, or for operations of this rank's.
std::size_t StepRunner::piece_bytes(std::size_t sources) const {
  const std::size_t traffic =
      context_.progress().one_is_awaited() ? most_traffic_alone : most_traffic;
  return std::max(traffic / (sources + 1) / piece_quantum, std::size_t{1}) * piece_quantum;
}

/// What is to come of a whole copy.
[[gnu::hot]] void StepRunner::cut_copy(const BulkWork::Origin& from, const BulkWork::Target& to) {
  bulk_.piece = std::min(to.bytes - bulk_.done, piece_bytes(1));
  bulk_.traffic = 2 * bulk_.piece;
  work_.set_copy({from.data + bulk_.done, from.foreign_rank},
                 {to.data + bulk_.done, bulk_.piece, to.past_cache});
}

[[gnu::hot]] void StepRunner::cut_reduction(const Step& step) {
  const std::size_t size = memory_.element_bytes(step.to.buffer);
  const std::size_t sources = step.sources.last - step.sources.first;
  work_.clear_contributions();
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    const Source& source = plan_->sources[i];
    const std::size_t source_size = memory_.element_bytes(source.from.buffer);
    BulkWork::Origin from = source_of(source.from);
    from.data += bulk_.done * source_size;
    work_.add({from, source.covers, source.from.buffer == Buffer::scratch, source_size});
  }
  Arithmetic arithmetic = arithmetic_of(operation_->problem);
  arithmetic.complete = step.to.buffer == Buffer::output;
  arithmetic.past_cache = arithmetic.complete && streams_ && !sends_results(operation_->problem);
  bulk_.piece =
      work_.set_reduction(arithmetic, memory_.own_address(step.to) + bulk_.done * size,
                          std::min(step.to.count - bulk_.done, piece_bytes(sources) / size));
  bulk_.traffic = (sources + 1) * bulk_.piece * size;
}

std::uint64_t StepRunner::tag_of(const Step& step) const {
  std::uint64_t tag = low_bits(membership_.id, communicator_bits);
  tag = tag << signature_bits |
        low_bits(digest(operation_->signature, operation_->prior_calls_hash), signature_bits);
  tag = tag << sequence_bits | low_bits(operation_->sequence, sequence_bits);
  tag = tag << window_bits | low_bits(window_->index, window_bits);
  return tag << message_bits | low_bits(step.message, message_bits);
}

[[gnu::hot]] void StepRunner::start_message(std::uint32_t index) {
  const Step& step = plan_->steps[index];
  comm::MessageRequest& request = requests_[index];
  const int world = membership_.world_ranks[step.peer];
  comm::MessageTransport& transport = context_.messages(world);
  request = {};
  if (step.verb == Verb::send) {
    transport.send(request, world, tag_of(step), {memory_.address(step.from), bytes_of(step.from)});
    has_sent_ |= !context_.shares_memory(world);
  } else {
    transport.recv(request, world, tag_of(step), {memory_.own_address(step.to), bytes_of(step.to)});
  }
  request.peer = world;
  context_.begin_messages(1);
  if (context_.shares_memory(world)) {  // its ring holds the message at once: the peer is told
    transport.progress();
    context_.ring(std::span(&world, 1));
  }
}

[[gnu::hot]] bool StepRunner::message_is_over(std::uint32_t index) {
  using MessageState = comm::MessageRequest::State;
  const Step& step = plan_->steps[index];
  const comm::MessageRequest& request = requests_[index];
  const bool sends = step.verb == Verb::send;
  const Operand& operand = sends ? step.from : step.to;
  switch (request.state) {
    case MessageState::posted:
    case MessageState::idle:
      return false;
    case MessageState::failed:
      if (request.error == EMSGSIZE) {
        refuse_length(operand, request);
      }
      if (!wire_failure_) {
        wire_failure_ = {context_.wait_policy().now(), request.peer, request.error, sends};
      }
      return false;
    case MessageState::done:
      break;
  }
  if (!sends && request.bytes != bytes_of(operand)) {
    refuse_length(operand, request);
  }
  context_.end_messages(1);
  return true;
}

// A message came that is not as long as its receive. A transport that does not know how much longer
// it is leaves request.bytes at 0.
void StepRunner::refuse_length(const Operand& operand, const comm::MessageRequest& request) const {
  const std::size_t size = memory_.element_bytes(operand.buffer);
  const bool cut = request.state == comm::MessageRequest::State::failed && request.bytes == 0;
  const std::string sent = cut ? text("more") : text(request.bytes / size);
  throw Error(ErrorCode::mismatch,
              text(context_.describe_peer(request.peer), " sends ", sent, " ",
                   name(element_type(operation_->problem, operand.buffer)), " to ",
                   context_.describe_peer(context_.rank()), ", which expects ", operand.count),
              request.peer);
}

// A transport keeps pointers to the requests and to callers' memory until they are withdrawn.
void StepRunner::cancel() noexcept {
  work_.drop();
  for (std::uint32_t index = 0; index < order_.steps(); ++index) {
    const Verb verb = plan_->steps[index].verb;
    if (order_.is_started(index) && (verb == Verb::send || verb == Verb::recv)) {
      comm::MessageRequest& request = requests_[index];
      if (request.state == comm::MessageRequest::State::posted) {
        context_.messages(request.peer).cancel(request);
      }
      context_.end_messages(1);
    }
  }
}

std::vector<int> StepRunner::far_peers() const {
  std::vector<int> peers;
  for (std::uint32_t index = 0; index < order_.steps(); ++index) {
    const Verb verb = plan_->steps[index].verb;
    const int peer = requests_[index].peer;
    if (order_.is_started(index) && (verb == Verb::send || verb == Verb::recv) &&
        !context_.peer(peer).local && std::ranges::count(peers, peer) == 0) {
      peers.push_back(peer);
    }
  }
  return peers;
}

std::vector<int> StepRunner::awaited() const {
  std::vector<int> ranks;
  const auto await_signals = [&](const Step& step, int rank) {
    if (rank != membership_.rank && step.needs > 0 &&
        (!peers_.has_called(rank, operation_->sequence) ||
         !peers_.has_signalled(rank, window_->index, step.needs))) {
      ranks.push_back(rank);
    }
  };
  for (std::uint32_t index = order_.first_open(); index < order_.steps(); ++index) {
    const Step& step = plan_->steps[index];
    if (order_.is_started(index) && (step.verb == Verb::send || step.verb == Verb::recv)) {
      ranks.push_back(step.peer);
    }
    if (!order_.is_pending(index) || !order_.are_done(step.after)) {
      continue;
    }
    if (step.verb == Verb::wait) {
      await_signals(step, step.peer);
    } else if (step.verb == Verb::copy) {
      await_signals(step, step.from.rank);
    } else if (step.verb == Verb::reduce) {
      for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
        await_signals(step, plan_->sources[i].from.rank);
      }
    }
  }
  return ranks;
}

}  // namespace sprat::collectives
