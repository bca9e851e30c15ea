// Clocks that are seconds apart and drift, asked over links whose two ways are unlike.
#include "comm/timeline/clock_fit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

namespace sprat::comm::timeline {
namespace {

constexpr std::int64_t us = 1000, ms = 1000 * us, second = 1000 * ms;

/// What a clock shows when rank 0's shows `true_ns`.
struct SkewedClock {
  std::int64_t offset = 0;
  double drift = 0;  ///< Seconds a second.

  std::int64_t shows(std::int64_t true_ns) const {
    return true_ns + offset + std::llround(drift * static_cast<double>(true_ns));
  }
};

/// Least times of the two ways; queues add up to as much again, and now and then much more.
struct Link {
  std::int64_t to_rank_0 = 0, back = 0;
};

std::vector<RoundTrip> ask(const SkewedClock& clock, const Link& link, std::int64_t from,
                           std::mt19937_64& random) {
  std::vector<RoundTrip> trips;
  std::int64_t now = from;
  for (int i = 0; i < 16; ++i) {
    const auto way = [&](std::int64_t least) {
      const std::int64_t queue = static_cast<std::int64_t>(random() % 1000) * least / 1000;
      return least + queue + (random() % 8 == 0 ? 3 * ms : 0);
    };
    const std::int64_t asked = now, told = asked + way(link.to_rank_0),
                       ends = told + way(link.back);
    trips.push_back({.asked = clock.shows(asked), .told = told, .answered = clock.shows(ends)});
    now = ends + 20 * us;
  }
  return trips;
}

TEST(ClockFit, is_never_further_from_the_truth_than_it_says) {
  std::mt19937_64 random(17);
  const Link links[] = {{5 * us, 5 * us}, {4 * us, 30 * us}, {90 * us, 6 * us}, {2 * ms, 10 * us}};
  for (const std::int64_t offset : {-1000 * second, -1 * us, std::int64_t{0}, 1000 * second}) {
    for (const double drift : {-50e-6, 0.0, 50e-6}) {
      for (const Link& link : links) {
        const SkewedClock clock{.offset = offset, .drift = drift};
        const std::int64_t begin = 7 * second, end = begin + 3600 * second;
        const ClockFit fit{.begin = read_clock(ask(clock, link, begin, random)),
                           .end = read_clock(ask(clock, link, end, random))};
        // Where the bound is above 20 us it is said; a link with two short ways is always within.
        EXPECT_LE(fit.error(), link.to_rank_0 + link.back) << link.to_rank_0 << ' ' << link.back;
        for (int part = 0; part <= 16; ++part) {
          const std::int64_t at = begin + (end - begin) / 16 * part;
          const std::int64_t wrong = std::abs(fit.aligned(clock.shows(at)) - at);
          // A question takes some ms at most, in which 50 ppm are a fraction of a microsecond.
          EXPECT_LE(wrong, fit.error() + us)
              << "offset " << offset << ", drift " << drift << ", part " << part;
        }
      }
    }
  }
}

TEST(ClockFit, short_ways_are_within_20_us_after_an_hour_at_50_ppm) {
  std::mt19937_64 random(3);
  const SkewedClock clock{.offset = 1000 * second, .drift = 50e-6};
  const Link link{.to_rank_0 = 4 * us, .back = 9 * us};
  const ClockFit fit{.begin = read_clock(ask(clock, link, 0, random)),
                     .end = read_clock(ask(clock, link, 3600 * second, random))};
  EXPECT_LE(fit.error(), 20 * us);
  const std::int64_t half = 1800 * second;
  EXPECT_LE(std::abs(fit.aligned(clock.shows(half)) - half), 20 * us);
  // One measurement alone would be 90 ms off by then.
  const ClockFit once{.begin = fit.begin, .end = fit.begin};
  EXPECT_GT(std::abs(once.aligned(clock.shows(half)) - half), 80 * ms);
}

TEST(ClockFit, takes_the_trip_that_took_least) {
  const RoundTrip trips[] = {{.asked = 0, .told = 900, .answered = 100},
                             {.asked = 200, .told = 1213, .answered = 220},
                             {.asked = 300, .told = 1400, .answered = 390}};
  EXPECT_EQ(read_clock(trips), (ClockReading{.at = 210, .offset = 1003, .error = 10}));
}

}  // namespace
}  // namespace sprat::comm::timeline
