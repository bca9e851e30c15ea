// Reductions by functions of the caller's: the tree, its order, its blocks, and what they throw.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "sprat/error.hpp"
#include "tests/unit/collectives/kernels/reduce_reference.hpp"

namespace sprat::collectives {
namespace {

using reduce_reference::composed;

template <class T, class Combine>
UserOp user_op(const char* name, Combine combine) {
  return {name, [combine](const void* left, void* right, std::size_t count, DType dtype) {
            EXPECT_EQ(dtype, dtype_of<T>::value);
            const auto* const a = static_cast<const T*>(left);
            auto* const b = static_cast<T*>(right);
            for (std::size_t i = 0; i < count; ++i) {
              b[i] = combine(a[i], b[i]);
            }
          }};
}

template <class T>
std::vector<std::vector<T>> user_contributions(int ranks, std::size_t count) {
  std::vector<std::vector<T>> all(ranks, std::vector<T>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      all[rank][i] =
          static_cast<T>((static_cast<std::uint32_t>(rank) * 40503u + i + 1) * 2654435761u);
    }
  }
  return all;
}

template <class T>
std::vector<Term> terms_of(const std::vector<std::vector<T>>& memory) {
  std::vector<Term> terms;
  for (int rank = 0; rank < static_cast<int>(memory.size()); ++rank) {
    terms.push_back({memory[rank].data(), {rank, rank + 1}, false});
  }
  return terms;
}

Arithmetic arithmetic_of(DType dtype, const UserOp& op, int ranks) {
  return {.input = dtype, .output = dtype, .op = ReduceOp::user, .user = &op, .ranks = ranks};
}

TEST(ReduceUser, gets_lower_ranks_on_the_left) {
  const UserOp op = user_op<std::uint32_t>("compose", composed);
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 100}) {
    for (const std::size_t count : {1, 1023, 1024, 1025, 5000}) {
      const auto memory = user_contributions<std::uint32_t>(ranks, count);
      std::vector<std::uint32_t> expected = memory[0], result(count);
      for (int rank = 1; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < count; ++i) {
          expected[i] = composed(expected[i], memory[rank][i]);
        }
      }
      reduce(arithmetic_of(DType::u32, op, ranks), terms_of(memory), result.data(), count);
      EXPECT_EQ(result, expected) << ranks << " ranks, " << count << " elements";
    }
  }
}

TEST(ReduceUser, combines_partials_of_the_input_type) {
  const UserOp op = user_op<std::uint16_t>("difference", [](std::uint16_t a, std::uint16_t b) {
    return static_cast<std::uint16_t>(a - b);
  });
  EXPECT_EQ(accumulator_of(DType::f16, ReduceOp::user), DType::f16);
  const std::vector<std::uint16_t> left = {100}, right = {7};
  std::vector<std::uint16_t> result(1);
  // tree(0, 6) is tree(0, 4) op tree(4, 6).
  const std::vector<Term> terms = {{left.data(), {0, 4}, true}, {right.data(), {4, 6}, true}};
  reduce(arithmetic_of(DType::u16, op, 6), terms, result.data(), 1);
  EXPECT_EQ(result[0], 93);
}

TEST(ReduceUser, follows_the_canonical_tree_where_order_matters) {
  const UserOp op = user_op<float>("difference", [](float a, float b) { return a - b; });
  std::vector<std::vector<float>> memory;
  for (int rank = 0; rank < 6; ++rank) {
    memory.push_back({static_cast<float>(1 << rank)});
  }
  float result = 0;
  reduce(arithmetic_of(DType::f32, op, 6), terms_of(memory), &result, 1);
  EXPECT_EQ(result, ((1.0f - 2) - (4.0f - 8)) - (16.0f - 32));
}

TEST(ReduceUser, may_write_over_any_one_term) {
  const UserOp op = user_op<std::uint32_t>("compose", composed);
  const auto original = user_contributions<std::uint32_t>(5, 3000);
  std::vector<std::uint32_t> expected(3000);
  reduce(arithmetic_of(DType::u32, op, 5), terms_of(original), expected.data(), 3000);
  for (int over = 0; over < 5; ++over) {
    auto memory = original;
    reduce(arithmetic_of(DType::u32, op, 5), terms_of(memory), memory[over].data(), 3000);
    EXPECT_EQ(memory[over], expected) << "over term " << over;
  }
}

TEST(ReduceUser, says_what_the_function_threw) {
  const std::vector<float> value = {1};
  const std::vector<Term> terms = {{value.data(), {0, 1}, false}, {value.data(), {1, 2}, false}};
  const auto message_of = [&](UserOp::Function function) -> std::string {
    const UserOp op = {"norms", std::move(function)};
    float result = 0;
    try {
      reduce(arithmetic_of(DType::f32, op, 2), terms, &result, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(message_of([](auto...) { throw std::runtime_error("too long"); }),
            "user operation norms threw: too long");
  EXPECT_EQ(message_of([](auto...) { throw 7; }),
            "user operation norms threw: an exception of unknown type");
}

TEST(ReduceUser, needs_a_name_and_a_function) {
  const auto nothing = [](const void*, void*, std::size_t, DType) {};
  EXPECT_THROW(Reduction::user({"", nothing}), Error);
  EXPECT_THROW(Reduction::user({"norms", nullptr}), Error);
  EXPECT_THROW(Reduction::premultiplied_sum(std::nan("")), Error);
  EXPECT_THROW(Reduction::premultiplied_sum(INFINITY), Error);
  EXPECT_EQ(describe(Reduction::user({"norms", nothing})), "user operation norms");
  EXPECT_EQ(describe(Reduction::premultiplied_sum(0.1)), "premultiplied_sum by 0.1");
  EXPECT_EQ(describe(ReduceOp::land), "land");
}

}  // namespace
}  // namespace sprat::collectives
