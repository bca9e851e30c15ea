// Training that goes on from a checkpoint under any row of the table has the bits of training that
// never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "io/durable.hpp"
#include "sprat/checkpoint.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

using testing::HasSubstr;

constexpr int saved_step = 2, all_steps = 4;

void train_steps(ShardedModel& model, int rank, int first, int last, Outcome& outcome) {
  for (int step = first; step < last; ++step) {
    run_passes(model.engine(), rank, step, noisy);
    outcome.norms.push_back(model.step(small_rate).grad_norm);
  }
}

/// Trains all the way, and leaves a checkpoint of step `saved_step` in `folder`. Rank 0's outcome
/// after that step.
Outcome train_and_save(int ranks, const FsdpOptions& options, const std::string& folder) {
  Outcome result;
  run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
    ShardedModel model(world, small_units(), with_small_order(options));
    CheckpointWriter writer(model, {.folder = folder});
    Outcome outcome;
    train_steps(model, world.rank(), 0, saved_step, outcome);
    writer.save({.step = saved_step, .samples = 77, .notes = {{"who", "test"}}});
    outcome.norms.clear();
    for (int step = saved_step; step < all_steps; ++step) {
      train_steps(model, world.rank(), step, step + 1, outcome);
      writer.poll();
    }
    outcome.values = read_parameters(model.engine());
    writer.wait();
    if (world.rank() == 0) {
      result = outcome;
    }
  });
  return result;
}

Outcome load_and_train(int ranks, const FsdpOptions& options, const std::string& folder) {
  Outcome result;
  run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
    ShardedModel model(world, small_units(), with_small_order(options));
    const TrainingState state = load_checkpoint(model, folder);
    EXPECT_EQ(state.step, saved_step);
    EXPECT_EQ(state.samples, 77);
    EXPECT_EQ(state.notes.at("who"), "test");
    Outcome outcome;
    train_steps(model, world.rank(), saved_step, all_steps, outcome);
    outcome.values = read_parameters(model.engine());
    if (world.rank() == 0) {
      result = outcome;
    }
  });
  return result;
}

struct ResumeSetting {
  const char* name;
  std::function<void(FsdpOptions&)> apply;
};
const std::vector<ResumeSetting> resume_settings = {
    {"f32", [](FsdpOptions&) {}},
    {"bf16 rounded by chance",
     [](FsdpOptions& o) {
       o.parameter_dtype = o.gradient_wire = DType::bf16;
       o.stochastic_rounding = true;
       o.seed = 5;
     }},
    {"f16 with a loss scale that grows at every step",
     [](FsdpOptions& o) {
       o.parameter_dtype = DType::f16;
       o.loss_scale = {.dynamic = true, .initial = 16, .window = 1};
     }},
    {"sgd", [](FsdpOptions& o) { o.optimizer.name = "sgd"; }},
    {"lion", [](FsdpOptions& o) { o.optimizer.name = "lion"; }},
    {"small parameters persist", [](FsdpOptions& o) { o.persistence_threshold = 100; }},
};

TEST(Resume, has_the_bits_of_training_that_never_stopped_whatever_the_row) {
  constexpr int ranks = 4;
  for (const ResumeSetting& setting : resume_settings) {
    std::vector<FsdpOptions> rows = all_rows(ranks);
    for (FsdpOptions& row : rows) {
      setting.apply(row);
    }
    for (std::size_t saved = 0; saved < rows.size(); ++saved) {
      const TemporaryFolder folder;
      const Outcome truth = train_and_save(ranks, rows[saved], folder.path());
      const bool all = !sanitized && &setting == &resume_settings[0];
      const std::size_t others = all ? rows.size() : 2;
      for (std::size_t next = 0; next < others; ++next) {
        const FsdpOptions& row = rows[(saved + next) % rows.size()];
        expect_same_bits(
            load_and_train(ranks, row, folder.path()), truth,
            std::string(setting.name) + ", " + row_name(rows[saved]) + " -> " + row_name(row));
      }
    }
  }
}

TEST(Resume, other_numbers_of_ranks_and_thresholds_start_from_the_same_bits) {
  const TemporaryFolder folder;
  Values saved;
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    ShardedModel model(world, small_units(), with_small_order({.strategy = "zero3"}));
    Outcome ignored;
    train_steps(model, world.rank(), 0, 1, ignored);
    CheckpointWriter writer(model, {.folder = folder.path(), .asynchronous = false});
    writer.save({.step = 1});
    const Values values = read_parameters(model.engine());
    if (world.rank() == 0) {
      saved = values;
    }
  });
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t threshold : {std::size_t{0}, std::size_t{50}, std::size_t{100'000}}) {
      for (FsdpOptions options : all_rows(ranks)) {
        options.persistence_threshold = threshold;
        run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
          ShardedModel model(world, small_units(), with_small_order(options));
          load_checkpoint(model, folder.path());
          EXPECT_EQ(read_parameters(model.engine()), saved)
              << row_name(options) << " on " << ranks << ", threshold " << threshold;
        });
      }
    }
  }
}

TEST(Resume, parameters_alone_load_into_another_optimizer) {
  const TemporaryFolder folder;
  const Outcome truth = train_and_save(2, {.strategy = "zero3"}, folder.path());
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    FsdpOptions options = with_small_order({.strategy = "zero2"});
    options.optimizer.name = "lion";
    ShardedModel model(world, small_units(), options);
    try {
      load_checkpoint(model, folder.path());
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("optimizer.exp_avg_sq."));
      EXPECT_THAT(error.what(), HasSubstr("parameters alone"));
    }
    EXPECT_EQ(load_parameters(model, folder.path()).step, saved_step);
    Outcome outcome;
    train_steps(model, world.rank(), 0, 1, outcome);
  });
}

TEST(Resume, another_model_is_named) {
  const TemporaryFolder folder;
  train_and_save(2, {.strategy = "zero3"}, folder.path());
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    std::vector<UnitSpec> units = small_units();
    units[1].parameters[0].shape = {33, 65};
    ShardedModel model(world, units, with_small_order({.strategy = "zero3"}));
    try {
      load_checkpoint(model, folder.path());
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor \"block0.p0\" has the shape [65, 33] and in the "
                                          "model [33, 65]"));
    }
  });
}

TEST(Resume, counters_that_are_no_numbers_of_steps_are_named) {
  const TemporaryFolder folder;
  train_and_save(1, {}, folder.path());
  const std::string checkpoint = folder / "step-00000002";
  Manifest manifest = read_manifest(checkpoint);
  for (const double value : {1e18, -5.0, 1e300, 0.5}) {
    manifest.counters["optimizer_steps"] = value;
    std::filesystem::remove(checkpoint + "/manifest.json");
    io::write_file(checkpoint + "/manifest.json", write_manifest(manifest), {});
    run_virtual_ranks(1, Config{}, [&](Communicator& world) {
      ShardedModel model(world, small_units(), with_small_order({}));
      try {
        load_checkpoint(model, folder.path());
        ADD_FAILURE() << "loaded " << value;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error.what(), HasSubstr("the counter \"optimizer_steps\" is "));
      }
    });
  }
}

TEST(LatestCheckpoint, all_ranks_take_what_rank_0_finds) {
  const TemporaryFolder folder;
  train_and_save(2, {}, folder / "saved");
  std::filesystem::create_symlink("circle", folder / "circle");
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    const auto latest = [&](const std::string& of_rank_0) {
      return latest_checkpoint(world, folder / (world.rank() == 0 ? of_rank_0 : "unseen"));
    };
    EXPECT_EQ(latest("saved"), folder / "saved/step-00000002");
    EXPECT_EQ(latest("none"), std::nullopt);
    try {
      latest("circle");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot read the folder " + (folder / "circle")));
    }
  });
}

}  // namespace
}  // namespace sprat::fsdp
