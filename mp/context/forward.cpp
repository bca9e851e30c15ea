// Plans of the forward pass: chunks of keys in ascending order, each with the rank's chunks of
// queries that are not before it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "mp/context/chunks.hpp"
#include "mp/context/plan_builder.hpp"

namespace sprat::mp::context {
namespace {

/// A place that foreign chunks take in turns.
struct Slot {
  int place = 0;
  int chunk = -1;  // none yet
  Started receive = {}, send = {};
};

class RelayedForward {
 public:
  RelayedForward(int ranks, int rank) : out_(ranks, rank), own_(chunks_of(rank, ranks)) {
    for (int chunk = 0; chunk < own_[1]; ++chunk) {
      if (chunk != own_[0]) {
        foreign_.push_back(chunk);
      }
    }
    // One chunk is computed with while the next one comes.
    const std::size_t slots = std::min<std::size_t>(foreign_.size(), 2);
    for (std::size_t i = 0; i < slots; ++i) {
      slots_.push_back({.place = 2 + int(i)});
    }
    out_.plan.key_places = 2 + int(slots);
  }

  Plan make() {
    // At once: the first ranks wait for these before they can begin.
    std::array<Started, 2> own_sends;
    for (std::size_t i = 0; i < 2; ++i) {
      own_sends[i] = send_on(own_[i], int(i));
    }
    receive_ahead(0);
    for (int chunk = 0; chunk <= own_[1]; ++chunk) {
      const Action keys = {.chunk = chunk, .place = take(chunk)};
      receive_ahead(chunk);
      for (const int query : own_) {
        if (query >= chunk) {
          out_.attend(query, keys);
        }
      }
    }
    for (Slot& slot : slots_) {
      out_.finish(slot.send);
    }
    for (Started& send : own_sends) {
      out_.finish(send);
    }
    return std::move(out_.plan);
  }

 private:
  /// Waits for a foreign chunk and hands it on; where it lies.
  int take(int chunk) {
    const auto slot = std::ranges::find(slots_, chunk, &Slot::chunk);
    if (slot == slots_.end()) {
      return callers_place;
    }
    out_.finish(slot->receive);
    slot->send = send_on(chunk, slot->place);
    return slot->place;
  }

  Started send_on(int chunk, int place) {
    const Route route = rising_route(chunk, out_.plan.ranks);
    const bool mine = owner_of(chunk, out_.plan.ranks) == out_.plan.rank;
    const int first = route.ranks.empty() ? -1 : route.ranks.front();
    const int to = mine ? first : route.behind(out_.plan.rank);
    if (to < 0) {
      return {};
    }
    return out_.start({.op = Op::send, .chunk = chunk, .place = place, .peer = to});
  }

  /// The slots of chunks before `chunk` take the next ones.
  void receive_ahead(int chunk) {
    for (Slot& slot : slots_) {
      if (slot.chunk >= chunk || next_ == foreign_.size()) {
        continue;
      }
      out_.finish(slot.send);
      slot.chunk = foreign_[next_++];
      const int before = rising_route(slot.chunk, out_.plan.ranks).before(out_.plan.rank);
      slot.receive =
          out_.start({.op = Op::receive,
                      .chunk = slot.chunk,
                      .place = slot.place,
                      .peer = before < 0 ? owner_of(slot.chunk, out_.plan.ranks) : before});
    }
  }

  PlanBuilder out_;
  std::array<int, 2> own_;
  std::vector<int> foreign_;  // in ascending order
  std::size_t next_ = 0;      // of foreign_, to be received
  std::vector<Slot> slots_;
};

Plan gathered_forward(int ranks, int rank) {
  PlanBuilder out(ranks, rank);
  out.place_halves();
  Started lower = out.start({.op = Op::gather, .chunk = 0});
  Started upper = out.start({.op = Op::gather, .chunk = ranks});
  out.finish(lower);
  const std::array<int, 2> own = chunks_of(rank, ranks);
  for (int chunk = 0; chunk <= own[1]; ++chunk) {
    if (chunk == ranks) {
      out.finish(upper);
    }
    for (const int query : own) {
      if (query >= chunk) {
        const bool mine = owner_of(chunk, ranks) == rank;
        out.attend(query,
                   {.chunk = chunk, .place = mine ? callers_place : gathered_place(chunk, ranks)});
      }
    }
  }
  return std::move(out.plan);
}

}  // namespace

Plan plan_forward(Way way, int ranks, int rank) {
  return way == Way::p2p ? RelayedForward(ranks, rank).make() : gathered_forward(ranks, rank);
}

}  // namespace sprat::mp::context
