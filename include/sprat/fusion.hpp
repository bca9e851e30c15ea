// Many small gradients reduced as a few large buffers, while the caller goes on computing.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sprat/buffer.hpp"
#include "sprat/communicator.hpp"
#include "sprat/export.hpp"
#include "sprat/reduction.hpp"

namespace sprat {

/// What is reduced under one index.
struct FusionParameter {
  std::size_t count = 0;
  DType dtype = DType::f32;
};

/// How gradients share buffers.
struct FusionOptions {
  /// Parameters share a buffer of at most so many bytes. A larger one has its own: it is reduced
  /// where its data lie, without a copy.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// sum, avg or a premultiplied sum.
  Reduction op = ReduceOp::sum;
  /// Deadline of each buffer's reduction and of flush(); the configuration's otherwise.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

/// Balanced fusion buffers. A step is: put() every parameter, in any order and from any threads;
/// then flush(), on every rank. A buffer's reduction starts when all of its parameters are present
/// and those of the buffers before it have started, and goes on while the caller computes. Number
/// parameters in the order in which they come to be ready: gradients from the last layer to the
/// first. Results are, bit for bit, those of an all_reduce of each parameter by itself.
class SPRAT_API Fusion {
 public:
  /// Collective. Equal parameters, buckets and op on every rank, or Error{mismatch} names the first
  /// that differs. `ranks` need not outlive it: a Fusion has communicators of its own.
  Fusion(Communicator& ranks, std::vector<FusionParameter> parameters, FusionOptions options = {});
  Fusion(Fusion&&) noexcept;
  Fusion& operator=(Fusion&&) noexcept;
  /// Between steps. In the midst of one it aborts the job, for other ranks wait for the rest.
  ~Fusion();

  /// Where parameter `index` lies in its buffer, 128-byte aligned, zeroed at first. Computing the
  /// gradient right there saves both copies: put(index, slot(index)).
  Elements slot(std::size_t index) const;
  /// Takes this step's values of a parameter. `data` belongs to the library until flush() returns,
  /// which writes the result there. Any thread; once a step for each index.
  void put(std::size_t index, Elements data);
  /// Collective; every put() of the step has returned. Blocks until every result lies where its
  /// data came from. Returns the indices that nobody has put in this step: they count as zero, and
  /// their slots are zero. If ranks have put different ones, Error{mismatch} names which and fails
  /// the job. After an error data are the caller's again, with unspecified values.
  std::vector<std::size_t> flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
