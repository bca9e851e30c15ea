// Eight numbers, and a line for each that is not 0.
#include "train/rank_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace sprat::train {
namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

std::vector<std::uint64_t> numbers_of(const RankMemory& memory) {
  return {memory.states,   memory.parameters, memory.gradients,  memory.activations,
          memory.messages, memory.text,       memory.read_ahead, memory.sample};
}

RankMemory memory_of(std::span<const std::uint64_t> numbers) {
  return {.states = numbers[0],
          .parameters = numbers[1],
          .gradients = numbers[2],
          .activations = numbers[3],
          .messages = numbers[4],
          .text = numbers[5],
          .read_ahead = numbers[6],
          .sample = numbers[7]};
}

std::string memory_text(std::span<const RankMemory> by_rank) {
  const auto most = std::ranges::max_element(by_rank, {}, &RankMemory::total);
  const auto least = std::ranges::min_element(by_rank, {}, &RankMemory::total);
  std::string told = fmt::format("what a rank holds at most while it trains: {:.1f} MiB, rank {}",
                                 mebibytes(most->total()), most - by_rank.begin());
  if (by_rank.size() > 1) {
    // Ranks of one host share its memory, so their sum is what must fit.
    std::size_t sum = 0;
    for (const RankMemory& one : by_rank) {
      sum += one.total();
    }
    told += fmt::format("; where it is least {:.1f} MiB, rank {}; together {:.1f} MiB",
                        mebibytes(least->total()), least - by_rank.begin(), mebibytes(sum));
  }
  told += "\n";
  constexpr std::array kinds = {"parameters, gradients, optimizer state",
                                "parameters in use",
                                "gradients being made",
                                "activations",
                                "messages between stages",
                                "text",
                                "data that is read ahead, at most",
                                "a copy of all parameters, which writes the text at the end"};
  const std::vector<std::uint64_t> numbers = numbers_of(*most);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (numbers[kind] > 0) {
      told += fmt::format("  {:9.1f} MiB {}\n", mebibytes(numbers[kind]), kinds[kind]);
    }
  }
  return told;
}

}  // namespace sprat::train
