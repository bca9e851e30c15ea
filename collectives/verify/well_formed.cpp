// What can be said of a plan's steps without running them.
#include "collectives/verify/well_formed.hpp"

#include <span>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

/// Whether tree(0, ranks) has a node over `range`: goes down the half that has its first rank.
bool is_subtree(RankRange range, int ranks) {
  RankRange node{0, ranks};
  while (node.size() > range.size()) {
    const int middle = split_point(node);
    (range.first < middle ? node.last : node.first) = middle;
  }
  return node == range;
}

/// Looks at one rank's steps.
class Inspector {
 public:
  Inspector(const std::vector<Problem>& problems, const std::vector<Plan>& plans, int rank)
      : problems_(problems), p_(problems[rank]), plans_(plans), plan_(plans[rank]), me_(rank) {}

  /// The first rule that the step breaks; empty if none.
  std::string flaw(std::uint32_t index) const {
    const Step& step = plan_.steps[index];
    // Steps may depend on earlier ones only, which leaves no room for circles within a rank.
    if (step.after.first > step.after.last || step.after.last > index) {
      return "depends on itself";
    }
    if (step.behind.first > step.behind.last || step.behind.last > index) {
      return "is behind itself";
    }
    switch (step.verb) {
      case Verb::share:
        if (step.from.buffer == Buffer::scratch) {
          return "shares scratch, which always is shared";
        }
        if (step.from.buffer == Buffer::contributions) {
          return "shares contributions, which always are";
        }
        return flaw_of_mine(step.from);
      case Verb::signal:
        return "";
      case Verb::wait:
        return flaw_of_peer(step.peer, true);
      case Verb::copy:
        return first({flaw_of_read(step.from, step.needs), flaw_of_target(step.to),
                      flaw_of_transfer(step.from, step.to)});
      case Verb::reduce:
        return first({flaw_of_target(step.to), flaw_of_terms(step)});
      case Verb::send:
        return first({flaw_of_partner(step.peer), flaw_of_mine(step.from)});
      case Verb::recv:
        return first({flaw_of_partner(step.peer), flaw_of_target(step.to)});
    }
    return "has no verb";
  }

 private:
  static std::string first(std::initializer_list<std::string> flaws) {
    for (const std::string& flaw : flaws) {
      if (!flaw.empty()) {
        return flaw;
      }
    }
    return "";
  }

  bool is_rank(int rank) const { return rank >= 0 && rank < p_.ranks(); }

  std::string flaw_of_peer(int peer, bool local) const {
    if (!is_rank(peer) || peer == me_) {
      return text("has no peer ", peer);
    }
    if (p_.grouping->together(me_, peer) == local) {
      return "";
    }
    return text("peer ", peer, local ? " is on another host" : " is on the same host");
  }

  /// The other end of a message: on another host, but for exchanges, which have messages
  /// everywhere.
  std::string flaw_of_partner(int peer) const {
    const bool local = is_rank(peer) && p_.grouping->together(me_, peer);
    return flaw_of_peer(peer, local && exchanges(p_.collective));
  }

  std::string flaw_of_operand(const Operand& operand) const {
    if (!is_rank(operand.rank)) {
      return text("names rank ", operand.rank);
    }
    if (!p_.grouping->together(me_, operand.rank)) {
      return text("reads rank ", operand.rank, " on another host");
    }
    // What has no elements lies nowhere: a barrier's messages name no block that there is.
    if (operand.count == 0) {
      return "";
    }
    const bool own = is_own(operand.buffer);
    const Problem& theirs = problems_[operand.rank];
    const int blocks = own ? 1 : blocks_of(theirs, operand.buffer, operand.rank);
    if (operand.block < 0 || operand.block >= blocks) {
      return text("names block ", operand.block);
    }
    const Plan& plan = plans_[operand.rank];
    const std::size_t block = operand.buffer == Buffer::scratch ? plan.scratch_count
                              : operand.buffer == Buffer::contributions
                                  ? plan.contributions_count
                                  : count_of(theirs, operand.buffer, operand.rank, operand.block);
    // The difference, not the sum, which could wrap.
    const bool inside = operand.offset <= block && operand.count <= block - operand.offset;
    return inside ? ""
                  : text("reaches ", operand.offset, "+", operand.count, " in a block of ", block);
  }

  std::string flaw_of_read(const Operand& operand, std::uint32_t needs) const {
    // Until then the peer may not have said where its memory lies.
    const bool too_early = operand.rank != me_ && needs == 0;
    return first({flaw_of_operand(operand),
                  too_early ? text("reads rank ", operand.rank, " without a signal of it") : ""});
  }

  /// What is shared and sent: a peer's memory is not this rank's to give away.
  std::string flaw_of_mine(const Operand& operand) const {
    if (operand.rank != me_) {
      return text("takes memory of rank ", operand.rank);
    }
    return flaw_of_operand(operand);
  }

  /// A caller's input stays as it is. A barrier's empty receive names it, and writes nothing.
  std::string flaw_of_target(const Operand& target) const {
    if (target.rank != me_) {
      return text("writes memory of rank ", target.rank);
    }
    if (target.buffer == Buffer::input && target.count > 0) {
      return "writes its input";
    }
    return flaw_of_operand(target);
  }

  /// Copies move bytes. Only reductions convert.
  std::string flaw_of_transfer(const Operand& from, const Operand& to) const {
    if (from.count != to.count) {
      return text("moves ", from.count, " elements to ", to.count);
    }
    if (element_type(p_, from.buffer) == element_type(p_, to.buffer)) {
      return "";
    }
    return "copies between element types";
  }

  /// Terms must follow each other without gaps, each where the tree has a node, and of the type
  /// that its buffer holds.
  std::string flaw_of_terms(const Step& step) const {
    if (step.sources.first >= step.sources.last || step.sources.last > plan_.sources.size()) {
      return "reduces no sources";
    }
    const std::span terms(plan_.sources.data() + step.sources.first,
                          step.sources.last - step.sources.first);
    int next = terms.front().covers.first;
    for (const Source& term : terms) {
      const std::string flaw = flaw_of_read(term.from, step.needs);
      if (!flaw.empty()) {
        return flaw;
      }
      const RankRange covers = term.covers;
      if (covers.first != next) {
        return text("has a gap before the term from rank ", covers.first);
      }
      const std::string misfit = flaw_of_range(covers, &term == &terms.front());
      if (!misfit.empty()) {
        return text("has a term over ", covers.first, "..", covers.last, ", ", misfit);
      }
      if (term.from.buffer != Buffer::scratch && covers.size() != 1) {
        return term.from.buffer == Buffer::contributions ? "takes a partial from contributions"
                                                         : "takes a partial from input or output";
      }
      // In place a contribution may lie in the output, but not as another type.
      if (term.from.buffer == Buffer::output && p_.output != p_.input) {
        return "takes a contribution from an output of another type";
      }
      if (term.from.count != step.to.count) {
        return text("reduces ", term.from.count, " elements to ", step.to.count);
      }
      next = covers.last;
    }
    // What lies there is read in the input's type, which a partial's values may not fit.
    if (step.to.buffer == Buffer::contributions) {
      return "reduces to contributions, which are single ranks'";
    }
    // A result is finished and rounded as it is written, which nothing could be added to.
    const RankRange joint{terms.front().covers.first, next};
    if (step.to.buffer == Buffer::output && joint != RankRange{0, p_.ranks()}) {
      return text("completes ", joint.first, "..", joint.last, " only");
    }
    const std::string misfit = flaw_of_range(joint, true);
    return misfit.empty() ? "" : "reduces to a partial, " + misfit;
  }

  /// Whether reduce() takes the range as a term where it stands; only the first may be a chain's.
  std::string flaw_of_range(RankRange range, bool first) const {
    if (range.size() < 1 || range.last > p_.ranks()) {
      return "which holds no such ranks";
    }
    if (plan_.order == ReduceOrder::canonical) {
      return is_subtree(range, p_.ranks()) ? "" : "which is no subtree";
    }
    return first || range.size() == 1 ? "" : "which only a first term may";
  }

  const std::vector<Problem>& problems_;
  const Problem& p_;
  const std::vector<Plan>& plans_;
  const Plan& plan_;
  int me_;
};

}  // namespace

std::vector<std::string> malformed_steps(const std::vector<Problem>& problems,
                                         const std::vector<Plan>& plans) {
  std::vector<std::string> flaws;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Inspector inspector(problems, plans, rank);
    for (std::uint32_t index = 0; index < plans[rank].steps.size(); ++index) {
      const std::string flaw = inspector.flaw(index);
      if (flaw.empty()) {
        continue;
      }
      flaws.push_back(text("rank ", rank, " step ", index, " (",
                           name(plans[rank].steps[index].verb), ") ", flaw));
    }
  }
  return flaws;
}

}  // namespace sprat::collectives
