// Which steps of all ranks' plans can run, and which have certainly happened before which.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/plan/plan.hpp"
#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// Steps of all ranks, numbered rank by rank, as they complete one after another. What happens
/// before what follows from `after`, `needs` and messages alone, not from the order of completing.
class HappensBefore {
 public:
  static constexpr std::size_t nowhere = ~std::size_t{0};

  /// Steps must be well formed. Both references must outlive this.
  HappensBefore(const Problem& problem, const std::vector<Plan>& plans);

  std::size_t steps() const { return rank_of_.size(); }
  int rank_of(std::size_t number) const { return rank_of_[number]; }
  const Step& step(std::size_t number) const;
  std::string label(std::size_t number) const;
  /// The other end of a message; `nowhere` if there is none. Each end is one step's, or repeats().
  std::size_t partner(std::size_t number) const;
  /// Steps that give their message an ordinal that another step has given.
  const std::vector<std::size_t>& repeats() const { return repeats_; }
  /// A rank's last completed signal; `nowhere` if there is none.
  std::size_t last_signal(int rank) const;

  bool done(std::size_t number) const { return done_[number]; }
  /// Whether all that the step itself waits for has happened.
  bool ready(std::size_t number) const;
  void complete(std::size_t number);
  /// Completes both ends of a message. The receive writes once the send has begun; nothing tells
  /// the receiver that the send has ended.
  void complete_message(std::size_t sender, std::size_t receiver);

  /// Whether `earlier` is over before `later` starts, in every run.
  bool before(std::size_t earlier, std::size_t later) const;
  /// Whether `other` has begun before `rank` ends, in every run. All steps are done.
  bool begins_before_end(int other, int rank);

 private:
  /// A set of step numbers, then of ranks that have begun.
  using Past = std::vector<std::uint64_t>;
  using Message = std::tuple<int, int, std::uint32_t>;
  struct Ends {
    std::size_t sender = nowhere, receiver = nowhere;
  };
  struct Closure {
    IndexRange steps;
    Past past;
  };

  static void insert(Past& past, std::size_t element);
  static void unite(Past& into, const Past& other);
  Message message_of(std::size_t number) const;
  /// Peers whose signals the step waits for.
  std::vector<int> peers_awaited(std::size_t number) const;
  /// Those steps of the rank and all before them.
  const Past& closure(int rank, IndexRange steps);

  const std::vector<Plan>& plans_;
  std::vector<std::size_t> first_step_;  ///< By rank.
  std::vector<int> rank_of_;
  std::vector<bool> done_;
  std::vector<Past> pasts_;        ///< What is over before a step starts.
  std::vector<Closure> closures_;  ///< The last one asked for, by rank.
  std::map<Message, Ends> messages_;
  std::vector<std::size_t> repeats_;
  std::vector<std::vector<std::size_t>> signals_;  ///< Completed ones, by rank.
};

}  // namespace sprat::collectives
