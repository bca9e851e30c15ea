// Reads files in one way for some seconds and prints the rate. bench/io/readers compares ways.
//
//   sprat_bench_readers uring --direct --block 4M --depth 8 FILE...
//   sprat_bench_readers preads --threads 2 --block 4K --random FILE...
//
// "preads" is a loop of pread calls in each thread, without anything of ours. The readers are fed
// as a loader feeds them: by a read plan of coming blocks and the scheduler, into memory that is
// used again.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/base/aligned.hpp"
#include "io/readers/open_files.hpp"
#include "io/readers/probe.hpp"
#include "io/readers/read_memory.hpp"
#include "io/readers/reader.hpp"
#include "io/reading/plan.hpp"
#include "io/reading/scheduler.hpp"

namespace {

using namespace sprat;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string way;
  std::vector<std::string> files;
  std::uint64_t block = 4 << 20;
  std::uint64_t ahead = 0;  // blocks of a plan
  bool direct = false, random = false;
  int depth = 16, threads = 2;
  double seconds = 3;
};

struct Measured {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// All whole blocks of all files, in order or shuffled.
std::vector<io::Extent> blocks_of(const Options& options) {
  std::vector<io::Extent> blocks;
  for (std::uint32_t file = 0; file < options.files.size(); ++file) {
    struct stat status {};
    if (::stat(options.files[file].c_str(), &status) != 0) {
      throw std::runtime_error("cannot look at " + options.files[file]);
    }
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    for (std::uint64_t at = 0; at + options.block <= bytes; at += options.block) {
      blocks.push_back({.file = file, .offset = at, .bytes = options.block});
    }
  }
  if (options.random) {
    std::ranges::shuffle(blocks, std::mt19937_64(std::random_device()()));
  }
  return blocks;
}

Measured measure_preads(const Options& options, const std::vector<io::Extent>& blocks) {
  std::vector<int> descriptors;
  for (const std::string& file : options.files) {
    descriptors.push_back(::open(file.c_str(), O_RDONLY | (options.direct ? O_DIRECT : 0)));
  }
  std::atomic<std::uint64_t> next = 0, bytes = 0;
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < options.threads; ++thread) {
    threads.emplace_back([&] {
      const AlignedMemory<std::byte> into = aligned_memory<std::byte>(options.block, 4096);
      std::memset(into.get(), 1, options.block);
      while (since(begin) < options.seconds) {
        const io::Extent& block = blocks[next++ % blocks.size()];
        const ssize_t got = ::pread(descriptors[block.file], into.get(), block.bytes,
                                    static_cast<off_t>(block.offset));
        if (got < 0) {
          std::perror("pread");
          std::exit(1);
        }
        bytes += static_cast<std::uint64_t>(got);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return {.bytes = bytes, .seconds = since(begin)};
}

/// Plans, schedules and reads blocks; each is let go of as soon as it is there.
class Loop {
 public:
  Loop(const Options& options, const std::vector<io::Extent>& blocks)
      : options_(options),
        blocks_(blocks),
        where_(io::probe_file_system(options.files.front())),
        planner_({}),
        scheduler_({.budget_bytes = budget(),
                    .reads = static_cast<std::uint32_t>(options.depth),
                    .target_bytes = budget(),
                    .flow = {.least_reads = static_cast<std::uint32_t>(options.depth),
                             .first_reads = static_cast<std::uint32_t>(options.depth),
                             .most_reads = static_cast<std::uint32_t>(options.depth)}}),
        memory_(io::plain_read_memory(budget())),
        files_([this](std::uint32_t file) { return known(file); }, {.direct = options.direct}),
        reader_(io::reader_kind_named(options.way)
                    .open({.depth = options.depth,
                           .threads = options.threads,
                           .direct = options.direct})) {}

  Measured run() {
    const auto begin = Clock::now();
    std::uint64_t bytes = 0;
    while (since(begin) < options_.seconds) {
      plan();
      start();
      for (const io::ReadDone& done : reader_->reap(std::chrono::seconds(10))) {
        const auto verdict = scheduler_.done(done.tag, done.bytes, done.error, now());
        bytes += done.bytes;
        if (verdict.kind == io::ReadVerdict::Kind::failed) {
          throw std::runtime_error(describe(verdict.failure, options_.files.front()));
        }
        if (verdict.kind == io::ReadVerdict::Kind::whole) {
          let_go(done.tag);
        }
      }
    }
    const double seconds = since(begin);
    reader_.reset();
    return {.bytes = bytes, .seconds = seconds};
  }

 private:
  struct UnderWay {
    std::shared_ptr<const io::OpenFile> file;
    std::span<std::byte> memory;
  };

  std::uint64_t ahead() const {
    return options_.ahead > 0 ? options_.ahead : std::max<std::uint64_t>(64, 2 * options_.depth);
  }
  std::uint64_t budget() const {
    return std::max<std::uint64_t>(2 * options_.depth * options_.block, 64 << 20);
  }
  io::Moment now() const { return Clock::now().time_since_epoch(); }

  io::KnownFile known(std::uint32_t file) const {
    struct stat status {};
    ::stat(options_.files[file].c_str(), &status);
    return {.path = options_.files[file],
            .stamp = {.bytes = static_cast<std::uint64_t>(status.st_size),
                      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 +
                                     status.st_mtim.tv_nsec}};
  }

  void plan() {
    if (requests_ >= ahead()) {
      return;
    }
    std::vector<io::WantedSample> samples;
    for (std::uint64_t block = 0; block < ahead(); ++block, ++position_) {
      samples.push_back(
          {.position = position_, .extents = std::span(&blocks_[position_ % blocks_.size()], 1)});
    }
    planner_.forget(std::exchange(forgotten_, {}));
    const io::ReadPlan plan = planner_.plan(samples, [&](std::uint32_t) {
      return io::PlannedFile{.bytes = std::uint64_t{1} << 50,
                             .layout = nullptr,
                             .alignment = options_.direct ? where_.alignment : 1};
    });
    scheduler_.add(plan.requests);
    requests_ += plan.requests.size();
  }

  void start() {
    while (const auto start = scheduler_.next(now())) {
      UnderWay& read = under_way_[start->id];
      if (read.memory.empty()) {
        read.memory = memory_->take(start->extent.bytes);
      }
      read.file = files_.open(start->extent.file).file;
      const bool taken =
          reader_->submit({.descriptor = read.file->descriptor(),
                           .offset = start->extent.offset,
                           .into = read.memory.subspan(start->into, start->extent.bytes),
                           .tag = start->id});
      if (!taken) {
        throw std::runtime_error("the reader takes fewer than it should");
      }
    }
  }

  void let_go(std::uint64_t id) {
    memory_->give(under_way_.at(id).memory);
    under_way_.erase(id);
    scheduler_.release(id);
    forgotten_.push_back(id);
    --requests_;
  }

  const Options& options_;
  const std::vector<io::Extent>& blocks_;
  io::FileSystem where_;
  io::ReadPlanner planner_;
  io::Scheduler scheduler_;
  std::unique_ptr<io::ReadMemory> memory_;
  io::OpenFiles files_;
  std::unordered_map<std::uint64_t, UnderWay> under_way_;
  std::vector<std::uint64_t> forgotten_;
  std::uint64_t position_ = 0, requests_ = 0;
  std::unique_ptr<io::Reader> reader_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("One way to read files");
  app.add_option("way", options.way, "preads, or a reader: pool, uring")->required();
  app.add_option("files", options.files)->required();
  app.add_option("--block", options.block)->transform(CLI::AsSizeValue(false));
  app.add_option("--depth", options.depth);
  app.add_option("--threads", options.threads);
  app.add_option("--seconds", options.seconds);
  app.add_option("--ahead", options.ahead, "blocks planned at once");
  app.add_flag("--direct", options.direct);
  app.add_flag("--random", options.random);
  CLI11_PARSE(app, argc, argv);
  try {
    const std::vector<io::Extent> blocks = blocks_of(options);
    const Measured measured =
        options.way == "preads" ? measure_preads(options, blocks) : Loop(options, blocks).run();
    fmt::print("{:.1f}\n", static_cast<double>(measured.bytes) / 1e6 / measured.seconds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "sprat_bench_readers: {}\n", error.what());
    return 1;
  }
  return 0;
}
