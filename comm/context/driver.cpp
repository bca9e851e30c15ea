#include "comm/context/driver.hpp"

#include <algorithm>
#include <utility>

namespace sprat::comm {
namespace {

// Communicators that are remembered when they have gone. Who waits for one asks within seconds.
constexpr std::size_t most_freed = 256;

}  // namespace

void Drivers::add(Driver* driver) {
  drivers_.push_back(std::make_shared<Entry>());
  drivers_.back()->driver = driver;
}

void Drivers::remove(Driver* driver) {
  std::erase_if(drivers_, [driver](const auto& entry) { return entry->driver == driver; });
}

std::shared_ptr<Drivers::Entry> Drivers::find(const Driver* driver) const {
  return *std::ranges::find(drivers_, driver, [](const auto& entry) { return entry->driver; });
}

std::shared_ptr<Drivers::Entry> Drivers::find_busy(std::uint64_t communicator) const {
  const auto found = std::ranges::find_if(drivers_, [communicator](const auto& entry) {
    return entry->busy && entry->driver->communicator() == communicator;
  });
  return found == drivers_.end() ? nullptr : *found;
}

// By index: a driver that ends an operation may make callers add another.
[[gnu::hot]] Drivers::Round Drivers::advance() noexcept {
  Round round;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < drivers_.size(); ++i) {
    if (drivers_[i]->busy) {
      continue;
    }
    const Advance advance = drivers_[i]->driver->advance();
    round.moved |= advance.moved;
    const bool first_in_turn = round.task == nullptr || (chosen < next_ && i >= next_);
    if (advance.left != nullptr && first_in_turn) {
      round.entry = drivers_[i];
      round.task = advance.left;
      chosen = i;
    }
  }
  if (round.task != nullptr) {
    next_ = chosen + 1;
  }
  return round;
}

void Drivers::note_freed(std::uint64_t communicator, std::uint64_t calls) {
  if (freed_.size() == most_freed) {
    freed_.pop_front();
  }
  freed_.push_back({communicator, calls});
}

void Drivers::note_messages(std::uint64_t communicator, std::vector<Exchanged> exchanged) {
  if (freed_messages_.size() == most_freed) {
    freed_messages_.pop_front();
  }
  freed_messages_.push_back({communicator, std::move(exchanged)});
}

Recall Drivers::recall_messages(std::uint64_t communicator, const MessageQuestion& question) const {
  const auto freed = std::ranges::find(freed_messages_, communicator, &FreedMessages::communicator);
  if (freed == freed_messages_.end()) {
    return {Recall::State::not_yet};
  }
  const auto found = std::ranges::find(freed->exchanged, question.asker, &Exchanged::rank);
  const Exchanged with = found == freed->exchanged.end() ? Exchanged{} : *found;
  return {is_lost(question, with.sent, with.received) ? Recall::State::freed
                                                      : Recall::State::forgotten};
}

Recall Drivers::recall(std::uint64_t communicator, std::uint64_t sequence) const {
  if (const auto question = decode_question(sequence)) {
    return recall_messages(communicator, *question);
  }
  for (const auto& entry : drivers_) {
    if (entry->driver->communicator() == communicator) {
      return entry->driver->called(sequence);
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
  for (const auto& entry : drivers_) {
    if (std::string text = entry->driver->under_way(); !text.empty()) {
      return text;
    }
  }
  return {};
}

bool Drivers::is_like_another(std::uint64_t number) const {
  constexpr std::uint64_t mask = (std::uint64_t{1} << communicator_bits) - 1;
  return std::ranges::any_of(drivers_, [number](const auto& entry) {
    const std::uint64_t theirs = entry->driver->communicator();
    return theirs != Driver::no_communicator && ((theirs ^ number) & mask) == 0;
  });
}

}  // namespace sprat::comm
