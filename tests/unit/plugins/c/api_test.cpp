// The C API: every function, its statuses and its messages.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "sprat/sprat.h"

namespace {

/// A job of one rank: every collective has a result that can be told in advance.
class CApi : public testing::Test {
 protected:
  void SetUp() override {
    sprat_config alone = {};
    alone.size = 1;
    ASSERT_EQ(sprat_comm_join(&alone, &world), SPRAT_ok) << sprat_last_error();
  }
  void TearDown() override { EXPECT_EQ(sprat_comm_free(world), SPRAT_ok); }

  sprat_comm* world = nullptr;
};

TEST(CApiJoin, refuses_ranks_and_sizes_that_cannot_be) {
  const std::pair<int, int> wrong[] = {{-3, -7}, {-3, 0}, {0, -7}, {0, 5}, {2, -1}, {2, 2}, {1, 1}};
  for (const auto& [size, rank] : wrong) {
    sprat_config config = {};
    config.size = size;
    config.rank = rank;
    sprat_comm* comm = nullptr;
    EXPECT_EQ(sprat_comm_join(&config, &comm), SPRAT_invalid_argument) << size << " " << rank;
    EXPECT_EQ(comm, nullptr);
    const std::string said = sprat_last_error();
    EXPECT_NE(said.find("size is " + std::to_string(size)), std::string::npos) << said;
  }
  sprat_config hasty = {};
  hasty.size = 1;
  hasty.timeout_ms = -1;
  sprat_comm* comm = nullptr;
  EXPECT_EQ(sprat_comm_join(&hasty, &comm), SPRAT_invalid_argument);
}

TEST_F(CApi, collectives_of_one_rank_copy_their_input) {
  int size = 0, rank = -1;
  ASSERT_EQ(sprat_comm_size(world, &size), SPRAT_ok);
  ASSERT_EQ(sprat_comm_rank(world, &rank), SPRAT_ok);
  EXPECT_EQ(size, 1);
  EXPECT_EQ(rank, 0);
  const std::array<float, 3> in = {1, 2, 3};
  std::array<float, 3> out = {};
  ASSERT_EQ(
      sprat_all_reduce(world, in.data(), out.data(), 3, SPRAT_f32, SPRAT_avg, nullptr, nullptr),
      SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, in);
  out = {};
  ASSERT_EQ(sprat_all_gather(world, in.data(), out.data(), 3, SPRAT_f32, nullptr, nullptr),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, in);
  out = {};
  ASSERT_EQ(
      sprat_reduce_scatter(world, in.data(), out.data(), 3, SPRAT_f32, SPRAT_sum, nullptr, nullptr),
      SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, in);
  out = {};
  ASSERT_EQ(sprat_all_to_all(world, in.data(), out.data(), 3, SPRAT_f32, nullptr, nullptr),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, in);
  ASSERT_EQ(sprat_broadcast(world, out.data(), 3, SPRAT_f32, 0, nullptr, nullptr), SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, in);
  EXPECT_EQ(sprat_barrier(world, nullptr), SPRAT_ok) << sprat_last_error();
}

void keep_left(const void* left, void* right, std::size_t count, sprat_dtype dtype, void* context) {
  ++*static_cast<int*>(context);
  EXPECT_EQ(dtype, SPRAT_i32);
  std::memcpy(right, left, count * sizeof(std::int32_t));
}

TEST_F(CApi, ops_are_created_used_and_freed) {
  int calls = 0;
  sprat_op left = SPRAT_sum, half = SPRAT_sum;
  ASSERT_EQ(sprat_op_create("keep_left", keep_left, &calls, &left), SPRAT_ok) << sprat_last_error();
  ASSERT_EQ(sprat_op_create_premultiplied_sum(0.5, &half), SPRAT_ok) << sprat_last_error();
  EXPECT_GE(left, 64);
  EXPECT_GT(half, left);
  const std::int32_t number = 7;
  std::int32_t kept = 0;
  ASSERT_EQ(sprat_all_reduce(world, &number, &kept, 1, SPRAT_i32, left, nullptr, nullptr), SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(kept, 7);
  EXPECT_EQ(calls, 0) << "one rank has nothing to combine";
  const double three = 3;
  double halved = 0;
  ASSERT_EQ(sprat_all_reduce(world, &three, &halved, 1, SPRAT_f64, half, nullptr, nullptr),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(halved, 1.5);
  EXPECT_EQ(sprat_all_reduce(world, &number, &kept, 1, SPRAT_i32, half, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_EQ(std::string(sprat_last_error()).rfind("premultiplied_sum does not reduce i32", 0), 0u)
      << sprat_last_error();
  EXPECT_EQ(sprat_op_free(left), SPRAT_ok);
  EXPECT_EQ(sprat_op_free(half), SPRAT_ok);
  EXPECT_EQ(sprat_op_free(left), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_all_reduce(world, &number, &kept, 1, SPRAT_i32, left, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_EQ(sprat_op_free(SPRAT_sum), SPRAT_invalid_argument);
  EXPECT_EQ(sprat_op_create(nullptr, keep_left, nullptr, &left), SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "name is null");
  EXPECT_EQ(sprat_op_create("nothing", nullptr, nullptr, &left), SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "function is null");
}

TEST_F(CApi, collectives_with_a_root_and_with_counts_of_one_rank_copy_their_input) {
  const std::array<float, 3> in = {1, 2, 3}, zeros = {};
  const std::size_t counts[] = {3};
  std::array<float, 3> out = zeros;
  const auto copied = [&](sprat_status status) {
    EXPECT_EQ(status, SPRAT_ok) << sprat_last_error();
    EXPECT_EQ(out, in);
    out = zeros;
  };
  const float* from = in.data();
  float* to = out.data();
  copied(sprat_reduce(world, from, to, 3, SPRAT_f32, SPRAT_max, 0, nullptr, nullptr));
  copied(sprat_gather(world, from, to, 3, SPRAT_f32, 0, nullptr, nullptr));
  copied(sprat_scatter(world, from, to, 3, SPRAT_f32, 0, nullptr, nullptr));
  copied(sprat_all_gatherv(world, from, to, counts, SPRAT_f32, nullptr, nullptr));
  copied(sprat_reduce_scatterv(world, from, to, counts, SPRAT_f32, SPRAT_sum, nullptr, nullptr));
  copied(sprat_gatherv(world, from, 3, to, counts, SPRAT_f32, 0, nullptr, nullptr));
  copied(sprat_scatterv(world, from, counts, to, 3, SPRAT_f32, 0, nullptr, nullptr));
  copied(sprat_all_to_allv(world, from, counts, to, counts, SPRAT_f32, nullptr, nullptr));
  EXPECT_EQ(sprat_all_gatherv(world, from, to, nullptr, SPRAT_f32, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "counts is null");
  EXPECT_EQ(sprat_gatherv(world, from, 2, to, counts, SPRAT_f32, 0, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_EQ(sprat_reduce(world, from, nullptr, 3, SPRAT_f32, SPRAT_max, 0, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "out is null but has 3 elements");
}

TEST_F(CApi, f32_output_keeps_what_16_bits_would_round) {
  const std::uint16_t bf16_third = 0x3eab;  // 0.333984375
  float out = 0;
  sprat_options options = {};
  options.f32_output = 1;
  ASSERT_EQ(sprat_all_reduce(world, &bf16_third, &out, 1, SPRAT_bf16, SPRAT_sum, &options, nullptr),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(out, 0.333984375f);
}

TEST_F(CApi, work_is_waited_tested_and_freed) {
  double value = 2.5, result = 0;
  sprat_work* work = nullptr;
  ASSERT_EQ(sprat_all_reduce(world, &value, &result, 1, SPRAT_f64, SPRAT_max, nullptr, &work),
            SPRAT_ok)
      << sprat_last_error();
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(sprat_work_wait(work), SPRAT_ok);
  int done = 0;
  EXPECT_EQ(sprat_work_test(work, &done), SPRAT_ok);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(result, 2.5);
  EXPECT_EQ(sprat_work_free(work), SPRAT_ok);
}

TEST_F(CApi, a_negative_color_belongs_to_no_communicator) {
  sprat_comm* part = world;
  EXPECT_EQ(sprat_comm_split(world, -1, 0, &part), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(part, nullptr);
  EXPECT_EQ(sprat_comm_split(world, 3, 0, &part), SPRAT_ok) << sprat_last_error();
  EXPECT_NE(part, nullptr);
  EXPECT_EQ(sprat_comm_free(part), SPRAT_ok);
}

TEST_F(CApi, broken_contracts_are_named) {
  float value = 0;
  EXPECT_EQ(sprat_all_reduce(nullptr, &value, &value, 1, SPRAT_f32, SPRAT_sum, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "comm is null");
  EXPECT_EQ(sprat_comm_size(world, nullptr), SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "out is null");
  EXPECT_EQ(sprat_work_wait(nullptr), SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "work is null");
  EXPECT_EQ(sprat_broadcast(world, &value, 1, static_cast<sprat_dtype>(15), 0, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "dtype 15 is none of sprat_dtype");
  EXPECT_EQ(sprat_all_reduce(world, &value, &value, 1, SPRAT_f32, static_cast<sprat_op>(63),
                             nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_STREQ(sprat_last_error(), "op 63 is none of sprat_op, nor one created and not yet freed");
  EXPECT_EQ(sprat_broadcast(world, &value, 1, SPRAT_f32, 7, nullptr, nullptr),
            SPRAT_invalid_argument);
  EXPECT_NE(std::string(sprat_last_error()).find("7"), std::string::npos) << sprat_last_error();
  const sprat_options late = {-1, 0};
  EXPECT_EQ(sprat_barrier(world, &late), SPRAT_invalid_argument);
  EXPECT_EQ(
      sprat_all_gather(world, &value, &value, static_cast<size_t>(-1), SPRAT_i8, &late, nullptr),
      SPRAT_invalid_argument);
}

TEST(CApiMemory, is_zeroed_and_writable) {
  sprat_memory* memory = nullptr;
  void* data = nullptr;
  ASSERT_EQ(sprat_allocate(10'000, &memory, &data), SPRAT_ok) << sprat_last_error();
  const std::vector<char> zeros(10'000);
  EXPECT_EQ(std::memcmp(data, zeros.data(), zeros.size()), 0);
  std::memset(data, 1, 10'000);
  EXPECT_EQ(sprat_free_memory(memory), SPRAT_ok);
  EXPECT_EQ(sprat_free_memory(nullptr), SPRAT_ok);
}

TEST(CApiVersion, is_three_numbers) {
  int major = 0, minor = 0, patch = 0;
  EXPECT_EQ(std::sscanf(sprat_version(), "%d.%d.%d", &major, &minor, &patch), 3);
}

}  // namespace
