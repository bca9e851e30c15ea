// Turns begin together on all ranks: each is behind a gathering of numbers.
#include "io/bench/run.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "io/loader/setup.hpp"
#include "io/report/report_line.hpp"

namespace sprat::io {
namespace {

using TurnClock = std::chrono::steady_clock;

/// Samples that are read anywhere; then the same ones again, which storage has forgotten by then.
constexpr std::size_t most_places = std::size_t{1} << 16;
/// Packed samples take time to find. More places than were found in it are not needed.
constexpr double longest_search_s = 0.5;
/// Of samples that the page cache holds for a turn, on all ranks together: more than a processor's
/// caches hold, and less than machines have.
constexpr std::uint64_t cached_set_bytes = std::uint64_t{256} << 20, least_cached_bytes = 16 << 20;
/// Of the loader's turn, until its read-ahead is that of a run.
constexpr double loader_warm_up = 0.3;

double seconds_from(TurnClock::time_point begin) {
  return std::chrono::duration<double>(TurnClock::now() - begin).count();
}

/// Goes through all files from a place on, and begins again behind the last.
class InOrder {
 public:
  InOrder(const FileTable& files, std::uint64_t begin) : files_(files) {
    while (begin >= length()) {
      begin -= length();
      file_ = (file_ + 1) % files_.files();
    }
    offset_ = begin;
  }
  Extent next() {
    for (; offset_ >= length(); offset_ = 0) {
      file_ = (file_ + 1) % files_.files();
    }
    const std::uint64_t bytes = std::min(bench_block_bytes, length() - offset_);
    return {.file = file_, .offset = std::exchange(offset_, offset_ + bytes), .bytes = bytes};
  }

 private:
  std::uint64_t length() const { return files_.known(file_).stamp.bytes; }

  const FileTable& files_;
  std::uint32_t file_ = 0;
  std::uint64_t offset_ = 0;
};

struct SamplePlaces {
  std::vector<Extent> extents;   // of which none is empty
  std::uint64_t mean_bytes = 0;  // of a sample
};

SamplePlaces find_places(const LoaderSetup& setup, int rank) {
  const auto begin = TurnClock::now();
  const SkipList none(setup.stream->sources());
  SamplePlaces places;
  std::uint64_t bytes = 0, samples = 0;
  while (places.extents.size() < most_places && samples < most_places &&
         (samples == 0 || seconds_from(begin) < longest_search_s)) {
    const std::uint64_t draw = mix_bits((static_cast<std::uint64_t>(rank) << 32) + ++samples);
    for (Extent extent :
         setup.stream->sample({.epoch = 0, .index = draw % setup.stream->samples()}, none)
             .extents) {
      extent.file = setup.files->number(0, extent.file);
      bytes += extent.bytes;
      if (extent.bytes > 0) {
        places.extents.push_back(extent);
      }
    }
  }
  require(!places.extents.empty(),
          "the samples of these files are empty: there is nothing to read");
  places.mean_bytes = std::max<std::uint64_t>(1, bytes / samples);
  return places;
}

/// What a turn of the loader gave.
struct LoaderTurn {
  double samples_per_second = 0;
  Interval interval;
};

LoaderTurn turn_of(Loader& loader, double seconds) {
  const auto begin = TurnClock::now();
  std::optional<TurnClock::time_point> steady_from;
  std::uint64_t samples = 0;
  TurnClock::time_point last = begin;
  // Large batches may take longer than a turn, and a stalled machine gives several at once: the
  // part that counts is never shorter.
  const std::chrono::duration<double> counted((1 - loader_warm_up) * seconds);
  while (!steady_from || last - *steady_from < counted) {
    const std::optional<DataBatch> batch = loader.next();
    last = TurnClock::now();
    if (steady_from) {
      samples += batch->size();
    } else if (seconds_from(begin) >= loader_warm_up * seconds) {
      steady_from = last;
      static_cast<void>(loader.report());  // what comes is reported from here on
    }
  }
  const std::chrono::duration<double> steady = last - *steady_from;
  // A report is read as `sprat io diagnose` reads it: the loader has no other door.
  const std::string line = loader.report().json + "\n";
  return {.samples_per_second = static_cast<double>(samples) / steady.count(),
          .interval = parse_report("the loader", line).report.intervals.at(0)};
}

class BenchRun {
 public:
  BenchRun(const BenchRequest& request, const GatherNumbers& gather)
      : request_(request),
        gather_(gather),
        setup_(set_up(request.loader)),
        places_(find_places(setup_, request.loader.rank)),
        in_order_(*setup_.files, setup_.files->bytes() /
                                     static_cast<std::uint64_t>(request.loader.ranks) *
                                     static_cast<std::uint64_t>(request.loader.rank)) {
    result_ = {.files = setup_.files->files(),
               .bytes = setup_.files->bytes(),
               .samples = setup_.stream->samples(),
               .sample_bytes = places_.mean_bytes,
               .ranks = request.loader.ranks,
               .reading = setup_.choice.sentence,
               .plan = plan_bench(
                   {.where = setup_.where, .cold = request.cold, .seconds = request.seconds})};
    result_.loader.reader = setup_.choice.kind->name;
    result_.loader.direct = setup_.choice.direct;
    result_.loader.scattered = request.loader.shuffle == Shuffle::full;
    for (const BenchWay& way : result_.plan.ways) {
      result_.ways.push_back({.way = way, .mbps = {}, .slowest_mbps = {}});
    }
    require_same_ways();
  }

  BenchResult run() {
    for (int round = 0; round < result_.plan.rounds; ++round) {
      for (MeasuredWay& one : result_.ways) {
        tell(bench_way_text(one.way, result_.sample_bytes));
        const double mine = rate_of(one.way);
        add(mine, one.mbps, one.slowest_mbps);
      }
      tell("the loader");
      turn_of_loader(round);
    }
    result_.judgement = judge_bench(result_.ways, result_.loader);
    return std::move(result_);
  }

 private:
  void tell(const std::string& what) {
    const int of = result_.plan.rounds * (static_cast<int>(result_.ways.size()) + 1);
    if (request_.tell) {
      request_.tell(what, turns_++, of);
    }
  }

  /// Hosts may differ in what their kernels allow, and sums over different ways say nothing.
  void require_same_ways() {
    // Words, since a kind's address differs between processes.
    std::uint64_t sum = fnv1a_begin;
    for (const BenchWay& way : result_.plan.ways) {
      sum = mix_bits(sum + fnv1a(bench_way_text(way, 0)));
    }
    const auto mine = static_cast<double>(sum >> 12);  // as much as a double holds
    const std::vector<double> all = gather_(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      require(all[rank] == mine, "rank ", request_.loader.rank, " reads by other ways than rank ",
              rank, ": their hosts differ in readers or in direct reads; bench each host alone");
    }
  }

  void add(double mine, std::vector<double>& sums, std::vector<double>& slowest) {
    const std::vector<double> all = gather_(mine);
    sums.push_back(std::accumulate(all.begin(), all.end(), 0.0));
    slowest.push_back(std::ranges::min(all));
  }

  void begin_turn() {
    if (request_.cold) {
      result_.released = release_pages(*setup_.files);
    }
  }

  double rate_of(const BenchWay& way) {
    begin_turn();
    std::span<const Extent> places = places_.extents;
    if (way.access == BenchAccess::cached) {
      places = places.first(read_once(*setup_.files, cached_places(), result_.plan.turn_seconds));
    }
    std::size_t next = next_place_ % places.size();
    const NextExtent next_extent = [&] {
      if (way.access == BenchAccess::in_order) {
        return in_order_.next();
      }
      next = next < places.size() ? next : 0;
      return places[next++];
    };
    gather_(0);  // all are ready
    const double rate = read_rate(*setup_.files, way, setup_.where.alignment, next_extent,
                                  result_.plan.turn_seconds);
    if (way.access == BenchAccess::scattered) {
      next_place_ = next;  // the next turn reads others
    }
    return rate;
  }

  /// The same number of bytes on each rank: they share a host's memory, as far as anybody knows.
  std::span<const Extent> cached_places() const {
    const auto ranks = static_cast<std::uint64_t>(request_.loader.ranks);
    const std::uint64_t most = std::max(cached_set_bytes / ranks, least_cached_bytes);
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    while (count < places_.extents.size() && bytes < most) {
      bytes += places_.extents[count++].bytes;
    }
    return std::span(places_.extents).first(count);
  }

  void turn_of_loader(int round) {
    begin_turn();
    // A loader a turn: one that waits between its turns would read ahead during those of others.
    LoaderOptions options = request_.loader;
    options.seed += static_cast<std::uint64_t>(round);  // other samples than the last turn's
    LoaderTurn turn;
    {
      Loader loader(std::move(options));
      gather_(0);
      turn = turn_of(loader, result_.plan.turn_seconds);
    }  // it no longer reads ahead when others take their turn
    MeasuredLoader& measured = result_.loader;
    // Of samples and not of fields, whose names and headers ways that read files pay for, too.
    const auto bytes = static_cast<double>(places_.mean_bytes);
    add(turn.samples_per_second * bytes / 1e6, measured.mbps, measured.slowest_mbps);
    const std::vector<double> samples = gather_(turn.samples_per_second);
    measured.samples_per_second.push_back(std::accumulate(samples.begin(), samples.end(), 0.0));
    measured.intervals.push_back(std::move(turn.interval));
  }

  const BenchRequest& request_;
  const GatherNumbers& gather_;
  const LoaderSetup setup_;
  const SamplePlaces places_;
  InOrder in_order_;
  std::size_t next_place_ = 0;
  int turns_ = 0;  ///< Begun.
  BenchResult result_;
};

}  // namespace

BenchResult run_bench(const BenchRequest& request, const GatherNumbers& gather) {
  require(request.loader.sources.size() == 1, "a bench reads one source, and is given ",
          request.loader.sources.size());
  require(request.loader.epochs == 0,
          "a bench reads for seconds and not for epochs: leave epochs out");
  return BenchRun(request, gather).run();
}

}  // namespace sprat::io
