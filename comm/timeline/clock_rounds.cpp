#include "comm/timeline/clock_rounds.hpp"

#include <algorithm>
#include <utility>

namespace sprat::comm::timeline {
namespace {

/// Nobody notices 8 rounds, of a millisecond each where hosts are far apart; a bound of twice the
/// size is printed.
constexpr int hosts_by_hop = 9;

/// Hops from rank 0's host to the one that is furthest.
int most_hops(int hosts) {
  int hops = 1;
  for (long reached = hosts_by_hop; reached < hosts; reached *= hosts_by_hop) {
    ++hops;
  }
  return hops;
}

struct Knowing {
  int host = 0, hops = 0;
};

}  // namespace

std::vector<std::vector<ClockQuestion>> clock_rounds(int hosts) {
  const int most = most_hops(hosts);
  std::vector<std::vector<ClockQuestion>> rounds;
  std::vector<Knowing> knowing = {{.host = 0, .hops = 0}};
  for (int next = 1; next < hosts;) {
    // Nearest first: in the last round there are more who may answer than who ask.
    std::ranges::stable_sort(knowing, {}, &Knowing::hops);
    std::vector<ClockQuestion> round;
    const std::size_t before = knowing.size();
    for (std::size_t i = 0; i < before && next < hosts && knowing[i].hops < most; ++i, ++next) {
      round.push_back({.asks = next, .answers = knowing[i].host});
      knowing.push_back({.host = next, .hops = knowing[i].hops + 1});
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace sprat::comm::timeline
