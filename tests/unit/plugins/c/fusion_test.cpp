// The C API's fusion buffers, in a job of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "sprat/sprat.h"

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CFusion : public testing::Test {
 protected:
  void SetUp() override {
    sprat_config alone = {};
    alone.size = 1;
    ASSERT_EQ(sprat_comm_join(&alone, &world), SPRAT_ok) << sprat_last_error();
  }
  void TearDown() override {
    EXPECT_EQ(sprat_fusion_free(fusion), SPRAT_ok);
    EXPECT_EQ(sprat_comm_free(world), SPRAT_ok);
  }
  sprat_status create(sprat_op op, const sprat_options* options = nullptr) {
    return sprat_fusion_create(world, counts.data(), dtypes.data(), counts.size(), 0, op, options,
                               &fusion);
  }

  sprat_comm* world = nullptr;
  sprat_fusion* fusion = nullptr;
  const std::array<size_t, 3> counts = {100, 7, 30};
  const std::array<sprat_dtype, 3> dtypes = {SPRAT_f32, SPRAT_i64, SPRAT_f32};
  std::vector<float> data = std::vector<float>(100, 3.0f);
};

TEST_F(CFusion, reduces_in_place_and_lists_what_is_absent) {
  sprat_op half = SPRAT_sum;
  ASSERT_EQ(sprat_op_create_premultiplied_sum(0.5, &half), SPRAT_ok);
  const std::array<size_t, 2> sizes = {100, 30};
  const std::array<sprat_dtype, 2> types = {SPRAT_f32, SPRAT_f32};
  ASSERT_EQ(sprat_fusion_create(world, sizes.data(), types.data(), 2, 64, half, nullptr, &fusion),
            SPRAT_ok)
      << sprat_last_error();
  EXPECT_EQ(sprat_op_free(half), SPRAT_ok);
  ASSERT_EQ(sprat_fusion_put(fusion, 0, data.data(), data.size(), SPRAT_f32), SPRAT_ok);
  size_t absent = 9, number = 9;
  ASSERT_EQ(sprat_fusion_flush(fusion, &absent, 1, &number), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(absent, 1u);
  EXPECT_EQ(number, 1u);
  EXPECT_THAT(data, Each(1.5f));
}

TEST_F(CFusion, reduces_what_lies_in_its_slot) {
  ASSERT_EQ(create(SPRAT_avg), SPRAT_ok) << sprat_last_error();
  void* slot = nullptr;
  ASSERT_EQ(sprat_fusion_slot(fusion, 2, &slot), SPRAT_ok);
  static_cast<float*>(slot)[29] = 5;
  ASSERT_EQ(sprat_fusion_put(fusion, 2, slot, 30, SPRAT_f32), SPRAT_ok) << sprat_last_error();
  std::array<size_t, 3> absent = {9, 9, 9};
  ASSERT_EQ(sprat_fusion_flush(fusion, absent.data(), 3, nullptr), SPRAT_ok);
  EXPECT_THAT(absent, ElementsAre(0, 1, 9));
  EXPECT_EQ(static_cast<float*>(slot)[29], 5);
  EXPECT_EQ(sprat_fusion_flush(fusion, nullptr, 0, nullptr), SPRAT_ok);
}

TEST_F(CFusion, refuses_what_breaks_its_contract) {
  sprat_options wide = {};
  wide.f32_output = 1;
  EXPECT_EQ(create(SPRAT_sum, &wide), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("f32_output"));
  EXPECT_EQ(create(SPRAT_max), SPRAT_invalid_argument);
  EXPECT_EQ(fusion, nullptr);
  EXPECT_EQ(sprat_fusion_create(world, nullptr, dtypes.data(), 3, 0, SPRAT_sum, nullptr, &fusion),
            SPRAT_invalid_argument);
  EXPECT_EQ(sprat_fusion_flush(nullptr, nullptr, 0, nullptr), SPRAT_invalid_argument);
  ASSERT_EQ(create(SPRAT_sum), SPRAT_ok) << sprat_last_error();
  EXPECT_EQ(sprat_fusion_put(fusion, 1, data.data(), 7, SPRAT_f32), SPRAT_invalid_argument);
  EXPECT_THAT(sprat_last_error(), HasSubstr("parameter 1 is put as 7 f32"));
  EXPECT_EQ(sprat_fusion_flush(fusion, nullptr, 3, nullptr), SPRAT_invalid_argument);
  void* slot = nullptr;
  EXPECT_EQ(sprat_fusion_slot(fusion, 3, &slot), SPRAT_invalid_argument);
}

}  // namespace
