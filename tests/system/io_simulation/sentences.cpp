#include "tests/system/io_simulation/sentences.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <iterator>

#include "tests/system/io_simulation/draws.hpp"

namespace sprat::io_simulation {
namespace {

using io::Limit;

/// File systems of AWS's table whose disks burst. One has a storage target for each 1200 GiB.
constexpr std::array systems = {"PERSISTENT_1:50:4800", "PERSISTENT_1:50:7200",
                                "PERSISTENT_1:50:9600", "PERSISTENT_1:100:4800"};
constexpr std::uint64_t gib_per_target = 1200;

/// Files as Lustre lays them out: each begins one target behind the one before, so that all targets
/// have as much. What is not spread evenly is a hot target, and is drawn as such.
std::vector<StoredFile> draw_even_files(Random& random, int targets, std::uint64_t all_bytes) {
  const int rounds = random.between(2, 12);
  const int stripes = random.once_in(2) ? 1 : random.between(2, targets);
  const std::uint64_t stripe_bytes = random.once_in(2) ? mib : 4 * mib;
  const auto count = static_cast<std::uint64_t>(rounds * targets);
  // Whole rounds of stripes.
  const std::uint64_t round_bytes = stripe_bytes * static_cast<std::uint64_t>(stripes);
  const std::uint64_t file_bytes =
      std::max<std::uint64_t>(1, all_bytes / count / round_bytes) * round_bytes;
  std::vector<StoredFile> files;
  for (int first = 0; first < rounds * targets; ++first) {
    io::StripedRange range{
        .begin = 0, .end = file_bytes, .stripe_bytes = stripe_bytes, .targets = {}};
    for (int stripe = 0; stripe < stripes; ++stripe) {
      range.targets.push_back((first + stripe) % targets);
    }
    files.push_back({.bytes = file_bytes, .layout = {range}});
  }
  return files;
}

/// `demand` of storage's base rate is wanted by computing, `seconds` at that base.
LimitedRun draw_run(Random& random, double demand, double seconds) {
  LimitedRun run;
  RunSetup& setup = run.setup;
  const io::FsxSystem system = io::parse_fsx(systems[random.below(systems.size())]);
  const auto targets = static_cast<int>(system.gib / gib_per_target);
  const double base = io::fsx_rates(system).disk * 1e6 / targets;
  const double latency = between(random, 3e-4, 5e-3), jitter = between(random, 0, 1);
  for (int target = 0; target < targets; ++target) {
    setup.storage.targets.push_back({.base = base,
                                     .burst = base,
                                     .latency_s = latency,
                                     .jitter = jitter,
                                     .server = target / 2});
  }
  setup.storage.network = 12.5e9;
  // Half of the users say what they have bought.
  run.system = system;
  if (random.once_in(2)) {
    run.facts.system = system;
  }
  const auto all_bytes = static_cast<std::uint64_t>(storage_rate(setup) * seconds);
  setup.files = draw_even_files(random, targets, all_bytes);
  setup.scheduler.budget_bytes = 1024 * mib;
  setup.scheduler.reads = 256;
  setup.scheduler.retry_for = std::chrono::seconds(120);
  setup.scheduler.seed = random.next();
  setup.batches = draw_batches(random, setup.files,
                               {.record = log_between(random, 1.0 * mib, 8.0 * mib),
                                .batch = setup.scheduler.budget_bytes / 64,
                                .all = all_bytes});
  setup.alignment = random.once_in(2) ? 4096 : 1;
  const double batch_bytes =
      static_cast<double>(all_bytes) / static_cast<double>(setup.batches.size());
  setup.compute_s = batch_bytes / (demand * storage_rate(setup));
  setup.seed = random.next();
  return run;
}

/// Computing is the limit, with as much to spare as people have whose storage is well chosen.
LimitedRun draw_healthy(Random& random) {
  return draw_run(random, between(random, 0.3, 0.75), between(random, 50, 80));
}

LimitedRun draw_plateau(Random& random) {
  LimitedRun run = draw_run(random, between(random, 1.15, 3), between(random, 70, 100));
  // Nobody who pays for a burst gets its base alone at once: such a run has met other clients.
  run.facts.system.reset();
  return run;
}

/// Computing wants a little more than storage gives: most of the time it does not wait.
LimitedRun draw_edge(Random& random) {
  LimitedRun run = draw_run(random, between(random, 1.08, 1.15), between(random, 90, 120));
  run.facts.system.reset();
  return run;
}

LimitedRun draw_burst(Random& random) {
  const double above = between(random, 1.6, 4), lasts = between(random, 30, 50);
  const double demand = between(random, 1.5, 1.25 * above), used = std::min(above, demand);
  // What is read until credit is spent, what memory holds until samples are waited for, and more
  // than a minute.
  LimitedRun run = draw_run(random, demand, used * lasts + 100);
  RunSetup& setup = run.setup;
  run.facts.system = run.system;
  for (TargetModel& target : setup.storage.targets) {
    target.burst = target.base * above;
    // Credit is spent by what is taken, not by what could be.
    target.credit_bytes = (used - 1) * target.base * lasts;
  }
  setup.storage.flow = 1e10;
  run.from_s = lasts;
  return run;
}

LimitedRun draw_hot(Random& random) {
  LimitedRun run = draw_run(random, between(random, 0.5, 0.8), between(random, 50, 70));
  run.from_s = between(random, 0, 20);
  run.setup.troubles.push_back({.kind = Trouble::Kind::slow,
                                .target = any_target(run.setup, random),
                                .from_s = run.from_s,
                                .factor = between(random, 0.1, 0.35)});
  return run;
}

/// A server that comes back after a while: reads of one target fail, or are not answered.
LimitedRun draw_failover(Random& random, Trouble::Kind kind) {
  LimitedRun run = draw_run(random, between(random, 0.5, 0.8), between(random, 50, 70));
  run.from_s = between(random, 10, 30);
  run.until_s = run.from_s + between(random, 35, 60);
  run.setup.troubles.push_back({.kind = kind,
                                .target = any_target(run.setup, random),
                                .from_s = run.from_s,
                                .until_s = run.until_s,
                                .error = random.once_in(2) ? EIO : ESHUTDOWN});
  return run;
}

LimitedRun draw_failing(Random& random) { return draw_failover(random, Trouble::Kind::fails); }
LimitedRun draw_hanging(Random& random) { return draw_failover(random, Trouble::Kind::hangs); }

/// The archive gives file after file, slower than they are wanted.
void release(LimitedRun& run, Random& random) {
  double there = 0;
  const double each = 150.0 / static_cast<double>(run.setup.files.size());
  for (StoredFile& file : run.setup.files) {
    if (random.once_in(2)) {
      there += 2 * each * between(random, 0.5, 1.5);
      file.restore_s = there;
    }
  }
  run.until_s = there;
}

LimitedRun draw_released(Random& random) {
  LimitedRun run = draw_run(random, between(random, 0.5, 0.8), between(random, 50, 70));
  release(run, random);
  return run;
}

LimitedRun draw_short(Random& random) {
  LimitedRun run = draw_run(random, between(random, 1.15, 3), between(random, 70, 100));
  run.setup.troubles.push_back(
      {.kind = Trouble::Kind::short_reads, .factor = between(random, 0.1, 0.6)});
  return run;
}

/// Files of a record or few, and a metadata server that opens hardly as many as are needed.
void crowd_metadata(LimitedRun& run, Random& random) {
  RunSetup& setup = run.setup;
  const auto targets = static_cast<int>(setup.storage.targets.size());
  const std::uint64_t file_bytes = log_between(random, 256.0 * kib, 2.0 * mib);
  setup.storage.opens_per_second =
      between(random, 0.3, 0.8) * storage_rate(setup) / static_cast<double>(file_bytes);
  const auto files = static_cast<std::uint32_t>(60 * setup.storage.opens_per_second);
  const std::uint32_t batch = std::max<std::uint32_t>(1, files / 200);
  setup.files.clear();
  setup.batches.clear();
  for (std::uint32_t file = 0; file < files; ++file) {
    io::StripedRange range{
        .begin = 0, .end = file_bytes, .targets = {random.between(0, targets - 1)}};
    setup.files.push_back({.bytes = file_bytes, .layout = {range}});
    if (file % batch == 0) {
      setup.batches.emplace_back();
    }
    setup.batches.back().push_back({{.file = file, .offset = 0, .bytes = file_bytes}});
  }
  setup.compute_s = 0.5 * batch / setup.storage.opens_per_second;
}

LimitedRun draw_metadata(Random& random) {
  LimitedRun run = draw_run(random, 1, 1);
  crowd_metadata(run, random);
  return run;
}

/// A link that is slower than storage, and more wanted than it carries.
void narrow_link(LimitedRun& run, Random& random) {
  run.setup.storage.network = between(random, 0.3, 0.8) * storage_rate(run.setup);
}

LimitedRun draw_network(Random& random) {
  LimitedRun run = draw_run(random, between(random, 1.15, 3), between(random, 50, 70));
  narrow_link(run, random);
  return run;
}

/// Decoding takes `slower` times what computing takes.
void decode_slowly(LimitedRun& run, Random& random, double slower) {
  HostModel& host = run.setup.host;
  host.decode_threads = random.between(1, 8);
  host.decode_s = slower * run.setup.compute_s * host.decode_threads;
}

LimitedRun draw_decode(Random& random) {
  LimitedRun run = draw_run(random, between(random, 0.5, 0.75), between(random, 30, 45));
  decode_slowly(run, random, between(random, 1.2, 2));
  return run;
}

/// From some second on decoding costs so much that its threads take all cores, which reductions of
/// the same host want, too.
LimitedRun draw_reductions(Random& random) {
  LimitedRun run = draw_run(random, between(random, 0.5, 0.75), between(random, 50, 70));
  HostModel& host = run.setup.host;
  decode_slowly(run, random, between(random, 0.2, 0.5));
  host.cores = host.decode_threads;
  host.reduce_s = between(random, 0.1, 0.3) * run.setup.compute_s;
  run.setup.compute_s -= host.reduce_s;
  host.reduce_bytes = log_between(random, 1e7, 1e9);
  run.from_s = between(random, 35, 45);
  run.setup.troubles.push_back(
      {.kind = Trouble::Kind::decoding, .from_s = run.from_s, .factor = 10});
  return run;
}

LimitedRun draw_short_and_network(Random& random) {
  LimitedRun run = draw_short(random);
  narrow_link(run, random);
  return run;
}

LimitedRun draw_short_and_metadata(Random& random) {
  LimitedRun run = draw_short(random);
  crowd_metadata(run, random);
  return run;
}

LimitedRun draw_released_and_failing(Random& random) {
  LimitedRun run = draw_failing(random);
  const double until = run.until_s;
  release(run, random);
  run.until_s = until;
  return run;
}

LimitedRun draw_short_and_hot(Random& random) {
  LimitedRun run = draw_hot(random);
  run.setup.troubles.push_back(
      {.kind = Trouble::Kind::short_reads, .factor = between(random, 0.1, 0.6)});
  return run;
}

const std::array kinds = {
    LimitKind{"steady", {Limit::file_system}, draw_plateau},
    LimitKind{"hardly_enough", {Limit::file_system}, draw_edge},
    LimitKind{"burst_spent", {Limit::burst_spent}, draw_burst},
    LimitKind{"hot_target", {Limit::hot_target}, draw_hot},
    LimitKind{"failover", {Limit::failover}, draw_failing},
    LimitKind{"hanging_reads", {Limit::failover}, draw_hanging},
    LimitKind{"released_files", {Limit::released}, draw_released},
    LimitKind{"short_reads", {Limit::short_reads}, draw_short},
    LimitKind{"slow_client", {Limit::compute}, draw_healthy},
    LimitKind{"metadata_storm", {Limit::metadata}, draw_metadata},
    LimitKind{"network", {Limit::network}, draw_network},
    LimitKind{"slow_decoding", {Limit::decode}, draw_decode},
    LimitKind{"starved_reductions", {Limit::reductions}, draw_reductions},
};

const std::array pairs = {
    LimitKind{"short_and_network", {Limit::short_reads, Limit::network}, draw_short_and_network},
    LimitKind{"short_and_metadata", {Limit::short_reads, Limit::metadata}, draw_short_and_metadata},
    LimitKind{
        "released_and_failing", {Limit::released, Limit::failover}, draw_released_and_failing},
    LimitKind{"short_and_hot", {Limit::short_reads, Limit::hot_target}, draw_short_and_hot},
};

/// What is named first is what limits. Of two one may hide the other, as where no read begins that
/// could fail; but nothing beside them may be named.
bool says(const io::Diagnosis& diagnosis, const std::set<Limit>& limits) {
  const bool others = std::ranges::any_of(
      diagnosis.causes, [&](const io::Cause& cause) { return !limits.contains(cause.limit); });
  return limits.contains(diagnosis.limit()) && (limits.size() == 1 || !others);
}

}  // namespace

std::span<const LimitKind> limited_runs() { return kinds; }
std::span<const LimitKind> twice_limited_runs() { return pairs; }

const LimitKind& healthy_run() {
  static const LimitKind kind{"healthy", {Limit::compute}, draw_healthy};
  return kind;
}

Judgement judge(const LimitKind& kind, std::uint64_t seed) {
  Random random(seed);
  const LimitedRun run = kind.draw(random);
  const RunResult result = run_reading(run.setup);
  // What waits in memory at the end is no longer read.
  double read_until = 0;
  for (const io::Interval& interval : result.intervals) {
    const bool reads = std::ranges::any_of(
        interval.targets, [](const io::TargetInterval& target) { return target.bytes > 0; });
    read_until = reads ? interval.begin_s : read_until;
  }
  constexpr double window = 10;
  const double last = std::min(read_until, run.until_s + window);
  const bool passes = run.until_s < never_ending;
  Judgement judgement;
  io::Diagnoser diagnoser(run.facts);
  for (const io::Interval& interval : result.intervals) {
    const double end = interval.begin_s + interval.seconds;
    if (end > last) {
      break;
    }
    diagnoser.add(interval);
    for (const io::Cause& cause : diagnoser.diagnosis().causes) {
      judgement.named.insert(cause.limit);
    }
    const bool says_so = says(diagnoser.diagnosis(), kind.limits) && end >= run.from_s;
    judgement.right = passes ? judgement.right || says_so : says_so;
  }
  judgement.sentence = diagnoser.diagnosis().sentence();
  return judgement;
}

}  // namespace sprat::io_simulation
