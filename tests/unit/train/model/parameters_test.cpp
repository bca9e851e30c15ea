// Parameters of a sharded model as the GPT sees them: widened where they are gathered narrow.
#include "train/model/parameters.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "sprat/communicator.hpp"

namespace sprat::train {
namespace {

float initial(std::uint64_t index) { return 1.0f + static_cast<float>(index) / 3.0f; }

std::vector<UnitSpec> units() {
  return {{.name = "first",
           .parameters = {{.name = "a", .shape = {5, 7}, .initial = initial},
                          {.name = "b", .shape = {9}, .initial = initial}}},
          {.name = "second", .parameters = {{.name = "c", .shape = {5, 7}, .initial = initial}}}};
}

TEST(ShardedParameters, are_wide_whatever_they_are_gathered_as) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      ShardedModel model(world, units(), {.parameter_dtype = type});
      ShardedParameters parameters(model, units(), type);
      for (int pass = 0; pass < 2; ++pass) {
        for (int unit = 0; unit < 2; ++unit) {
          parameters.acquire(unit);
          for (int index = 0; index < (unit == 0 ? 2 : 1); ++index) {
            const auto values = parameters.values(unit, index);
            ASSERT_EQ(values.size(), index == 0 ? 35u : 9u);
            for (std::size_t i = 0; i < values.size(); ++i) {
              const float exact = initial(i);
              const float rounded = type == DType::bf16  ? to_float(to_bfloat16(exact))
                                    : type == DType::f16 ? to_float(to_float16(exact))
                                                         : exact;
              ASSERT_EQ(values[i], rounded) << name(type) << ", unit " << unit << ", element " << i;
            }
          }
          parameters.release(unit);
        }
      }
    });
  }
}

TEST(ShardedParameters, plan_the_wide_copies_of_one_unit_at_a_time) {
  run_virtual_ranks(1, Config{}, [](Communicator& world) {
    for (const DType type : {DType::f32, DType::bf16}) {
      ShardedModel model(world, units(), {.parameter_dtype = type});
      // Tensors of 35 and 9 elements; the second unit takes over a buffer of the first.
      EXPECT_EQ(ShardedParameters(model, units(), type).bytes_planned(),
                type == DType::f32 ? 0 : (35 + 9) * sizeof(float))
          << name(type);
    }
  });
}

TEST(Widen, refuses_another_count) {
  const std::vector<float> from(3);
  std::vector<float> to(4);
  EXPECT_THROW(widen(elements(std::span(from)), to), Error);
}

}  // namespace
}  // namespace sprat::train
