// Where runs part, and which replica is wrong: from files made by hand.
#include "collectives/digests/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "sprat/error.hpp"
#include "tests/unit/collectives/digests/written_file.hpp"

namespace sprat::collectives::digests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What one rank of one run does.
using Script = std::function<void(WrittenFile& file, int rank)>;

/// A job of files that live as long as it.
class Job {
 public:
  Job(const std::string& name, int size, const Script& script, bool inputs = false) {
    std::vector<const DigestFile*> ranks;
    for (int rank = 0; rank < size; ++rank) {
      files_.push_back(std::make_unique<WrittenFile>(rank, size, inputs));
      script(*files_.back(), rank);
      ranks.push_back(files_.back()->parsed());
    }
    job = job_of(name, size, std::move(ranks));
  }
  JobFiles job;

 private:
  std::vector<std::unique_ptr<WrittenFile>> files_;
};

/// Steps of three calls each, all of four chunks, whose digests say step, call and chunk; `change`
/// may make others of them.
using Change = std::function<void(int rank, int step, int call, bool of_input,
                                  std::vector<std::uint64_t>& digests)>;
Script steps(int number, bool inputs, const Change& change = {}) {
  return [=](WrittenFile& file, int rank) {
    for (int step = 1; step <= number; ++step) {
      file.step = step;
      for (int call = 0; call < 3; ++call) {
        const auto digests_of = [&](bool of_input) {
          std::vector<std::uint64_t> digests;
          for (std::uint64_t chunk = 0; chunk < 4; ++chunk) {
            digests.push_back(static_cast<std::uint64_t>(step * 100 + call * 10) + chunk);
          }
          if (change) {
            change(rank, step, call, of_input, digests);
          }
          return digests;
        };
        file.all_reduce(digests_of(false),
                        inputs ? digests_of(true) : std::vector<std::uint64_t>());
      }
    }
    file.end();
  };
}

TEST(RunComparison, equal_runs_are_equal) {
  const Job a("A", 3, steps(5, false)), b("B", 3, steps(5, false));
  const Comparison compared = compare_runs(a.job, b.job);
  EXPECT_TRUE(compared.equal());
  EXPECT_EQ(compared.calls, 45u);
  EXPECT_THAT(compared.notes, IsEmpty());
}

TEST(RunComparison, names_step_call_and_chunk) {
  const Job a("A", 3, steps(9, false));
  const Job b("B", 3, steps(9, false, [](int, int step, int call, bool, auto& digests) {
                if (step > 4 || (step == 4 && call >= 1)) {
                  digests[2] += 1;
                }
              }));
  const Comparison compared = compare_runs(a.job, b.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::result);
  EXPECT_EQ(compared.first->call.step, 4);
  EXPECT_EQ(compared.first->of_step, 2u);
  EXPECT_THAT(compared.first->ranks, ElementsAre(0, 1, 2));
  EXPECT_EQ(compared.first->range, (Range{.first = 32768, .last = 49151, .chunks = 1, .of = 4}));
  EXPECT_EQ(
      place_text(*compared.first),
      "step 4, all_reduce 2 of the step (operation 10 of world: all_reduce of 65536 f32, sum)");
  EXPECT_EQ(range_text(*compared.first),
            "elements 32,768 to 49,151 of the result; 1 of 4 chunks differs");
  EXPECT_EQ(to_text(compared.first->keep), "world 10");
}

// The rank whose input differs is named, though another rank's result was there before.
TEST(RunComparison, names_whose_input_differed_first) {
  const auto flip = [](int rank, int step, int call, bool of_input, auto& digests) {
    if (step == 2 && call == 1 && (!of_input || rank == 2)) {
      digests[0] += 1;
    }
  };
  Job a("A", 3, steps(3, true), true), b("B", 3, steps(3, true, flip), true);
  const Comparison compared = compare_runs(a.job, b.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::input);
  EXPECT_EQ(compared.first->rank, 2);
  EXPECT_THAT(compared.first->ranks, ElementsAre(2));
  EXPECT_TRUE(compared.first->inputs_known);
}

TEST(RunComparison, a_message_is_named_at_its_receiver_and_its_flip_at_its_sender) {
  const auto script = [](std::uint64_t sent, std::uint64_t received) {
    return [=](WrittenFile& file, int rank) {
      file.step = 1;
      file.now = rank == 0 ? 0 : 10;  // what is received comes later
      if (rank == 0) {
        file.message(CallKind::send, 1, 0, sent);
      } else {
        file.message(CallKind::receive, 0, 0, received);
      }
      file.end();
    };
  };
  const Job a("A", 2, script(5, 5), true);
  const Job in_flight("B", 2, script(5, 6), true), in_buffer("B", 2, script(6, 6), true);
  const Comparison flight = compare_runs(a.job, in_flight.job);
  ASSERT_TRUE(flight.first);
  EXPECT_EQ(flight.first->what, Parting::result);
  EXPECT_EQ(flight.first->rank, 1);
  EXPECT_EQ(to_text(flight.first->keep), "world recv 0 from 0 tag 7");
  const Comparison buffer = compare_runs(a.job, in_buffer.job);
  ASSERT_TRUE(buffer.first);
  EXPECT_EQ(buffer.first->what, Parting::input);
  EXPECT_EQ(buffer.first->rank, 0);
}

TEST(RunComparison, the_earliest_step_counts_whatever_the_clock_says) {
  const auto script = [](bool other) {
    return [=](WrittenFile& file, int rank) {
      for (int step = 1; step <= 2; ++step) {
        file.step = step;
        file.now = rank == 0 ? 100 * step : 10 * step;
        const bool differs = other && (rank == 0 ? step == 1 : step == 2);
        file.collective(Collective::reduce_scatter, {differs ? 2u : 1u});
      }
      file.end();
    };
  };
  const Job a("A", 2, script(false)), b("B", 2, script(true));
  const Comparison compared = compare_runs(a.job, b.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->rank, 0);
  EXPECT_EQ(compared.first->call.step, 1);
  EXPECT_EQ(compared.partings, 2u);
}

TEST(RunComparison, names_the_first_other_call) {
  const auto script = [](Collective second, int calls) {
    return [=](WrittenFile& file, int) {
      file.all_reduce({1});
      if (calls > 1) {
        file.collective(second, {1});
      }
      file.end();
    };
  };
  const Job a("A", 1, script(Collective::broadcast, 2));
  const Job other("B", 1, script(Collective::all_reduce, 2)), fewer("B", 1, script({}, 1));
  const Comparison compared = compare_runs(a.job, other.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::other_call);
  EXPECT_EQ(compared.first->call_words, "broadcast of 16384 f32, root 0");
  EXPECT_EQ(compared.first->other, "all_reduce of 16384 f32, sum");
  const Comparison ends = compare_runs(a.job, fewer.job);
  ASSERT_TRUE(ends.first);
  EXPECT_EQ(ends.first->what, Parting::other_call);
  EXPECT_EQ(ends.first->other, "");
  const Comparison begins = compare_runs(fewer.job, a.job);
  ASSERT_TRUE(begins.first);
  EXPECT_EQ(begins.first->call_words, "");
  EXPECT_EQ(begins.first->other, "broadcast of 16384 f32, root 0");
}

TEST(RunComparison, names_a_communicator_that_one_run_lacks) {
  const Job a("A", 2, [](WrittenFile& file, int) {
    file.group("rows", {0, 1});
    file.end();
  });
  const Job b("B", 2, [](WrittenFile& file, int) { file.end(); });
  const Comparison compared = compare_runs(a.job, b.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::other_call);
  EXPECT_EQ(compared.first->call_words, "making communicator rows of ranks 0, 1");
}

TEST(RunComparison, says_what_it_cannot_know) {
  const Job whole("A", 2, steps(5, false));
  const auto cut = [](WrittenFile& file, int rank) {
    if (rank == 0) {
      file.step = 1;
      file.all_reduce({100, 101, 102, 103});  // and then it was killed
    } else {
      steps(5, false)(file, rank);
    }
  };
  Job killed("B", 2, cut);
  Comparison compared = compare_runs(whole.job, killed.job);
  EXPECT_TRUE(compared.equal());
  EXPECT_THAT(compared.notes,
              ElementsAre(HasSubstr("rank 0's file in B has no end after 1 calls")));

  killed.job.ranks[0] = nullptr;
  compared = compare_runs(whole.job, killed.job);
  EXPECT_TRUE(compared.equal());
  EXPECT_THAT(compared.notes, ElementsAre(HasSubstr("rank 0 has no file in B")));

  const Job failed("B", 2, [](WrittenFile& file, int) { file.end(true); });
  compared = compare_runs(whole.job, failed.job);
  EXPECT_TRUE(compared.equal());
  EXPECT_EQ(compared.notes.size(), 2u);

  const Job larger("B", 3, steps(5, false));
  EXPECT_THROW(compare_runs(whole.job, larger.job), Error);
}

// Calls that were not kept are not compared with others.
TEST(RunComparison, goes_on_behind_a_gap) {
  const Job a("A", 1, [](WrittenFile& file, int) {
    for (std::uint64_t call = 0; call < 10; ++call) {
      file.all_reduce({call});
    }
    file.end();
  });
  const auto with_gap = [](std::uint64_t last) {
    return [=](WrittenFile& file, int) {
      file.all_reduce({0});
      file.gap(8);
      file.all_reduce({last});
      file.end();
    };
  };
  const Job same("B", 1, with_gap(9)), other("B", 1, with_gap(8));
  const Comparison equal = compare_runs(a.job, same.job);
  EXPECT_TRUE(equal.equal());
  EXPECT_EQ(equal.calls, 2u);
  EXPECT_THAT(equal.notes, ElementsAre(HasSubstr("8 calls of rank 0 in B were not kept")));
  const Comparison differs = compare_runs(a.job, other.job);
  ASSERT_TRUE(differs.first);
  EXPECT_EQ(differs.first->call.number, 9u);
}

TEST(ReplicaComparison, alike_is_alike) {
  const Job job("job", 4, steps(5, true), true);
  const Comparison compared = compare_replicas(job.job);
  EXPECT_TRUE(compared.equal());
  EXPECT_EQ(compared.calls, 15u);
}

TEST(ReplicaComparison, most_are_right) {
  const Job job("job", 4, steps(5, false, [](int rank, int step, int call, bool, auto& digests) {
                  if (rank == 2 && step >= 3 && call == 1) {
                    digests[3] += 1;
                  }
                }));
  const Comparison compared = compare_replicas(job.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->rank, 2);
  EXPECT_THAT(compared.first->ranks, ElementsAre(2));
  EXPECT_THAT(compared.first->right, ElementsAre(0, 1, 3));
  EXPECT_EQ(compared.first->call.step, 3);
  EXPECT_EQ(compared.first->of_step, 2u);
  EXPECT_EQ(compared.first->range, (Range{.first = 49152, .last = 65535, .chunks = 1, .of = 4}));
  EXPECT_EQ(compared.partings, 3u);
}

TEST(ReplicaComparison, of_two_nobody_is_right) {
  const Job job("job", 2, steps(1, false, [](int rank, int, int, bool, auto& digests) {
                  digests[0] += static_cast<std::uint64_t>(rank);
                }));
  const Comparison compared = compare_replicas(job.job);
  ASSERT_TRUE(compared.first);
  EXPECT_THAT(compared.first->ranks, ElementsAre(0, 1));
  EXPECT_THAT(compared.first->right, IsEmpty());
}

TEST(ReplicaComparison, results_that_are_each_ranks_own_may_differ) {
  const Job job("job", 3, [](WrittenFile& file, int rank) {
    file.collective(Collective::reduce_scatter, {static_cast<std::uint64_t>(rank)});
    file.end();
  });
  EXPECT_TRUE(compare_replicas(job.job).equal());
}

TEST(ReplicaComparison, a_message_is_held_against_what_was_sent) {
  const auto script = [](std::uint64_t received) {
    return [=](WrittenFile& file, int rank) {
      file.step = 8;
      if (rank == 0) {
        file.message(CallKind::send, 1, 0, 4);
        file.message(CallKind::send, 1, 1, 5);
      } else {
        file.message(CallKind::receive, 0, 1, received);  // they may end in another order
        file.message(CallKind::receive, 0, 0, 4);
      }
      file.end();
    };
  };
  const Job good("job", 2, script(5), true), bad("job", 2, script(6), true);
  EXPECT_TRUE(compare_replicas(good.job).equal());
  EXPECT_EQ(compare_replicas(good.job).calls, 2u);
  const Comparison compared = compare_replicas(bad.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->rank, 1);
  EXPECT_EQ(compared.first->call.number, 1u);
  EXPECT_EQ(compared.first->call.step, 8);
  EXPECT_THAT(compared.first->right, ElementsAre(0));
}

TEST(ReplicaComparison, blocks_are_told_by_rank) {
  const Job job("job", 3, [](WrittenFile& file, int rank) {
    file.collective(Collective::all_gather, {1, rank == 2 ? 9u : 2u, 3});
    file.end();
  });
  Comparison compared = compare_replicas(job.job);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->rank, 2);
  compared.first->call.signature.count = compared.first->call.result_count / 3;
  EXPECT_EQ(block_of(compared.first->call, false, compared.first->range.first), 1);
}

}  // namespace
}  // namespace sprat::collectives::digests
