#include "collectives/record/explain.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat::collectives {
namespace {

using comm::ranks_text;
using State = CallState;

/// A communicator as one of its ranks sees it.
struct Member {
  const FlightRecord* record;
  const RecordedCommunicator* communicator;
  int world() const { return record->rank; }
};

/// Ranks that split at the same time may agree on the same id in different groups, so only id, name
/// and ranks together tell communicators apart.
using Key = std::tuple<std::uint64_t, std::string, std::vector<int>>;
using Job = std::map<int, const FlightRecord*>;  ///< By rank.
using Groups = std::map<Key, std::vector<Member>>;

/// A rank that cannot go on before another does something.
struct Edge {
  int to;
  std::string what;  ///< "in operation 5 of rows (barrier)".
  bool operator<(const Edge& other) const {
    return std::tie(to, what) < std::tie(other.to, other.what);
  }
};
using Waits = std::map<int, std::set<Edge>>;

struct Findings {
  std::vector<std::string> differences, circles, waits, messages, missing;
  Waits edges;
};

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3f} s", std::max(0.0, seconds))
                     : fmt::format("{:.1f} s", seconds);
}

/// How long an operation has waited. A failed one waited until it failed; one under way still waits
/// when the record is taken.
double waited(const Member& member, double since, double ended) {
  return (ended != 0 ? ended : member.record->taken) - since;
}

const RecordedOperation* operation_under_way(const RecordedCommunicator& communicator) {
  const auto found =
      std::ranges::find_if(communicator.operations,
                           [](const RecordedOperation& one) { return one.state != State::done; });
  return found == communicator.operations.end() ? nullptr : &*found;
}

const RecordedOperation* find(const Member& member, std::uint64_t sequence) {
  const auto& all = member.communicator->operations;
  const auto found = std::ranges::find(all, sequence, &RecordedOperation::sequence);
  return found == all.end() ? nullptr : &*found;
}

/// What a late rank is at on this communicator.
std::string last_call(const Member& member) {
  const auto& operations = member.communicator->operations;
  if (operations.empty()) {
    return "it has called nothing on it yet";
  }
  const RecordedOperation& last = operations.back();
  if (last.state == State::done) {
    return text("its last call was operation ", last.sequence, " (", last.call, "), done ",
                seconds_text(member.record->taken - last.ended), " ago");
  }
  return text("it is in operation ", last.sequence, " (", last.call, ") since ",
              seconds_text(waited(member, last.posted, last.ended)));
}

/// What else a late rank does: it waits in another communicator, or in nothing of Sprat's.
std::string elsewhere(const Member& member) {
  if (member.record->waiting_threads == 0) {
    return ", and no thread of it waits in Sprat";
  }
  for (const auto& other : member.record->communicators) {
    const RecordedOperation* at =
        &other == member.communicator ? nullptr : operation_under_way(other);
    if (at != nullptr) {
      return text(", and waits in operation ", at->sequence, " of ", other.name, " (", at->call,
                  ")");
    }
  }
  return "";
}

void explain_differences(const std::vector<Member>& members, Findings& findings) {
  std::map<std::uint64_t, std::map<std::pair<std::string, std::string>, std::vector<int>>> calls;
  for (const Member& member : members) {
    for (const RecordedOperation& one : member.communicator->operations) {
      calls[one.sequence][{one.call, one.signature}].push_back(member.world());
    }
  }
  for (const auto& [sequence, ways] : calls) {
    if (ways.size() < 2) {
      continue;
    }
    std::string who;
    for (const auto& [way, ranks] : ways) {
      who += text(who.empty() ? "" : "; ", ranks_text(ranks), " called ", way.first);
      // Calls that read alike differ in what their text leaves out, so the signature is shown too.
      if (std::ranges::count(ways, way.first, [](const auto& o) { return o.first.first; }) > 1) {
        who += text(" (signature ", way.second, ")");
      }
    }
    findings.differences.push_back(text(members.front().communicator->name, ", operation ",
                                        sequence, ": the calls differ: ", who));
    return;  // later differences follow from the first one
  }
}

/// Ranks of a communicator, seen from those that wait in one of its operations.
struct Standing {
  std::vector<Member> waiting, late, behind;
  std::set<int> through, blamed, stuck;  ///< The last two by the waiting ones' own account.
};

/// Whom the others wait for, without those who wait for somebody themselves: the ends of the chains
/// are to blame. If all of them wait, they form a circle, and all are named.
std::set<int> ends_of_chains(const std::set<int>& awaited, const std::set<int>& waiting) {
  std::set<int> ends;
  std::ranges::set_difference(awaited, waiting, std::inserter(ends, ends.end()));
  return ends.empty() ? awaited : ends;
}

Standing standing(const std::vector<Member>& members, std::uint64_t sequence) {
  Standing all;
  std::set<int> awaited, held;  // `held` are those who wait for somebody
  for (const Member& member : members) {
    const RecordedOperation* at = operation_under_way(*member.communicator);
    if (at != nullptr && at->sequence == sequence) {
      all.waiting.push_back(member);
      all.blamed.insert(at->late.begin(), at->late.end());
      awaited.insert(at->waits_for.begin(), at->waits_for.end());
      if (!at->waits_for.empty()) {
        held.insert(member.world());
      }
    } else if (member.communicator->posted <= sequence) {
      all.late.push_back(member);
    } else if (at != nullptr && at->sequence < sequence) {
      all.behind.push_back(member);
    } else if (member.communicator->ended > sequence) {
      all.through.insert(member.world());
    }
  }
  // What a rank says of others is up to 100 ms old: whoever is through now holds up nobody.
  std::erase_if(awaited, [&](int rank) { return all.through.contains(rank); });
  all.stuck = ends_of_chains(awaited, held);
  return all;
}

std::string ranks_of(const std::vector<Member>& members) {
  std::vector<int> ranks;
  for (const Member& member : members) {
    ranks.push_back(member.world());
  }
  std::ranges::sort(ranks);
  return ranks_text(ranks);
}

void explain_operation(const Key& key, const std::vector<Member>& members, std::uint64_t sequence,
                       Findings& findings) {
  const Standing all = standing(members, sequence);
  const std::string& name = members.front().communicator->name;
  const RecordedOperation& call = *find(all.waiting.front(), sequence);
  // Only a rank with a thread in a wait can be part of a circle: one that computes may yet call
  // what another waits for.
  const std::vector<Member> none;
  double longest = 0;
  for (const Member& member : all.waiting) {
    const RecordedOperation& own = *find(member, sequence);
    longest =
        std::max(longest, waited(member, own.started != 0 ? own.started : own.posted, own.ended));
    for (const auto* others : {&all.late, &all.behind}) {
      for (const Member& other : member.record->waiting_threads == 0 ? none : *others) {
        findings.edges[member.world()].insert(
            {other.world(), text("in operation ", sequence, " of ", name, " (", own.call, ")")});
      }
    }
  }
  std::string line = text(name, ", operation ", sequence, ": ", ranks_of(all.waiting),
                          all.waiting.size() == 1 ? " waits in " : " wait in ", call.call,
                          " since ", seconds_text(longest));
  for (const Member& member : all.late) {
    line += text("; rank ", member.world(), " is late: ", last_call(member), elsewhere(member));
  }
  for (const Member& member : all.behind) {
    const RecordedOperation& at = *operation_under_way(*member.communicator);
    line += text("; rank ", member.world(), " is behind, in operation ", at.sequence, " (", at.call,
                 ")");
  }
  std::vector<int> unseen_late, unseen, stuck;
  for (const int world : std::get<2>(key)) {
    const bool seen = std::ranges::find(members, world, &Member::world) != members.end();
    if (!seen) {
      (all.blamed.contains(world) ? unseen_late : unseen).push_back(world);
    }
    if (all.stuck.contains(world)) {
      stuck.push_back(world);
    }
  }
  if (!unseen_late.empty()) {
    line += text("; they say that ", ranks_text(unseen_late),
                 unseen_late.size() == 1 ? " has" : " have", " not called it");
  }
  if (all.late.empty() && all.behind.empty() && unseen_late.empty()) {
    line += unseen.empty() ? "; every rank has called it" : "";
    line += stuck.empty() ? "" : text("; they wait for ", ranks_text(stuck), " to go on in it");
  }
  if (!all.through.empty()) {
    line += text("; ", ranks_text({all.through.begin(), all.through.end()}),
                 all.through.size() == 1 ? " is" : " are", " through");
  }
  findings.waits.push_back(std::move(line));
}

std::string message_text(const RecordedMessage& one) {
  return text(one.sends ? "send to " : "recv from ",
              one.peer < 0 ? "any rank" : text("rank ", one.peer), " with tag ", one.tag);
}

void explain_messages(const std::vector<Member>& members, Findings& findings) {
  for (const Member& member : members) {
    for (const RecordedMessage& one : member.communicator->messages) {
      if (one.state == State::done) {
        continue;
      }
      const std::string& name = member.communicator->name;
      std::string line =
          text(name, ": rank ", member.communicator->rank, " waits in ", message_text(one), " (",
               one.bytes, " bytes) since ", seconds_text(waited(member, one.posted, one.ended)));
      const auto peer = std::ranges::find_if(
          members, [&](const Member& other) { return other.communicator->rank == one.peer; });
      if (peer != members.end()) {
        const bool both = std::ranges::any_of(peer->communicator->messages, [&](const auto& its) {
          return its.sends != one.sends && its.tag == one.tag && its.state != State::done &&
                 (its.peer == member.communicator->rank || its.peer < 0);
        });
        // If both sides have called it, neither waits for the other to act: the message is on its
        // way.
        if (!both && member.record->waiting_threads != 0) {
          findings.edges[member.world()].insert(
              {peer->world(), text("in ", message_text(one), " on ", name)});
        }
        line += both ? "; both sides have called it"
                     : text("; rank ", one.peer, " has no ", one.sends ? "recv" : "send",
                            " for it under way", elsewhere(*peer));
      }
      findings.messages.push_back(std::move(line));
    }
  }
}

/// The shortest way from `start` back to it, as the ranks on it; empty if there is none.
std::vector<int> circle_through(int start, const Waits& edges) {
  std::map<int, int> from;
  std::vector<int> frontier = {start};
  for (std::size_t next = 0; next < frontier.size(); ++next) {
    const auto out = edges.find(frontier[next]);
    if (out == edges.end()) {
      continue;
    }
    for (const Edge& edge : out->second) {
      if (!from.emplace(edge.to, frontier[next]).second) {
        continue;
      }
      if (edge.to != start) {
        frontier.push_back(edge.to);
        continue;
      }
      std::vector<int> circle;
      for (int rank = from[start]; rank != start; rank = from[rank]) {
        circle.push_back(rank);
      }
      circle.push_back(start);
      std::ranges::reverse(circle);
      return circle;
    }
  }
  return {};
}

void explain_circles(Findings& findings) {
  for (const auto& [start, out] : findings.edges) {
    const std::vector<int> circle = circle_through(start, findings.edges);
    if (circle.empty() || *std::ranges::min_element(circle) != start) {
      continue;  // there is none, or it is told from its lowest rank, once
    }
    std::string line = "a circle:";
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const int to = circle[(i + 1) % circle.size()];
      const auto& edges = findings.edges.at(circle[i]);
      const auto edge = std::ranges::find(edges, to, &Edge::to);
      line +=
          text(i == 0 ? " " : "; ", "rank ", circle[i], " waits ", edge->what, " for rank ", to);
    }
    findings.circles.push_back(std::move(line));
  }
}

Groups groups_of(const Job& latest) {
  Groups groups;
  for (const auto& [rank, record] : latest) {
    for (const auto& one : record->communicators) {
      groups[{one.id, one.name, one.world_ranks}].push_back({record, &one});
    }
  }
  return groups;
}

std::vector<std::string> explain_job(const Job& latest) {
  Findings findings;
  std::set<int> missing;
  for (const auto& [key, members] : groups_of(latest)) {
    explain_differences(members, findings);
    std::set<std::uint64_t> sequences;
    for (const Member& member : members) {
      if (const RecordedOperation* at = operation_under_way(*member.communicator)) {
        sequences.insert(at->sequence);
      }
    }
    for (const std::uint64_t sequence : sequences) {
      explain_operation(key, members, sequence, findings);
    }
    explain_messages(members, findings);
    for (const int world : std::get<2>(key)) {
      if (!latest.contains(world)) {
        missing.insert(world);
      }
    }
  }
  explain_circles(findings);
  if (!missing.empty()) {
    findings.missing.push_back(text("no record of ", ranks_text({missing.begin(), missing.end()})));
  }
  std::vector<std::string> lines;
  for (auto* part : {&findings.differences, &findings.circles, &findings.waits, &findings.messages,
                     &findings.missing}) {
    std::ranges::move(*part, std::back_inserter(lines));
  }
  return lines;
}

}  // namespace

std::vector<std::string> explain(std::span<const FlightRecord> records) {
  std::map<std::string, Job> jobs;
  for (const FlightRecord& record : records) {
    const FlightRecord*& kept = jobs[record.job][record.rank];
    // Of a rank with several records, as from a file and from its process, the latest counts.
    kept = kept == nullptr || kept->taken < record.taken ? &record : kept;
  }
  std::vector<std::string> all;
  for (const auto& [job, latest] : jobs) {
    for (const std::string& line : explain_job(latest)) {
      all.push_back(jobs.size() == 1 ? line : text("job ", job, ": ", line));
    }
  }
  return all;
}

}  // namespace sprat::collectives
