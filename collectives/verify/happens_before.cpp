// Which steps of all ranks' plans can run, and which have certainly happened before which.
//
// Each step gets the set of all steps that are over before it starts, as bits: the sets of those
// that it waits for, joined. So whether one step comes before another is one bit to look at,
// whatever order this run happened to take. It is what vector clocks (Fidge 1988, Mattern 1989)
// tell, spelled out, for steps of one rank are not in order either.
#include "collectives/verify/happens_before.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

constexpr std::size_t word_bits = 64;

}  // namespace

HappensBefore::HappensBefore(const Problem& problem, const std::vector<Plan>& plans)
    : plans_(plans), closures_(plans.size()), signals_(plans.size()) {
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    first_step_.push_back(rank_of_.size());
    rank_of_.insert(rank_of_.end(), plans[rank].steps.size(), rank);
  }
  done_.resize(steps());
  pasts_.resize(steps());
  for (std::size_t number = 0; number < steps(); ++number) {
    const Verb verb = step(number).verb;
    if (verb != Verb::send && verb != Verb::recv) {
      continue;
    }
    // The last of several that claim one ordinal stays. The others are repeats(), which are faults.
    Ends& ends = messages_[message_of(number)];
    std::size_t& end = verb == Verb::send ? ends.sender : ends.receiver;
    if (end != nowhere) {
      repeats_.push_back(number);
    }
    end = number;
  }
}

const Step& HappensBefore::step(std::size_t number) const {
  const int rank = rank_of_[number];
  return plans_[rank].steps[number - first_step_[rank]];
}

std::string HappensBefore::label(std::size_t number) const {
  const int rank = rank_of_[number];
  const char* verb = name(step(number).verb);
  return text("rank ", rank, " step ", number - first_step_[rank], " (", verb, ")");
}

std::size_t HappensBefore::partner(std::size_t number) const {
  const Ends& ends = messages_.at(message_of(number));
  return step(number).verb == Verb::send ? ends.receiver : ends.sender;
}

std::size_t HappensBefore::last_signal(int rank) const {
  return signals_[rank].empty() ? nowhere : signals_[rank].back();
}

// `behind` holds a step back as `after` does, but promises nothing of memory: so it counts here,
// and not in what complete() calls the past.
bool HappensBefore::ready(std::size_t number) const {
  const Step& what = step(number);
  const std::size_t first = first_step_[rank_of_[number]];
  for (const IndexRange& range : {what.after, what.behind}) {
    for (std::uint32_t i = range.first; i < range.last; ++i) {
      if (!done_[first + i]) {
        return false;
      }
    }
  }
  return std::ranges::all_of(peers_awaited(number), [&](int peer) {
    return signals_[peer].size() >= static_cast<std::size_t>(what.needs);
  });
}

void HappensBefore::complete(std::size_t number) {
  const Step& what = step(number);
  const int rank = rank_of_[number];
  Past past = closure(rank, what.after);
  for (int peer : peers_awaited(number)) {
    if (what.needs == 0) {
      continue;
    }
    // Later signals of that peer may have been given by now, but nobody waited for them.
    const std::size_t signal = signals_[peer][what.needs - 1];
    unite(past, pasts_[signal]);
    insert(past, signal);
  }
  pasts_[number] = std::move(past);
  done_[number] = true;
  if (what.verb == Verb::signal) {
    signals_[rank].push_back(number);
  }
}

// What was over before the send began is over for the receiver too. The send itself is not in the
// receiver's past, nor the receive in the sender's.
void HappensBefore::complete_message(std::size_t sender, std::size_t receiver) {
  pasts_[sender] = closure(rank_of_[sender], step(sender).after);
  pasts_[receiver] = closure(rank_of_[receiver], step(receiver).after);
  unite(pasts_[receiver], pasts_[sender]);
  done_[sender] = done_[receiver] = true;
}

bool HappensBefore::before(std::size_t earlier, std::size_t later) const {
  return (pasts_[later][earlier / word_bits] >> earlier % word_bits & 1) != 0;
}

// Beyond the bits of steps, a past has one for each rank that has begun.
bool HappensBefore::begins_before_end(int other, int rank) {
  const auto all = static_cast<std::uint32_t>(plans_[rank].steps.size());
  const std::size_t begun = steps() + other;
  return (closure(rank, {0, all})[begun / word_bits] >> begun % word_bits & 1) != 0;
}

void HappensBefore::insert(Past& past, std::size_t element) {
  past[element / word_bits] |= std::uint64_t{1} << element % word_bits;
}

void HappensBefore::unite(Past& into, const Past& other) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] |= other[i];
  }
}

HappensBefore::Message HappensBefore::message_of(std::size_t number) const {
  const Step& what = step(number);
  const int rank = rank_of_[number];
  return what.verb == Verb::send ? Message(rank, what.peer, what.message)
                                 : Message(what.peer, rank, what.message);
}

std::vector<int> HappensBefore::peers_awaited(std::size_t number) const {
  const Step& what = step(number);
  const int rank = rank_of_[number];
  if (what.verb == Verb::wait) {
    return {what.peer};
  }
  std::vector<int> peers;
  if (what.verb == Verb::copy && what.from.rank != rank) {
    peers.push_back(what.from.rank);
  }
  for (std::uint32_t i = what.sources.first; i < what.sources.last; ++i) {
    const int peer = plans_[rank].sources[i].from.rank;
    if (peer != rank) {
      peers.push_back(peer);
    }
  }
  return peers;
}

const HappensBefore::Past& HappensBefore::closure(int rank, IndexRange range) {
  // Steps of a round wait for the same range, one after another: the last answer is enough to keep.
  Closure& known = closures_[rank];
  const bool same = known.steps.first == range.first && known.steps.last == range.last;
  if (same && !known.past.empty()) {
    return known.past;
  }
  // Whatever this rank does, it has begun.
  known = {range, Past((steps() + plans_.size() + word_bits - 1) / word_bits)};
  insert(known.past, steps() + rank);
  for (std::uint32_t i = range.first; i < range.last; ++i) {
    const std::size_t number = first_step_[rank] + i;
    unite(known.past, pasts_[number]);
    insert(known.past, number);
  }
  return known.past;
}

}  // namespace sprat::collectives
