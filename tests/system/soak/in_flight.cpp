// Thousands of calls in flight at once, roots taking turns, every result checked:
//   test_in_flight CALLS [VIRTUAL_RANKS]
// Without VIRTUAL_RANKS it joins the job it was launched in. Ends with 0 if nothing was wrong.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using Values = std::vector<std::int32_t>;

/// What `rank` gives to call `number`.
std::int32_t value(int number, int rank) { return 1'000 * number + 7 * rank + 1; }

/// A call with buffers of its own, and what its output must be.
struct Call {
  Values in, out, expected;
  sprat::Work work;
};

void gather(sprat::Communicator& ranks, int number, bool everywhere, Call& call) {
  const int root = number % ranks.size();
  call.in = {value(number, ranks.rank())};
  if (everywhere || ranks.rank() == root) {
    call.out.resize(static_cast<std::size_t>(ranks.size()));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      call.expected.push_back(value(number, rank));
    }
  }
  call.work = everywhere ? ranks.all_gather(sprat::elements(call.in), sprat::elements(call.out))
                         : ranks.gather(sprat::elements(call.in), sprat::elements(call.out), root);
}

void reduce(sprat::Communicator& ranks, int number, Call& call) {
  const int root = number % ranks.size();
  call.in = {value(number, ranks.rank())};
  if (ranks.rank() == root) {
    call.out.resize(1);
    call.expected = {0};
    for (int rank = 0; rank < ranks.size(); ++rank) {
      call.expected[0] += value(number, rank);
    }
  }
  call.work = ranks.reduce(sprat::elements(call.in), sprat::elements(call.out), root);
}

void scatter(sprat::Communicator& ranks, int number, Call& call) {
  const int root = number % ranks.size();
  for (int rank = 0; rank < ranks.size() && ranks.rank() == root; ++rank) {
    call.in.push_back(value(number, rank));
  }
  call.out.resize(1);
  call.expected = {value(number, ranks.rank())};
  call.work = ranks.scatter(sprat::elements(call.in), sprat::elements(call.out), root);
}

void run(sprat::Communicator& ranks, int calls) {
  const std::vector<std::function<void(int, Call&)>> kinds = {
      [&](int number, Call& call) { gather(ranks, number, false, call); },
      [&](int number, Call& call) { gather(ranks, number, true, call); },
      [&](int number, Call& call) { reduce(ranks, number, call); },
      [&](int number, Call& call) { scatter(ranks, number, call); }};
  for (const auto& start : kinds) {
    std::vector<Call> all(static_cast<std::size_t>(calls));
    for (int number = 0; number < calls; ++number) {
      start(number, all[static_cast<std::size_t>(number)]);
    }
    for (Call& call : all) {
      call.work.wait();
      if (call.out != call.expected) {
        throw std::runtime_error("a wrong result on rank " + std::to_string(ranks.rank()));
      }
    }
  }
  ranks.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 0;
  if (calls < 1) {
    std::fprintf(stderr, "usage: test_in_flight CALLS [VIRTUAL_RANKS]\n");
    return 2;
  }
  try {
    if (argc > 2) {
      sprat::run_virtual_ranks(std::atoi(argv[2]), sprat::Config{},
                               [&](sprat::Communicator& ranks) { run(ranks, calls); });
    } else {
      sprat::Communicator ranks = sprat::Communicator::join();
      run(ranks, calls);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
