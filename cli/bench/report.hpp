// What `sprat bench` prints: the table of nccl-tests, and a JSON object a line.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "cli/bench/measure.hpp"
#include "cli/bench/task.hpp"

namespace sprat::cli {

struct Row {
  Task task;
  int ranks = 1, hosts = 1;
  Buffers::Kind memory = Buffers::Kind::private_memory;
  std::string algorithm;
  Timing timing;
  std::optional<std::uint64_t> wrong;  ///< None if not checked.

  double algbw_GBps() const;  ///< Bytes over the median, in 1e9 bytes per second.
  double busbw_GBps() const;
};

const char* name(Buffers::Kind kind) noexcept;
std::string to_json(const Row& row);

/// Prints rows as they come. Only rank 0 has one.
class Report {
 public:
  /// `json_path` may be empty. Throws Error{unavailable} if it cannot be written.
  explicit Report(const std::string& json_path);
  void begin(const BenchCall& call, const Row& example);
  void add(const Row& row);

 private:
  std::ofstream json_;
};

}  // namespace sprat::cli
