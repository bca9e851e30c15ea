// What a rank of a run holds at most, as planned before its first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sprat::train {

/// Bytes.
struct RankMemory {
  std::size_t states = 0;      ///< Parameters, gradients, optimizer state between uses.
  std::size_t parameters = 0;  ///< Those that are full at a time, widened ones too.
  std::size_t gradients = 0;
  std::size_t activations = 0;
  std::size_t messages = 0;    ///< Slots of what stages give each other.
  std::size_t text = 0;        ///< What is learned, which each rank has whole.
  std::size_t read_ahead = 0;  ///< What loaders of data may hold.
  std::size_t sample = 0;      ///< The parameters that rank 0 copies to write text at the end.

  std::size_t total() const {
    return states + parameters + gradients + activations + messages + text + read_ahead + sample;
  }
};
/// In the order of the members, to travel.
std::vector<std::uint64_t> numbers_of(const RankMemory& memory);
/// As many numbers as numbers_of() gives.
RankMemory memory_of(std::span<const std::uint64_t> numbers);

/// For people: who holds most and least, what all hold together, and a line for each kind of the
/// rank that holds most.
std::string memory_text(std::span<const RankMemory> by_rank);

}  // namespace sprat::train
