// Two runs, rank by rank and stream by stream: each stream's first parting, and of these the
// earliest.
#include <algorithm>
#include <limits>
#include <map>

#include "collectives/digests/comparison.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat::collectives::digests {
namespace {

struct Candidate {
  Difference difference;
  StreamKey stream;
  std::int64_t step = -1;
  std::int64_t time_ns = 0;  ///< Since its run began.
};

/// One rank in both runs.
struct Pair {
  int rank;
  const DigestFile& a;
  const DigestFile& b;
};

class Runs final {
 public:
  Runs(const JobFiles& a, const JobFiles& b) : a_(a), b_(b) {}

  Comparison compare() {
    note_missing(a_);
    note_missing(b_);
    for (int rank = 0; rank < a_.size; ++rank) {
      const DigestFile* a = a_.ranks[static_cast<std::size_t>(rank)];
      const DigestFile* b = b_.ranks[static_cast<std::size_t>(rank)];
      if (a == nullptr || b == nullptr) {
        continue;
      }
      note_state(a_, rank, *a);
      note_state(b_, rank, *b);
      compare_groups({rank, *a, *b});
      compare_streams({rank, *a, *b});
    }
    result_.partings = candidates_.size();
    choose();
    return std::move(result_);
  }

 private:
  void note(std::string sentence) { result_.notes.push_back(std::move(sentence)); }

  void note_missing(const JobFiles& job) {
    const std::vector<int> missing = missing_ranks(job);
    if (!missing.empty()) {
      note(text(comm::ranks_text(missing), missing.size() == 1 ? " has" : " have", " no file in ",
                job.name, ": nothing is compared there"));
    }
  }

  /// Why a rank's file does not tell all. Only a file that says its end, and lost nothing on the
  /// way, shows by what it lacks that a call was not made.
  void note_state(const JobFiles& job, int rank, const DigestFile& file) {
    if (file.torn_at) {
      note(text("rank ", rank, "'s file in ", job.name, " ends in the middle of a record at byte ",
                *file.torn_at, ", after ", file.calls.size(),
                " calls: its process was killed, or the file is damaged; what follows is not "
                "compared"));
    } else if (file.failed) {
      note(text("rank ", rank, " failed in ", job.name, " after ", file.calls.size(),
                " calls: what follows is not compared"));
    } else if (!file.ended) {
      note(text("rank ", rank, "'s file in ", job.name, " has no end after ", file.calls.size(),
                " calls: its process was killed, or still runs; what follows is not compared"));
    }
    if (file.lost > 0) {
      note(text(file.lost, " calls of rank ", rank, " in ", job.name,
                " were not kept, for the disk was slower than the calls"));
    }
  }

  /// It says all there was: what is not in it was not called.
  static bool is_whole(const DigestFile& file) { return file.ended && file.lost == 0; }

  std::int64_t time_of(const JobFiles& job, const DigestFile& file, std::int64_t ns) const {
    return file.about.started_unix_ns - job.began_ns + ns;
  }

  /// A communicator that only one run makes.
  void compare_groups(const Pair& pair) {
    const auto of_a = group_keys(pair.a), of_b = group_keys(pair.b);
    const auto look = [&](const auto& mine, const DigestFile& file, const JobFiles& job,
                          const auto& others, const DigestFile& other) {
      for (std::size_t at = 0; at < mine.size(); ++at) {
        if (std::ranges::find(others, mine[at]) == others.end() && is_whole(other)) {
          Difference difference;
          difference.what = Parting::other_call;
          difference.rank = pair.rank;
          difference.communicator = mine[at].name;
          difference.call.step = file.groups[at].step;
          difference.call_words = &job == &a_ ? made(mine[at]) : std::string();
          difference.other = &job == &a_ ? std::string() : made(mine[at]);
          add(std::move(difference), {.group = mine[at]},
              time_of(job, file, file.groups[at].made_ns));
        }
      }
    };
    look(of_a, pair.a, a_, of_b, pair.b);
    look(of_b, pair.b, b_, of_a, pair.a);
  }

  static std::string made(const GroupKey& group) {
    std::vector<int> members(group.world_ranks.begin(), group.world_ranks.end());
    std::ranges::sort(members);
    return text("making communicator ", group.name, " of ", comm::ranks_text(members));
  }

  void compare_streams(const Pair& pair) {
    const Streams of_a = streams_of(pair.a), of_b = streams_of(pair.b);
    const auto groups_a = group_keys(pair.a), groups_b = group_keys(pair.b);
    static const Stream none{};
    for (const auto& [key, stream] : of_a) {
      if (std::ranges::find(groups_b, key.group) != groups_b.end()) {
        const auto other = of_b.find(key);
        compare_stream(pair, key, stream, other == of_b.end() ? none : other->second);
      }
    }
    for (const auto& [key, stream] : of_b) {
      if (std::ranges::find(groups_a, key.group) != groups_a.end() && !of_a.contains(key)) {
        compare_stream(pair, key, none, stream);
      }
    }
  }

  void compare_stream(const Pair& pair, const StreamKey& key, const Stream& a, const Stream& b) {
    // Only the first parting of a stream counts: all that follows may differ for that reason alone,
    // and a list of it would hide the one call that matters.
    auto of_a = a.calls.begin();
    auto of_b = b.calls.begin();
    while (of_a != a.calls.end() && of_b != b.calls.end()) {
      const ReadCall& one = **of_a;
      const ReadCall& other = **of_b;
      if (one.call.number != other.call.number) {  // the lower one was lost in the other run
        one.call.number < other.call.number ? ++of_a : ++of_b;
        continue;
      }
      ++result_.calls;
      if (auto difference = difference_of(one, other)) {
        finish(*difference, pair.rank, key, a, one.call);
        difference->inputs_known = pair.a.about.inputs && pair.b.about.inputs;
        add(std::move(*difference), key, time_of(a_, pair.a, one.call.ended_ns));
        return;
      }
      ++of_a;
      ++of_b;
    }
    if (of_a != a.calls.end() && is_whole(pair.b)) {
      Difference difference;
      difference.what = Parting::other_call;
      finish(difference, pair.rank, key, a, (*of_a)->call);
      add(std::move(difference), key, time_of(a_, pair.a, (*of_a)->call.ended_ns));
    } else if (of_b != b.calls.end() && is_whole(pair.a)) {
      Difference difference;
      difference.what = Parting::other_call;
      finish(difference, pair.rank, key, b, (*of_b)->call);
      std::swap(difference.call_words, difference.other);
      add(std::move(difference), key, time_of(b_, pair.b, (*of_b)->call.ended_ns));
    }
  }

  static std::optional<Difference> difference_of(const ReadCall& a, const ReadCall& b) {
    Difference difference;
    if (!same_call(a.call, b.call)) {
      difference.what = Parting::other_call;
      difference.other = words(b.call);
      return difference;
    }
    // A run that kept no inputs, or had no memory for a digest, is compared by what both kept.
    const bool inputs = a.call.input_kept != 0 && b.call.input_kept != 0;
    const auto input =
        inputs ? first_difference(a.input, b.input, a.call.input_count, input_type(a.call))
               : std::nullopt;
    const bool results = a.call.result_kept != 0 && b.call.result_kept != 0;
    const auto result =
        results ? first_difference(a.result, b.result, a.call.result_count, result_type(a.call))
                : std::nullopt;
    if (!input && !result) {
      return std::nullopt;
    }
    difference.what = input ? Parting::input : Parting::result;
    difference.range = input ? *input : *result;
    difference.block = block_of(a.call, input.has_value(), difference.range.first);
    return difference;
  }

  /// What is the same of every kind of difference.
  static void finish(Difference& difference, int rank, const StreamKey& key, const Stream& stream,
                     const Call& call) {
    difference.rank = rank;
    difference.communicator = key.group.name;
    difference.call = call;
    difference.call_words = words(call);
    difference.keep = {.communicator = key.group.name,
                       .kind = call.kind,
                       .number = call.number,
                       .partner = key.partner,
                       .tag = key.tag};
    for (const ReadCall* one : stream.calls) {
      difference.of_step += one->call.number <= call.number && one->call.step == call.step &&
                                    one->call.signature.collective == call.signature.collective
                                ? 1
                                : 0;
    }
  }

  void add(Difference difference, const StreamKey& stream, std::int64_t time_ns) {
    const std::int64_t step = difference.call.step;
    candidates_.push_back(
        {.difference = std::move(difference), .stream = stream, .step = step, .time_ns = time_ns});
  }

  // All ranks' sides of one collective count as one, at the time when the first of them ended: so
  // that the input that differed comes before the results that differ for it, whichever rank was
  // faster.
  void choose() {
    if (candidates_.empty()) {
      return;
    }
    using Together = std::pair<StreamKey, std::uint64_t>;
    const auto together = [](const Candidate& one) {
      return Together{one.stream, one.difference.call.number};
    };
    std::map<Together, std::int64_t> times;
    for (const Candidate& one : candidates_) {
      const auto [at, fresh] = times.try_emplace(together(one), one.time_ns);
      at->second = std::min(at->second, one.time_ns);
    }
    const auto order = [&](const Candidate& one) {
      return std::tuple{one.step, times.at(together(one)), together(one), one.difference.what,
                        one.difference.rank};
    };
    const auto first = std::ranges::min_element(
        candidates_, [&](const Candidate& x, const Candidate& y) { return order(x) < order(y); });
    result_.first = first->difference;
    for (const Candidate& one : candidates_) {
      if (together(one) == together(*first) && one.difference.what == first->difference.what) {
        result_.first->ranks.push_back(one.difference.rank);
      }
    }
    std::ranges::sort(result_.first->ranks);
  }

  const JobFiles& a_;
  const JobFiles& b_;
  Comparison result_;
  std::vector<Candidate> candidates_;
};

}  // namespace

Comparison compare_runs(const JobFiles& a, const JobFiles& b) {
  require(a.size == b.size, a.name, " has ", a.size, " ranks and ", b.name, " ", b.size,
          ": their calls cannot be compared rank by rank");
  return Runs(a, b).compare();
}

}  // namespace sprat::collectives::digests
