#include "comm/context/driver.hpp"

#include <algorithm>

namespace sprat::comm {
namespace {

// Communicators that are remembered when they have gone. Who waits for one asks within seconds.
constexpr std::size_t most_freed = 256;

}  // namespace

void Drivers::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  if (freed_.size() == most_freed) {
    freed_.pop_front();
  }
  freed_.push_back({communicator, calls});
}

Recall Drivers::recall(std::uint64_t communicator, std::uint64_t sequence) const {
  for (const Driver* driver : drivers_) {
    if (driver->communicator() == communicator) {
      return driver->called(sequence);
    }
  }
  // A rank that has called all that it was to call may go before others are through.
  for (const Freed& one : freed_) {
    if (one.communicator == communicator) {
      return {sequence < one.calls ? Recall::State::forgotten : Recall::State::freed};
    }
  }
  return {Recall::State::no_member};
}

std::string Drivers::under_way() const {
  for (const Driver* driver : drivers_) {
    if (std::string text = driver->under_way(); !text.empty()) {
      return text;
    }
  }
  return {};
}

bool Drivers::is_like_another(std::uint64_t number) const {
  constexpr std::uint64_t mask = (std::uint64_t{1} << communicator_bits) - 1;
  return std::ranges::any_of(drivers_, [number](const Driver* driver) {
    const std::uint64_t theirs = driver->communicator();
    return theirs != Driver::no_communicator && ((theirs ^ number) & mask) == 0;
  });
}

}  // namespace sprat::comm
