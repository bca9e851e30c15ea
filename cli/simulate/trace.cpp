// Spans of virtual time in the form of measured ones.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "cli/simulate/timeline.hpp"
#include "comm/timeline/chrome_trace.hpp"

namespace sprat::cli {
namespace {

using collectives::Span;
using collectives::Verb;
using comm::timeline::RecordedEvent;

/// Plans give a pair's messages no numbers: the k-th that one sends is the k-th that the other
/// receives.
class FlowNumbers {
 public:
  std::uint64_t of(const Span& span) {
    const bool sends = span.verb == Verb::send;
    const std::pair<int, int> pair =
        sends ? std::pair(span.rank, span.peer) : std::pair(span.peer, span.rank);
    auto& so_far = sends ? sent_ : received_;
    return numbers_.try_emplace({pair, so_far[pair]++}, numbers_.size() + 1).first->second;
  }

 private:
  std::map<std::pair<int, int>, int> sent_, received_;
  std::map<std::pair<std::pair<int, int>, int>, std::uint64_t> numbers_;
};

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

std::string to_trace(const Timeline& timeline) {
  std::vector<comm::timeline::RankTimeline> ranks(timeline.host_of.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].rank = static_cast<int>(rank);
    ranks[rank].size = static_cast<int>(ranks.size());
    ranks[rank].host = "host " + std::to_string(timeline.host_of[rank]);
  }
  std::vector<Span> spans = timeline.spans;
  std::ranges::stable_sort(spans, {}, &Span::begin);
  FlowNumbers flows;
  for (const Span& span : spans) {
    const bool message = span.verb == Verb::send || span.verb == Verb::recv;
    RecordedEvent event =
        comm::timeline::recorded({.row = message ? TraceRow::messages : TraceRow::computes,
                                  .name = name(span.verb),
                                  .flow = message ? flows.of(span) : 0,
                                  .receives = span.verb == Verb::recv});
    event.start_ns = nanoseconds(span.begin);
    event.end_ns = nanoseconds(span.end);
    ranks[static_cast<std::size_t>(span.rank)].events.push_back(event);
  }
  return comm::timeline::chrome_trace(ranks);
}

}  // namespace sprat::cli
