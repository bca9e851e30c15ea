// Checkpoints of models whose tensors are cut among ranks: any cut to any other, what each rank has
// alike, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/exporter.hpp"
#include "checkpoint/headers.hpp"
#include "checkpoint/loader.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "io/checked_file.hpp"
#include "sprat/checkpoint.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/comm/base/refused.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp::cut_test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// Tensor ranks with shards, replicas and stages, beside jobs that cut nothing.
std::vector<Arrangement> cut_arrangements() {
  return {{.ranks = 1, .shards = 1},
          {.ranks = 4, .shards = 2, .stages = 2},
          {.ranks = 2, .shards = 1, .tensor_ranks = 2},
          {.ranks = 4, .shards = 2, .tensor_ranks = 2, .cut = Cut::columns},
          {.ranks = 8, .shards = 2, .tensor_ranks = 4},
          {.ranks = 6, .shards = 2, .tensor_ranks = 3, .cut = Cut::columns},
          {.ranks = 8, .shards = 2, .over_all = true, .tensor_ranks = 2},
          {.ranks = 8, .shards = 2, .tensor_ranks = 4, .cut = Cut::grid},
          {.ranks = 4, .shards = 2, .tensor_ranks = 2, .cut = Cut::thirds},
          {.ranks = 8, .shards = 2, .stages = 2, .tensor_ranks = 2, .cut = Cut::columns},
          {.ranks = 16, .shards = 1, .stages = 4, .stages_apart = true, .tensor_ranks = 4}};
}

void save_cut(const Arrangement& arrangement, const std::string& folder, std::int64_t step,
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

void expect_cut_loads(const Arrangement& arrangement, const std::string& folder, std::int64_t step,
                      const std::vector<UnitSpec>& units = awkward_units()) {
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

TEST(CutTensors, load_from_any_cut_to_any_other_bit_by_bit) {
  const TemporaryFolder folder;
  std::int64_t step = 0;
  for (const Arrangement& saved : cut_arrangements()) {
    save_cut(saved, folder.path(), ++step);
    for (const Arrangement& loaded :
         part_if_sanitized(cut_arrangements(), 5, static_cast<std::size_t>(step))) {
      SCOPED_TRACE("saved by " + saved.text());
      expect_cut_loads(loaded, folder.path(), step);
    }
  }
}

TEST(CutTensors, of_shapes_and_degrees_drawn_by_chance_load_bit_by_bit) {
  std::mt19937_64 draw(3);
  const auto one_of = [&](std::vector<int> choices) { return choices[draw() % choices.size()]; };
  const auto arrangement = [&] {
    const int shards = one_of({1, 2, 3}), replicas = one_of({1, 2}), tensor = one_of({1, 2, 4});
    return Arrangement{
        .ranks = shards * replicas * tensor,
        .shards = shards,
        .over_all = draw() % 2 == 0,
        .tensor_ranks = tensor,
        .cut = std::vector{Cut::rows, Cut::columns, Cut::grid, Cut::thirds}[draw() % 4]};
  };
  const TemporaryFolder folder;
  for (std::int64_t step = 1; step <= (sanitized ? 4 : 12); ++step) {
    std::vector<UnitSpec> units = {{.name = "first", .parameters = {}},
                                   {.name = "second", .parameters = {}}};
    for (std::size_t index = 0; index < 5; ++index) {
      std::vector<std::int64_t> shape(1 + draw() % 4);
      for (std::int64_t& extent : shape) {
        extent = static_cast<std::int64_t>(1 + draw() % (shape.size() > 2 ? 11 : 61));
      }
      units[index % 2].parameters.push_back(named("p" + std::to_string(index), shape));
    }
    const Arrangement saved = arrangement(), loaded = arrangement();
    SCOPED_TRACE("saved by " + saved.text());
    save_cut(saved, folder.path(), step, units);
    expect_cut_loads(loaded, folder.path(), step, units);
    EXPECT_THAT(verify_checkpoint(folder.path()), IsEmpty());
  }
}

/// Elements of every tensor, as they lie in the files.
std::map<std::string, std::vector<float>> stored_values(const std::string& folder) {
  const Opened opened = open_any(folder);
  TensorReader reader(opened.manifest.contents);
  std::map<std::string, std::vector<float>> values;
  for (const StoredTensor& tensor : opened.manifest.contents.tensors) {
    values[tensor.name].resize(tensor.elements());
    reader.read(tensor, 0, values[tensor.name]);
  }
  return values;
}

std::uint64_t data_bytes(const Contents& contents) {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : contents.tensors) {
    for (const StoredBox& stored : tensor.boxes) {
      bytes += static_cast<std::uint64_t>(element_count(stored.box)) * sizeof(float);
    }
  }
  return bytes;
}

TEST(CutTensors, save_the_tensors_that_whole_ones_save_and_what_ranks_have_alike_once) {
  const TemporaryFolder plain;
  save_cut({.ranks = 1, .shards = 1}, plain.path(), 1);
  const auto expected = stored_values(plain.path());
  const std::uint64_t bytes = data_bytes(open_any(plain.path()).manifest.contents);
  for (const Arrangement& arrangement : part_if_sanitized(cut_arrangements(), 3)) {
    SCOPED_TRACE(arrangement.text());
    const TemporaryFolder folder;
    save_cut(arrangement, folder.path(), 1);
    EXPECT_EQ(stored_values(folder.path()), expected);
    EXPECT_EQ(data_bytes(open_any(folder.path()).manifest.contents), bytes);
    EXPECT_THAT(verify_checkpoint(folder.path()), IsEmpty());
  }
}

TEST(CutTensors, can_be_read_by_the_headers_of_their_files_alone) {
  const TemporaryFolder folder;
  save_cut({.ranks = 8, .shards = 2, .tensor_ranks = 4, .cut = Cut::grid}, folder.path(), 1);
  const std::string checkpoint = folder / "step-00000001";
  std::vector<std::string> paths;
  for (const std::string& name : entries(checkpoint)) {
    if (name.ends_with(".safetensors")) {
      paths.push_back(checkpoint + "/" + name);
    }
  }
  EXPECT_EQ(read_safetensors(paths).tensors, read_manifest(checkpoint).contents.tensors);
  paths.erase(paths.begin());
  try {
    read_safetensors(paths);
    ADD_FAILURE() << "a box is missing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tensor \""), HasSubstr("\" has its element [0"),
                                    HasSubstr("nowhere")));
  }
}

TEST(CutTensors, of_which_a_rank_has_several_parts_are_in_as_many_of_its_files) {
  const Arrangement arrangement{.ranks = 2, .shards = 1, .tensor_ranks = 2, .cut = Cut::thirds};
  on_ranks(arrangement,
           [&](Communicator& world, HandMade& model) {
             std::vector<std::string> names;
             for (const SavedFile& file : plan_save(model.whole())) {
               names.push_back(file.name.substr(0, 32) + " " + std::to_string(file.boxes.size()));
             }
             EXPECT_EQ(
                 names,
                 (std::vector<std::string>{
                     "shard-00001-model-00001-of-00006 2", "shard-00001-model-00002-of-00006 4",
                     "shard-00001-model-00003-of-00006 1", "shard-00001-model-00004-of-00006 2",
                     "shard-00001-model-00005-of-00006 1", "shard-00001-model-00006-of-00006 2",
                     "shard-00002-model-00001-of-00006 2", "shard-00002-model-00002-of-00006 4",
                     "shard-00002-model-00003-of-00006 1", "shard-00002-model-00004-of-00006 2",
                     "shard-00002-model-00005-of-00006 1", "shard-00002-model-00006-of-00006 2"}))
                 << world.rank();
           },
           {{.name = "u", .parameters = {named("qkv", {12, 4}), named("out", {4, 4})}}});
}

TEST(CutTensors, are_exported_as_whole_ones_are) {
  const std::vector<UnitSpec> units = {
      {.name = "wte", .parameters = {named("wte.weight", {11, 24})}},
      {.name = "h.0",
       .parameters = {named("h.0.attn.c_attn.weight", {72, 24}),
                      named("h.0.mlp.c_proj.weight", {24, 96}), named("h.0.ln_1.weight", {24})}}};
  for (const CheckpointForm form : {CheckpointForm::single, CheckpointForm::hf_gpt2}) {
    const TemporaryFolder folder;
    const auto exported = [&](const Arrangement& arrangement) {
      on_ranks(
          arrangement,
          [&](Communicator& world, HandMade& model) {
            model.fill();
            export_parameters(world, model.whole(), {.path = folder / "f", .form = form});
          },
          units);
      return io::read_whole(folder / "f", 1 << 30);
    };
    const std::string expected = exported({.ranks = 1, .shards = 1});
    for (const Cut cut : {Cut::rows, Cut::columns, Cut::grid, Cut::thirds}) {
      EXPECT_EQ(exported({.ranks = 8, .shards = 2, .tensor_ranks = 4, .cut = cut}), expected)
          << cut_name(cut);
    }
    save_cut({.ranks = 4, .shards = 2, .tensor_ranks = 2, .cut = Cut::columns}, folder / "saved", 0,
             units);
    convert_checkpoint(folder / "saved", folder / "converted", form);
    EXPECT_EQ(io::read_whole(folder / "converted", 1 << 30), expected);
  }
}

TEST(CutTensors, that_ranks_have_alike_and_that_differ_are_named_and_not_saved) {
  const Arrangement arrangement{.ranks = 4, .shards = 2, .tensor_ranks = 2, .cut = Cut::columns};
  for (std::size_t state = 0; state < 3; ++state) {
    const TemporaryFolder folder;
    std::vector<std::string> told(4);
    on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
      model.fill();
      if (world.rank() == 3) {  // tensor rank 1, whose "b1" is that of rank 0, and its last shard
        const StoredUnit& unit = model.held().units[2];
        const std::size_t first = unit.layout.items[1].offset - unit.layout.padded / 2;
        float& value = unit.values[state][first];
        value = std::nextafter(value, 2.0f);
      }
      Saver saver(world, model.whole(), {.folder = folder.path()});
      try {
        saver.save({.step = 1});
        saver.wait();
      } catch (const Error& error) {
        told[static_cast<std::size_t>(world.rank())] = error.what();
      }
      world.barrier();
    });
    EXPECT_THAT(told,
                Each(HasSubstr("parameter \"b1\" of unit \"block1\" (rank 1) differs from the "
                               "one of unit \"block1\" (rank 0) that it is tied to")))
        << state;
    EXPECT_THAT(entries(folder.path()), IsEmpty());
  }
}

ParameterSpec box_of(const ParameterSpec& parameter, const Box& box) {
  ParameterSpec part = parameter;
  part.box = box;
  return part;
}

struct OtherParts {
  const char* what;
  std::vector<ParameterSpec> parameters;  // by rank
  const char* says;
};

TEST(CutTensors, that_do_not_fit_together_are_refused_on_every_rank) {
  const ParameterSpec w = named("w", {4, 6});
  const OtherParts cases[] = {
      {"elements twice",
       {box_of(w, {{0, 0}, {4, 3}}), box_of(w, {{0, 2}, {4, 4}})},
       "parameter \"w\" of unit \"u1\" has the name of one of unit \"u0\", and elements of it: "
       "they "
       "are [0:4, 2:6] of [0:4, 0:6] and [0:4, 0:3]"},
      {"the same part twice, and neither is tied",
       {w, w},
       "parameter \"w\" of unit \"u1\" has the name of one of unit \"u0\", and elements of it"},
      {"elements nowhere",
       {box_of(w, {{0, 0}, {4, 3}}), box_of(w, {{0, 3}, {3, 3}})},
       "parameter \"w\" of unit \"u0\" is [0:4, 0:3] of [0:4, 0:6], and no rank has its element "
       "[3, 3]"},
      {"parts of different tensors",
       {box_of(w, {{0, 0}, {4, 3}}), box_of(named("w", {4, 7}), {{0, 3}, {4, 4}})},
       "that has another shape: they are parts of [0:4, 0:7] and of [0:4, 0:6]"},
      {"tied to a part that nobody has",
       {w, box_of(tied_to(w), {{0, 0}, {4, 3}})},
       "parameter \"w\" of unit \"u1\" is tied to one of unit \"u0\", of which it has [0:4, 0:3] "
       "of "
       "[0:4, 0:6] and no rank the same part"}};
  for (const OtherParts& other : cases) {
    std::vector<std::string> told(2);
    run_virtual_ranks(2, {}, [&](Communicator& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      HandMade part({.ranks = 1, .shards = 1}, 0, {""},
                    {{.name = "u" + std::to_string(rank), .parameters = {other.parameters[rank]}}});
      auto group = world.split(world.rank());
      told[rank] = message_of([&] { part.join(world, *group); });
    });
    EXPECT_THAT(told, Each(AllOf(HasSubstr(other.says), told[0]))) << other.what;
  }
}

TEST(CutTensors, of_one_rank_alone_are_not_saved) {
  const ParameterSpec half = box_of(named("w", {4, 6}), {{0, 0}, {2, 6}});
  HandMade model({}, 0, {""}, {{.name = "u", .parameters = {half}}});
  EXPECT_THAT(
      message_of([&] { plan_save(model.held()); }),
      HasSubstr("parameter \"w\" of unit \"u\" is [0:2, 0:6] of [0:4, 0:6], and no rank has "
                "its element [2, 0]"));
}

TEST(CutTensors, that_are_damaged_or_missing_are_named_by_their_file) {
  const TemporaryFolder folder;
  const Arrangement saved{.ranks = 4, .shards = 2, .tensor_ranks = 2, .cut = Cut::columns};
  save_cut(saved, folder.path(), 1);
  const std::string checkpoint = folder / "step-00000001";
  const auto complaint = [&](const Arrangement& arrangement) {
    std::vector<std::string> told(static_cast<std::size_t>(arrangement.ranks));
    on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
      try {
        load(world, model.whole(), checkpoint, LoadWhat::everything);
      } catch (const Error& error) {
        told[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    EXPECT_THAT(told, Each(told[0]));
    return told[0];
  };
  for (const Arrangement& arrangement :
       {saved, Arrangement{.ranks = 2, .shards = 1, .tensor_ranks = 2},
        Arrangement{.ranks = 2, .shards = 2}}) {
    for (const std::string& name : entries(checkpoint)) {
      const std::string path = checkpoint + "/" + name;
      const std::string whole = io::read_whole(path, 1 << 30);
      std::string damaged = whole;
      damaged.back() = static_cast<char>(damaged.back() ^ 1);
      std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
      EXPECT_THAT(complaint(arrangement), HasSubstr(path)) << arrangement.text();
      fs::remove(path);
      EXPECT_THAT(complaint(arrangement), HasSubstr(checkpoint)) << arrangement.text();
      std::ofstream(path, std::ios::binary) << whole;
    }
  }
}

TEST(CutTensors, of_another_shape_are_refused_by_the_whole_ones) {
  const TemporaryFolder folder;
  save_cut({.ranks = 2, .shards = 1, .tensor_ranks = 2}, folder.path(), 1,
           {{.name = "u", .parameters = {named("w", {6, 4})}}});
  std::vector<std::string> told(2);
  on_ranks({.ranks = 2, .shards = 1, .tensor_ranks = 2, .cut = Cut::columns},
           [&](Communicator& world, HandMade& model) {
             told[static_cast<std::size_t>(world.rank())] = message_of(
                 [&] { load(world, model.whole(), folder.path(), LoadWhat::everything); });
           },
           {{.name = "u", .parameters = {named("w", {4, 6})}}});
  EXPECT_THAT(told, Each(HasSubstr("tensor \"w\" has the shape [6, 4] and in the model [4, 6]")));
}

}  // namespace
}  // namespace sprat::fsdp::cut_test
