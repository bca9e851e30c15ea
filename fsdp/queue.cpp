// The inline queue, and how a pending operation ends.
#include "fsdp/queue.hpp"

#include <exception>
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

}  // namespace sprat::fsdp
