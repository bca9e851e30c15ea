// Checkpoints of a model whose stages are on different ranks: any stages to any others, what is
// tied, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/loader.hpp"
#include "checkpoint/plan/save_plan.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "checkpoint/whole_model.hpp"
#include "io/checked_file.hpp"
#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

/// Stages on so many ranks each, one with as many replicas as shards, beside plain jobs.
std::vector<Arrangement> with_and_without_stages() {
  return {{.ranks = 1, .shards = 1},
          {.ranks = 4, .shards = 2, .over_all = true},
          {.ranks = 4, .shards = 4},
          {.ranks = 2, .shards = 1, .stages = 2},
          {.ranks = 4, .shards = 2, .stages = 2},
          {.ranks = 4, .shards = 1, .stages = 2, .stages_apart = true},
          {.ranks = 8, .shards = 2, .stages = 2},
          {.ranks = 8, .shards = 2, .over_all = true, .stages = 2},
          {.ranks = 4, .shards = 1, .stages = 4},
          {.ranks = 16, .shards = 4, .stages = 4},
          {.ranks = 16, .shards = 2, .stages = 4, .stages_apart = true}};
}

void save_stages(const Arrangement& arrangement, const std::string& folder, std::int64_t step,
                 const std::vector<UnitSpec>& units = awkward_units()) {
  on_ranks(
      arrangement,
      [&](Communicator& world, HandMade& model) {
        model.fill(static_cast<float>(step));
        Saver saver(world, model.whole(), {.folder = folder, .keep_last = 100});
        saver.save({.step = step});
        saver.wait();
      },
      units);
}

void expect_stages_load(const Arrangement& arrangement, const std::string& folder,
                        std::int64_t step, const std::vector<UnitSpec>& units = awkward_units()) {
  on_ranks(
      arrangement,
      [&](Communicator& world, HandMade& model) {
        model.spoil();
        EXPECT_EQ(load(world, model.whole(), folder, LoadWhat::everything).step, step);
        EXPECT_EQ(model.wrong(static_cast<float>(step)), 0u)
            << arrangement.text() << ", rank " << world.rank();
      },
      units);
}

TEST(Stages, any_arrangement_loads_any_other_bit_by_bit) {
  const TemporaryFolder folder;
  std::int64_t step = 0;
  for (const Arrangement& saved : with_and_without_stages()) {
    save_stages(saved, folder.path(), ++step);
    for (const Arrangement& loaded :
         part_if_sanitized(with_and_without_stages(), 4, static_cast<std::size_t>(step))) {
      SCOPED_TRACE("saved by " + saved.text());
      expect_stages_load(loaded, folder.path(), step);
    }
  }
}

/// Elements of every tensor of a checkpoint.
std::map<std::string, std::vector<float>> tensors_at(const std::string& folder) {
  const Opened opened = open_any(folder);
  TensorReader reader(opened.manifest.contents);
  std::map<std::string, std::vector<float>> values;
  for (const StoredTensor& tensor : opened.manifest.contents.tensors) {
    values[tensor.name].resize(tensor.elements());
    reader.read(tensor, 0, values[tensor.name]);
  }
  return values;
}

TEST(Stages, save_the_tensors_that_a_job_without_them_saves) {
  const TemporaryFolder plain;
  save_stages({.ranks = 1, .shards = 1}, plain.path(), 1);
  const auto expected = tensors_at(plain.path());
  for (const Arrangement& arrangement : with_and_without_stages()) {
    const TemporaryFolder folder;
    save_stages(arrangement, folder.path(), 1);
    EXPECT_EQ(tensors_at(folder.path()), expected) << arrangement.text();
    EXPECT_THAT(verify_checkpoint(folder.path()), IsEmpty()) << arrangement.text();
  }
}

TEST(Stages, load_by_names_however_units_group_them) {
  std::vector<UnitSpec> alone;
  for (const UnitSpec& unit : awkward_units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      alone.push_back({.name = "of " + parameter.name, .parameters = {parameter}});
    }
  }
  const std::vector<UnitSpec> backwards(alone.rbegin(), alone.rend());
  std::vector<UnitSpec> joined = {{.name = "all", .parameters = {}}};
  for (const UnitSpec& unit : backwards) {
    joined[0].parameters.push_back(unit.parameters[0]);
  }
  const TemporaryFolder folder;
  save_stages({.ranks = 4, .shards = 2, .stages = 2}, folder.path(), 1);
  for (const auto& units : {alone, backwards, joined}) {
    expect_stages_load({.ranks = 2, .shards = 2}, folder.path(), 1, units);
  }
  save_stages({.ranks = 2, .shards = 2}, folder.path(), 2, alone);
  expect_stages_load({.ranks = 4, .shards = 1, .stages = 4}, folder.path(), 2);
}

TEST(Stages, have_one_plan_that_every_rank_knows) {
  const Arrangement arrangement{.ranks = 8, .shards = 2, .stages = 4};
  std::vector<std::string> plans(8);
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    const std::vector<SavedFile> files = plan_save(model.whole());
    std::string& plan = plans[static_cast<std::size_t>(world.rank())];
    for (const SavedFile& file : files) {
      plan += file.name + header_of(file);
      for (const SavedBox& box : file.boxes) {
        EXPECT_TRUE(box.ranges.empty() || box.ranges[0].rank == file.writer) << box.name;
        // Stage 0 is on ranks 0 and 4, and the head's copy of its table on 3 and 7.
        EXPECT_TRUE(!box.name.ends_with("wte") || file.writer % 4 == 0) << file.writer;
      }
    }
    EXPECT_NO_THROW(check_contents("plan", contents_of(files)));
  });
  EXPECT_THAT(plans, Each(plans[0]));
}

/// What each rank is told when something is wrong with a model on two stages of two ranks each.
std::vector<std::string> told_of_stages(
    const std::function<void(Communicator&, HandMade&, Saver&)>& body) {
  const TemporaryFolder folder;
  std::vector<std::string> told(4, "saved");
  on_ranks({.ranks = 4, .shards = 1, .stages = 2}, [&](Communicator& world, HandMade& model) {
    model.fill();
    Saver saver(world, model.whole(), {.folder = folder.path()});
    try {
      body(world, model, saver);
      saver.wait();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
    world.barrier();
    EXPECT_TRUE(told[0] == "saved" || entries(folder.path()).empty());
  });
  return told;
}

TEST(Stages, at_different_counts_of_steps_are_named) {
  const std::map<std::string, double> counters = {{"loss_scale", 8}, {"optimizer_steps", 5}};
  const auto save_with = [&](int rank, const std::string& name, double value) {
    return told_of_stages([&, rank, name, value](Communicator& world, HandMade&, Saver& saver) {
      Manifest about{.step = 5, .counters = counters};
      if (world.rank() == rank) {
        (name == "step" ? about.step = static_cast<std::int64_t>(value)
                        : static_cast<std::int64_t>(about.counters[name] = value));
      }
      saver.save(about);
    });
  };
  EXPECT_THAT(save_with(3, "optimizer_steps", 4),
              Each(HasSubstr("rank 0 has \"optimizer_steps 5\" and rank 3 \"optimizer_steps 4\"")));
  EXPECT_THAT(save_with(1, "loss_scale", 80),
              Each(HasSubstr("rank 0 has \"loss_scale 8\" and rank 1 \"loss_scale 80\"")));
  EXPECT_THAT(save_with(2, "step", 55), Each(HasSubstr("rank 0 has \"step 5\" and rank 2 \"step "
                                                       "55\"")));
  EXPECT_THAT(save_with(2, "loss_scale", 8), Each(std::string("saved")));
}

TEST(Stages, whose_tied_parameters_differ_are_named) {
  // Rank 1 has stage 1, whose last unit is the head; both of its replicas go wrong alike.
  for (std::size_t state = 0; state < 3; ++state) {
    EXPECT_THAT(told_of_stages([&](Communicator& world, HandMade& model, Saver& saver) {
                  if (world.rank() % 2 == 1) {
                    float& value = model.held().units.back().values[state][3];
                    value = std::nextafter(value, 2.0f);
                  }
                  saver.save({.step = 1});
                }),
                Each(HasSubstr("parameter \"wte\" of unit \"head\" (rank 1) differs from the one "
                               "of unit \"embed\" (rank 0) that it is tied to")))
        << state;
  }
}

TEST(Stages, may_cut_what_is_tied_in_different_ways) {
  std::vector<UnitSpec> units = awkward_units();
  units[0].parameters.push_back(named("more", {5000}));  // half of the unit is not half of "wte"
  const Arrangement arrangement{.ranks = 4, .shards = 2, .stages = 2};
  const TemporaryFolder folder;
  save_stages(arrangement, folder.path(), 1, units);
  expect_stages_load(arrangement, folder.path(), 1, units);
}

TEST(Stages, whose_replicas_differ_are_named) {
  EXPECT_THAT(told_of_stages([](Communicator& world, HandMade& model, Saver& saver) {
                if (world.rank() == 3) {
                  float& value = model.held().units[0].values[0][0];
                  value = std::nextafter(value, 2.0f);
                }
                saver.save({.step = 1});
              }),
              Each(HasSubstr("ranks 1 and 3 hold copies of unit \"small\" that differ")));
}

TEST(Stages, all_hear_of_a_file_that_one_of_them_cannot_read) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 4, .shards = 2, .stages = 2};
  save_stages(arrangement, folder.path(), 1);
  // Rank 3, of the last stage, wrote "small"; no other stage reads it.
  const std::string file = folder / "step-00000001/shard-00004-model-00001-of-00002.safetensors";
  std::string bytes = io::read_whole(file, 1 << 30);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  std::vector<std::string> told(4);
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    try {
      load(world, model.whole(), folder.path(), LoadWhat::everything);
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(told, Each(AllOf(HasSubstr("rank 3: " + file + " is damaged"), told[0])));
}

struct OtherStages {
  const char* what;
  std::vector<std::vector<UnitSpec>> units;  // by stage
  const char* says;
};

TEST(Stages, that_do_not_fit_together_are_refused_on_every_rank) {
  const ParameterSpec a = named("a", {4, 3}), b = named("b", {7});
  const auto unit = [](const char* name, const ParameterSpec& parameter) {
    return UnitSpec{.name = name, .parameters = {parameter}};
  };
  const OtherStages cases[] = {
      {"a name twice",
       {{unit("first", a)}, {unit("second", a)}},
       "parameter \"a\" of unit \"second\" has the name of one of unit \"first\""},
      {"nothing to be tied to",
       {{unit("first", b)}, {unit("second", tied_to(a))}},
       "parameter \"a\" of unit \"second\" is tied, and no stage has"},
      {"another shape",
       {{unit("first", named("a", {3, 4}))}, {unit("second", tied_to(a))}},
       "parameter \"a\" of unit \"second\" is tied to one of unit \"first\" that has another"},
      {"a name that no file takes",
       {{unit("first", a)}, {unit("second", named("b\xff", {2}))}},
       "take UTF-8"}};
  for (const OtherStages& other : cases) {
    std::vector<std::string> told(2);
    run_virtual_ranks(2, {}, [&](Communicator& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      HandMade part({.ranks = 1, .shards = 1}, 0, {""}, other.units[rank]);
      auto group = world.split(world.rank());
      try {
        part.join(world, *group);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << other.what;
        told[rank] = error.what();
      }
    });
    EXPECT_THAT(told, Each(AllOf(HasSubstr(other.says), told[0]))) << other.what;
  }
}

TEST(WholeModel, parts_with_different_optimizers_are_refused_on_every_rank) {
  std::vector<std::string> told(2);
  run_virtual_ranks(2, {}, [&](Communicator& world) {
    const bool last = world.rank() == 1;
    HandMade part({.ranks = 1, .shards = 1}, 0, {"", last ? "momentum" : "exp_avg"},
                  {{.name = last ? "u" : "v", .parameters = {named(last ? "a" : "b", {2})}}});
    auto group = world.split(world.rank());
    try {
      part.join(world, *group);
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(told, Each(HasSubstr("rank 1's optimizer keeps (momentum) of its part of the model, "
                                   "and rank 0's (exp_avg)")));
}

TEST(WholeModel, a_part_on_ranks_that_are_not_of_the_job_is_refused) {
  std::vector<std::string> told(4);
  run_virtual_ranks(4, {}, [&](Communicator& everyone) {
    auto world = everyone.split(everyone.rank() / 2);  // a half each, and one part over both
    HandMade part({.ranks = 4, .shards = 4}, everyone.rank());
    try {
      part.join(*world, everyone);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      told[static_cast<std::size_t>(everyone.rank())] = error.what();
    }
  });
  EXPECT_THAT(told, Each(HasSubstr("with 3 other ranks, of which 1 are among the 2 of the job")));
}

TEST(WholeModel, a_description_has_all_that_plans_read) {
  HandMade part({.ranks = 16, .shards = 2, .stages = 2, .tensor_ranks = 2}, 3);
  std::deque<UnitSpec> specs;
  const ModelState described = described_model(description_of(part.held()), specs);
  EXPECT_EQ(described.states, part.held().states);
  ASSERT_EQ(described.units.size(), part.held().units.size());
  for (std::size_t u = 0; u < described.units.size(); ++u) {
    const StoredUnit &is = described.units[u], &was = part.held().units[u];
    EXPECT_EQ(is.spec->name, was.spec->name);
    EXPECT_EQ(is.holders, was.holders);
    EXPECT_EQ(is.parts, was.parts);
    EXPECT_EQ(is.copies, was.copies);
    EXPECT_EQ(is.layout.padded, was.layout.padded);
    EXPECT_EQ(is.layout.count, was.layout.count);
    EXPECT_FALSE(is.is_held());
    EXPECT_THAT(is.values, IsEmpty());
    ASSERT_EQ(is.spec->parameters.size(), was.spec->parameters.size());
    for (std::size_t index = 0; index < is.spec->parameters.size(); ++index) {
      EXPECT_EQ(is.spec->parameters[index].name, was.spec->parameters[index].name);
      EXPECT_EQ(is.spec->parameters[index].shape, was.spec->parameters[index].shape);
      EXPECT_EQ(is.spec->parameters[index].box, was.spec->parameters[index].box);
      EXPECT_EQ(is.spec->parameters[index].tied, was.spec->parameters[index].tied);
      EXPECT_EQ(is.layout.items[index].offset, was.layout.items[index].offset);
      EXPECT_EQ(is.layout.items[index].count, was.layout.items[index].count);
    }
  }
}

}  // namespace
}  // namespace sprat::fsdp
