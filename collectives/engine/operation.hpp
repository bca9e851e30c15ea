// A collective call on its way from a communicator's queue to its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/engine/work.hpp"
#include "collectives/plan/problem.hpp"
#include "collectives/plan/signature.hpp"
#include "comm/context/wait_policy.hpp"

namespace sprat::collectives {

/// One collective call, checked. Buffers belong to the library until it is done.
class Operation final : public Work::State {
 public:
  Operation(std::shared_ptr<comm::Context> context, Problem what)
      : State(std::move(context)), problem(std::move(what)), signature(signature_of(problem)) {}

  const Problem problem;
  const Signature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// The output overwrites blocks of the input that peers have yet to read.
  bool stage_input = false;
  std::chrono::milliseconds timeout{0};
  bool digested = true;  ///< See Options.

  using State::fail;
  using State::finish;

  std::uint64_t sequence = 0;
  std::uint64_t prior_calls_hash =
      0;  ///< Digest of the calls before it that completes_locally(); 0: none.
  comm::Clock::time_point posted{}, deadline{};
};

}  // namespace sprat::collectives
