// What a simulated job does and what happens to it: drawn from a seed, nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "sprat/buffer.hpp"
#include "sprat/reduction.hpp"

namespace sprat::simulation {

enum class What : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  pass,  ///< Everyone sends to the rank `shift` after it and receives from the one before it.
  reduce,
  gather,
  scatter,
  all_gatherv
};
std::string name(What what);

/// One call, as every rank of its communicator makes it.
struct Call {
  What what = What::barrier;
  std::size_t family = 0;    ///< Which of the rank's communicators.
  std::size_t count = 0;     ///< Elements of a block; of uneven ones, what they are drawn from.
  std::uint64_t uneven = 0;  ///< all_gatherv: draws the blocks' lengths.
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0, shift = 1, tag = 0;
  bool in_place = false;
  std::uint64_t shared = 0;  ///< By world rank: its buffers are sprat::Memory.
};

/// Calls posted in order, then waited for in another; or a split.
struct Step {
  bool splits = false;
  std::size_t parent = 0;    ///< The family that splits.
  std::uint64_t colors = 0;  ///< By world rank, one bit.
  std::vector<Call> calls = {};
  std::vector<std::size_t> waits = {};  ///< A permutation of the calls.
  bool blocking = false;
  std::size_t most_in_flight = ~std::size_t{0};  ///< Earlier calls are waited for while posting.
};

/// By world rank, the communicators of one family: equal numbers are one communicator.
using Family = std::vector<int>;

struct Fault {
  enum class Kind : std::uint8_t {
    none,
    kill,    ///< A process dies.
    pause,   ///< A rank stands still, within the deadline.
    stop,    ///< A rank stands still beyond the deadline, then goes on.
    absent,  ///< A rank stays away from a step.
    differ,  ///< A rank calls something else.
    abort    ///< A rank aborts before a step.
  };
  Kind kind = Kind::none;
  int rank = 0;
  int step = -1;             ///< -1: while joining.
  std::size_t family = 0;    ///< Abort: whose communicator.
  std::uint64_t points = 0;  ///< Kill, pause, stop: after so many points of the simulation in it.
  std::chrono::milliseconds duration{0};
};
std::string name(Fault::Kind kind);

struct Scenario {
  std::uint64_t seed = 0;
  int ranks = 1;
  bool processes = true;  ///< Ranks have processes, and wires between hosts; or share one process.
  std::string hosts;      ///< As SPRAT_HOST.
  std::size_t staging_bytes = 0;
  std::chrono::milliseconds timeout{0};
  std::vector<Step> steps;
  std::vector<Family> families;  ///< In the order of the splits; first the world.
  std::size_t first_burst = 0;   ///< The step with which many calls in flight begin; 0: none.
  bool busy = false;             ///< From then on every rank loses its core now and then.
  /// Communicators fail each by itself, and ranks go on with those that are well; otherwise all
  /// that were split of the world fail with it.
  bool alone = false;
  Fault fault;
};

Scenario draw_scenario(std::uint64_t seed);
/// The call that the fault's rank makes instead.
Call other_call(const Scenario& scenario, const Call& call);
/// The call that differs, of the fault's step.
std::size_t differing_call(const Scenario& scenario);
/// The call as a communicator of so many ranks makes it.
Call fitted(Call call, int size);
/// Elements of each block of an all_gatherv of so many ranks: some have none, some as many as
/// windows of others end before.
std::vector<std::size_t> block_counts(const Call& call, std::size_t ranks);
std::vector<int> members(const Family& family, int world_rank);
/// Whether the fault may fail a rank's communicator of a family: it hits it, or one that it was to
/// be split of.
bool may_fail(const Scenario& scenario, int rank, std::size_t family);
/// For people: "seed 7: 3 ranks on a,a,b, kill of rank 2 in step 4".
std::string describe(const Scenario& scenario);
/// The words of a call in errors: "all_reduce of 12 f32".
std::string words(const Call& call);

}  // namespace sprat::simulation
