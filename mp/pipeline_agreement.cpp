#include "mp/pipeline_agreement.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "mp/text.hpp"

namespace sprat::mp {
namespace {

/// One number that must be equal everywhere.
struct Term {
  std::uint64_t value = 0;
  std::string what;     ///< "micro-batches"
  bool digest = false;  ///< Its value says nothing to people.
};

// What people can compare comes first; digests say where to look.
std::vector<Term> terms_of(const Schedule& schedule, int ranks, int messages_ahead) {
  std::string places;
  for (const int rank : schedule.rank_of_stage) {
    places += text(rank, " ");
  }
  std::vector<Term> terms = {
      {std::uint64_t(schedule.ranks()), "ranks"},
      {std::uint64_t(schedule.stages()), "stages"},
      {std::uint64_t(schedule.microbatches), "micro-batches"},
      {std::uint64_t(messages_ahead), "messages_ahead"},
      {fnv1a(schedule.name), "name", true},
      {fnv1a(places), "ranks of the stages", true},
  };
  // As many on every rank, whatever the schedules are.
  for (int rank = 0; rank < ranks; ++rank) {
    std::string actions;
    if (rank < schedule.ranks()) {
      for (const Action& action : schedule.actions[std::size_t(rank)]) {
        actions += to_text(action) + " ";
      }
    }
    terms.push_back({fnv1a(actions), text("actions of rank ", rank), true});
  }
  return terms;
}

/// By rank, one after the other.
std::vector<std::uint64_t> gathered(Communicator& ranks, const std::vector<std::uint64_t>& mine) {
  std::vector<std::uint64_t> all(mine.size() * std::size_t(ranks.size()));
  ranks.all_gather(elements(mine), elements(all)).wait();
  return all;
}

/// What no stage can have: the rank does not know it.
constexpr std::uint64_t unknown = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void agree_on_schedule(Communicator& ranks, const Schedule& schedule, int messages_ahead) {
  const std::vector<Term> terms = terms_of(schedule, ranks.size(), messages_ahead);
  std::vector<std::uint64_t> mine;
  for (const Term& term : terms) {
    mine.push_back(term.value);
  }
  const std::vector<std::uint64_t> all = gathered(ranks, mine);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    for (std::size_t rank = 1; rank < std::size_t(ranks.size()); ++rank) {
      const std::uint64_t first = all[i], other = all[rank * terms.size() + i];
      if (first != other) {
        const std::string values =
            terms[i].digest ? "" : text(": ", std::int64_t(first), " and ", std::int64_t(other));
        throw Error(ErrorCode::mismatch,
                    text("ranks 0 and ", rank, " of ", ranks.name(),
                         " make a pipeline of schedules that differ in their ", terms[i].what,
                         values, "; give each rank the same schedule"));
      }
    }
  }
}

std::vector<std::size_t> agree_on_elements(Communicator& ranks, const Schedule& schedule,
                                           const PipelineStages& stages) {
  const std::size_t count = schedule.rank_of_stage.size();
  std::vector<std::uint64_t> mine(count, unknown);
  for (std::size_t stage = 0; stage < count; ++stage) {
    const bool computed = schedule.rank_of_stage[stage] == ranks.rank();
    const bool handed = stage + 1 < count && schedule.rank_of_stage[stage + 1] == ranks.rank();
    if (computed || handed) {
      mine[stage] = stages.most_elements(int(stage));
    }
  }
  const std::vector<std::uint64_t> all = gathered(ranks, mine);
  std::vector<std::size_t> most;
  // Whoever computes a stage knows; whoever is handed its output has made memory for as much.
  for (std::size_t stage = 0; stage < count; ++stage) {
    const auto owner = std::size_t(schedule.rank_of_stage[stage]);
    const std::uint64_t value = all[owner * count + stage];
    for (std::size_t rank = 0; rank < std::size_t(ranks.size()); ++rank) {
      const std::uint64_t other = all[rank * count + stage];
      if (other != unknown && other != value) {
        throw Error(
            ErrorCode::mismatch,
            text("ranks ", owner, " and ", rank, " of ", ranks.name(),
                 " differ in the most elements that stage ", stage, " gives to the next: ", value,
                 " and ", other, "; most_elements() says the same of a stage everywhere"));
      }
    }
    most.push_back(value);
  }
  return most;
}

}  // namespace sprat::mp
