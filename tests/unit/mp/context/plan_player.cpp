#include "tests/unit/mp/context/plan_player.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/base/check.hpp"
#include "mp/context/chunks.hpp"
#include "mp/context/plan_builder.hpp"

namespace sprat::mp::context {
namespace {

/// A chunk of queries and one of keys.
using Pair = std::pair<int, int>;

/// Memory for a chunk: the keys of which one, or whose share of which gradients.
struct PlayedPlace {
  int chunk = -1;
  std::optional<std::set<Pair>> gradients;  // nothing: never cleared nor received
  int readers = 0, writers = 0;             // started, and not waited for
};

struct PlayedRank {
  std::vector<PlayedPlace> keys, gradients;
  std::size_t next = 0;
  std::vector<bool> done, finished;  // by action
  std::map<int, int> reached;        // by chunk of queries: chunks of keys so far
};

class Player {
 public:
  Player(const std::vector<Plan>& plans, Pass pass) : plans_(plans), pass_(pass) {
    for (const Plan& plan : plans) {
      PlayedRank rank;
      rank.keys.resize(std::size_t(plan.key_places));
      rank.gradients.resize(std::size_t(plan.gradient_places));
      rank.done.assign(plan.actions.size(), false);
      rank.finished = rank.done;
      for (int half = 0; half < 2; ++half) {
        rank.keys[std::size_t(plan.own_keys[half])].chunk =
            chunks_of(plan.rank, plan.ranks)[std::size_t(half)];
      }
      ranks_.push_back(std::move(rank));
    }
  }

  std::vector<std::string> play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (may_go_on(rank)) {
          act(int(rank), ranks_[rank].next++);
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      end(rank);
    }
    for (int key = 0; key < chunk_count(int(ranks_.size())); ++key) {
      for (int query = key; query < chunk_count(int(ranks_.size())); ++query) {
        if (pairs_.count({query, key}) == 0) {
          fault("queries ", query, " never look at keys ", key);
        }
      }
    }
    return std::move(faults_);
  }

 private:
  template <class... Args>
  void fault(const Args&... args) {
    faults_.push_back(text(args...));
  }
  const std::vector<Action>& actions(std::size_t rank) const { return plans_[rank].actions; }

  bool may_go_on(std::size_t rank) const {
    const PlayedRank& one = ranks_[rank];
    if (one.next == actions(rank).size()) {
      return false;
    }
    const Action& action = actions(rank)[one.next];
    return action.op != Op::finish || one.done[action.started];
  }

  PlayedPlace& place(int rank, const Action& action) {
    PlayedRank& one = ranks_[std::size_t(rank)];
    return (action.content == Content::keys ? one.keys : one.gradients)[std::size_t(action.place)];
  }

  void act(int rank, std::size_t at) {
    const Action& action = actions(std::size_t(rank))[at];
    switch (action.op) {
      case Op::send:
        require_quiet(rank, action, place(rank, action).writers);
        ++place(rank, action).readers;
        match(rank, at);
        break;
      case Op::receive:
        require_quiet(rank, action, place(rank, action).writers + place(rank, action).readers);
        ++place(rank, action).writers;
        match(rank, at);
        break;
      case Op::gather:
      case Op::reduce_scatter:
        start_collective(rank, at);
        break;
      case Op::finish:
        finish(rank, action.started);
        break;
      case Op::clear:
        require_quiet(rank, action, place(rank, action).writers + place(rank, action).readers);
        place(rank, action).gradients.emplace();
        break;
      case Op::attend:
        attend(rank, action);
        break;
      case Op::add:
        add(rank, action);
        break;
    }
  }

  void require_quiet(int rank, const Action& action, int users) {
    if (users != 0) {
      fault("rank ", rank, " uses place ", action.place, " while a message does");
    }
  }

  /// Both ends have started: the message is there.
  void match(int rank, std::size_t at) {
    const Action& mine = actions(std::size_t(rank))[at];
    const auto other = std::size_t(mine.peer);
    for (std::size_t there = 0; there < ranks_[other].next; ++there) {
      const Action& theirs = actions(other)[there];
      const Op wanted = mine.op == Op::send ? Op::receive : Op::send;
      if (theirs.op == wanted && theirs.peer == rank && theirs.chunk == mine.chunk &&
          theirs.content == mine.content && !ranks_[other].done[there]) {
        const bool sends = mine.op == Op::send;
        move(sends ? rank : mine.peer, sends ? mine : theirs, sends ? mine.peer : rank,
             sends ? theirs : mine);
        ranks_[std::size_t(rank)].done[at] = ranks_[other].done[there] = true;
        return;
      }
    }
  }

  void move(int from, const Action& send, int to, const Action& receive) {
    const PlayedPlace& source = place(from, send);
    PlayedPlace& target = place(to, receive);
    target.chunk = send.chunk;
    target.gradients = source.gradients;
    if (send.content == Content::keys && source.chunk != send.chunk) {
      fault("rank ", from, " sends chunk ", source.chunk, " as ", send.chunk);
    }
  }

  void start_collective(int rank, std::size_t at) {
    const Action& action = actions(std::size_t(rank))[at];
    // Ranks call the same collectives in the same order.
    auto& begun = collectives_[{int(action.op), action.chunk}];
    begun.push_back({rank, at});
    for (int place = 0; place < int(ranks_.size()); ++place) {
      ++half_place(rank, action, place).writers;
    }
    if (begun.size() < ranks_.size()) {
      return;
    }
    for (const auto& [one, place_of_action] : begun) {
      end_collective(one, actions(std::size_t(one))[place_of_action]);
      ranks_[std::size_t(one)].done[place_of_action] = true;
    }
  }
  PlayedPlace& half_place(int rank, const Action& action, int of_rank) {
    Action there = action;
    const int ranks = int(ranks_.size());
    there.place = gathered_place(chunks_of(of_rank, ranks)[action.chunk < ranks ? 0 : 1], ranks);
    return place(rank, there);
  }
  void end_collective(int rank, const Action& action) {
    for (int other = 0; other < int(ranks_.size()); ++other) {
      if (action.op == Op::gather) {
        half_place(rank, action, other).chunk = half_place(other, action, other).chunk;
      } else if (other != rank) {
        merge(half_place(rank, action, rank), half_place(other, action, rank), rank);
      }
    }
  }

  void finish(int rank, std::size_t started) {
    const Action& action = actions(std::size_t(rank))[started];
    ranks_[std::size_t(rank)].finished[started] = true;
    if (action.op == Op::send) {
      --place(rank, action).readers;
    } else if (action.op == Op::receive) {
      --place(rank, action).writers;
    } else {
      for (int place = 0; place < int(ranks_.size()); ++place) {
        --half_place(rank, action, place).writers;
      }
    }
  }

  void attend(int rank, const Action& action) {
    const int ranks = int(ranks_.size());
    if (owner_of(action.query_chunk, ranks) != rank) {
      fault("rank ", rank, " has no queries ", action.query_chunk);
    }
    if (!pairs_.insert({action.query_chunk, action.chunk}).second) {
      fault("queries ", action.query_chunk, " look at keys ", action.chunk, " twice");
    }
    if (action.place == callers_place
            ? owner_of(action.chunk, ranks) != rank
            : place(rank, action).chunk != action.chunk || place(rank, action).writers != 0) {
      fault("rank ", rank, " computes without keys ", action.chunk);
    }
    if (pass_ == Pass::forward) {
      if (ranks_[std::size_t(rank)].reached[action.query_chunk]++ != action.chunk) {
        fault("queries ", action.query_chunk, " look at keys ", action.chunk, " out of order");
      }
      return;
    }
    PlayedPlace& sums = ranks_[std::size_t(rank)].gradients[std::size_t(action.gradients)];
    if (sums.readers + sums.writers != 0 || !sums.gradients) {
      fault("rank ", rank, " adds to gradients that are not its own to change");
      return;
    }
    sums.gradients->insert({action.query_chunk, action.chunk});
  }

  void add(int rank, const Action& action) {
    Action from = action;
    from.place = action.from;
    PlayedPlace &sum = place(rank, action), &more = place(rank, from);
    if (sum.readers + sum.writers + more.writers != 0) {
      fault("rank ", rank, " adds gradients while a message uses them");
    }
    merge(sum, more, rank);
  }
  void merge(PlayedPlace& sum, const PlayedPlace& more, int rank) {
    if (!sum.gradients || !more.gradients) {
      fault("rank ", rank, " adds gradients that nobody has computed");
      return;
    }
    for (const Pair& pair : *more.gradients) {
      if (!sum.gradients->insert(pair).second) {
        fault("gradients of keys ", pair.second, " have queries ", pair.first, " twice");
      }
    }
  }

  void end(std::size_t rank) {
    const PlayedRank& one = ranks_[rank];
    if (one.next != actions(rank).size()) {
      fault("rank ", rank, " waits for ever at action ", one.next);
      return;
    }
    for (std::size_t at = 0; at < actions(rank).size(); ++at) {
      const Op op = actions(rank)[at].op;
      const bool starts =
          op == Op::send || op == Op::receive || op == Op::gather || op == Op::reduce_scatter;
      if (starts && !one.finished[at]) {
        fault("rank ", rank, " does not wait for action ", at);
      }
    }
    for (int half = 0; half < 2 && pass_ == Pass::backward; ++half) {
      const int ranks = int(ranks_.size());
      const int chunk = chunks_of(int(rank), ranks)[std::size_t(half)];
      std::set<Pair> wanted;
      for (int query = chunk; query < chunk_count(ranks); ++query) {
        wanted.insert({query, chunk});
      }
      if (one.gradients[std::size_t(plans_[rank].own_gradients[half])].gradients != wanted) {
        fault("rank ", rank, " ends without all gradients of keys ", chunk);
      }
    }
  }

  const std::vector<Plan>& plans_;
  Pass pass_;
  std::vector<PlayedRank> ranks_;
  std::set<Pair> pairs_;
  std::map<Pair, std::vector<std::pair<int, std::size_t>>> collectives_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> faults(const std::vector<Plan>& plans, Pass pass) {
  return Player(plans, pass).play();
}

}  // namespace sprat::mp::context
