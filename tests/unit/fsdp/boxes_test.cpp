// Models that have parts of tensors: initial values, rounding by chance and updates are those of
// the whole ones, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "sprat/fsdp.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/fsdp/cut_model.hpp"

namespace sprat::fsdp::boxes_test {
namespace {

CutPart::Tensors trained(const CutJob& job, int steps) {
  CutPart::Tensors tensors;
  std::mutex mutex;
  run_virtual_ranks(job.ranks(), Config{}, [&](Communicator& world) {
    CutPart part(world, job);
    for (int step = 0; step < steps; ++step) {
      part.train(step);
    }
    part.collect(tensors, mutex);
  });
  return tensors;
}

std::vector<CutJob> cuts_of(int data_ranks) {
  return {{.data_ranks = data_ranks, .tensor_ranks = 2, .cut = Cut::rows},
          {.data_ranks = data_ranks, .tensor_ranks = 3, .cut = Cut::columns},
          {.data_ranks = data_ranks, .tensor_ranks = 4, .cut = Cut::grid},
          {.data_ranks = data_ranks, .tensor_ranks = 2, .cut = Cut::thirds}};
}

TEST(Boxes, have_the_initial_values_of_the_whole_tensors) {
  const CutPart::Tensors whole = trained({}, 0);
  for (const int data_ranks : {1, 2}) {
    for (CutJob job : cuts_of(data_ranks)) {
      EXPECT_EQ(trained(job, 0), whole) << job.text();
      job.options.strategy = "ddp";
      EXPECT_EQ(trained(job, 0), whole) << job.text() << ", whole on each";
    }
  }
}

TEST(Boxes, are_trained_to_the_bits_of_the_whole_tensors) {
  struct Setting {
    const char* name;
    std::function<void(FsdpOptions&)> apply;
  };
  const Setting settings[] = {{"f32", [](FsdpOptions&) {}},
                              {"bf16 rounded by chance",
                               [](FsdpOptions& o) {
                                 o.parameter_dtype = o.gradient_wire = DType::bf16;
                                 o.stochastic_rounding = true;
                                 o.seed = 11;
                               }},
                              {"small parameters persist", [](FsdpOptions& o) {
                                 o.persistence_threshold = 1500;
                                 o.parameter_dtype = DType::bf16;
                                 o.stochastic_rounding = true;
                               }}};
  for (const Setting& setting : settings) {
    CutJob whole{.data_ranks = 2};
    setting.apply(whole.options);
    const CutPart::Tensors expected = trained(whole, 2);
    for (CutJob job : cuts_of(2)) {
      for (const char* row : {"zero3", "zero1"}) {
        setting.apply(job.options);
        job.options.strategy = row;
        EXPECT_EQ(trained(job, 2), expected) << job.text() << ", " << row << ", " << setting.name;
      }
    }
  }
}

TEST(Boxes, have_together_the_square_sums_of_the_whole_tensors) {
  const auto sums_of = [](const CutJob& job) {
    std::vector<SquareSum> sums(cut_units().size());
    std::mutex mutex;
    run_virtual_ranks(job.ranks(), Config{}, [&](Communicator& world) {
      CutPart part(world, job);
      const std::vector<SquareSum> mine = part.square_sums();
      const std::lock_guard lock(mutex);
      for (std::size_t unit = 0; unit < mine.size() && part.leads_data_ranks(); ++unit) {
        sums[unit] += mine[unit];
      }
    });
    return sums;
  };
  for (const int data_ranks : {1, 2}) {
    const std::vector<SquareSum> expected = sums_of({.data_ranks = data_ranks});
    for (CutJob job : cuts_of(data_ranks)) {
      for (const std::size_t threshold : {0, 1500}) {
        for (const char* row : {"zero3", "zero1", "ddp"}) {
          job.options.strategy = row;
          job.options.persistence_threshold = threshold;
          EXPECT_EQ(sums_of(job), expected)
              << job.text() << ", " << row << ", threshold " << threshold;
        }
      }
    }
  }
}

/// Rows 1, 4 and 7 of nine, as those of queries, keys and values, behind another parameter.
UnitSpec rows_of_thirds() {
  UnitSpec unit{.name = "u", .parameters = {{.name = "a", .shape = {5}, .initial = {}}}};
  for (const std::int64_t row : {1, 4, 7}) {
    unit.parameters.push_back({.name = "w",
                               .shape = {9, 7},
                               .box = Box{{row, 0}, {1, 7}},
                               .initial = [](std::uint64_t at) { return static_cast<float>(at); }});
  }
  return unit;
}

TEST(Boxes, of_one_tensor_that_follow_each_other_are_one_matrix) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    run_virtual_ranks(2, Config{}, [&](Communicator& world) {
      ShardedModel model(world, {rows_of_thirds()},
                         {.strategy = "zero3", .parameter_dtype = dtype});
      model.acquire(0);
      std::vector<float> matrix(3 * 7), expected;
      const void* const first = model.parameter_elements(0, 1).data;
      widen(ConstElements(first, matrix.size(), dtype), matrix);
      for (const int row : {1, 4, 7}) {
        for (int column = 0; column < 7; ++column) {
          expected.push_back(static_cast<float>(row * 7 + column));
        }
      }
      EXPECT_EQ(matrix, expected) << world.rank();
      model.release(0);
      model.acquire(0);
      for (const int part : {2, 3}) {
        EXPECT_EQ(model.gradient(0, part).data(), model.gradient(0, 1).data() + (part - 1) * 7)
            << world.rank();
      }
      model.release(0);
      model.reduce(0);
      model.step(small_rate);
    });
  }
}

TEST(Boxes, count_each_element_once_over_all_tensor_ranks) {
  std::int64_t expected = 0;
  for (const UnitSpec& unit : cut_units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      expected += element_count(whole_box(parameter.shape));
    }
  }
  for (const CutJob& job : cuts_of(1)) {
    std::mutex mutex;
    std::int64_t count = 0;
    run_virtual_ranks(job.ranks(), Config{}, [&](Communicator& world) {
      CutPart part(world, job);
      const std::lock_guard lock(mutex);
      count += part.model().parameter_count();
    });
    EXPECT_EQ(count, expected) << job.text();
  }
}

TEST(Boxes, that_are_no_part_of_their_tensors_are_refused_by_name) {
  const auto complaint = [](const std::vector<Box>& boxes) {
    UnitSpec unit{.name = "u", .parameters = {}};
    for (const Box& box : boxes) {
      unit.parameters.push_back({.name = "w", .shape = {4, 6}, .box = box, .initial = {}});
    }
    return message_of([&] {
      run_virtual_ranks(1, Config{}, [&](Communicator& world) { ShardedModel(world, {unit}, {}); });
    });
  };
  EXPECT_THAT(
      complaint({{{2, 0}, {3, 6}}}),
      testing::HasSubstr("parameter \"w\" of unit \"u\" is the box [2:5, 0:6] of [0:4, 0:6], "
                         "which it lies outside of"));
  EXPECT_THAT(complaint({{{2}, {2}}}),
              testing::HasSubstr("parameter \"w\" of unit \"u\" has 2 dimensions, and its box 1 "
                                 "offsets and 1 extents"));
  EXPECT_THAT(complaint({{{0, 0}, {2, 6}}, {{1, 0}, {2, 6}}}),
              testing::HasSubstr("unit \"u\" has two parameters named \"w\" that are not different "
                                 "parts of one tensor"));
}

TEST(Boxes, of_one_tensor_decay_together_or_not_at_all) {
  UnitSpec unit = rows_of_thirds();
  unit.parameters.back().decay = false;
  const std::string complaint = message_of([&] {
    run_virtual_ranks(1, Config{}, [&](Communicator& world) { ShardedModel(world, {unit}, {}); });
  });
  EXPECT_THAT(complaint, testing::HasSubstr("unit \"u\" has parts of \"w\" of which one decays and "
                                            "another does not; let both or neither"));
}

}  // namespace
}  // namespace sprat::fsdp::boxes_test
