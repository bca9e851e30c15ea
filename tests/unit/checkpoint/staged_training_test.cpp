// Training that goes on from a checkpoint on other stages has the bits of training that never
// stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/checked_file.hpp"
#include "sprat/checkpoint.hpp"
#include "sprat/fsdp.hpp"
#include "sprat/layout.hpp"
#include "tests/unit/checkpoint/saved_values.hpp"
#include "tests/unit/fsdp/small_model.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::fsdp {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int staged_saved = 2, staged_steps = 4;

UnitSpec unit_of_table(const std::string& name, bool tied) {
  return {.name = name,
          .parameters = {{.name = "wte",
                          .shape = {67, 33},
                          .initial = [](std::uint64_t index) { return noise(index); },
                          .tied = tied}}};
}

UnitSpec block_of(int number) {
  const std::string name = "h." + std::to_string(number);
  UnitSpec unit{.name = name, .parameters = {}};
  for (const auto& [what, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {".w", {65, 33}}, {".b", {33}}, {".none", {0, 7}}}) {
    unit.parameters.push_back(
        {.name = name + what, .shape = shape, .initial = [number](std::uint64_t index) {
           return noise(key_of(7, static_cast<std::uint64_t>(number), index, 0));
         }});
  }
  return unit;
}

/// A table, three blocks, and a head that is the table on the last stage. Stages are uneven.
std::vector<UnitSpec> units_of(int stages, int stage) {
  const std::vector<UnitSpec> all = {unit_of_table("wte", false), block_of(0), block_of(1),
                                     block_of(2)};
  const std::map<int, std::vector<std::ptrdiff_t>> ends = {
      {1, {0, 4}}, {2, {0, 3, 4}}, {4, {0, 1, 2, 3, 4}}};
  const auto& cut = ends.at(stages);
  const auto at = static_cast<std::size_t>(stage);
  std::vector<UnitSpec> own(all.begin() + cut[at], all.begin() + cut[at + 1]);
  if (stages > 1 && stage == stages - 1) {
    own.push_back(unit_of_table("head", true));
  }
  return own;
}

/// A job: degrees, and the row of the table that its stages have.
struct StagedJob {
  ParallelDegrees degrees;
  std::string strategy;
  std::size_t persistence_threshold = 0;
  std::string text() const {
    return std::to_string(degrees.pipeline) + " stages of " + strategy + " on " +
           std::to_string(degrees.world) + " ranks, " + degrees.placement;
  }
};

/// This rank's stage.
struct StagedPart {
  StagedPart(Communicator& world, const StagedJob& job)
      : layout(job.degrees),
        data(split_along(world, layout, Axes::data)),
        units(units_of(layout.degrees().pipeline, layout.coordinate(world.rank()).pipeline)),
        model(data, units,
              {.strategy = job.strategy,
               .hybrid_shard_degree = job.strategy == "ddp" ? 0 : layout.degrees().shard,
               .persistence_threshold = job.persistence_threshold,
               .clip_norm = 0}) {}

  /// Gradients depend on names, the rank of the data and the step alone, so that stages give the
  /// bits of one model, and both uses of the table the same.
  void train(int step) {
    const int count = static_cast<int>(units.size());
    for (int unit = 0; unit < count; ++unit) {
      model.acquire(unit);
      model.release(unit);
    }
    for (int unit = count - 1; unit >= 0; --unit) {
      model.acquire(unit);
      const auto& parameters = units[static_cast<std::size_t>(unit)].parameters;
      for (std::size_t index = 0; index < parameters.size(); ++index) {
        const std::uint64_t name = std::hash<std::string>()(parameters[index].name);
        std::uint64_t element = 0;
        for (float& gradient : model.gradient(unit, static_cast<int>(index))) {
          gradient += noise(key_of(name, static_cast<std::uint64_t>(data.rank()),
                                   static_cast<std::uint64_t>(step), element++));
        }
      }
      model.release(unit);
      model.reduce(unit);
    }
    model.step(small_rate);
  }

  ParallelLayout layout;
  Communicator data;
  std::vector<UnitSpec> units;
  ShardedModel model;
};

/// Trains from the checkpoint in `folder`, if there is one, and saves at `last`.
void train_stages(const StagedJob& job, const std::string& folder, const std::string& into,
                  int first, int last) {
  run_virtual_ranks(job.degrees.world, Config{}, [&](Communicator& world) {
    StagedPart part(world, job);
    if (first > 0) {
      const TrainingState state = load_checkpoint(world, part.model, folder);
      EXPECT_EQ(state.step, first);
      EXPECT_EQ(part.model.updates(), first);
    }
    for (int step = first; step < last; ++step) {
      part.train(step);
    }
    CheckpointWriter writer(world, part.model, {.folder = into});
    writer.save({.step = last});
    writer.wait();
  });
}

/// Two ranks of data each, since bits depend on their number alone.
std::vector<StagedJob> jobs_of_two_data_ranks() {
  return {{.degrees = {.world = 2, .shard = 2}, .strategy = "zero3"},
          {.degrees = {.world = 2, .shard = 1}, .strategy = "ddp", .persistence_threshold = 100},
          {.degrees = {.world = 4, .shard = 2, .pipeline = 2}, .strategy = "zero2"},
          {.degrees = {.world = 4, .shard = 1, .pipeline = 2, .placement = "spread"},
           .strategy = "ddp"},
          {.degrees = {.world = 8, .shard = 2, .pipeline = 4},
           .strategy = "zero3",
           .persistence_threshold = 100}};
}

TEST(StagedTraining, goes_on_from_any_stages_with_the_bits_of_training_that_never_stopped) {
  const std::vector<StagedJob> jobs = jobs_of_two_data_ranks();
  const TemporaryFolder never_stopped;
  train_stages(jobs[0], "", never_stopped.path(), 0, staged_steps);
  const SavedValues truth = saved_values(never_stopped.path());
  ASSERT_EQ(truth.tensors.size(), 3 * 10u);
  for (const StagedJob& saved : jobs) {
    const TemporaryFolder folder;
    train_stages(saved, "", folder.path(), 0, staged_saved);
    for (const StagedJob& next : jobs) {
      const TemporaryFolder into;
      train_stages(next, folder.path(), into.path(), staged_saved, staged_steps);
      EXPECT_EQ(saved_values(into.path()), truth) << saved.text() << " -> " << next.text();
    }
  }
}

TEST(StagedTraining, of_one_stage_saves_the_bytes_of_a_model_that_knows_no_stages) {
  const TemporaryFolder folder;
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    StagedPart part(world, {.degrees = {.world = 4, .shard = 2}, .strategy = "hsdp"});
    part.train(0);
    CheckpointWriter(part.model, {.folder = folder / "plain", .asynchronous = false})
        .save({.step = 1});
    CheckpointWriter(world, part.model, {.folder = folder / "staged", .asynchronous = false})
        .save({.step = 1});
  });
  const std::vector<std::string> names = entries(folder / "plain/step-00000001");
  EXPECT_EQ(entries(folder / "staged/step-00000001"), names);
  for (const std::string& name : names) {
    const auto bytes = [&](const char* way) {
      return io::read_whole((folder / way) + "/step-00000001/" + name, 1 << 30);
    };
    EXPECT_EQ(bytes("staged"), bytes("plain")) << name;
  }
}

TEST(StagedTraining, a_stage_may_have_no_parameters) {
  const TemporaryFolder folder;
  run_virtual_ranks(2, Config{}, [&](Communicator& world) {
    Communicator group = *world.split(world.rank());
    const UnitSpec nothing{.name = "nothing", .parameters = {}};
    const std::vector<UnitSpec> units = {world.rank() == 0 ? nothing : block_of(0)};
    ShardedModel part(group, units, {});
    CheckpointWriter writer(world, part, {.folder = folder.path(), .asynchronous = false});
    writer.save({.step = 1});
    EXPECT_EQ(load_checkpoint(world, part, folder.path()).step, 1);
  });
  EXPECT_EQ(saved_values(folder.path()).tensors.size(), 3 * 3u);
}

TEST(StagedTraining, parameters_alone_are_loaded_and_exported) {
  const StagedJob job{.degrees = {.world = 4, .shard = 2, .pipeline = 2}, .strategy = "zero3"};
  const TemporaryFolder folder;
  train_stages(job, "", folder / "saved", 0, staged_saved);
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    StagedPart part(world, job);
    EXPECT_EQ(load_parameters(world, part.model, folder / "saved").step, staged_saved);
    EXPECT_EQ(part.model.updates(), 0);
    export_parameters(world, part.model, folder / "model.safetensors");
  });
  const SavedValues saved = saved_values(folder / "saved"),
                    exported = saved_values(folder / "model.safetensors");
  EXPECT_EQ(exported.tensors.size(), 10u);
  for (const auto& [name, values] : exported.tensors) {
    EXPECT_EQ(values, saved.tensors.at(name)) << name;
  }
}

TEST(StagedTraining, stages_that_took_different_steps_save_nothing) {
  const TemporaryFolder folder;
  std::vector<std::string> told(4);
  run_virtual_ranks(4, Config{}, [&](Communicator& world) {
    StagedPart part(world,
                    {.degrees = {.world = 4, .shard = 2, .pipeline = 2}, .strategy = "zero3"});
    CheckpointWriter writer(world, part.model, {.folder = folder.path()});
    if (world.rank() % 2 == 1) {
      part.train(0);  // the last stage alone
    }
    try {
      writer.save({.step = 1});
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(told, Each(AllOf(HasSubstr("rank 0 has \"optimizer_steps 0\""),
                               HasSubstr("rank 1 \"optimizer_steps 1\""))));
}

}  // namespace
}  // namespace sprat::fsdp
