// Buffers of a simulated call: what goes in, and exactly what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sprat/buffer.hpp"
#include "tests/system/simulation/scenario.hpp"

namespace sprat::simulation {

/// Bytes in private memory, or in memory that peers map.
class Bytes {
 public:
  Bytes() = default;
  Bytes(std::size_t count, bool shared);
  std::byte* data() const {
    return shared_.data() ? static_cast<std::byte*>(shared_.data()) : own_;
  }
  std::size_t size() const { return size_; }
  void fill(std::byte value);
  bool holds_only(std::byte value) const;

 private:
  std::size_t size_ = 0;
  std::vector<std::byte> private_;
  std::byte* own_ = nullptr;
  Memory shared_;
};

/// One rank's side of a call.
class Payload {
 public:
  /// `salt` tells calls apart; `members` are the communicator's world ranks, `rank` one of them.
  Payload(const Call& call, std::uint64_t salt, std::vector<int> members, int rank);

  ConstElements input() const;
  Elements output() const;
  /// Empty if the output is exactly right, else what is wrong.
  std::string complaint() const;
  /// The caller reuses its buffers; untouched() tells whether they have kept that.
  void refill();
  bool untouched() const;

 private:
  std::vector<std::byte> contribution(int member) const;
  std::vector<std::byte> expected() const;
  std::size_t position() const;
  std::size_t count_of(std::size_t member) const;
  std::size_t count_before(std::size_t member) const;
  bool is_root() const;

  Call call_;
  std::uint64_t salt_;
  std::vector<int> members_;
  int rank_;
  Bytes in_, out_;
};

}  // namespace sprat::simulation
