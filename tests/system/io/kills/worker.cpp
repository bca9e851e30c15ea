// One rank of tests/system/io/kills/run: takes batches, and writes down what each sample was.
//   loader_worker OPTIONS STATE LOG RANK RANKS BATCHES PACE_US
// Goes on behind STATE if there is one. A batch's lines are written at once, then its state
// replaces STATE, so that whatever moment it is killed at leaves a state that some batch had.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "sprat/data.hpp"

namespace {

using namespace sprat;

struct Arguments {
  std::string options, state, log;
  int rank, ranks;
  std::uint64_t batches;
  std::chrono::microseconds pace;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

/// FNV-1a: the same bytes give the same number in every build.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    add(bytes.size());
    for (const std::byte byte : bytes) {
      step(static_cast<std::uint8_t>(byte));
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      step(static_cast<std::uint8_t>(number >> shift));
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  void step(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint64_t hash_of(const DataBatch& batch, std::size_t sample) {
  Hash hash;
  hash.add(batch.epoch(sample));
  hash.add(std::uint64_t{batch.source(sample)});
  hash.add(batch.record(sample));
  for (std::size_t index = 0; index < batch.fields(sample); ++index) {
    const DataField field = batch.field(sample, index);
    hash.add(field.name);
    hash.add(field.type);
    hash.add(field.bytes);
  }
  const std::size_t row = batch.elements().size() / batch.size();
  hash.add(batch.elements().subspan(sample * row, row));
  for (const std::uint32_t length : batch.lengths(sample)) {
    hash.add(std::uint64_t{length});
  }
  return hash.value();
}

void replace(const std::string& path, const std::string& content) {
  const std::string next = path + ".next";
  std::ofstream(next, std::ios::binary) << content;
  std::filesystem::rename(next, path);
}

/// What a run has done: STATE is a line of both.
struct Progress {
  std::uint64_t batches = 0;
  std::string state = {};
};

Progress progress_in(const std::string& path) {
  std::istringstream line(content_of(path));
  Progress progress;
  line >> progress.batches;
  std::getline(line >> std::ws, progress.state);
  return progress;
}

void write_down(int log, const DataBatch& batch, const Progress& after) {
  std::ostringstream lines;
  for (std::size_t sample = 0; sample < batch.size(); ++sample) {
    lines << "sample " << batch.first() + sample << ' ' << hash_of(batch, sample) << '\n';
  }
  lines << "state " << after.batches << ' ' << after.state << '\n';
  const std::string text = lines.str();
  if (::write(log, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("cannot write the log");
  }
}

void run(const Arguments& given) {
  LoaderOptions options = parse_loader_options(content_of(given.options));
  options.rank = given.rank;
  options.ranks = given.ranks;
  Loader loader(std::move(options));
  Progress progress = progress_in(given.state);
  if (progress.batches > 0) {
    loader.resume(progress.state);
  }
  const int log = ::open(given.log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
  while (progress.batches < given.batches) {
    const std::optional<DataBatch> batch = loader.next();
    if (!batch) {
      throw std::runtime_error("an endless run has ended");
    }
    progress = {.batches = progress.batches + 1, .state = loader.state()};
    write_down(log, *batch, progress);
    replace(given.state, std::to_string(progress.batches) + ' ' + progress.state);
    std::this_thread::sleep_for(given.pace);  // what a training step takes
  }
  ::close(log);
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    std::cerr << "loader_worker OPTIONS STATE LOG RANK RANKS BATCHES PACE_US\n";
    return 2;
  }
  try {
    run({.options = words[1],
         .state = words[2],
         .log = words[3],
         .rank = std::atoi(words[4]),
         .ranks = std::atoi(words[5]),
         .batches = std::strtoull(words[6], nullptr, 10),
         .pace = std::chrono::microseconds(std::atoi(words[7]))});
  } catch (const std::exception& error) {
    std::cerr << "loader_worker: " << error.what() << '\n';
    return 1;
  }
}
