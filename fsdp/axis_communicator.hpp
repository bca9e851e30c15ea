// The collectives of a sharded model along one axis of its mesh: counted, put into a queue, and
// awaited.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Something under way. Its buffers are its own until wait() returns or throws.
class Pending {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void wait() = 0;
    virtual bool done() const = 0;
  };

  Pending() = default;  ///< Already ended.
  explicit Pending(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  /// Waits too, however it ends: the memory may go right after.
  ~Pending();

  /// Once more does nothing. Throws the operation's Error.
  void wait();
  bool done() const { return operation_ == nullptr || operation_->done(); }

 private:
  std::unique_ptr<Operation> operation_;
};

/// Carries out the collectives of one communicator in the order given.
class Queue {
 public:
  virtual ~Queue() = default;
  /// `start` is called once everything given before has been started.
  virtual Pending submit(std::function<Work()> start) = 0;
};

/// A kind of queue.
struct QueueKind {
  std::function<std::unique_ptr<Queue>()> make;
  bool poisons_slots = false;  ///< What is given back to an arena is filled with NaNs.
};
/// Starts at once: collectives are asynchronous already.
QueueKind inline_queue();

/// Each call adds to `sent` what a rank sends of the buffer by the collective's definition. On one
/// rank nothing is sent and nothing happens: in and out are then the same memory. Timelines show
/// those that are of a `unit` among gathers and reductions.
class AxisCommunicator {
 public:
  AxisCommunicator(Communicator& ranks, std::unique_ptr<Queue> queue)
      : ranks_(&ranks), queue_(std::move(queue)) {}

  int size() const { return ranks_->size(); }
  int rank() const { return ranks_->rank(); }
  /// whole <- parts in rank order; in place if the part lies at its block.
  Pending all_gather(ConstElements part, Elements whole, std::uint64_t& sent,
                     std::string_view unit = {});
  /// part <- the sum of this rank's block of whole; in place likewise.
  Pending reduce_scatter(ConstElements whole, Elements part, std::uint64_t& sent,
                         std::string_view unit = {});
  /// out <- the sum of in.
  Pending all_reduce(ConstElements in, Elements out, std::uint64_t& sent,
                     std::string_view unit = {});
  /// whole <- parts in rank order, of counts[r] elements of rank r; in place likewise.
  Pending all_gatherv(ConstElements part, Elements whole, std::vector<std::size_t> counts,
                      std::uint64_t& sent);
  /// Block q of out, of out_counts[q] elements, <- this rank's block of rank q's in.
  Pending all_to_allv(ConstElements in, Elements out, std::vector<std::size_t> in_counts,
                      std::vector<std::size_t> out_counts, std::uint64_t& sent);

 private:
  /// (size - 1) / size of so many bytes.
  std::uint64_t share(std::size_t bytes) const;

  Communicator* ranks_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace sprat::fsdp
