// Eager calls: what a plan becomes, and how blocking calls that are made again take that way.
#include "collectives/engine/eager_plan.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "collectives/engine/history.hpp"
#include "collectives/plan/planner.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/collectives/plan/problem_table.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_bytes = 4096;

/// Two elements a block, so that offsets matter.
Problem eager_problem(Collective collective, int ranks, int rank, int hosts = 1) {
  Problem problem;
  problem.collective = collective;
  problem.rank = rank;
  std::vector<int> host_of(static_cast<std::size_t>(ranks));
  for (int one = 0; one < ranks; ++one) {
    host_of[static_cast<std::size_t>(one)] = one % hosts;
  }
  problem.grouping = std::make_shared<const Grouping>(host_of);
  problem.count = collective == Collective::barrier ? 0 : 2;
  problem.input = problem.output = DType::i32;
  problem.root = ranks - 1;
  return problem;
}

/// What a rank contributes at an index of its input.
std::int32_t value(int rank, std::size_t index) {
  return 100 * rank + static_cast<std::int32_t>(index);
}

std::vector<std::int32_t> given_by(const Problem& problem, int rank) {
  std::vector<std::int32_t> input(elements_of(problem, Buffer::input, rank));
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = value(rank, i);
  }
  return input;
}

std::int32_t expected_value(const Problem& problem, std::size_t index) {
  const int block = static_cast<int>(index / problem.count), ranks = problem.ranks();
  const std::size_t within = index % problem.count;
  const auto sum = [&](std::size_t at) {
    std::int32_t total = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      total += value(rank, at);
    }
    return total;
  };
  const std::size_t mine = static_cast<std::size_t>(problem.rank) * problem.count;
  switch (problem.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return sum(index);
    case Collective::reduce_scatter:
      return sum(mine + index);
    case Collective::all_gather:
    case Collective::gather:
      return value(block, within);
    case Collective::all_to_all:
      return value(block, mine + within);
    case Collective::broadcast:
      return value(problem.root, index);
    case Collective::scatter:
      return value(problem.root, mine + index);
    default:
      return 0;
  }
}

const Collective regular[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::all_to_all, Collective::broadcast,      Collective::reduce,
    Collective::gather,     Collective::scatter,        Collective::barrier};

EagerPlan eager_plan_for(const Problem& problem) {
  const Rules rules = rules_of({});
  return eager_plan_of(problem, make_plan(problem, choose(problem, rules)), most_bytes);
}

TEST(EagerPlan, does_what_the_collective_promises) {
  for (const Collective collective : regular) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Problem problem = eager_problem(collective, ranks, rank);
        const EagerPlan eager = eager_plan_for(problem);
        ASSERT_TRUE(eager.fits) << name(collective) << " of " << ranks;
        std::vector<std::vector<std::int32_t>> inputs;
        std::vector<const std::byte*> shown(static_cast<std::size_t>(ranks));
        for (int one = 0; one < ranks; ++one) {
          inputs.push_back(given_by(problem, one));
        }
        const auto show = [&](int one) {
          const auto at = static_cast<std::size_t>(one);
          shown[at] = reinterpret_cast<const std::byte*>(inputs[at].data());
        };
        show(rank);
        for (const EagerPlan::Peer& peer : eager.reads) {  // no other may be touched
          show(peer.rank);
          EXPECT_EQ(peer.input_bytes, inputs[static_cast<std::size_t>(peer.rank)].size() * 4);
        }
        std::vector<std::int32_t> output(elements_of(problem, Buffer::output, rank), -1);
        if (collective == Collective::broadcast && rank == problem.root) {
          output = given_by(problem, rank);
        }
        std::vector<Term> terms;
        finish(eager, arithmetic_of(problem), shown, reinterpret_cast<std::byte*>(output.data()),
               terms);
        for (std::size_t i = 0; i < output.size(); ++i) {
          ASSERT_EQ(output[i], expected_value(problem, i))
              << name(collective) << " of " << ranks << ", rank " << rank << ", element " << i;
        }
      }
    }
  }
}

TEST(EagerPlan, fits_neither_long_inputs_nor_several_hosts) {
  for (const Collective collective : regular) {
    if (collective == Collective::barrier) {
      continue;
    }
    Problem problem = eager_problem(collective, 2, 0);
    problem.root = 0;
    problem.count = most_bytes;
    if (elements_of(problem, Buffer::input, 0) > 0) {
      EXPECT_FALSE(eager_plan_for(problem).fits) << name(collective);
    }
    EXPECT_FALSE(eager_plan_for(eager_problem(collective, 4, 0, 2)).fits) << name(collective);
  }
}

TEST(History, remembers_all_in_flight_and_tells_what_came_before_unheard) {
  History history;
  const Signature barrier;
  Signature cast = barrier;
  cast.collective = Collective::broadcast;
  cast.count = 3;
  for (int i = 0; i < 1000; ++i) {
    history.add(barrier, 0, nullptr, 0);
  }
  EXPECT_EQ(history.words(0), "barrier");
  EXPECT_FALSE(history.remembers(1000));
  history.add(cast, 0, nullptr, 1000);
  history.add(barrier, digest(cast), nullptr, 1001);
  EXPECT_EQ(history.words(1001), "barrier after broadcast of 3 f32, root 0");
  for (int i = 0; i < 5000; ++i) {
    history.add(barrier, 0, nullptr, history.next());
  }
  EXPECT_FALSE(history.remembers(0));
}

/// Calls made again and again, blocking or not, each rank late at times: every way into and out of
/// an eager call.
TEST(EagerCallsOfRanks, are_right_whoever_is_late) {
  constexpr int ranks = 3, rounds = 60;
  run_virtual_ranks(ranks, Config{}, [](Communicator& world) {
    for (int round = 0; round < rounds; ++round) {
      if (round % ranks == world.rank() && round % 5 == 0) {
        std::this_thread::sleep_for(4ms);
      }
      const Options options{.timeout = {}, .blocking = (round / 7 + world.rank()) % 2 == 0};
      std::vector<int> data(4, round + world.rank());
      world.all_reduce(elements(data), ReduceOp::sum, options).wait();
      EXPECT_EQ(data, std::vector<int>(4, 3 * round + 3)) << "round " << round;
      std::vector<int> all(3);
      world.all_gather(elements(std::span(data).first(1)), elements(all), options).wait();
      EXPECT_EQ(all, std::vector<int>(3, 3 * round + 3)) << "round " << round;
      const int root = round % ranks;
      int word = world.rank() == root ? round : -1;
      world.broadcast(elements(std::span(&word, 1)), root, options).wait();
      EXPECT_EQ(word, round);
      // The root's input is too long for its announcement from 3 ranks on, the others have none.
      std::vector<double> whole(world.rank() == root ? 3 * 200 : 0, round), part(200);
      world.scatter(elements(whole), elements(part), root, options).wait();
      EXPECT_EQ(part.back(), round);
      world.barrier();
    }
  });
}

TEST(EagerCallsOfRanks, give_way_to_operations_of_other_communicators) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    Communicator other = *world.split(0);
    std::vector<float> large(1 << 20, 1);
    for (int round = 0; round < 20; ++round) {
      std::fill(large.begin(), large.end(), 1.0f);
      Work work = other.all_reduce(elements(large));
      float small = 1;
      world.all_reduce(elements(std::span(&small, 1)), ReduceOp::sum,
                       {.timeout = {}, .blocking = true});
      work.wait();
      EXPECT_EQ(small, 2);
      EXPECT_EQ(large.back(), 2);
    }
  });
}

}  // namespace
}  // namespace sprat::collectives
