// One run against itself: what all ranks must have alike, and what was received against what was
// sent. A rank that has something else holds a silent corruption.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "collectives/digests/chunks.hpp"
#include "collectives/digests/comparison.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat::collectives::digests {
namespace {

/// A rank's side of a call.
struct RankSide {
  int rank;  ///< Of the job.
  const ReadCall* call;
  std::int64_t time_ns;
  const Stream* stream;
};

/// Which ranks hold the same.
struct Vote {
  std::vector<const RankSide*> right, wrong;
};

std::vector<int> ranks_of(const std::vector<const RankSide*>& sides) {
  std::vector<int> ranks;
  for (const RankSide* side : sides) {
    ranks.push_back(side->rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

/// What most have is right; the first of them where as many have something else.
Vote vote_of(const std::vector<RankSide>& sides) {
  std::vector<std::vector<const RankSide*>> groups;
  for (const RankSide& side : sides) {
    const auto group = std::ranges::find_if(groups, [&](const auto& one) {
      return same_bytes(one.front()->call->result, side.call->result);
    });
    if (group == groups.end()) {
      groups.push_back({&side});
    } else {
      group->push_back(&side);
    }
  }
  const auto most =
      std::ranges::max_element(groups, {}, [](const auto& one) { return one.size(); });
  Vote vote{.right = *most, .wrong = {}};
  for (const auto& group : groups) {
    if (group.front() != most->front()) {
      vote.wrong.insert(vote.wrong.end(), group.begin(), group.end());
    }
  }
  return vote;
}

class Replicas final {
 public:
  explicit Replicas(const JobFiles& job) : job_(job) {
    for (const DigestFile* file : job.ranks) {
      by_rank_.push_back(file == nullptr ? Streams() : streams_of(*file));
    }
  }

  Comparison compare() {
    if (const std::vector<int> missing = missing_ranks(job_); !missing.empty()) {
      result_.notes.push_back(text(comm::ranks_text(missing), " of ", job_.name,
                                   missing.size() == 1 ? " has" : " have",
                                   " no file: nothing is compared there"));
    }
    for (int rank = 0; rank < job_.size; ++rank) {
      const DigestFile* file = job_.ranks[static_cast<std::size_t>(rank)];
      if (file != nullptr && file->torn_at) {
        result_.notes.push_back(text("rank ", rank,
                                     "'s file ends in the middle of a record: its process was "
                                     "killed, or the file is damaged"));
      }
    }
    compare_results();
    compare_messages();
    return std::move(result_);
  }

 private:
  std::int64_t time_of(int rank, const Call& call) const {
    const DigestFile& file = *job_.ranks[static_cast<std::size_t>(rank)];
    return file.about.started_unix_ns - job_.began_ns + call.ended_ns;
  }

  // A communicator's collectives, number by number, over all ranks that have it.
  void compare_results() {
    std::map<StreamKey, std::vector<Walk>> streams;
    for (int rank = 0; rank < job_.size; ++rank) {
      for (const auto& [key, stream] : by_rank_[static_cast<std::size_t>(rank)]) {
        if (key.kind == CallKind::collective) {
          streams[key].push_back({rank, &stream, 0});
        }
      }
    }
    for (auto& [key, walks] : streams) {
      std::vector<RankSide> sides;
      while (next_of_all(walks, sides)) {
        compare_sides(key, sides);
      }
    }
  }

  /// Where a rank's stream has been read to.
  struct Walk {
    int rank;
    const Stream* stream;
    std::size_t at;
    const ReadCall* next() const { return at < stream->calls.size() ? stream->calls[at] : nullptr; }
  };

  /// The sides of the lowest number that any rank is at. False once all are at their ends.
  bool next_of_all(std::vector<Walk>& walks, std::vector<RankSide>& sides) const {
    std::optional<std::uint64_t> number;
    for (const Walk& walk : walks) {
      if (const ReadCall* next = walk.next()) {
        number = std::min(number.value_or(next->call.number), next->call.number);
      }
    }
    sides.clear();
    for (Walk& walk : walks) {
      if (const ReadCall* next = walk.next(); next != nullptr && next->call.number == number) {
        sides.push_back({walk.rank, next, time_of(walk.rank, next->call), walk.stream});
        ++walk.at;
      }
    }
    return number.has_value();
  }

  void compare_sides(const StreamKey& key, const std::vector<RankSide>& sides) {
    const ReadCall& first = *sides.front().call;
    // Nearly always all are alike: that is found by one comparison a rank, without any vote.
    // Other lengths are other calls, which the job itself refuses.
    const bool comparable = std::ranges::all_of(sides, [&](const RankSide& side) {
      return side.call->call.result_kept != 0 &&
             is_replicated(side.call->call.signature.collective) &&
             side.call->result.size() == first.result.size();
    });
    if (!comparable) {
      return;
    }
    ++result_.calls;
    if (std::ranges::all_of(sides, [&](const RankSide& side) {
          return same_bytes(side.call->result, first.result);
        })) {
      return;
    }
    const Vote vote = vote_of(sides);
    Difference difference = difference_of(key, *vote.wrong.front(), *vote.right.front());
    difference.ranks = ranks_of(vote.wrong);
    difference.right = ranks_of(vote.right);
    if (vote.wrong.size() >= vote.right.size()) {  // nobody knows who is right
      difference.ranks.insert(difference.ranks.end(), difference.right.begin(),
                              difference.right.end());
      std::ranges::sort(difference.ranks);
      difference.right.clear();
    }
    difference.rank = difference.ranks.front();
    difference.block = block_of(difference.call, false, difference.range.first);
    add(std::move(difference), std::ranges::min(sides, {}, &RankSide::time_ns).time_ns);
  }

  // Each message that was sent, against its receive: digests of inputs say what was sent.
  void compare_messages() {
    for (int rank = 0; rank < job_.size; ++rank) {
      for (const auto& [key, stream] : by_rank_[static_cast<std::size_t>(rank)]) {
        if (key.kind != CallKind::receive) {
          continue;
        }
        const auto sender =
            static_cast<std::size_t>(key.group.world_ranks[static_cast<std::size_t>(key.partner)]);
        StreamKey sent = key;
        sent.kind = CallKind::send;
        sent.partner = stream.rank;
        const auto other = by_rank_[sender].find(sent);
        if (other != by_rank_[sender].end()) {
          compare_stream(rank, key, stream, static_cast<int>(sender), other->second);
        }
      }
    }
  }

  void compare_stream(int rank, const StreamKey& key, const Stream& received, int sender,
                      const Stream& sent) {
    // Both sides number their messages alike, but each may lack some: those that were lost, and the
    // last ones of a rank that was killed.
    auto from = sent.calls.begin();
    for (const ReadCall* one : received.calls) {
      while (from != sent.calls.end() && (*from)->call.number < one->call.number) {
        ++from;
      }
      if (from == sent.calls.end() || (*from)->call.number != one->call.number ||
          (*from)->call.input_kept == 0 || one->call.result_kept == 0) {
        continue;
      }
      ++result_.calls;
      const RankSide mine{rank, one, time_of(rank, one->call), &received};
      if (const auto range =
              first_difference((*from)->input, one->result, one->call.result_count, DType::u8)) {
        Difference difference = difference_of(key, mine, mine);
        difference.range = *range;
        difference.ranks = {rank};
        difference.right = {sender};
        difference.inputs_known = true;
        add(std::move(difference), mine.time_ns);
      }
    }
  }

  Difference difference_of(const StreamKey& key, const RankSide& wrong,
                           const RankSide& right) const {
    const Call& call = wrong.call->call;
    Difference difference;
    difference.rank = wrong.rank;
    difference.communicator = key.group.name;
    difference.call = call;
    difference.call_words = words(call);
    difference.range = first_difference(wrong.call->result, right.call->result, call.result_count,
                                        result_type(call))
                           .value_or(Range{});
    difference.keep = {.communicator = key.group.name,
                       .kind = call.kind,
                       .number = call.number,
                       .partner = key.partner,
                       .tag = key.tag};
    for (const ReadCall* one : wrong.stream->calls) {
      difference.of_step += one->call.number <= call.number && one->call.step == call.step &&
                                    one->call.signature.collective == call.signature.collective
                                ? 1
                                : 0;
    }
    return difference;
  }

  void add(Difference difference, std::int64_t time_ns) {
    ++result_.partings;
    const std::pair<std::int64_t, std::int64_t> when{difference.call.step, time_ns};
    if (!result_.first || when < first_) {
      result_.first = std::move(difference);
      first_ = when;
    }
  }

  const JobFiles& job_;
  std::vector<Streams> by_rank_;
  Comparison result_;
  std::pair<std::int64_t, std::int64_t> first_;  ///< Step and time of the first difference.
};

}  // namespace

Comparison compare_replicas(const JobFiles& job) { return Replicas(job).compare(); }

}  // namespace sprat::collectives::digests
