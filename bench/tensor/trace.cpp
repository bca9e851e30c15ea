#include "bench/tensor/trace.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "collectives/record/flight_record.hpp"

namespace sprat::bench {
namespace {

constexpr std::size_t columns = 100;
constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz", digits = "0123456789";

double end_of(const std::vector<RankSpans>& ranks) {
  double end = 0;
  for (const RankSpans& rank : ranks) {
    for (const auto* spans : {&rank.multiplies, &rank.travels}) {
      for (const Span& span : *spans) {
        end = std::max(end, span.end);
      }
    }
  }
  return end;
}

/// Spans of one lane do not overlap: by lane, the indices of its spans.
std::vector<std::vector<std::size_t>> lanes_of(const std::vector<Span>& spans) {
  std::vector<std::vector<std::size_t>> lanes;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto free = std::ranges::find_if(
        lanes, [&](const auto& lane) { return spans[lane.back()].end <= spans[i].begin; });
    if (free == lanes.end()) {
      lanes.push_back({i});
    } else {
      free->push_back(i);
    }
  }
  return lanes;
}

std::string line_of(const std::vector<Span>& spans, const std::vector<std::size_t>& lane,
                    std::string_view names, double end) {
  std::string line(columns, ' ');
  for (const std::size_t i : lane) {
    const auto column = [&](double time) {
      return std::min(columns - 1, static_cast<std::size_t>(double(columns) * time / end));
    };
    for (std::size_t at = column(spans[i].begin); at <= column(spans[i].end); ++at) {
      line[at] = names[i % names.size()];
    }
  }
  return line;
}

std::string lines_of(const std::string& head, const std::vector<Span>& spans,
                     std::string_view names, double end) {
  std::string lines;
  for (const auto& lane : lanes_of(spans)) {
    lines +=
        fmt::format("{:<18}|{}|\n", lines.empty() ? head : "", line_of(spans, lane, names, end));
  }
  return lines;
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void WatchedGemm::multiply(const MatrixProduct& product) const {
  const double begin = now();
  gemm_->multiply(product);
  spans_.push_back({begin, now()});
}

std::vector<Span> collectives_between(double begin, double end) {
  std::vector<Span> spans;
  for (const auto& record : collectives::flight_records_of(getpid())) {
    for (const auto& communicator : record.communicators) {
      for (const auto& operation : communicator.operations) {
        if (begin <= operation.posted && operation.posted <= end) {
          spans.push_back({operation.posted, operation.ended});
        }
      }
    }
  }
  std::ranges::sort(spans, {}, &Span::begin);
  return spans;
}

RankSpans from(double moment, RankSpans spans) {
  for (auto* some : {&spans.multiplies, &spans.travels}) {
    for (Span& span : *some) {
      span.begin -= moment;
      span.end -= moment;
    }
  }
  return spans;
}

std::vector<RankSpans> all_ranks(Communicator& world, const RankSpans& own) {
  // As many from each rank: kind, begin, end; what is not there has no begin.
  constexpr std::size_t most = 64, kinds = 2;
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  std::vector<Span> mine(kinds * most, {none, none});
  std::copy_n(own.multiplies.begin(), std::min(most, own.multiplies.size()), mine.begin());
  std::copy_n(own.travels.begin(), std::min(most, own.travels.size()), mine.begin() + most);
  std::vector<Span> all(mine.size() * std::size_t(world.size()));
  world
      .all_gather({mine.data(), 2 * mine.size(), DType::f64},
                  Elements{all.data(), 2 * all.size(), DType::f64})
      .wait();
  std::vector<RankSpans> ranks(std::size_t(world.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    RankSpans& rank = ranks[i / mine.size()];
    if (!std::isnan(all[i].begin)) {
      (i % mine.size() < most ? rank.multiplies : rank.travels).push_back(all[i]);
    }
  }
  return ranks;
}

double hidden_share(const RankSpans& spans) {
  std::vector<double> moments;
  for (const auto* some : {&spans.multiplies, &spans.travels}) {
    for (const Span& span : *some) {
      moments.insert(moments.end(), {span.begin, span.end});
    }
  }
  std::ranges::sort(moments);
  double travels = 0, both = 0;
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    const double middle = (moments[i] + moments[i + 1]) / 2, length = moments[i + 1] - moments[i];
    const auto covers = [&](const Span& span) { return span.begin < middle && middle < span.end; };
    if (std::ranges::any_of(spans.travels, covers)) {
      travels += length;
      both += std::ranges::any_of(spans.multiplies, covers) ? length : 0;
    }
  }
  return travels == 0 ? 0 : both / travels;
}

std::string drawing(const std::vector<RankSpans>& ranks) {
  const double end = end_of(ranks);
  std::string lines;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    lines +=
        lines_of(fmt::format("rank {} multiplies", rank), ranks[rank].multiplies, letters, end);
    lines += lines_of("       travels", ranks[rank].travels, digits, end);
  }
  return lines + fmt::format("{:<18}|0{:>{}.1f} ms|\n", "", 1e3 * end, columns - 4);
}

void ChromeTrace::add(const std::string& pass, const std::vector<RankSpans>& ranks) {
  const double begin = end_;
  const auto put = [&](std::size_t rank, const char* what, const std::vector<Span>& spans,
                       std::size_t first_lane) {
    const auto lanes = lanes_of(spans);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (const std::size_t i : lanes[lane]) {
        events_.push_back({.name = fmt::format("{}: {} {}", pass, what, i),
                           .rank = rank,
                           .lane = first_lane + lane,
                           .span = {begin + spans[i].begin, begin + spans[i].end}});
      }
    }
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    put(rank, "product", ranks[rank].multiplies, 0);
    put(rank, "rows", ranks[rank].travels, 1);
  }
  end_ = begin + 1.1 * end_of(ranks);
}

std::string ChromeTrace::text() const {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (const Event& event : events_) {
    events.push_back({{"name", event.name},
                      {"cat", event.lane == 0 ? "multiplies" : "travels"},
                      {"ph", "X"},
                      {"ts", 1e6 * event.span.begin},
                      {"dur", 1e6 * (event.span.end - event.span.begin)},
                      {"pid", event.rank},
                      {"tid", event.lane}});
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(1) + "\n";
}

}  // namespace sprat::bench
