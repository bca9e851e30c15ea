// What one rank does for one attention over a cut sequence: pairs of chunks that it computes, and
// which message goes when. A value; whoever carries it out has memory and a communicator.
//
// p2p forward. Chunks of K and V go from their owner to rank 0 and then upwards, from rank to rank,
// each as soon as it came. Rank r takes two chunks of queries through the first r + 1 chunks of
// keys and one through the others, so lower ranks are ahead and who needs a chunk last has it last.
// A rank has the chunk it computes with and the next, which comes meanwhile.
//
// p2p backward. Every step has the same work on all ranks if rank r takes the chunks of rank r - 1,
// then those of r - 2, and so on around the ring: the K and V of a chunk go round, and its gradient
// follows one step behind, growing by each rank's share, to the owner. A rank adds what came to its
// own share when that is computed, so messages have a whole step to arrive.
//
// all_gather. K and V of the lower chunks, then of the upper ones, each half in one collective; the
// upper half comes while the lower one is computed with. Backward takes what is its own first, then
// the upper half, whose gradients are reduced and scattered while the lower one is computed.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace sprat::mp::context {

/// How keys and values come to the ranks that need them: SMP's cp_comm_type.
enum class Way { p2p, all_gather };
bool is_way(std::string_view name);
/// Throws Error{invalid_argument} naming those there are.
Way way_named(std::string_view name);
std::string_view name(Way way);

/// What lies at a place, and what a message carries: of one chunk, K and V, or their gradients.
enum class Content { keys, gradients };

enum class Op {
  send,            ///< Starts to send what lies at `place` to `peer`.
  receive,         ///< Starts to receive into `place` from `peer`.
  gather,          ///< Starts to gather the half of all chunks that `chunk` belongs to.
  reduce_scatter,  ///< Starts to sum gradients of such a half over ranks, each one's at its place.
  finish,          ///< Waits for the action number `started`.
  clear,           ///< Gradients at `place` are 0.
  attend,          ///< Computes `query_chunk` with the keys of `chunk`, which lie at `place`.
  add,             ///< Gradients at `from` are added to those at `place`.
};

/// K and V of a rank's own chunks are read where its caller has them.
inline constexpr int callers_place = -1;

struct Action {
  Op op{};
  Content content = Content::keys;
  int chunk = -1;
  int query_chunk = -1;
  int place = callers_place;
  int from = callers_place;
  int gradients = callers_place;  ///< Of attend in a backward: where those of the chunk lie.
  int peer = -1;
  std::size_t started = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

/// Places are numbers of chunk-sized memory, of K and V and of gradients apart. Those of the rank's
/// own chunks are `own_keys` and `own_gradients`: whoever carries the plan out copies K and V there
/// before it starts, and finds the gradients there when it has ended.
struct Plan {
  int ranks = 1, rank = 0;
  int key_places = 0, gradient_places = 0;
  int own_keys[2] = {0, 1};
  int own_gradients[2] = {0, 1};
  std::vector<Action> actions;
};

Plan plan_forward(Way way, int ranks, int rank);
Plan plan_backward(Way way, int ranks, int rank);

/// Chunks that come from other ranks: in a message, or by a collective.
struct Traffic {
  std::size_t keys = 0, gradients = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
Traffic received(const Plan& plan);

}  // namespace sprat::mp::context
