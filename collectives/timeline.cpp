#include "collectives/timeline.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
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

using comm::timeline::ChromeTrace;
using comm::timeline::ClockAnswer;
using comm::timeline::ClockReading;
using comm::timeline::RankOutline;
using comm::timeline::RankRecord;
using comm::timeline::RankTimeline;
using comm::timeline::TraceOutline;

constexpr int clock_tag = 0, turn_tag = 1, part_tag = 2;
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

/// What a rank says of its part before rank 0 asks for it.
struct Announced {
  int rank = 0;  ///< In the job.
  std::size_t bytes = 0;
  RankOutline outline = {};
};
/// As it travels: the numbers, and how many flows there are of each kind.
using AnnouncedWords = std::array<std::uint64_t, 7>;

AnnouncedWords announced_words(const Announced& one) {
  const RankOutline& outline = one.outline;
  return {static_cast<std::uint64_t>(one.rank),
          one.bytes,
          static_cast<std::uint64_t>(outline.first_ns),
          static_cast<std::uint64_t>(outline.clock_error_ns),
          outline.dropped,
          outline.sent.size(),
          outline.received.size()};
}

/// `flows`: those that are sent, then those that are received.
Announced announced_by(const AnnouncedWords& words, std::span<const std::uint64_t> flows) {
  const auto sent = flows.first(words[5]), received = flows.subspan(words[5]);
  return {.rank = static_cast<int>(words[0]),
          .bytes = words[1],
          .outline = {.first_ns = static_cast<std::int64_t>(words[2]),
                      .clock_error_ns = static_cast<std::int64_t>(words[3]),
                      .dropped = words[4],
                      .sent = {sent.begin(), sent.end()},
                      .received = {received.begin(), received.end()}}};
}

/// On rank 0, of all ranks, by their places in `ranks`; elsewhere nothing.
std::vector<Announced> announce(Communicator& ranks, const Announced& own) {
  const auto size = ranks.rank() == 0 ? static_cast<std::size_t>(ranks.size()) : 0;
  const AnnouncedWords mine = announced_words(own);
  std::vector<AnnouncedWords> words(size);
  ranks.gather(elements(mine), {words.data(), size * mine.size(), DType::u64}, 0, of_this_run)
      .wait();
  std::vector<std::uint64_t> flows = own.outline.sent;
  flows.insert(flows.end(), own.outline.received.begin(), own.outline.received.end());
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const AnnouncedWords& of : words) {
    counts.push_back(of[5] + of[6]);
    total += counts.back();
  }
  std::vector<std::uint64_t> all(total);
  ranks.gatherv(elements(std::as_const(flows)), elements(all), counts, 0, of_this_run).wait();
  std::vector<Announced> announced;
  std::span<const std::uint64_t> rest = all;
  for (std::size_t rank = 0; rank < size; ++rank) {
    announced.push_back(announced_by(words[rank], rest.first(counts[rank])));
    rest = rest.subspan(counts[rank]);
  }
  return announced;
}

/// Of another rank than 0, once it is asked.
void hand_over(Communicator& ranks, const std::vector<std::byte>& part) {
  std::array<std::uint8_t, 1> wanted{};
  ranks.recv(elements(wanted), 0, turn_tag, of_this_run).wait();
  if (wanted[0] != 0) {
    ranks.send({part.data(), part.size(), DType::u8}, 0, part_tag, of_this_run).wait();
  }
}

/// The file, which rank 0 writes part by part. Once that has failed nothing more is written, and
/// why is kept: other ranks wait for their turn, and are told behind the last one.
class TraceOfAll {
 public:
  TraceOfAll(const std::string& path, TraceOutline outline) : path_(path) {
    attempt([&] {
      file_.emplace(path);
      trace_.emplace(std::move(outline), [this](std::string_view piece) { file_->append(piece); });
    });
  }
  bool fails() const { return !complaint_.empty(); }

  void add(std::span<const std::byte> part) {
    attempt([&] { trace_->add(comm::timeline::unpacked(part, "a rank's part of the trace")); });
  }
  /// Room for a part; `fails()` if there is none.
  std::span<std::byte> room(std::size_t bytes) {
    attempt([&] { part_.resize(bytes); });
    return fails() ? std::span<std::byte>() : std::span(part_);
  }
  /// What has failed; empty: nothing.
  std::string end() {
    attempt([&] {
      trace_->end();
      file_->keep();
    });
    return complaint_;
  }

 private:
  template <class Step>
  void attempt(const Step& step) {
    if (fails()) {
      return;
    }
    try {
      step();
    } catch (const std::exception& error) {
      complaint_ = text("cannot write the trace ", error.what());
    }
  }

  const std::string path_;
  std::optional<WholeFile> file_;
  std::optional<ChromeTrace> trace_;
  std::vector<std::byte> part_;
  std::string complaint_;
};

void say_what_is_missing(const TraceOutline& outline, const std::string& path) {
  if (outline.clock_error_ns > tolerable_clock_error_ns) {
    log().warn(
        "{}: clocks of other hosts may be {} us from rank 0's, as long as half of the round trips "
        "to it",
        path, outline.clock_error_ns / 1000);
  }
  if (outline.dropped > 0) {
    log().warn("{}: the oldest {} events had no room; trace fewer steps to see all of them", path,
               outline.dropped);
  }
}

/// On rank 0: why it could not be written; empty if it was. A part is 8 MiB, so it is asked for
/// when it is written, and there is one at a time.
std::string take_over(Communicator& ranks, std::vector<Announced> announced,
                      std::span<const std::byte> own, const std::string& path) {
  std::vector<int> order(announced.size());  // of the job
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int rank) -> Announced& { return announced[static_cast<std::size_t>(rank)]; };
  std::ranges::sort(order, {}, [&](int rank) { return at(rank).rank; });
  std::vector<RankOutline> outlines;
  for (Announced& one : announced) {
    outlines.push_back(std::move(one.outline));
  }
  TraceOutline outline = comm::timeline::outline_of(std::move(outlines));
  const TraceOutline numbers{.first_ns = outline.first_ns,
                             .clock_error_ns = outline.clock_error_ns,
                             .dropped = outline.dropped};
  TraceOfAll trace(path, std::move(outline));
  for (const int rank : order) {
    if (rank == 0) {
      trace.add(own);
      continue;
    }
    const std::span<std::byte> room = trace.room(at(rank).bytes);
    const std::array<std::uint8_t, 1> wanted = {trace.fails() ? std::uint8_t{0} : std::uint8_t{1}};
    ranks.send(elements(wanted), rank, turn_tag, of_this_run).wait();
    if (!trace.fails()) {
      ranks.recv({room.data(), room.size(), DType::u8}, rank, part_tag, of_this_run).wait();
      trace.add(room);
    }
  }
  const std::string complaint = trace.end();
  if (complaint.empty()) {
    say_what_is_missing(numbers, path);
  }
  return complaint;
}

/// On rank 0: why it could not be written; empty if it was, and elsewhere.
std::string collect(Communicator& ranks, const RankRecord& record, const ClockReading& end,
                    const std::string& path) {
  std::vector<std::byte> mine;
  Announced own;
  {
    const RankTimeline told = record.tell(end);
    mine = comm::timeline::packed(told);
    own = {.rank = told.rank, .bytes = mine.size(), .outline = comm::timeline::outline_of(told)};
  }
  std::vector<Announced> announced = announce(ranks, own);
  if (ranks.rank() == 0) {
    return take_over(ranks, std::move(announced), mine, path);
  }
  hand_over(ranks, mine);
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
  const std::string complaint =
      collectives::collect(ranks, *record, end, path.empty() ? record->path() : std::string(path));
  collectives::agree_on_outcome(ranks, complaint);
  record->collected();
}

}  // namespace sprat
