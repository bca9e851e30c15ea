// Plans of the backward pass: pairs of chunks in any order, and gradients of keys and values that
// find their way to the chunk's owner.
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "mp/context/chunks.hpp"
#include "mp/context/plan_builder.hpp"

namespace sprat::mp::context {
namespace {

/// The rank's own pairs: no message is needed for them.
void attend_own(PlanBuilder& out, const std::array<int, 2>& gradients) {
  const std::array<int, 2> own = chunks_of(out.plan.rank, out.plan.ranks);
  out.attend(own[0], {.chunk = own[0], .gradients = gradients[0]});
  out.attend(own[1], {.chunk = own[0], .gradients = gradients[0]});
  out.attend(own[1], {.chunk = own[1], .gradients = gradients[1]});
}

/// A foreign chunk and what this rank computes with it.
struct Share {
  int chunk = 0;
  std::vector<int> queries;
};

/// Two pairs of chunks for each other rank, in the order of the ring.
std::vector<Share> ring_shares(int ranks, int rank) {
  const std::array<int, 2> own = chunks_of(rank, ranks);
  std::vector<Share> shares;
  for (int step = 1; step < ranks; ++step) {
    const int other = (rank - step + ranks) % ranks;
    if (other < rank) {
      shares.push_back({other, {own[0], own[1]}});
    } else {
      shares.push_back({other, {own[1]}});
      shares.push_back({chunks_of(other, ranks)[1], {own[1]}});
    }
  }
  return shares;
}

/// What other ranks have summed of a chunk's gradients so far, and where it is added.
struct Arrival {
  int chunk = 0, peer = 0, to = 0;
  Started receive = {};
};

class RingBackward {
 public:
  RingBackward(int ranks, int rank)
      : out_(ranks, rank), own_(chunks_of(rank, ranks)), shares_(ring_shares(ranks, rank)) {
    out_.plan.key_places = 2 + (shares_.empty() ? 0 : key_slots);
    out_.plan.gradient_places = 2 + (shares_.empty() ? 0 : share_slots + arrival_slots);
    list_arrivals();
    keys_.resize(shares_.size());
    key_sends_.resize(shares_.size());
    gradient_sends_.resize(shares_.size());
  }

  Plan make() {
    std::array<Started, 2> own_sends;
    for (std::size_t i = 0; i < 2; ++i) {
      out_.add({.op = Op::clear, .content = Content::gradients, .place = int(i)});
      own_sends[i] = send_keys(own_[i], int(i));
    }
    for (std::size_t i = 0; i < key_slots; ++i) {
      receive_keys(i);
    }
    for (std::size_t i = 0; i < arrival_slots; ++i) {
      receive_gradients(i);
    }
    attend_own(out_, {0, 1});
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      compute(i);
    }
    while (next_arrival_ < arrivals_.size()) {
      add_arrival();
    }
    for (auto* sends : {&key_sends_, &gradient_sends_}) {
      for (Started& send : *sends) {
        out_.finish(send);
      }
    }
    for (Started& send : own_sends) {
      out_.finish(send);
    }
    return std::move(out_.plan);
  }

 private:
  // K and V: those that are on to the next rank, those that are computed with, those that come.
  static constexpr int key_slots = 3;
  // Gradients: two shares, one computed while the other is sent, and what others have summed of the
  // next two chunks, since a step has up to two.
  static constexpr int share_slots = 2, arrival_slots = 2;

  int key_place(std::size_t share) const { return 2 + int(share) % key_slots; }
  int share_place(std::size_t share) const { return 2 + int(share) % share_slots; }
  int arrival_place(std::size_t arrival) const {
    return 2 + share_slots + int(arrival) % arrival_slots;
  }
  Route route(int chunk) const { return ring_route(chunk, out_.plan.ranks); }
  int rank() const { return out_.plan.rank; }

  /// Those of each share, in their order, then the whole sums of this rank's own chunks.
  void list_arrivals() {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      const int before = route(shares_[i].chunk).before(rank());
      if (before >= 0) {
        arrivals_.push_back({.chunk = shares_[i].chunk, .peer = before, .to = share_place(i)});
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<int> others = route(own_[i]).ranks;
      if (!others.empty()) {
        arrivals_.push_back({.chunk = own_[i], .peer = others.back(), .to = int(i)});
      }
    }
  }

  Started send_keys(int chunk, int place) {
    const std::vector<int> others = route(chunk).ranks;
    const bool mine = owner_of(chunk, out_.plan.ranks) == rank();
    const int first = others.empty() ? -1 : others.front();
    const int to = mine ? first : route(chunk).behind(rank());
    if (to < 0) {
      return {};
    }
    return out_.start({.op = Op::send, .chunk = chunk, .place = place, .peer = to});
  }

  void receive_keys(std::size_t share) {
    if (share < shares_.size()) {
      const int chunk = shares_[share].chunk, before = route(chunk).before(rank());
      keys_[share] = out_.start({.op = Op::receive,
                                 .chunk = chunk,
                                 .place = key_place(share),
                                 .peer = before < 0 ? owner_of(chunk, out_.plan.ranks) : before});
    }
  }

  void receive_gradients(std::size_t arrival) {
    if (arrival < arrivals_.size()) {
      Arrival& one = arrivals_[arrival];
      one.receive = out_.start({.op = Op::receive,
                                .content = Content::gradients,
                                .chunk = one.chunk,
                                .place = arrival_place(arrival),
                                .peer = one.peer});
    }
  }

  void add_arrival() {
    Arrival& one = arrivals_[next_arrival_];
    out_.finish(one.receive);
    out_.add({.op = Op::add,
              .content = Content::gradients,
              .chunk = one.chunk,
              .place = one.to,
              .from = arrival_place(next_arrival_)});
    receive_gradients(next_arrival_ + arrival_slots);
    ++next_arrival_;
  }

  void compute(std::size_t i) {
    const Share& share = shares_[i];
    out_.finish(keys_[i]);
    key_sends_[i] = send_keys(share.chunk, key_place(i));
    if (i + 1 >= key_slots) {
      out_.finish(key_sends_[i + 1 - key_slots]);
      receive_keys(i + 1);
    }
    if (i >= share_slots) {
      out_.finish(gradient_sends_[i - share_slots]);
    }
    out_.add({.op = Op::clear, .content = Content::gradients, .place = share_place(i)});
    for (const int query : share.queries) {
      out_.attend(query,
                  {.chunk = share.chunk, .place = key_place(i), .gradients = share_place(i)});
    }
    const Route around = route(share.chunk);
    if (around.before(rank()) >= 0) {
      add_arrival();
    }
    const int behind = around.behind(rank());
    gradient_sends_[i] =
        out_.start({.op = Op::send,
                    .content = Content::gradients,
                    .chunk = share.chunk,
                    .place = share_place(i),
                    .peer = behind < 0 ? owner_of(share.chunk, out_.plan.ranks) : behind});
  }

  PlanBuilder out_;
  std::array<int, 2> own_;
  std::vector<Share> shares_;
  std::vector<Arrival> arrivals_;
  std::size_t next_arrival_ = 0;
  std::vector<Started> keys_, key_sends_, gradient_sends_;  // by share
};

/// Foreign chunks from `first` to before `end`, with every chunk of queries that is not before
/// them.
void attend_gathered(PlanBuilder& out, int first, int end) {
  const int ranks = out.plan.ranks;
  for (int chunk = first; chunk < end; ++chunk) {
    for (const int query : chunks_of(out.plan.rank, ranks)) {
      if (query > chunk && owner_of(chunk, ranks) != out.plan.rank) {
        const int place = gathered_place(chunk, ranks);
        out.attend(query, {.chunk = chunk, .place = place, .gradients = place});
      }
    }
  }
}

Plan gathered_backward(int ranks, int rank) {
  PlanBuilder out(ranks, rank);
  out.place_halves();
  out.plan.gradient_places = chunk_count(ranks);
  Started upper = out.start({.op = Op::gather, .chunk = ranks});
  Started lower = out.start({.op = Op::gather, .chunk = 0});
  for (int place = 0; place < out.plan.gradient_places; ++place) {
    out.add({.op = Op::clear, .content = Content::gradients, .place = place});
  }
  attend_own(out, {out.plan.own_gradients[0], out.plan.own_gradients[1]});
  out.finish(upper);
  attend_gathered(out, ranks, chunk_count(ranks));
  Started upper_sum =
      out.start({.op = Op::reduce_scatter, .content = Content::gradients, .chunk = ranks});
  out.finish(lower);
  attend_gathered(out, 0, ranks);
  Started lower_sum =
      out.start({.op = Op::reduce_scatter, .content = Content::gradients, .chunk = 0});
  out.finish(upper_sum);
  out.finish(lower_sum);
  return std::move(out.plan);
}

}  // namespace

Plan plan_backward(Way way, int ranks, int rank) {
  return way == Way::p2p ? RingBackward(ranks, rank).make() : gathered_backward(ranks, rank);
}

}  // namespace sprat::mp::context
