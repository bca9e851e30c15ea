// Where a Fusion's parameters lie, and in which words its ranks disagree.
#include "collectives/fusion/fusion_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "collectives/fusion/fusion_agreement.hpp"

namespace sprat::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<std::size_t>> members(const FusionLayout& layout) {
  std::vector<std::vector<std::size_t>> all;
  for (const FusionBuffer& buffer : layout.buffers) {
    all.push_back(buffer.parameters);
  }
  return all;
}

TEST(FusionLayout, fills_buffers_in_the_order_of_indices) {
  const std::vector<FusionParameter> parameters(5, {64, DType::f32});  // 256 bytes each
  EXPECT_THAT(members(plan_fusion(parameters, 512)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_THAT(members(plan_fusion(parameters, 767)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_THAT(members(plan_fusion(parameters, 768)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
}

TEST(FusionLayout, gives_a_parameter_that_is_larger_than_a_bucket_a_buffer_of_its_own) {
  const std::vector<FusionParameter> parameters = {
      {1, DType::f32}, {1000, DType::f32}, {1, DType::f32}};
  EXPECT_THAT(members(plan_fusion(parameters, 512)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(members(plan_fusion(parameters, 1)),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(FusionLayout, starts_a_buffer_of_rare_type_when_its_last_parameter_is_due) {
  std::vector<FusionParameter> parameters(6, {64, DType::f32});
  parameters[0].dtype = parameters[4].dtype = DType::bf16;
  EXPECT_THAT(members(plan_fusion(parameters, 512)),
              ElementsAre(ElementsAre(1, 2), ElementsAre(0, 4), ElementsAre(3, 5)));
}

TEST(FusionLayout, of_nothing_is_nothing) {
  EXPECT_THAT(plan_fusion({}, 1).buffers, IsEmpty());
  EXPECT_EQ(plan_fusion({}, 1).bytes, 0u);
  const std::vector<FusionParameter> empty(3, {0, DType::f64});
  EXPECT_THAT(members(plan_fusion(empty, 1)), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_EQ(plan_fusion(empty, 1).bytes, 0u);
}

TEST(FusionLayout, refuses_what_memory_cannot_hold) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::vector<FusionParameter>& parameters :
       {std::vector<FusionParameter>{{most, DType::u8}},
        {{most / 4 + 1, DType::f32}},
        {{most / 4, DType::u8}, {most / 4, DType::u8}, {most / 4, DType::u8}}}) {
    try {
      plan_fusion(parameters, 1);
      ADD_FAILURE() << parameters.front().count << " elements fit";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

/// What holds for every layout: each parameter once, aligned, apart from the others, inside its
/// buffer, which has its type and no more bytes than a bucket but for one that is larger.
void expect_sound(const std::vector<FusionParameter>& parameters, std::size_t bucket_bytes) {
  const FusionLayout layout = plan_fusion(parameters, bucket_bytes);
  std::vector<int> seen(parameters.size());
  std::size_t end = 0, last = 0;
  for (std::size_t number = 0; number < layout.buffers.size(); ++number) {
    const FusionBuffer& buffer = layout.buffers[number];
    EXPECT_EQ(buffer.offset, end);
    ASSERT_THAT(buffer.parameters, ::testing::Not(IsEmpty()));
    EXPECT_TRUE(std::ranges::is_sorted(buffer.parameters));
    EXPECT_TRUE(number == 0 || last < buffer.parameters.back());
    last = buffer.parameters.back();
    std::size_t large = 0;
    for (const std::size_t index : buffer.parameters) {
      ++seen[index];
      const std::size_t bytes = parameters[index].count * size_of(buffer.dtype);
      EXPECT_EQ(layout.buffer_of[index], number);
      EXPECT_EQ(parameters[index].dtype, buffer.dtype);
      EXPECT_EQ(layout.offset_of[index] % FusionLayout::alignment, 0u);
      EXPECT_GE(layout.offset_of[index], end);
      end = layout.offset_of[index] + bytes;
      large += bytes > 0 ? 1 : 0;
    }
    EXPECT_EQ(end, buffer.offset + buffer.count * size_of(buffer.dtype));
    EXPECT_EQ(buffer.fuses(), buffer.parameters.size() > 1);
    end = (end + FusionLayout::alignment - 1) / FusionLayout::alignment * FusionLayout::alignment;
    EXPECT_TRUE(large <= 1 || end - buffer.offset <= bucket_bytes) << "buffer " << number;
  }
  EXPECT_EQ(layout.bytes, end);
  EXPECT_EQ(seen, std::vector<int>(parameters.size(), 1));
}

TEST(FusionLayout, is_sound_for_any_parameters) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<FusionParameter> parameters(random() % 50);
    for (FusionParameter& parameter : parameters) {
      parameter.count = random() % 3 == 0 ? random() % 4 : random() % 2000;
      parameter.dtype = all_dtypes()[random() % (round % 3 == 0 ? 1 : all_dtypes().size())];
    }
    expect_sound(parameters, 1 + random() % 10'000);
  }
}

TEST(FusionTerms, say_where_they_first_differ) {
  const std::vector<FusionParameter> some = {{3, DType::f32}, {4, DType::bf16}};
  std::vector<FusionParameter> more = some, other = some;
  more.push_back({5, DType::f64});
  other[1].dtype = DType::f16;
  const auto difference = [&](const auto& theirs, const FusionOptions& options) {
    const auto [one, two] = first_difference(fusion_terms(some, {}), fusion_terms(theirs, options));
    return one + " | " + two;
  };
  EXPECT_EQ(difference(more, {}), "nothing more | parameter 2 of 5 f64");
  EXPECT_EQ(difference(other, {}), "parameter 1 of 4 bf16 | parameter 1 of 4 f16");
  EXPECT_EQ(difference(some, {.bucket_bytes = 1}),
            "buckets of 26214400 bytes, sum | buckets of 1 bytes, sum");
  EXPECT_EQ(difference(some, {.op = Reduction::premultiplied_sum(0.5)}),
            "buckets of 26214400 bytes, sum | buckets of 26214400 bytes, premultiplied_sum by 0.5");
}

TEST(FusionAbsence, is_told_by_who_lacks_what_others_have) {
  const std::vector<int> names = {4, 0, 9};
  const std::vector<Absence> absences = {
      {1, 0, 1, 1, 0, 1}, {0, 0, 1, 0, 1, 0}, {0, 0, 1, 0, 1, 0}};
  EXPECT_EQ(absence_text(absences, names),
            "parameter 4 on ranks 0, 9; parameters 0, 3, 5 on rank 4");
}

}  // namespace
}  // namespace sprat::collectives
