// What ranks of one communicator give each other through the coordinator when some may be gone.
#include "comm/coordinator/gathering.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sprat::comm {
namespace {

// What ranks can make the coordinator keep is bounded: rounds that are over are kept for those who
// come late, and a part holds a few numbers.
constexpr std::size_t most_rounds = 256;
constexpr std::size_t most_blob_bytes = 4096;

using Word = std::uint64_t;

void put(Blob& out, Word word) {
  const auto* first = reinterpret_cast<const std::byte*>(&word);
  out.insert(out.end(), first, first + sizeof word);
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
  /// A count of things of at least a word each: one that the bytes left cannot hold is refused
  /// before memory is made for it.
  std::size_t count() {
    const Word count = word();
    good = good && count <= (in.size() - at) / sizeof(Word);
    return good ? static_cast<std::size_t>(count) : 0;
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
  put(out, Word{part.members.size()});
  for (const int member : part.members) {
    put(out, static_cast<Word>(member));
  }
  put(out, part.blob);
  return out;
}

std::optional<GatherPart> decode_gather_part(const Blob& payload) {
  PartReader in{payload};
  GatherPart part;
  part.patience_ms = in.word();
  part.members.resize(in.count());
  for (int& member : part.members) {
    member = static_cast<int>(in.word());
  }
  part.blob = in.blob();
  return in.whole() ? std::optional(std::move(part)) : std::nullopt;
}

Blob encode(const GatherResult& result) {
  Blob out;
  put(out, Word{result.ranks.size()});
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    put(out, static_cast<Word>(result.ranks[i]));
    put(out, result.blobs[i]);
  }
  return out;
}

std::optional<GatherResult> decode_gather_result(const Blob& payload) {
  PartReader in{payload};
  GatherResult result;
  for (std::size_t left = in.count(); left > 0 && in.good; --left) {
    result.ranks.push_back(static_cast<int>(in.word()));
    result.blobs.push_back(in.blob());
  }
  return in.whole() ? std::optional(std::move(result)) : std::nullopt;
}

// A rank may come to a round that was over before it came, and is told how it ended.
void Gatherings::came(int rank, const ControlMessage& message, int size, Time now) {
  auto part = decode_gather_part(message.payload);
  const auto belongs = [size](int member) { return member >= 0 && member < size; };
  if (!part || part->blob.size() > most_blob_bytes ||
      part->members.size() > static_cast<std::size_t>(size) ||
      !std::ranges::all_of(part->members, belongs) ||
      std::ranges::count(part->members, rank) == 0) {
    return;
  }
  // The number comes from outside; its bound keeps the sum from overflowing.
  const auto patience = std::min<std::uint64_t>(
      part->patience_ms,
      static_cast<std::uint64_t>(std::chrono::milliseconds(std::chrono::hours(24 * 365)).count()));
  const Time deadline = now + std::chrono::milliseconds(patience);
  GatheringRound& round = round_of(message, std::move(part->members), deadline);
  round.unanswered.push_back(rank);
  if (!round.over) {
    round.deadline = std::min(round.deadline, deadline);
    round.parts.insert_or_assign(rank, std::move(part->blob));
  }
}

Gatherings::GatheringRound& Gatherings::round_of(const ControlMessage& message,
                                                 std::vector<int> members, Time deadline) {
  const auto found = std::ranges::find_if(rounds_, [&](const GatheringRound& round) {
    return round.communicator == message.comm && round.number == message.sequence;
  });
  if (found != rounds_.end()) {
    return *found;
  }
  if (rounds_.size() >= most_rounds) {
    const auto over = std::ranges::find(rounds_, true, &GatheringRound::over);
    rounds_.erase(over == rounds_.end() ? rounds_.begin() : over);
  }
  rounds_.push_back({.communicator = message.comm,
                     .number = message.sequence,
                     .members = std::move(members),
                     .parts = {},
                     .deadline = deadline,
                     .result = {},
                     .unanswered = {}});
  return rounds_.back();
}

void Gatherings::expire(Time now) {
  for (GatheringRound& round : rounds_) {
    round.expired |= !round.over && now >= round.deadline;
  }
}

std::vector<Gatherings::Answer> Gatherings::settle(const std::vector<bool>& gone) {
  std::vector<Answer> answers;
  for (GatheringRound& round : rounds_) {
    const auto need_not_come = [&](int member) {
      const auto index = static_cast<std::size_t>(member);
      return round.expired || round.parts.contains(member) || (index < gone.size() && gone[index]);
    };
    if (!round.over && std::ranges::all_of(round.members, need_not_come)) {
      round.over = true;
      GatherResult result;
      for (auto& [rank, blob] : round.parts) {
        // Who came and has gone since is no survivor: nobody would hear of it again.
        if (const auto index = static_cast<std::size_t>(rank);
            index >= gone.size() || !gone[index]) {
          result.ranks.push_back(rank);
          result.blobs.push_back(std::move(blob));
        }
      }
      round.parts.clear();
      round.result.kind = ControlMessage::Kind::gathered;
      round.result.comm = round.communicator;
      round.result.sequence = round.number;
      round.result.payload = encode(result);
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
