#include "comm/timeline/clock_questions.hpp"

#include <algorithm>
#include <cstdlib>

#include "comm/timeline/clock_rounds.hpp"

namespace sprat::comm::timeline {
namespace {

/// Of 16 trips one is rarely delayed, and more hardly lower the bound.
constexpr int trips_of_question = 16;

ClockReading ask(const ClockLine& line, int host) {
  std::array<RoundTrip, trips_of_question> trips{};
  // Of the answerer, whose last answer is older than its first by some trips, and so the worst.
  std::int64_t error = 0;
  for (RoundTrip& trip : trips) {
    trip.asked = line.now();
    line.send(host, {});
    const ClockAnswer told = line.receive(host);
    trip.answered = line.now();
    trip.told = told[0];
    error = std::max(error, told[1]);
  }
  ClockReading reading = read_clock(trips);
  reading.error += error;
  return reading;
}

/// With what `mine` makes of the own clock, which is right where it is rank 0's.
void answer(const ClockLine& line, int host, const ClockReading& mine, bool is_rank_0s) {
  for (int trip = 0; trip < trips_of_question; ++trip) {
    line.receive(host);
    const std::int64_t now = line.now();
    line.send(host, {now + mine.offset, is_rank_0s ? 0 : error_at(mine, now)});
  }
}

}  // namespace

std::int64_t error_at(const ClockReading& reading, std::int64_t own_ns) {
  constexpr std::int64_t parts_for_one_of_drift = 10'000;  // 100 ppm
  return reading.error +
         (std::abs(own_ns - reading.at) + parts_for_one_of_drift - 1) / parts_for_one_of_drift;
}

ClockReading ask_for_clock(const ClockLine& line, int host, int hosts) {
  ClockReading mine{.at = line.now()};
  for (const std::vector<ClockQuestion>& round : clock_rounds(hosts)) {
    for (const ClockQuestion& question : round) {
      if (question.asks == host) {
        mine = ask(line, question.answers);
      } else if (question.answers == host) {
        answer(line, question.asks, mine, host == 0);
      }
    }
  }
  return mine;
}

}  // namespace sprat::comm::timeline
