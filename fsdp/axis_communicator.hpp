// The collectives of a sharded model along one axis of its mesh, counted.
#pragma once

#include <cstdint>

#include "fsdp/queue.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Each call adds to `sent` what a rank sends of the buffer by the collective's definition. On one
/// rank nothing is sent and nothing happens: in and out are then the same memory.
class AxisCommunicator {
 public:
  AxisCommunicator(Communicator& ranks, std::unique_ptr<Queue> queue)
      : ranks_(&ranks), queue_(std::move(queue)) {}

  int size() const { return ranks_->size(); }
  int rank() const { return ranks_->rank(); }
  /// whole <- parts in rank order; in place if the part lies at its block.
  Pending all_gather(ConstElements part, Elements whole, std::uint64_t& sent);
  /// part <- the sum of this rank's block of whole; in place likewise.
  Pending reduce_scatter(ConstElements whole, Elements part, std::uint64_t& sent);
  /// out <- the sum of in.
  Pending all_reduce(ConstElements in, Elements out, std::uint64_t& sent);

 private:
  /// (size - 1) / size of so many bytes.
  std::uint64_t share(std::size_t bytes) const;

  Communicator* ranks_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace sprat::fsdp
