// Calls so short that their inputs travel in the announcement: once all have announced, everything
// is there.
#include <algorithm>
#include <cstring>

#include "collectives/engine/executor.hpp"

namespace sprat::collectives {
namespace {

// Waiting longer than this is worth the clock's price.
constexpr int unclocked_rounds = 256;

std::size_t place_of(const Signature& signature, std::size_t places) {
  return (signature.count * 5 + signature.detail * 3 +
          static_cast<std::size_t>(signature.collective)) %
         places;
}

}  // namespace

bool Executor::call_eagerly(const Signature& signature, const std::byte* input, std::byte* output,
                            const std::function<std::shared_ptr<Operation>()>& make) {
  auto token = context_->try_token();
  const Known& known = known_[place_of(signature, known_.size())];
  if (!token || !context_->idle() || !known.eager || !(known.signature == signature) ||
      context_->failure() != nullptr) {
    return false;
  }
  const std::uint64_t sequence = history_.next(), prior_calls_hash = prior_calls_hash_;
  slot_ = &control_block_->of(sequence);
  slot_->signals.store(0, std::memory_order_relaxed);
  slot_->left.store(0, std::memory_order_relaxed);
  show_eager(*known.eager, input, *slot_);
  slot_->signature = signature;
  slot_->announced.store(sequence + 1, std::memory_order_release);
  context_->ring(local_world_ranks_);
  history_.add(signature, prior_calls_hash, nullptr, sequence);
  prior_calls_hash_ = completes_locally(signature) ? digest(signature, prior_calls_hash) : 0;
  if (poll_peers(sequence, signature) && find_inputs(*known.eager, sequence, input)) {
    finish(*known.eager, known.arithmetic, inputs_, output, terms_);
    control_block_->completed.store(sequence + 1, std::memory_order_release);
    recorder_.over({sequence, signature, known.bytes, static_cast<int>(signature.detail),
                    context_->wait_policy().recent()},
                   known.algorithm->name);
    return true;
  }
  const std::shared_ptr<Operation> operation = make();
  operation->sequence = sequence;
  operation->prior_calls_hash = prior_calls_hash;
  enqueue(operation);
  begin_active();
  inlined_ = true;
  phase_ = Phase::meeting;
  token.unlock();
  operation->wait();
  return true;
}

// What goes into the announcement of a eager call.
void Executor::show_eager(const EagerPlan& eager, const std::byte* input, Slot& slot) {
  slot.inlined = 1;
  if (eager.shows_input) {
    std::memcpy(eager.input_bytes <= Slot::short_bytes ? slot.short_payload : slot.payload, input,
                eager.input_bytes);
  }
}

bool Executor::all_announced(std::uint64_t sequence, const Signature& signature) const {
  return std::all_of(local_peers_.begin(), local_peers_.end(), [&](int peer) {
    const Slot& theirs = peers_[peer].control_block->of(sequence);
    return theirs.announced.load(std::memory_order_acquire) == sequence + 1 &&
           theirs.signature == signature;
  });
}

// Waits for all to announce the same; false if it takes long, or forever.
bool Executor::poll_peers(std::uint64_t sequence, const Signature& signature) const {
  comm::WaitPolicy& wait_policy = context_->wait_policy();
  comm::Clock::time_point since{};
  bool all = all_announced(sequence, signature);
  for (int round = 0; !all && wait_policy.rest(round, context_->oversubscribed()); ++round) {
    if (round == unclocked_rounds) {
      since = wait_policy.now();
    }
    all = all_announced(sequence, signature) || context_->failure() != nullptr;
  }
  if (since != comm::Clock::time_point{}) {
    context_->add_waited(wait_policy.now() - since);
  }
  return all && context_->failure() == nullptr;
}

/// Where every input lies that it reads; false if a peer's was too long to be announced.
bool Executor::find_inputs(const EagerPlan& eager, std::uint64_t sequence, const std::byte* input) {
  const auto shown = [&](const Slot& slot, std::size_t bytes) {
    return bytes <= Slot::short_bytes ? slot.short_payload : slot.payload;
  };
  inputs_.resize(peers_.size());
  inputs_[membership_.rank] = eager.shows_input ? shown(*slot_, eager.input_bytes) : input;
  for (const EagerPlan::Peer& peer : eager.reads) {
    const Slot& slot = peers_[peer.rank].control_block->of(sequence);
    if (slot.inlined == 0) {
      return false;
    }
    inputs_[peer.rank] = shown(slot, peer.input_bytes);
  }
  return true;
}

bool Executor::meet() {
  for (const int peer : local_peers_) {
    if (!announced(peer)) {
      return false;
    }
  }
  if (!find_inputs(*eager_, active_->sequence, active_->input)) {
    phase_ = Phase::gathering;  // by the plan's steps, then
    return true;
  }
  finish(*eager_, arithmetic_of(active_->problem), inputs_, active_->output, terms_);
  finish_active();
  return true;
}

// So that the same call, made again, may be eager.
void Executor::remember(const Operation& operation) {
  Known& known = known_[place_of(operation.signature, known_.size())];
  if (is_plain(operation.problem) && !(known.eager && known.signature == operation.signature)) {
    known = {.signature = operation.signature,
             .eager = eager_,
             .arithmetic = arithmetic_of(operation.problem),
             .algorithm = algorithm_,
             .bytes = operation.problem.payload_bytes()};
  }
}

}  // namespace sprat::collectives
