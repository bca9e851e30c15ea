// What the loader's warm path costs: batches of windows of tokens that lie in the page cache,
// beside loops that gather the same bytes without a loader. All take turns in one process; the
// table has medians. CPU is of the whole process, kernel included, and counts on a busy machine,
// too; switches are those in which a thread went to sleep.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sprat/data.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string folder;
  std::uint64_t megabytes = 1024, files = 4;
  std::uint64_t batch = 64, record = 4096;
  int rounds = 9, batches = 400;
  std::string only, shuffle = "full";
  std::uint64_t memory = std::uint64_t{16} << 20;
  bool sums = false;
};

/// What some batches cost.
struct Cost {
  double wall_us = 0, cpu_us = 0, switches = 0;
};

struct Usage {
  Clock::time_point at = Clock::now();
  rusage used{};

  static Usage now() {
    Usage usage;
    ::getrusage(RUSAGE_SELF, &usage.used);
    return usage;
  }
  double cpu_us() const {
    const auto us = [](const timeval& time) {
      return 1e6 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec);
    };
    return us(used.ru_utime) + us(used.ru_stime);
  }
};

/// Reads what is given, as a program does; keeps the compiler from leaving it out.
void look_at(std::span<const std::byte> bytes, bool sums) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; sums && i + sizeof sum <= bytes.size(); i += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    sum += word;
  }
  asm volatile("" : : "r"(sum), "r"(bytes.data()) : "memory");
}

/// Files of random tokens, and a mapping of each.
class Tokens {
 public:
  explicit Tokens(const Options& options) : bytes_(options.megabytes * 1'000'000 / options.files) {
    bytes_ -= bytes_ % options.record;
    std::filesystem::create_directories(options.folder);
    for (std::uint64_t file = 0; file < options.files; ++file) {
      const std::string path = options.folder + "/tokens" + std::to_string(file) + ".bin";
      write(path, file);
      paths_.push_back(path);
      descriptors_.push_back(::open(path.c_str(), O_RDONLY));
      void* const mapped = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptors_.back(), 0);
      if (descriptors_.back() < 0 || mapped == MAP_FAILED) {
        throw std::runtime_error("cannot read " + path);
      }
      mapped_.push_back(static_cast<const std::byte*>(mapped));
      for (std::uint64_t at = 0; at < bytes_; at += 4096) {
        look_at({mapped_.back() + at, 8}, true);  // into the page cache, and into the page table
      }
    }
  }

  std::uint64_t records(std::uint64_t record) const { return bytes_ / record * paths_.size(); }
  const std::vector<std::string>& paths() const { return paths_; }
  const std::byte* mapped(std::uint64_t number, std::uint64_t record) const {
    const std::uint64_t in_file = bytes_ / record;
    return mapped_[number / in_file] + number % in_file * record;
  }
  void read(std::uint64_t number, std::span<std::byte> into, int flags) const {
    const std::uint64_t in_file = bytes_ / into.size();
    const iovec to{.iov_base = into.data(), .iov_len = into.size()};
    if (::preadv2(descriptors_[number / in_file], &to, 1,
                  static_cast<off_t>(number % in_file * into.size()),
                  flags) != static_cast<ssize_t>(into.size())) {
      throw std::runtime_error("a record is not in the page cache");
    }
  }

 private:
  void write(const std::string& path, std::uint64_t seed) const {
    if (std::filesystem::exists(path) && std::filesystem::file_size(path) == bytes_) {
      return;
    }
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> block(std::size_t{1} << 17);  // 1 MiB, as those who write shards do
    std::ofstream out(path, std::ios::binary);
    for (std::uint64_t at = 0; at < bytes_; at += 8 * block.size()) {
      std::ranges::generate(block, std::ref(random));
      out.write(reinterpret_cast<const char*>(block.data()),
                static_cast<std::streamsize>(std::min(8 * block.size(), bytes_ - at)));
    }
  }

  std::uint64_t bytes_;
  std::vector<std::string> paths_;
  std::vector<int> descriptors_;
  std::vector<const std::byte*> mapped_;
};

/// Ways to come by a batch: each call makes one.
class Ways {
 public:
  Ways(const Options& options, const Tokens& tokens) : options_(options), tokens_(tokens) {
    order_.resize(tokens.records(options.record));
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::shuffle(order_, std::mt19937_64(1));
    for (std::vector<std::byte>& one : batches_) {
      one.resize(options.batch * options.record);
    }
    gathered_.resize(options.batch * options.record);
  }

  void preads(int flags) {
    const std::span<std::byte> to = batch();
    for (std::uint64_t i = 0; i < options_.batch; ++i) {
      tokens_.read(next(), to.subspan(i * options_.record, options_.record), flags);
    }
    look_at(to, options_.sums);
  }
  /// What numpy does to rows of a memmap that are indexed by a permutation, without numpy; then the
  /// result is copied into a tensor's memory.
  void gather_and_copy() {
    gather(gathered_);
    const std::span<std::byte> to = batch();
    std::memcpy(to.data(), gathered_.data(), to.size());
    look_at(to, options_.sums);
  }
  void gather() {
    const std::span<std::byte> to = batch();
    gather(to);
    look_at(to, options_.sums);
  }
  void copy() {
    const std::span<std::byte> to = batch();
    std::memcpy(to.data(), gathered_.data(), to.size());
    look_at(to, options_.sums);
  }
  void load() {
    if (!loader_) {
      using sprat::Shuffle;
      const std::map<std::string, Shuffle> shuffles = {
          {"full", Shuffle::full}, {"chunks", Shuffle::chunks}, {"none", Shuffle::none}};
      loader_.emplace(sprat::LoaderOptions{
          .sources = {{.paths = tokens_.paths(), .format = "tokens", .token_type = "u16"}},
          .seed = 1,
          .length = options_.record / 2 - 1,
          .shuffle = shuffles.at(options_.shuffle),
          .batch = options_.batch,
          .memory_bytes = options_.memory,
          .decode = {}});
    }
    look_at(loader_->next()->elements(), options_.sums);
  }
  std::string about_loader() { return loader_ ? loader_->report().text : ""; }

 private:
  void gather(std::span<std::byte> to) {
    for (std::uint64_t i = 0; i < options_.batch; ++i) {
      std::memcpy(to.data() + i * options_.record, tokens_.mapped(next(), options_.record),
                  options_.record);
    }
  }
  std::uint64_t next() { return order_[at_++ % order_.size()]; }
  std::span<std::byte> batch() { return batches_[turn_++ % batches_.size()]; }

  const Options& options_;
  const Tokens& tokens_;
  std::vector<std::uint64_t> order_;
  std::array<std::vector<std::byte>, 4> batches_;
  std::vector<std::byte> gathered_;
  std::optional<sprat::Loader> loader_;
  std::size_t at_ = 0, turn_ = 0;
};

/// `ahead`: batches that may lie ready from the time of another's turn, and are not counted.
Cost cost_of(const std::function<void()>& make_batch, int batches, std::uint64_t ahead) {
  for (std::uint64_t i = 0; i <= ahead; ++i) {
    make_batch();
  }
  const Usage before = Usage::now();
  for (int i = 0; i < batches; ++i) {
    make_batch();
  }
  const Usage after = Usage::now();
  return {
      .wall_us = std::chrono::duration<double, std::micro>(after.at - before.at).count() / batches,
      .cpu_us = (after.cpu_us() - before.cpu_us()) / batches,
      .switches = static_cast<double>(after.used.ru_nvcsw - before.used.ru_nvcsw) / batches};
}

double median(std::vector<Cost>& costs, double Cost::*what) {
  std::ranges::sort(costs, {}, what);
  return costs[costs.size() / 2].*what;
}

void measure(const Options& options) {
  const Tokens tokens(options);
  Ways ways(options, tokens);
  std::vector<std::pair<std::string, std::function<void()>>> all = {
      {"memcpy", [&] { ways.copy(); }},
      {"gather of a mapping", [&] { ways.gather(); }},
      {"gather and copy", [&] { ways.gather_and_copy(); }},
      {"preads", [&] { ways.preads(0); }},
      {"preads, not waiting", [&] { ways.preads(RWF_NOWAIT); }},
      {"loader", [&] { ways.load(); }}};
  std::erase_if(
      all, [&](const auto& way) { return !options.only.empty() && way.first != options.only; });
  std::map<std::string, std::vector<Cost>> costs;
  std::vector<std::size_t> turns(all.size());
  std::iota(turns.begin(), turns.end(), 0);
  std::mt19937_64 random(2);
  const std::uint64_t ahead = options.memory / (options.batch * options.record) + 1;
  for (int round = 0; round < options.rounds; ++round) {
    std::ranges::shuffle(turns, random);
    for (const std::size_t turn : turns) {
      const auto& [name, make_batch] = all[turn];
      costs[name].push_back(cost_of(make_batch, options.batches, ahead));
    }
  }
  fmt::print(
      "batches of {} x {:L} B, {} rounds of {} batches\n{:22}{:>10}{:>10}{:>10}{:>10}{:>12}\n",
      options.batch, options.record, options.rounds, options.batches, "", "us/batch", "least",
      "MB/s", "CPU us", "switches");
  for (const auto& [name, make_batch] : all) {
    std::vector<Cost>& of_name = costs[name];
    const double wall = median(of_name, &Cost::wall_us), least = of_name.front().wall_us;
    fmt::print("{:22}{:>10.1f}{:>10.1f}{:>10.0f}{:>10.1f}{:>12.2f}\n", name, wall, least,
               static_cast<double>(options.batch * options.record) / wall,
               median(of_name, &Cost::cpu_us), median(of_name, &Cost::switches));
  }
  fmt::print("{}\n", ways.about_loader());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("The loader's warm path beside loops that gather the same bytes");
  app.add_option("folder", options.folder, "where the tokens lie; written if they are not there")
      ->required();
  app.add_option("--megabytes", options.megabytes);
  app.add_option("--files", options.files);
  app.add_option("--batch", options.batch);
  app.add_option("--record", options.record, "bytes")->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", options.rounds);
  app.add_option("--batches", options.batches, "of a turn");
  app.add_option("--memory", options.memory, "the loader's")->transform(CLI::AsSizeValue(false));
  app.add_option("--only", options.only, "one of the table's names");
  app.add_option("--shuffle", options.shuffle, "full, chunks or none");
  app.add_flag("--sums", options.sums, "adds each batch's words up, as who looks at them");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    std::cerr << "sprat_bench_loader: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
