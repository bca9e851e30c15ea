// The C API's groups of ranks, of calls and of works, in a job of one rank that talks to itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "sprat/sprat.h"

namespace {

using ::testing::HasSubstr;

class CGroups : public testing::Test {
 protected:
  void SetUp() override {
    sprat_config alone = {};
    alone.size = 1;
    ASSERT_EQ(sprat_comm_join(&alone, &world), SPRAT_ok) << sprat_last_error();
  }
  void TearDown() override { EXPECT_EQ(sprat_comm_free(world), SPRAT_ok); }

  sprat_comm* world = nullptr;
  std::vector<float> out = std::vector<float>(100'000, 3.0f);
  std::vector<float> in = std::vector<float>(100'000);
};

TEST_F(CGroups, of_calls_wait_for_all_of_them_at_the_end) {
  // Alone, this send would wait for its receive, being long.
  ASSERT_EQ(sprat_group_begin(), SPRAT_ok);
  ASSERT_EQ(sprat_group_begin(), SPRAT_ok);
  ASSERT_EQ(sprat_send(world, out.data(), out.size(), SPRAT_f32, 0, 1, nullptr, nullptr), SPRAT_ok);
  ASSERT_EQ(sprat_group_end(nullptr), SPRAT_ok);
  ASSERT_EQ(sprat_recv(world, in.data(), in.size(), SPRAT_f32, 0, 1, nullptr, nullptr), SPRAT_ok);
  ASSERT_EQ(sprat_group_end(nullptr), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(in, out);
}

TEST_F(CGroups, of_calls_may_be_handed_over_as_one_work) {
  ASSERT_EQ(sprat_group_begin(), SPRAT_ok);
  ASSERT_EQ(sprat_send(world, out.data(), out.size(), SPRAT_f32, 0, 1, nullptr, nullptr), SPRAT_ok);
  ASSERT_EQ(
      sprat_recv(world, in.data(), in.size(), SPRAT_f32, SPRAT_ANY_SOURCE, 1, nullptr, nullptr),
      SPRAT_ok);
  sprat_work* work = nullptr;
  ASSERT_EQ(sprat_group_end(&work), SPRAT_ok);
  EXPECT_EQ(sprat_work_wait(work), SPRAT_ok);
  EXPECT_EQ(in, out);
  EXPECT_EQ(sprat_work_free(work), SPRAT_ok);
}

TEST_F(CGroups, end_only_what_has_begun) {
  EXPECT_EQ(sprat_group_end(nullptr), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("sprat_group_begin"));
}

TEST_F(CGroups, of_ranks_are_communicators) {
  const int ranks[] = {0};
  sprat_comm* group = nullptr;
  sprat_comm* copy = nullptr;
  ASSERT_EQ(sprat_comm_create_group(world, ranks, 1, "me", &group), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_comm_duplicate(group, &copy), SPRAT_ok) << sprat_last_error();
  int size = 0;
  EXPECT_EQ(sprat_comm_size(copy, &size), SPRAT_ok);
  EXPECT_EQ(size, 1);
  EXPECT_EQ(sprat_comm_free(copy), SPRAT_ok);
  EXPECT_EQ(sprat_comm_free(group), SPRAT_ok);
  EXPECT_EQ(sprat_comm_create_group(world, nullptr, 1, "x", &group), SPRAT_invalid_argument);
  EXPECT_EQ(group, nullptr);
}

TEST_F(CGroups, of_works_end_one_by_one) {
  std::array<sprat_work*, 2> works = {};
  ASSERT_EQ(sprat_recv(world, in.data(), 5, SPRAT_f32, SPRAT_ANY_SOURCE, 1, nullptr, &works[0]),
            SPRAT_ok);
  ASSERT_EQ(sprat_recv(world, in.data() + 5, 5, SPRAT_f32, 0, 2, nullptr, &works[1]), SPRAT_ok);
  size_t index = 9;
  ASSERT_EQ(sprat_send(world, out.data(), 5, SPRAT_f32, 0, 2, nullptr, nullptr), SPRAT_ok);
  ASSERT_EQ(sprat_work_wait_any(works.data(), 2, &index), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(index, 1u);
  ASSERT_EQ(sprat_send(world, out.data(), 5, SPRAT_f32, 0, 1, nullptr, nullptr), SPRAT_ok);
  ASSERT_EQ(sprat_work_wait_any(works.data(), 1, &index), SPRAT_ok);
  EXPECT_EQ(index, 0u);
  int source = -1;
  EXPECT_EQ(sprat_work_source(works[0], &source), SPRAT_ok);
  EXPECT_EQ(source, 0);
  for (sprat_work* work : works) {
    EXPECT_EQ(sprat_work_free(work), SPRAT_ok);
  }
}

TEST_F(CGroups, that_are_revoked_keep_their_ranks_and_leave_others_well) {
  sprat_comm* copy = nullptr;
  sprat_comm* next = nullptr;
  ASSERT_EQ(sprat_comm_duplicate(world, &copy), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_comm_revoke(copy, nullptr), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_barrier(copy, nullptr), SPRAT_aborted);
  EXPECT_THAT(sprat_last_error(), HasSubstr("revoked"));
  sprat_status status = SPRAT_internal;
  ASSERT_EQ(sprat_comm_failure(world, &status), SPRAT_ok);
  EXPECT_EQ(status, SPRAT_ok);
  ASSERT_EQ(sprat_comm_shrink(copy, 1, &next), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_barrier(next, nullptr), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_barrier(world, nullptr), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_comm_revoke(nullptr, ""), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_comm_free(next), SPRAT_ok);
  EXPECT_EQ(sprat_comm_free(copy), SPRAT_ok);
}

TEST_F(CGroups, grow_by_ranks_that_come_later) {
  const std::string place =
      "file://" + testing::TempDir() + "sprat-growth-" + std::to_string(getpid());
  sprat_status came = SPRAT_internal;
  std::thread newcomer([&] {
    sprat_config config{};
    config.rendezvous = place.c_str();
    sprat_comm* grown = nullptr;
    came = sprat_comm_join_growing(&config, &grown);
    EXPECT_EQ(came, SPRAT_ok) << sprat_last_error();
    int rank = -1;
    EXPECT_EQ(sprat_comm_rank(grown, &rank), SPRAT_ok);
    EXPECT_EQ(rank, 1);
    EXPECT_EQ(sprat_barrier(grown, nullptr), SPRAT_ok) << sprat_last_error();
    EXPECT_EQ(sprat_comm_free(grown), SPRAT_ok);
  });
  sprat_comm* grown = nullptr;
  EXPECT_EQ(sprat_comm_grow(world, 1, place.c_str(), 20'000, &grown), SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(sprat_barrier(grown, nullptr), SPRAT_ok) << sprat_last_error();
  newcomer.join();
  EXPECT_EQ(sprat_comm_free(grown), SPRAT_ok);
  EXPECT_EQ(sprat_barrier(world, nullptr), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_comm_grow(world, 0, place.c_str(), 0, &grown), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_comm_grow(world, 1, "pmix://job", 0, &grown), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_comm_grow(world, 1, place.c_str(), -1, &grown), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_comm_grow(world, 1, nullptr, 0, &grown), SPRAT_invalid_argument);
}

TEST_F(CGroups, mark_their_steps) {
  EXPECT_EQ(sprat_comm_mark_step(world, 3), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_comm_mark_step(world, -1), SPRAT_invalid_argument);
}

TEST_F(CGroups, that_failed_say_why_and_shrink) {
  sprat_status status = SPRAT_internal;
  ASSERT_EQ(sprat_comm_failure(world, &status), SPRAT_ok);
  EXPECT_EQ(status, SPRAT_ok);
  ASSERT_EQ(sprat_comm_abort(world, "had enough"), SPRAT_ok);
  ASSERT_EQ(sprat_comm_failure(world, &status), SPRAT_ok);
  EXPECT_EQ(status, SPRAT_aborted);
  EXPECT_THAT(sprat_last_error(), HasSubstr("had enough"));
  sprat_comm* smaller = nullptr;
  EXPECT_EQ(sprat_comm_shrink(world, 2, &smaller), SPRAT_invalid_argument);
  ASSERT_EQ(sprat_comm_shrink(world, 1, &smaller), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_all_reduce(smaller, in.data(), out.data(), in.size(), SPRAT_f32, SPRAT_sum,
                             nullptr, nullptr),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(sprat_comm_free(smaller), SPRAT_ok);
}

}  // namespace
