// From calls to records: digests of what a call's buffers hold before and after it.
#include "collectives/digests/digest_recorder.hpp"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>

#include "comm/base/log.hpp"

namespace sprat::collectives::digests {
namespace {

// As much as is hashed in some 50 us from memory: about as long as the slices of other bulk work,
// after each of which whoever waits for the token may have it.
constexpr std::size_t most_chunks_at_once = 8;

std::int64_t ns(comm::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

About about(comm::Context& context, const std::string& name) {
  using namespace std::chrono;
  return {
      .rank = context.rank(),
      .size = context.size(),
      .started_unix_ns = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count(),
      .inputs = context.config().digests.inputs,
      .job = name.substr(0, name.rfind("-rank")),
      .host = *context.peer(context.rank()).host};
}

/// The same on every rank of a communicator: number and members are agreed, its name may be long.
std::uint64_t key_of(std::uint64_t communicator, std::span<const int> world_ranks) {
  return XXH3_64bits_withSeed(world_ranks.data(), world_ranks.size_bytes(), communicator);
}

}  // namespace

DigestRecorder::DigestRecorder(std::shared_ptr<comm::Context> context, std::uint64_t communicator,
                               std::string_view name, int rank, std::span<const int> world_ranks)
    : context_(std::move(context)) {
  const auto token = context_->take_token();
  log_ = context_->call_log();
  if (!on()) {
    return;
  }
  inputs_ = context_->config().digests.inputs;
  if (const std::string& wanted = context_->config().digests.keep; !wanted.empty()) {
    wanted_ = kept_call(wanted);
    if (wanted_->communicator != name) {
      wanted_.reset();
    }
  }
  const auto now = context_->wait_policy().now();
  // The first communicator of a rank is that of the whole job: it begins the file.
  if (log_->communicators == 0) {
    log_->started_ns = ns(now);
    log_->append(encode(about(*context_, log_->name())), {});
  }
  group_ = log_->communicators;
  const Group group{.index = group_,
                    .rank = rank,
                    .step = log_->step,
                    .made_ns = since_start(now),
                    .name = std::string(name),
                    .world_ranks = {world_ranks.begin(), world_ranks.end()}};
  if (!log_->append(encode(group), {})) {
    // Calls of a communicator that the file does not know would make no sense in it.
    log().warn("SPRAT_DIGESTS: the disk is too slow: nothing is kept of the calls of {}", name);
    log_ = nullptr;
    return;
  }
  ++log_->communicators;
  replicas_ = log_->replicas.insert(log_->replicas.end(),
                                    {.communicator = key_of(communicator, world_ranks)});
}

// The rank's last communicator says that this is all: nobody can make another one.
DigestRecorder::~DigestRecorder() {
  if (!on() || !context_->here()) {
    return;  // in a child of fork() the file is its parent's
  }
  const auto token = context_->take_token();
  log_->replicas.erase(replicas_);
  if (log_->replicas.empty()) {
    lose();
    log_->append(encode_end(log_->has_failed || context_->failure() != nullptr), {});
  }
}

std::int64_t DigestRecorder::since_start(comm::Clock::time_point now) const {
  return ns(now) - log_->started_ns;
}

// Asked again of a call that goes on, it changes nothing.
void DigestRecorder::begin(const CallMemory& call) {
  if (begun_ && sequence_ == call.sequence) {
    return;
  }
  begun_ = true;
  sequence_ = call.sequence;
  step_ = log_->step;
  order_ = log_->calls++;
  inputs_taken_ = 0;
  digests_.clear();
  if (inputs_) {
    Call kept;
    kept.number = collectives_;
    kept.group = group_;
    keep(kept, Side::input, {call.input, call.extents.input, call.signature.input});
  }
}

/// Goes on with the digests from `first` on, which are the buffer's. True once all are there.
bool DigestRecorder::digest_some(std::span<const std::byte> buffer, std::size_t first) noexcept {
  const std::size_t all = chunks_of(buffer.size());
  const std::size_t done = digests_.size() - first;
  const std::size_t end = std::min(all, done + most_chunks_at_once);
  try {
    digests_.reserve(first + all);  // kept from call to call
  } catch (const std::bad_alloc&) {
    ++log_->lost;  // the record will say that this buffer has none
    return true;
  }
  for (std::size_t index = done; index < end; ++index) {
    digests_.push_back(digest_of_chunk(buffer, index));
  }
  return end == all;
}

bool DigestRecorder::take_input(const CallMemory& call) noexcept {
  begin(call);
  if (!inputs_) {
    return true;
  }
  const std::size_t bytes = call.extents.input * size_of(call.signature.input);
  const bool done = digest_some({call.input, bytes}, 0);
  inputs_taken_ = digests_.size();
  return done;
}

bool DigestRecorder::take_result(const CallMemory& call) noexcept {
  begin(call);
  return digest_some({call.result, call.extents.result * size_of(call.result_type)}, inputs_taken_);
}

void DigestRecorder::over(const CallMemory& memory, comm::Clock::time_point now) noexcept {
  while (!take_result(memory)) {
  }
  Call call{.number = collectives_++,
            .sequence = memory.sequence,
            .order = order_,
            .step = step_,
            .ended_ns = since_start(now),
            .input_count = memory.extents.input,
            .result_count = memory.extents.result,
            .signature = memory.signature,
            .group = group_,
            .partner = memory.root,
            .tag = 0,
            .kind = CallKind::collective,
            .uneven = static_cast<std::uint8_t>(memory.uneven)};
  call.signature.output = memory.result_type;
  const std::size_t inputs = chunks_of(memory.extents.input * size_of(memory.signature.input));
  const std::size_t results = chunks_of(memory.extents.result * size_of(memory.result_type));
  const bool complete =
      inputs_taken_ == (inputs_ ? inputs : 0) && digests_.size() == inputs_taken_ + results;
  if (!complete) {  // there was no memory for them
    digests_.clear();
    inputs_taken_ = 0;
  }
  call.input_kept = complete && inputs_ ? 1 : 0;
  call.result_kept = complete ? 1 : 0;
  // One number for all results so far is enough to know whether ranks still agree; which call they
  // part at the files say.
  if (is_replicated(memory.signature.collective)) {
    ++replicas_->calls;
    replicas_->sum = fold(std::span(digests_).subspan(inputs_taken_), replicas_->sum);
  }
  keep(call, Side::result, {memory.result, memory.extents.result, memory.result_type});
  append(call, digests_);
  begun_ = false;
}

// --- messages ---

void DigestRecorder::sends(int peer, int tag, std::span<const std::byte> data,
                           comm::Clock::time_point now) noexcept {
  Call call;
  call.number = messages_[{CallKind::send, peer, tag}]++;
  call.kind = CallKind::send;
  call.partner = peer;
  call.tag = tag;
  call.input_count = data.size();
  message_over(call, data, inputs_, now);
}

std::uint64_t DigestRecorder::receives(int peer, int tag) noexcept {
  return messages_[{CallKind::receive, peer, tag}]++;
}

void DigestRecorder::received(int peer, int tag, std::uint64_t number,
                              std::span<const std::byte> data,
                              comm::Clock::time_point now) noexcept {
  Call call;
  call.number = number;
  call.kind = CallKind::receive;
  call.partner = peer;
  call.tag = tag;
  call.result_count = data.size();
  message_over(call, data, true, now);
}

/// What is sent is known when the send begins, and what is received when the receive is done: a
/// record each.
void DigestRecorder::message_over(Call call, std::span<const std::byte> data, bool digested,
                                  comm::Clock::time_point now) noexcept {
  const bool sends = call.kind == CallKind::send;
  call.sequence = call.number;
  call.order = log_->calls++;
  call.step = log_->step;
  call.ended_ns = since_start(now);
  call.group = group_;
  message_digests_.clear();
  if (digested) {
    for (std::size_t index = 0; index < chunks_of(data.size()); ++index) {
      message_digests_.push_back(digest_of_chunk(data, index));
    }
    (sends ? call.input_kept : call.result_kept) = 1;
    keep(call, sends ? Side::input : Side::result, {data.data(), data.size(), DType::u8});
  }
  append(call, message_digests_);
}

// --- what is kept ---

void DigestRecorder::keep(const Call& call, Side side, ConstElements values) noexcept {
  if (wanted_ && wanted_->names(call)) {
    keep_values(values_path(log_->folder(), log_->name(), call, side), values);
  }
}

// With the call's digests. What was lost before it is said first, so that a reader knows where.
void DigestRecorder::append(const Call& call, std::span<const std::uint64_t> digests) noexcept {
  lose();
  const CallRecord record = record_of(call, digests);
  if (log_->lost > 0 ||
      !log_->append(std::as_bytes(std::span(&record, 1)), std::as_bytes(digests))) {
    ++log_->lost;
  }
}

void DigestRecorder::lose() noexcept {
  if (log_->lost == 0) {
    return;
  }
  try {
    if (log_->append(encode_gap(log_->lost), {})) {
      log_->lost = 0;
    }
  } catch (const std::bad_alloc&) {
    // Said with the next call.
  }
}

}  // namespace sprat::collectives::digests
