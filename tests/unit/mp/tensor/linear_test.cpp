// Linear layers that are cut among ranks: what travels while what is computed, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sprat/tensor.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::tensor_test::linear {
namespace {

using layers::Linear;
using tensor::Group;
using tensor::Parallelism;
using tensor::Traffic;

constexpr int line_rows = 256, inputs = 16, outputs = 24;

/// Calls `before` ahead of each product.
class WatchedBackend final : public GemmBackend {
 public:
  explicit WatchedBackend(std::function<void()> before) : before_(std::move(before)) {}
  const std::string& name() const noexcept override { return gemm_->name(); }
  int sum_pieces() const noexcept override { return gemm_->sum_pieces(); }
  void multiply(const MatrixProduct& product) const override {
    before_();
    gemm_->multiply(product);
  }

 private:
  std::function<void()> before_;
  std::shared_ptr<const GemmBackend> gemm_ = open_gemm_backend("reference");
};

/// A layer of any values, as one of two ranks has it.
struct HalfLayer {
  explicit HalfLayer(Group& group, const GemmBackend& gemm)
      : layer{.gemm = gemm,
              .shape = {.rows = line_rows, .inputs = inputs, .outputs = outputs},
              .weight = weight},
        workspace(std::max(tensor::column_workspace(group.how(), layer.shape),
                           tensor::row_workspace(group.how(), layer.shape))) {}

  tensor::LinearBackward backward() {
    return {.layer = layer,
            .x = x.data(),
            .dy = y.data(),
            .dx = dx.data(),
            .weight = gradient,
            .workspace = workspace};
  }

  std::vector<float> weight = layers_test::random(inputs * outputs, 1),
                     x = layers_test::random(line_rows * inputs, 2),
                     y = layers_test::random(line_rows * outputs, 3),
                     dx = std::vector<float>(x.size()),
                     gradient = std::vector<float>(weight.size());
  Linear layer;
  std::vector<float> workspace;
};

/// Bytes that were on their way before each product of rank 0, of 2.
template <class Pass>
std::vector<Traffic> before_products(const Parallelism& how, const Pass& pass) {
  std::vector<Traffic> seen;
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Group group(world, how);
    const WatchedBackend gemm([&] {
      if (world.rank() == 0) {
        seen.push_back(group.traffic());
      }
    });
    HalfLayer half(group, gemm);
    pass(group, half);
  });
  return seen;
}

constexpr std::uint64_t in_bytes = 4 * line_rows * inputs, out_bytes = 4 * line_rows * outputs;
// 256 rows of two ranks make four chunks, of all rows eight.
constexpr Parallelism dealt{
    .degree = 2, .sequence_parallel = true, .chunk_bytes = 1, .chunk_rows = 32};
constexpr Parallelism whole{
    .degree = 2, .sequence_parallel = false, .chunk_bytes = 1, .chunk_rows = 32};

TEST(TensorOverlap, others_rows_come_while_own_ones_are_multiplied) {
  const auto seen = before_products(dealt, [](Group& group, HalfLayer& half) {
    tensor::column_forward(
        group,
        {.layer = half.layer, .x = half.x.data(), .y = half.y.data(), .workspace = half.workspace});
  });
  ASSERT_EQ(seen.size(), 5u);  // own rows, then four chunks of the other's
  EXPECT_EQ(seen[0].gathered, in_bytes / 2);
  EXPECT_EQ(seen[1].gathered, in_bytes * 3 / 4);
  EXPECT_EQ(seen[2].gathered, in_bytes);
}

TEST(TensorOverlap, a_chunk_is_summed_while_the_next_is_multiplied) {
  const auto forward = [](Group& group, HalfLayer& half) {
    tensor::row_forward(group, {.layer = half.layer,
                                .residual = half.y.data(),
                                .x = half.x.data(),
                                .y = half.y.data(),
                                .workspace = half.workspace});
  };
  const auto all = before_products(whole, forward);
  ASSERT_EQ(all.size(), 8u);
  for (std::size_t chunk = 0; chunk < all.size(); ++chunk) {
    EXPECT_EQ(all[chunk].all_reduced, chunk * out_bytes / 8);
  }
  // A chunk has rows of both ranks, which are two products.
  const auto own = before_products(dealt, forward);
  ASSERT_EQ(own.size(), 8u);
  for (std::size_t product = 0; product < own.size(); ++product) {
    EXPECT_EQ(own[product].scattered, product / 2 * out_bytes / 4);
  }
}

TEST(TensorOverlap, an_inputs_gradient_is_summed_while_the_weights_is_multiplied) {
  const auto backward = [](Group& group, HalfLayer& half) {
    tensor::column_backward(group, half.backward());
  };
  const auto all = before_products(whole, backward);
  ASSERT_EQ(all.size(), 9u);
  EXPECT_EQ(all.back().all_reduced, in_bytes);
  const auto own = before_products(dealt, backward);
  ASSERT_EQ(own.size(), 9u);
  EXPECT_EQ(own.front().gathered, in_bytes);  // for the weights, ahead of all
  EXPECT_EQ(own.back().scattered, in_bytes);
}

TEST(TensorOverlap, gradients_of_outputs_come_while_own_rows_are_multiplied) {
  const auto seen = before_products(
      dealt, [](Group& group, HalfLayer& half) { tensor::row_backward(group, half.backward()); });
  ASSERT_EQ(seen.size(), 6u);  // own rows, four chunks, the weights
  EXPECT_EQ(seen.front().gathered, out_bytes / 2);
  EXPECT_EQ(seen.back().gathered, out_bytes);
}

TEST(TensorAlone, has_the_bits_of_the_layer) {
  for (const auto& gemm : layers_test::backends()) {
    run_virtual_ranks(1, Config{}, [&](Communicator& world) {
      for (const bool sequence_parallel : {false, true}) {
        Group group(world, {.degree = 1, .sequence_parallel = sequence_parallel, .chunk_bytes = 1});
        HalfLayer half(group, *gemm), plain(group, *gemm);
        const std::vector<float> residual = layers_test::random(line_rows * outputs, 4);
        tensor::row_forward(group, {.layer = half.layer,
                                    .residual = residual.data(),
                                    .x = half.x.data(),
                                    .y = half.y.data()});
        layers::linear_forward_onto(plain.layer, residual.data(), plain.x.data(), plain.y.data());
        EXPECT_EQ(half.y, plain.y);
        tensor::column_backward(group, half.backward());
        layers::linear_backward_input(plain.layer, plain.y.data(), plain.dx.data());
        layers::linear_backward_weight(
            *gemm, plain.layer.shape,
            {.x = plain.x.data(), .dy = plain.y.data(), .weight = plain.gradient});
        EXPECT_EQ(half.dx, plain.dx);
        EXPECT_EQ(half.gradient, plain.gradient);
        EXPECT_EQ(group.traffic(), Traffic{});
        EXPECT_TRUE(half.workspace.empty());
      }
    });
  }
}

/// What `call` says that throws.
template <class Call>
std::string refusal(const Call& call) {
  std::string message;
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    try {
      call(world);
    } catch (const Error& error) {
      if (world.rank() == 0) {
        message = error.what();
      }
    }
  });
  return message;
}

TEST(TensorRefusal, names_the_degree_that_has_other_ranks) {
  EXPECT_THAT(refusal([](Communicator& world) { Group(world, {.degree = 3}); }),
              testing::HasSubstr("degree of 3 is given to a communicator of 2 ranks"));
}

TEST(TensorRefusal, names_the_workspace_that_is_wanted) {
  const auto gemm = open_gemm_backend("reference");
  EXPECT_THAT(refusal([&](Communicator& world) {
                Group group(world, dealt);
                HalfLayer half(group, *gemm);
                tensor::column_forward(
                    group, {.layer = half.layer, .x = half.x.data(), .y = half.y.data()});
              }),
              testing::HasSubstr("column_workspace() and row_workspace() say how many"));
  EXPECT_THAT(refusal([](Communicator& world) {
                Group group(world, dealt);
                std::vector<float> workspace(3), gradient(4);
                tensor::PartialGradients(group, workspace).of(gradient);
              }),
              testing::HasSubstr("workspace of 3 elements, 0 of them in use, and need 4 more"));
}

}  // namespace
}  // namespace sprat::tensor_test::linear
