// How an operation of a sharded model starts, and how it ends.
#include "fsdp/axis_communicator.hpp"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "comm/base/log.hpp"

namespace sprat::fsdp {
namespace {

class StartedWork final : public Pending::Operation {
 public:
  explicit StartedWork(Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() const override { return work_.done(); }

 private:
  Work work_;
};

/// Starts an operation; from here to its end, which whoever drives it notices, it is shown.
template <class Start>
Work traced(Communicator& ranks, const TraceEvent& shown, const Start& start_work) {
  Tracer* tracer = ranks.tracer();
  if (tracer == nullptr || shown.name.empty()) {
    return start_work();
  }
  const auto start = std::chrono::steady_clock::now();
  Work work = start_work();
  work.on_done(
      [tracer, row = shown.row, unit = std::string(shown.name), bytes = shown.bytes, start] {
        tracer->add({.row = row,
                     .name = unit,
                     .start = start,
                     .end = std::chrono::steady_clock::now(),
                     .bytes = bytes});
      });
  return work;
}

TraceEvent gather_of(std::string_view unit, std::uint64_t bytes) {
  return {.row = TraceRow::gathers, .name = unit, .start = {}, .end = {}, .bytes = bytes};
}

TraceEvent reduction_of(std::string_view unit, std::uint64_t bytes) {
  return {.row = TraceRow::reduces, .name = unit, .start = {}, .end = {}, .bytes = bytes};
}

/// Sums of encoded blocks do not know of which unit they are.
constexpr std::string_view encoded_sum = "encoded sum";

class InlineQueue final : public Queue {
 public:
  Pending submit(std::function<Work()> start) override {
    return Pending(std::make_unique<StartedWork>(start()));
  }
};

}  // namespace

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending old(std::move(*this));
  operation_ = std::move(other.operation_);
  return *this;
}

Pending::~Pending() {
  try {
    wait();
  } catch (const std::exception& error) {
    log().debug("an operation of a sharded model was given up: {}", error.what());
  }
}

void Pending::wait() {
  if (const auto operation = std::exchange(operation_, nullptr)) {
    operation->wait();
  }
}

QueueKind inline_queue() {
  return {.make = [] { return std::make_unique<InlineQueue>(); }, .poisons_slots = false};
}

std::uint64_t AxisCommunicator::share(std::size_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(size());
  return bytes / ranks * (ranks - 1);
}

Pending AxisCommunicator::all_gather(ConstElements part, Elements whole, std::uint64_t& sent,
                                     std::string_view unit) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit([ranks = ranks_, part, whole, unit] {
    return traced(*ranks, gather_of(unit, whole.bytes()),
                  [&] { return ranks->all_gather(part, whole); });
  });
}

Pending AxisCommunicator::reduce_scatter(ConstElements whole, Elements part, std::uint64_t& sent,
                                         std::string_view unit) {
  if (size() == 1) {
    return {};
  }
  sent += share(whole.bytes());
  return queue_->submit([ranks = ranks_, whole, part, unit] {
    return traced(*ranks, reduction_of(unit, whole.bytes()),
                  [&] { return ranks->reduce_scatter(whole, part); });
  });
}

Pending AxisCommunicator::all_reduce(ConstElements in, Elements out, std::uint64_t& sent,
                                     std::string_view unit) {
  if (size() == 1) {
    return {};
  }
  sent += share(in.bytes()) + share(out.bytes());
  return queue_->submit([ranks = ranks_, in, out, unit] {
    return traced(*ranks, reduction_of(unit, in.bytes()),
                  [&] { return ranks->all_reduce(in, out); });
  });
}

Pending AxisCommunicator::all_gatherv(ConstElements part, Elements whole,
                                      std::vector<std::size_t> counts, std::uint64_t& sent) {
  if (size() == 1) {
    return {};
  }
  sent += part.bytes() * static_cast<std::uint64_t>(size() - 1);
  return queue_->submit([ranks = ranks_, part, whole, counts = std::move(counts)] {
    return traced(*ranks, reduction_of(encoded_sum, whole.bytes()),
                  [&] { return ranks->all_gatherv(part, whole, counts); });
  });
}

Pending AxisCommunicator::all_to_allv(ConstElements in, Elements out,
                                      std::vector<std::size_t> in_counts,
                                      std::vector<std::size_t> out_counts, std::uint64_t& sent) {
  sent += in.bytes() - in_counts[static_cast<std::size_t>(rank())] * size_of(in.dtype);
  return queue_->submit([ranks = ranks_, in, out, in_counts = std::move(in_counts),
                         out_counts = std::move(out_counts)] {
    return traced(*ranks, reduction_of(encoded_sum, in.bytes()),
                  [&] { return ranks->all_to_allv(in, out, in_counts, out_counts); });
  });
}

}  // namespace sprat::fsdp
