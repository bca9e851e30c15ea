#include "collectives/timeline.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/communicator_impl.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/whole_file.hpp"
#include "comm/timeline/chrome_trace.hpp"
#include "comm/timeline/clock_questions.hpp"

namespace sprat {
namespace collectives {
namespace {

using comm::timeline::ClockAnswer;
using comm::timeline::ClockReading;
using comm::timeline::RankRecord;
using comm::timeline::RankTimeline;

constexpr int clock_tag = 0;
/// Times differ from run to run.
constexpr Options of_this_run{.timeout = {}, .blocking = true, .digested = false};
constexpr std::size_t longest_complaint = 512;

/// The first rank of each host, rank 0 before all others.
std::vector<int> first_ranks(const std::vector<int>& hosts) {
  std::vector<int> first;
  std::set<int> seen;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (seen.insert(hosts[rank]).second) {
      first.push_back(static_cast<int>(rank));
    }
  }
  return first;
}

/// Messages between these ranks, by their places among them.
comm::timeline::ClockLine clock_line(Communicator& ranks, const std::vector<int>& first,
                                     const std::function<std::int64_t()>& now) {
  const auto rank_of = [&first](int host) { return first[static_cast<std::size_t>(host)]; };
  return {.send =
              [&ranks, rank_of](int host, const ClockAnswer& told) {
                ranks.send(elements(told), rank_of(host), clock_tag, of_this_run).wait();
              },
          .receive =
              [&ranks, rank_of](int host) {
                ClockAnswer told{};
                ranks.recv(elements(told), rank_of(host), clock_tag, of_this_run).wait();
                return told;
              },
          .now = now};
}

std::function<std::int64_t()> clock_of(comm::Context& context) {
  return [&policy = context.wait_policy()] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(policy.now().time_since_epoch())
        .count();
  };
}

/// On rank 0, of all ranks, by rank; elsewhere nothing.
std::vector<RankTimeline> collect(Communicator& ranks, const RankTimeline& own) {
  const std::vector<std::byte> mine = comm::timeline::packed(own);
  const bool leads = ranks.rank() == 0;
  const std::array<std::uint64_t, 1> bytes = {mine.size()};
  std::vector<std::uint64_t> counts(leads ? static_cast<std::size_t>(ranks.size()) : 0);
  ranks.gather(elements(bytes), elements(counts), 0, of_this_run).wait();
  std::size_t total = 0;
  for (const std::uint64_t count : counts) {
    total += count;
  }
  std::vector<std::byte> all(total);
  ranks
      .gatherv({mine.data(), mine.size(), DType::u8}, {all.data(), all.size(), DType::u8}, counts,
               0, of_this_run)
      .wait();
  std::vector<RankTimeline> collected;
  std::span<const std::byte> rest = all;
  for (const std::uint64_t count : counts) {
    collected.push_back(comm::timeline::unpacked(rest.first(count), "a rank's part of the trace"));
    rest = rest.subspan(count);
  }
  std::ranges::sort(collected, {}, &RankTimeline::rank);
  return collected;
}

/// Why it could not be written; empty if it was.
std::string write(const std::vector<RankTimeline>& ranks, const std::string& path) {
  try {
    write_whole_file(path, comm::timeline::chrome_trace(ranks));
  } catch (const std::exception& error) {
    return text("cannot write the trace ", error.what());
  }
  if (const std::int64_t error = comm::timeline::clock_error_ns(ranks);
      error > tolerable_clock_error_ns) {
    log().warn(
        "{}: clocks of other hosts may be {} us from rank 0's, as long as half of the round trips "
        "to it",
        path, error / 1000);
  }
  if (const std::uint64_t dropped = comm::timeline::dropped_events(ranks); dropped > 0) {
    log().warn("{}: the oldest {} events had no room; trace fewer steps to see all of them", path,
               dropped);
  }
  return {};
}

/// Every rank throws what rank 0 complains of, or none.
void agree_on_outcome(Communicator& ranks, const std::string& complaint) {
  std::array<std::uint8_t, longest_complaint> told{};
  std::copy_n(complaint.begin(), std::min(complaint.size(), told.size() - 1), told.begin());
  ranks.broadcast(elements(told), 0, of_this_run).wait();
  if (told[0] != 0) {
    throw Error(ErrorCode::unavailable, std::string(told.begin(), std::ranges::find(told, 0)));
  }
}

}  // namespace

ClockReading measure_clock(Communicator& ranks, const std::function<std::int64_t()>& now) {
  const std::vector<int>& hosts = ranks.hosts();
  const std::vector<int> first = first_ranks(hosts);
  ClockReading mine{.at = now()};
  if (first.size() == 1) {
    return mine;
  }
  const auto place = std::ranges::find(first, ranks.rank());
  if (place != first.end()) {
    mine = comm::timeline::ask_for_clock(clock_line(ranks, first, now),
                                         static_cast<int>(place - first.begin()),
                                         static_cast<int>(first.size()));
  }
  const std::array<std::int64_t, 3> told = {mine.at, mine.offset, mine.error};
  std::vector<std::int64_t> all(3 * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(elements(told), elements(all), of_this_run).wait();
  const int host = hosts[static_cast<std::size_t>(ranks.rank())];
  const auto of_host = 3 * static_cast<std::size_t>(std::ranges::find(hosts, host) - hosts.begin());
  return {.at = all[of_host], .offset = all[of_host + 1], .error = all[of_host + 2]};
}

Communicator with_clock(Communicator world) {
  comm::Context& context = *world.impl().context;
  if (RankRecord* record = context.record()) {
    record->note_clock(measure_clock(world, clock_of(context)));
  }
  return world;
}

}  // namespace collectives

Tracer* Communicator::tracer() const noexcept {
  comm::timeline::RankRecord* record = impl_->context->record();
  return record == nullptr ? nullptr : &record->ring();
}

void Communicator::write_trace(std::string_view path) {
  collectives::check_process(*impl_);
  comm::Context& context = *impl_->context;
  comm::timeline::RankRecord* record = context.record();
  if (record == nullptr) {
    return;
  }
  require(size() == context.size(), "write_trace() of ", name(), ", which has ", size(), " of ",
          context.size(), " ranks; call it on a communicator of all of them");
  // Messages of its own, whatever tags its users' have.
  Communicator ranks = duplicate(text(name(), ".trace"), Failing::together);
  const auto end = collectives::measure_clock(ranks, collectives::clock_of(context));
  const auto all = collectives::collect(ranks, record->tell(end));
  const std::string complaint =
      rank() == 0 ? collectives::write(all, path.empty() ? record->path() : std::string(path))
                  : std::string();
  collectives::agree_on_outcome(ranks, complaint);
  record->collected();
}

}  // namespace sprat
