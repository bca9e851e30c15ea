#include "tests/system/io_simulation/draws.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sprat::io_simulation {

double between(Random& random, double first, double last) {
  return first + (last - first) * static_cast<double>(random.below(1u << 20)) / (1u << 20);
}

/// Small ones as likely as large ones.
std::uint64_t log_between(Random& random, double first, double last) {
  return static_cast<std::uint64_t>(first * std::pow(last / first, between(random, 0, 1)));
}

/// Files whose stripes begin at random targets.
std::vector<StoredFile> draw_files(Random& random, int targets, std::uint64_t all_bytes) {
  const std::uint64_t file_bytes = log_between(random, 64.0 * mib, 1024.0 * mib);
  const std::uint64_t stripe_bytes = random.once_in(2) ? mib : 4 * mib;
  const int stripes = random.once_in(2) ? 1 : random.between(2, targets);
  std::vector<StoredFile> files;
  for (std::uint64_t bytes = 0; bytes < all_bytes || files.size() < 8; bytes += file_bytes) {
    io::StripedRange range{
        .begin = 0, .end = file_bytes, .stripe_bytes = stripe_bytes, .targets = {}};
    const int first = random.between(0, targets - 1);
    for (int stripe = 0; stripe < stripes; ++stripe) {
      range.targets.push_back((first + stripe) % targets);
    }
    files.push_back({.bytes = file_bytes, .layout = {range}});
  }
  return files;
}

/// All records of all files, each once, shuffled.
std::vector<std::vector<io::Extents>> draw_batches(Random& random,
                                                   const std::vector<StoredFile>& files,
                                                   const DrawnBytes& bytes_of) {
  const std::uint64_t record = bytes_of.record;
  std::vector<io::Extent> records;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    for (std::uint64_t at = 0; at + record <= files[file].bytes; at += record) {
      records.push_back({.file = file, .offset = at, .bytes = record});
    }
  }
  for (std::size_t left = records.size(); left > 1; --left) {
    std::swap(records[left - 1], records[random.below(left)]);
  }
  const std::uint64_t samples = std::max<std::uint64_t>(1, bytes_of.batch / record);
  std::vector<std::vector<io::Extents>> batches;
  std::uint64_t bytes = 0;
  for (std::size_t first = 0; first + samples <= records.size() && bytes < bytes_of.all;
       first += samples) {
    std::vector<io::Extents>& batch = batches.emplace_back();
    for (std::size_t sample = first; sample < first + samples; ++sample) {
      batch.push_back({records[sample]});
      bytes += record;
    }
  }
  return batches;
}

double storage_rate(const RunSetup& setup) {
  double rate = 0;
  for (const TargetModel& target : setup.storage.targets) {
    rate += target.base;
  }
  return rate;
}

/// One that the last batches read from.
Target any_target(const RunSetup& setup, Random& random) {
  const std::size_t half = setup.batches.size() / 2;
  const auto& batch = setup.batches[half + random.below(setup.batches.size() - half)];
  const io::Extent& extent = batch[random.below(batch.size())].front();
  const StoredFile& file = setup.files[extent.file];
  return io::target_run({.bytes = file.bytes, .layout = &file.layout}, extent.offset).target;
}

}  // namespace sprat::io_simulation
