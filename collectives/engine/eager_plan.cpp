// Turns the steps of a plan into moves of bytes.
#include "collectives/engine/eager_plan.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/plan/signature.hpp"

namespace sprat::collectives {
namespace {

std::size_t byte_offset(const Problem& problem, const Operand& operand) {
  return (offset_of(problem, operand.buffer, operand.block) + operand.offset) *
         size_of(element_type(problem, operand.buffer));
}

bool from_input_to_output(const Plan& plan, const Step& step) {
  switch (step.verb) {
    case Verb::share:
      return step.from.buffer == Buffer::input;
    case Verb::signal:
    case Verb::wait:
      return true;
    case Verb::copy:
      return step.from.buffer == Buffer::input && step.to.buffer == Buffer::output;
    case Verb::reduce:
      return step.to.buffer == Buffer::output &&
             std::all_of(plan.sources.begin() + step.sources.first,
                         plan.sources.begin() + step.sources.last,
                         [](const Source& one) { return one.from.buffer == Buffer::input; });
    case Verb::send:
    case Verb::recv:
      return false;
  }
  return false;
}

std::size_t input_bytes_of(const Problem& problem, int rank) {
  return elements_of(problem, Buffer::input, rank) * size_of(problem.input);
}

void read_of(const Problem& problem, int rank, EagerPlan& eager) {
  const bool known =
      std::ranges::find(eager.reads, rank, &EagerPlan::Peer::rank) != eager.reads.end();
  if (rank != problem.rank && !known) {
    eager.reads.push_back({rank, input_bytes_of(problem, rank)});
  }
}

void add(const Problem& problem, const Plan& plan, const Step& step, EagerPlan& eager) {
  if (step.verb == Verb::copy && step.to.count > 0) {
    eager.copies.push_back({.rank = step.from.rank,
                            .from = byte_offset(problem, step.from),
                            .to = byte_offset(problem, step.to),
                            .bytes = step.to.count * size_of(problem.output)});
    read_of(problem, step.from.rank, eager);
  } else if (step.verb == Verb::reduce && step.to.count > 0) {
    EagerPlan::Reduction reduction{
        .parts = {}, .to = byte_offset(problem, step.to), .count = step.to.count, .prepared = {}};
    std::vector<RankRange> covers;
    for (std::uint32_t i = step.sources.first; i < step.sources.last; ++i) {
      const Source& source = plan.sources[i];
      reduction.parts.push_back({.rank = source.from.rank,
                                 .from = byte_offset(problem, source.from),
                                 .covers = source.covers});
      covers.push_back(source.covers);
      read_of(problem, source.from.rank, eager);
    }
    reduction.prepared = PreparedReduction::of(arithmetic_of(problem), covers);
    eager.reductions.push_back(std::move(reduction));
  }
}

void run_reduction(const EagerPlan::Reduction& reduction, std::span<const std::byte* const> inputs,
                   std::byte* output) {
  const void* contributions[PreparedReduction::most_contributions];
  for (std::size_t i = 0; i < reduction.parts.size(); ++i) {
    contributions[i] = inputs[reduction.parts[i].rank] + reduction.parts[i].from;
  }
  reduction.prepared.run(contributions, output + reduction.to, reduction.count);
}

}  // namespace

EagerPlan eager_plan_of(const Problem& problem, const Plan& plan, std::size_t most_bytes) {
  const std::size_t input_bytes = input_bytes_of(problem, problem.rank);
  if (problem.grouping->hosts() > 1 || input_bytes > most_bytes || plan.traits.signals > 1 ||
      !std::ranges::all_of(plan.steps,
                           [&](const Step& step) { return from_input_to_output(plan, step); })) {
    return {};
  }
  EagerPlan eager{.fits = true,
                  .runs_ahead = completes_locally(problem),
                  .shows_input = plan.traits.shares_input,
                  .input_bytes = input_bytes,
                  .longest_input_bytes = plan.traits.shares_input ? input_bytes : 0,
                  .reads = {},
                  .copies = {},
                  .reductions = {}};
  for (const Step& step : plan.steps) {
    add(problem, plan, step, eager);
  }
  for (const EagerPlan::Peer& peer : eager.reads) {
    eager.longest_input_bytes = std::max(eager.longest_input_bytes, peer.input_bytes);
  }
  return eager;
}

[[gnu::hot]] void finish(const EagerPlan& eager, const Arithmetic& arithmetic,
                         std::span<const std::byte* const> inputs, std::byte* output,
                         std::vector<Term>& terms) {
  for (const EagerPlan::Copy& copy : eager.copies) {
    const std::byte* from = inputs[copy.rank] + copy.from;
    if (from != output + copy.to) {
      std::memcpy(output + copy.to, from, copy.bytes);
    }
  }
  for (const EagerPlan::Reduction& reduction : eager.reductions) {
    if (reduction.prepared) {
      run_reduction(reduction, inputs, output);
      continue;
    }
    terms.clear();
    for (const EagerPlan::Part& part : reduction.parts) {
      terms.push_back({inputs[part.rank] + part.from, part.covers, false});
    }
    reduce(arithmetic, terms, output + reduction.to, reduction.count);
  }
}

}  // namespace sprat::collectives
