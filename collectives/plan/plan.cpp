// How plans are built, counted and shown.
#include "collectives/plan/plan.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

// Elements. A piece of one-byte elements then begins on a cache line, so that no two are in one.
constexpr std::size_t scratch_alignment = 64;

/// Messages between two ranks are told apart by their number. Both sides count for themselves, and
/// agree because the k-th receive takes the k-th send.
std::uint32_t next_ordinal(std::vector<std::uint32_t>& counters, int peer) {
  const auto index = static_cast<std::size_t>(peer);
  if (counters.size() <= index) {
    counters.resize(index + 1);
  }
  return counters[index]++;
}

/// What a step reads where it lies, its own rank's buffers included. A send is none of these: who
/// receives reads the message, not the memory.
std::vector<Operand> reads(const Plan& plan, const Step& step) {
  if (step.verb == Verb::copy) {
    return {step.from};
  }
  std::vector<Operand> operands;
  for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
    operands.push_back(plan.sources[i].from);
  }
  return operands;
}

std::string text_of(const Operand& operand) {
  return fmt::format("{}.{}[{}]+{}x{}", operand.rank, name(operand.buffer), operand.block,
                     operand.offset, operand.count);
}

}  // namespace

const char* name(Buffer buffer) noexcept {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
    case Buffer::contributions:
      return "contributions";
  }
  return "unknown buffer";
}

const char* name(Verb verb) noexcept {
  switch (verb) {
    case Verb::share:
      return "share";
    case Verb::signal:
      return "signal";
    case Verb::wait:
      return "wait";
    case Verb::copy:
      return "copy";
    case Verb::reduce:
      return "reduce";
    case Verb::send:
      return "send";
    case Verb::recv:
      return "recv";
  }
  return "unknown verb";
}

const AddedStep& AddedStep::after(IndexRange steps) const {
  plan_.steps[index_].after = steps;
  return *this;
}

const AddedStep& AddedStep::behind(IndexRange steps) const {
  plan_.steps[index_].behind = steps;
  return *this;
}

Step& Plan::add(Verb verb) {
  Step& step = steps.emplace_back();
  step.verb = verb;
  step.after = previous_;
  return step;
}

AddedStep Plan::last() { return {*this, next_index() - 1}; }

AddedStep Plan::share(const Operand& mine) {
  add(Verb::share).from = mine;
  return last();
}

AddedStep Plan::share_snapshot(const Operand& mine) {
  Step& step = add(Verb::share);
  step.from = mine;
  step.snapshot = true;
  return last();
}

AddedStep Plan::signal() {
  Step& step = add(Verb::signal);
  // A signal tells peers that what this round has shared so far may be read, so it cannot run
  // beside those steps as the others of the round may. The last round and this one are adjacent, so
  // both fit one range.
  if (previous_.first == previous_.last) {
    step.after.first = round_begin_;
  }
  const AddedStep added = last();
  step.after.last = added;
  return added;
}

AddedStep Plan::wait(int peer, std::uint32_t needs) {
  Step& step = add(Verb::wait);
  step.peer = peer;
  step.needs = needs;
  return last();
}

AddedStep Plan::copy(const Operand& from, const Operand& to, std::uint32_t needs) {
  Step& step = add(Verb::copy);
  step.from = from;
  step.to = to;
  step.needs = needs;
  return last();
}

AddedStep Plan::reduce(std::span<const Source> terms, const Operand& to, std::uint32_t needs) {
  Step& step = add(Verb::reduce);
  step.sources.first = static_cast<std::uint32_t>(sources.size());
  sources.insert(sources.end(), terms.begin(), terms.end());
  step.sources.last = static_cast<std::uint32_t>(sources.size());
  step.to = to;
  step.needs = needs;
  return last();
}

AddedStep Plan::send(int peer, const Operand& from) {
  Step& step = add(Verb::send);
  step.peer = peer;
  step.from = from;
  step.message = next_ordinal(sent_, peer);
  return last();
}

AddedStep Plan::recv(int peer, const Operand& to) {
  Step& step = add(Verb::recv);
  step.peer = peer;
  step.to = to;
  step.message = next_ordinal(received_, peer);
  return last();
}

void Plan::next_round() {
  if (round_begin_ == next_index()) {
    return;  // an empty round would cut the chain
  }
  previous_ = since(round_begin_);
  round_begin_ = next_index();
}

// A step depends on a range, so a lane begins by forgetting the round before it.
void Plan::next_lane() {
  previous_ = {};
  round_begin_ = next_index();
}

Operand Plan::scratch(std::size_t count) { return take(Buffer::scratch, scratch_count, count); }

// One rank's contribution is kept and sent in the input's type: widening changes no value, so the
// reduction that reads it may as well do that, and 16-bit floats take half the bytes.
Operand Plan::room_for(RankRange covers, std::size_t count) {
  return covers.size() == 1 ? take(Buffer::contributions, contributions_count, count)
                            : scratch(count);
}

Operand Plan::take(Buffer buffer, std::size_t& taken, std::size_t count) const {
  const Operand piece{.rank = rank_, .buffer = buffer, .offset = taken, .count = count};
  taken += (count + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
  return piece;
}

// Executors ask this of every call, and a plan is used for many: so it is worked out once.
void Plan::settle() {
  traits = {};
  const auto first_other = std::ranges::find_if(
      steps, [](const Step& step) { return step.verb != Verb::share || step.snapshot; });
  if (first_other != steps.end() && first_other->verb == Verb::signal) {
    traits.opening = static_cast<std::uint32_t>(first_other - steps.begin()) + 1;
  }
  for (std::uint32_t index = 0; index < next_index(); ++index) {
    const Step& step = steps[index];
    const bool shares = step.verb == Verb::share;
    traits.shares_input |= shares && step.from.buffer == Buffer::input;
    traits.shares_output |= shares && step.from.buffer == Buffer::output;
    traits.snapshot |= shares && step.snapshot;
    traits.signals += step.verb == Verb::signal ? 1 : 0;
    const std::vector<Operand> operands = reads(*this, step);
    if (std::ranges::any_of(operands, [this](const Operand& one) { return one.rank != rank_; })) {
      traits.reads_until = index + 1;
    }
  }
}

// Rounds are the longest chain of steps that wait for somebody else. Steps come after those that
// they depend on, so one pass in their order finds each one's depth.
Cost count(const Problem& problem, const Plan& plan) {
  Cost cost;
  std::vector<int> depth(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    std::size_t pulled = 0;
    for (const Operand& operand : reads(plan, step)) {
      if (operand.rank == problem.rank) {
        continue;  // a rank's own memory costs nobody a round
      }
      pulled += operand.count * size_of(element_type(problem, operand.buffer));
    }
    cost.bytes_pulled += pulled;
    if (step.verb == Verb::send) {
      cost.bytes_sent += step.from.count * size_of(element_type(problem, step.from.buffer));
    }
    if (step.verb == Verb::recv) {
      cost.bytes_received += step.to.count * size_of(element_type(problem, step.to.buffer));
    }
    const bool meets_others =
        pulled > 0 || step.verb == Verb::send || step.verb == Verb::recv || step.verb == Verb::wait;
    for (std::uint32_t before = step.after.first; before < step.after.last; ++before) {
      depth[i] = std::max(depth[i], depth[before]);
    }
    depth[i] += meets_others ? 1 : 0;
    cost.rounds = std::max(cost.rounds, depth[i]);
  }
  return cost;
}

[[gnu::hot]] DType element_type(const Problem& problem, Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return problem.input;
    case Buffer::output:
      return problem.output;
    case Buffer::scratch:
      return reduces(problem.collective) ? problem.accumulator() : problem.input;
    case Buffer::contributions:
      return problem.input;
  }
  return problem.input;
}

std::size_t partial_size(const Problem& problem, RankRange covers) {
  return size_of(covers.size() == 1 ? problem.input : problem.accumulator());
}

// A buffer has a block for each rank where each of them gives or gets another part of it, and is
// one block where all deal with the same elements.
[[gnu::hot]] int blocks_of(const Problem& problem, Buffer buffer, int rank) {
  const bool in = buffer == Buffer::input;
  switch (problem.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
      return 1;
    case Collective::all_gather:
      return in ? 1 : problem.ranks();
    case Collective::reduce_scatter:
      return in ? problem.ranks() : 1;
    case Collective::all_to_all:
    case Collective::all_to_allv:
      return problem.ranks();
    case Collective::reduce:
      return in || rank == problem.root ? 1 : 0;
    case Collective::gather:
    case Collective::gatherv:
      return in ? 1 : rank == problem.root ? problem.ranks() : 0;
    case Collective::scatter:
    case Collective::scatterv:
      return !in ? 1 : rank == problem.root ? problem.ranks() : 0;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

// Where only one buffer has counts, the other is one block, as long as its rank's.
[[gnu::hot]] const BlockCounts* block_counts(const Problem& problem, Buffer buffer) {
  const bool in = buffer == Buffer::input;
  switch (problem.collective) {
    case Collective::all_gather:
    case Collective::gatherv:
      return in ? nullptr : problem.counts.get();
    case Collective::reduce_scatter:
    case Collective::scatterv:
      return in ? problem.counts.get() : nullptr;
    case Collective::all_to_allv:
      return in ? problem.counts.get() : problem.out_counts.get();
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::all_to_all:
    case Collective::barrier:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
      return nullptr;
  }
  return nullptr;
}

std::size_t count_of(const Problem& problem, Buffer buffer, int rank, int block) {
  if (!problem.counts) {
    return problem.count;
  }
  const BlockCounts* counts = block_counts(problem, buffer);
  return counts != nullptr ? counts->count(block) : problem.counts->count(rank);
}

std::size_t offset_of(const Problem& problem, Buffer buffer, int block) {
  const BlockCounts* counts = block_counts(problem, buffer);
  return counts != nullptr ? counts->offset(block)
                           : static_cast<std::size_t>(block) * problem.count;
}

[[gnu::hot]] std::size_t elements_of(const Problem& problem, Buffer buffer, int rank) {
  const int blocks = blocks_of(problem, buffer, rank);
  if (blocks == 0) {
    return 0;
  }
  return offset_of(problem, buffer, blocks - 1) + count_of(problem, buffer, rank, blocks - 1);
}

Operand input_of(const Problem& problem, int rank, int block) {
  return {.rank = rank,
          .buffer = Buffer::input,
          .block = block,
          .count = count_of(problem, Buffer::input, rank, block)};
}

Operand output_of(const Problem& problem, int rank, int block) {
  return {.rank = rank,
          .buffer = Buffer::output,
          .block = block,
          .count = count_of(problem, Buffer::output, rank, block)};
}

Operand piece_of(const Operand& whole, const Slice& slice) {
  Operand piece = whole;
  piece.offset += slice.offset;
  piece.count = slice.count;
  return piece;
}

// What a step does not use is left out, so that lines stay short enough to compare by eye. Ranges
// are shown with their last index, for that is how one counts.
std::string describe(const Plan& plan) {
  std::string out = fmt::format("{}: {} steps, {} elements of scratch\n", plan.algorithm,
                                plan.steps.size(), plan.scratch_count);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    out += fmt::format("{:4} {:6}", i, name(step.verb));
    if (step.peer >= 0) {
      out += fmt::format(" peer {}", step.peer);
    }
    if (step.verb == Verb::send || step.verb == Verb::recv) {
      out += fmt::format(" #{}", step.message);
    }
    if (step.from.count > 0) {
      out += " " + text_of(step.from);
    }
    for (std::uint32_t k = step.sources.first; k < step.sources.last; ++k) {
      const Source& source = plan.sources[k];
      out += fmt::format(" {}({}..{})", text_of(source.from), source.covers.first,
                         source.covers.last - 1);
    }
    if (step.to.count > 0) {
      out += " -> " + text_of(step.to);
    }
    if (step.snapshot) {
      out += " snapshot";
    }
    if (step.needs > 0) {
      out += fmt::format(" needs {}", step.needs);
    }
    if (step.after.first < step.after.last) {
      out += fmt::format(" after {}..{}", step.after.first, step.after.last - 1);
    }
    if (step.behind.first < step.behind.last) {
      out += fmt::format(" behind {}..{}", step.behind.first, step.behind.last - 1);
    }
    out += '\n';
  }
  return out;
}

}  // namespace sprat::collectives
