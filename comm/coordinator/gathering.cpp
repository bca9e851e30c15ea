// What ranks of one communicator give each other through the coordinator when some may be gone.
#include "comm/coordinator/gathering.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/base/packing.hpp"
#include "comm/base/rank_ranges.hpp"
#include "comm/coordinator/control_frame.hpp"

namespace sprat::comm {
namespace {

// What ranks can make the coordinator keep is bounded: rounds that are over are kept for those who
// come late, and a part holds a few numbers.
constexpr std::size_t most_rounds = 256;
constexpr std::size_t most_blob_bytes = 4096;
/// Of a job: few bytes may name many, and memory is made for each.
constexpr int most_ranks = 1 << 22;

using Word = std::uint64_t;

void put(Blob& out, Word word) {
  const std::size_t at = out.size();
  out.resize(at + sizeof word);
  std::memcpy(out.data() + at, &word, sizeof word);
}
void put(Blob& out, const Blob& blob) {
  put(out, Word{blob.size()});
  out.insert(out.end(), blob.begin(), blob.end());
}

/// Takes words and blobs off the front; `good` stays false once something is missing.
struct PartReader {
  const Blob& in;
  std::size_t at = 0;
  bool good = true;

  Word word() {
    Word word = 0;
    good = good && in.size() - at >= sizeof word;
    if (good) {
      std::memcpy(&word, in.data() + at, sizeof word);
      at += sizeof word;
    }
    return word;
  }
  Blob blob() {
    const Word bytes = word();
    good = good && bytes <= in.size() - at;
    if (!good) {
      return {};
    }
    const auto first = in.begin() + static_cast<std::ptrdiff_t>(at);
    at += static_cast<std::size_t>(bytes);
    return {first, first + static_cast<std::ptrdiff_t>(bytes)};
  }
  bool whole() const { return good && at == in.size(); }
};

}  // namespace

Blob encode(const GatherPart& part) {
  Blob out;
  put(out, part.patience_ms);
  put(out, part.members);
  put(out, part.blob);
  return out;
}

std::optional<GatherPart> decode_gather_part(const Blob& payload) {
  PartReader in{payload};
  GatherPart part;
  part.patience_ms = in.word();
  part.members = in.blob();
  part.blob = in.blob();
  return in.whole() ? std::optional(std::move(part)) : std::nullopt;
}

/// Packed: it goes to every member, and members say nearly the same.
Blob encode(const GatherResult& result) {
  Blob out;
  put(out, encode_ranks(result.ranks));
  for (const Blob& blob : result.blobs) {
    put(out, blob);
  }
  return pack(out);
}

std::optional<GatherResult> decode_gather_result(const Blob& payload) {
  const auto plain = unpack(payload, max_exchange_bytes);
  if (!plain) {
    return std::nullopt;
  }
  PartReader in{*plain};
  auto ranks = decode_ranks(in.blob(), most_ranks);
  if (!ranks) {
    return std::nullopt;
  }
  GatherResult result{std::move(*ranks), {}};
  for (std::size_t left = result.ranks.size(); left > 0 && in.good; --left) {
    result.blobs.push_back(in.blob());
  }
  return in.whole() ? std::optional(std::move(result)) : std::nullopt;
}

// A rank may come to a round that was over before it came, and is told how it ended. Members are
// read once a round: of n ranks each says all n, and nearly always in the same bytes.
void Gatherings::came(int rank, const ControlMessage& message, int size, Time now) {
  auto part = decode_gather_part(message.payload);
  if (!part || part->blob.size() > most_blob_bytes) {
    return;
  }
  GatheringRound* round = find(message);
  const bool known = round != nullptr && !round->over && round->names == part->members;
  auto members = known ? std::nullopt : decode_ranks(part->members, size);
  if (!known && !members) {
    return;
  }
  if (!std::ranges::binary_search(known ? round->members : *members, rank)) {
    return;
  }
  // The number comes from outside; its bound keeps the sum from overflowing.
  const auto patience = std::min<std::uint64_t>(
      part->patience_ms,
      static_cast<std::uint64_t>(std::chrono::milliseconds(std::chrono::hours(24 * 365)).count()));
  const Time deadline = now + std::chrono::milliseconds(patience);
  if (round == nullptr) {
    round = &begin({.communicator = message.comm,
                    .number = message.sequence,
                    .names = std::move(part->members),
                    .members = std::move(*members),
                    .parts = {},
                    .deadline = deadline,
                    .result = {},
                    .unanswered = {}});
  }
  round->unanswered.push_back(rank);
  if (!round->over) {
    round->deadline = std::min(round->deadline, deadline);
    round->parts.insert_or_assign(rank, std::move(part->blob));
  }
}

Gatherings::GatheringRound* Gatherings::find(const ControlMessage& message) {
  const auto found = std::ranges::find_if(rounds_, [&](const GatheringRound& round) {
    return round.communicator == message.comm && round.number == message.sequence;
  });
  return found == rounds_.end() ? nullptr : &*found;
}

Gatherings::GatheringRound& Gatherings::begin(GatheringRound round) {
  if (rounds_.size() >= most_rounds) {
    const auto over = std::ranges::find(rounds_, true, &GatheringRound::over);
    rounds_.erase(over == rounds_.end() ? rounds_.begin() : over);
  }
  return rounds_.emplace_back(std::move(round));
}

void Gatherings::expire(Time now) {
  for (GatheringRound& round : rounds_) {
    round.expired |= !round.over && now >= round.deadline;
  }
}

/// It is asked with each part that comes, so it goes on from where it ended: who has come or gone
/// stays so.
bool Gatherings::has_ended(GatheringRound& round, const std::vector<bool>& gone) {
  const auto need_not_come = [&](int member) {
    const auto index = static_cast<std::size_t>(member);
    return round.parts.contains(member) || (index < gone.size() && gone[index]);
  };
  while (!round.expired && round.need_not < round.members.size() &&
         need_not_come(round.members[round.need_not])) {
    ++round.need_not;
  }
  return round.expired || round.need_not == round.members.size();
}

ControlMessage Gatherings::result_of(GatheringRound& round, const std::vector<bool>& gone) {
  GatherResult result;
  for (auto& [rank, blob] : round.parts) {
    // Who came and has gone since is no survivor: nobody would hear of it again.
    if (const auto index = static_cast<std::size_t>(rank); index >= gone.size() || !gone[index]) {
      result.ranks.push_back(rank);
      result.blobs.push_back(std::move(blob));
    }
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::gathered;
  message.comm = round.communicator;
  message.sequence = round.number;
  message.payload = encode(result);
  return message;
}

std::vector<Gatherings::Answer> Gatherings::settle(const std::vector<bool>& gone) {
  std::vector<Answer> answers;
  for (GatheringRound& round : rounds_) {
    if (!round.over && has_ended(round, gone)) {
      round.over = true;
      round.result = result_of(round, gone);
      round.parts.clear();
      round.members = {};
    }
    if (round.over && !round.unanswered.empty()) {
      answers.push_back({std::exchange(round.unanswered, {}), round.result});
    }
  }
  return answers;
}

std::optional<Gatherings::Time> Gatherings::deadline() const {
  std::optional<Time> first;
  for (const GatheringRound& round : rounds_) {
    if (!round.over && !round.expired && (!first || round.deadline < *first)) {
      first = round.deadline;
    }
  }
  return first;
}

}  // namespace sprat::comm
