// Who writes which rows: every row once, by the holder of its first element, spread over copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/plan/load_plan.hpp"
#include "checkpoint/plan/save_plan.hpp"
#include "io/formats/safetensors.hpp"
#include "sprat/error.hpp"
#include "tests/unit/checkpoint/model.hpp"

namespace sprat::fsdp {
namespace {

using testing::HasSubstr;

std::vector<Arrangement> arrangements(int most_ranks) {
  std::vector<Arrangement> result;
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    for (int shards = 1; shards <= ranks; ++shards) {
      if (ranks % shards == 0) {
        result.push_back({.ranks = ranks, .shards = shards});
        result.push_back({.ranks = ranks, .shards = shards, .over_all = true});
      }
    }
  }
  return result;
}

TEST(SavePlan, names_that_a_file_cannot_hold_are_refused) {
  const std::map<std::string, std::string> refused = {
      {"optimizer.exp_avg.a", "keep names that begin with \"optimizer.\""},
      {"__metadata__", "\"__metadata__\" for the format"},
      {"a\xff", "take UTF-8"}};
  for (const auto& [name, complaint] : refused) {
    const ParameterSpec parameter{.name = name, .shape = {2}, .initial = {}};
    HandMade model({.ranks = 1, .shards = 1}, 0, {""}, {{.name = "u", .parameters = {parameter}}});
    try {
      plan_save(model.held());
      ADD_FAILURE() << "no error: " << complaint;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(complaint));
    }
  }
}

TEST(SavePlan, every_row_is_written_once_from_the_right_elements) {
  for (const Arrangement& arrangement : arrangements(9)) {
    SCOPED_TRACE(arrangement.text());
    HandMade model(arrangement, 0);
    const ModelState& held = model.held();
    std::map<std::string, std::vector<const SavedBox*>> boxes;
    const std::vector<SavedFile> files = plan_save(held);
    for (const SavedFile& file : files) {
      EXPECT_FALSE(file.boxes.empty());
      std::set<std::string> names;
      for (const SavedBox& box : file.boxes) {
        EXPECT_TRUE(names.insert(box.name).second) << box.name << " twice in " << file.name;
        boxes[box.name].push_back(&box);
        std::uint64_t covered = 0;
        for (const PartRange& range : box.ranges) {
          const StoredUnit& unit = held.units[range.unit];
          const std::size_t part_elements = unit.layout.padded / unit.parts;
          EXPECT_LE(range.offset + range.count, part_elements);
          covered += range.count;
        }
        EXPECT_EQ(covered * sizeof(float), box.bytes()) << box.name;
        if (!box.ranges.empty()) {
          EXPECT_EQ(box.ranges[0].rank, file.writer) << box.name;
        }
      }
    }
    const Contents contents = contents_of(files);
    EXPECT_NO_THROW(check_contents("plan", contents));
    EXPECT_EQ(contents.tensors.size(), 3 * 11u);
    for (const auto& [name, of_tensor] : boxes) {
      std::uint64_t bytes = 0;
      for (const SavedBox* box : of_tensor) {
        EXPECT_TRUE(has_whole_rows(box->box, box->shape)) << name;
        bytes += box->bytes();
      }
      EXPECT_EQ(bytes, contents.find(name)->elements() * sizeof(float)) << name;
    }
  }
}

TEST(SavePlan, is_the_same_on_every_rank) {
  const Arrangement arrangement{.ranks = 8, .shards = 2};
  HandMade first(arrangement, 0);
  const auto expected = plan_save(first.held());
  for (int rank = 1; rank < arrangement.ranks; ++rank) {
    HandMade other(arrangement, rank);
    const auto files = plan_save(other.held());
    ASSERT_EQ(files.size(), expected.size()) << rank;
    for (std::size_t file = 0; file < files.size(); ++file) {
      EXPECT_EQ(files[file].name, expected[file].name) << rank;
      EXPECT_EQ(header_of(files[file]), header_of(expected[file])) << rank;
    }
  }
}

TEST(SavePlan, copies_share_the_units) {
  HandMade model({.ranks = 4, .shards = 1}, 0);
  std::map<std::string, int> writer;
  for (const SavedFile& file : plan_save(model.held())) {
    for (const SavedBox& box : file.boxes) {
      writer[box.name] = file.writer;
    }
  }
  EXPECT_EQ(writer["wte"], 0);
  EXPECT_EQ(writer["w"], 1);
  EXPECT_EQ(writer["optimizer.exp_avg.w"], 1);
  EXPECT_EQ(writer["w1"], 2);
  EXPECT_EQ(writer["ln"], 3);
}

bool has_part_in(const SavedFile& file, const SavedBox& box, int rank) {
  return file.writer == rank ||
         std::ranges::find(box.ranges, rank, &PartRange::rank) != box.ranges.end();
}

/// As text, of one kind of boxes: those of files that `rank` writes, or others that it has a part
/// in.
std::vector<std::string> boxes_of(const std::vector<SavedFile>& plan, int rank, bool written) {
  std::vector<std::string> boxes;
  for (const SavedFile& file : plan) {
    for (const SavedBox& box : file.boxes) {
      if ((file.writer == rank) == written && has_part_in(file, box, rank)) {
        boxes.push_back(file.name + ": " + box.name);
      }
    }
  }
  return boxes;
}

TEST(SavePlan, a_rank_keeps_what_it_has_a_part_in_and_no_more) {
  for (const Arrangement& arrangement : arrangements(8)) {
    HandMade model(arrangement, 0);
    const std::vector<SavedFile> plan = plan_save(model.held());
    for (int rank = 0; rank < arrangement.ranks; ++rank) {
      SCOPED_TRACE(arrangement.text() + ", rank " + std::to_string(rank));
      const std::vector<SavedFile> own = part_of(plan, rank);
      EXPECT_EQ(boxes_of(own, rank, true), boxes_of(plan, rank, true)) << "written";
      EXPECT_EQ(boxes_of(own, rank, false), boxes_of(plan, rank, false)) << "sent";
      for (const SavedFile& file : own) {
        EXPECT_FALSE(file.boxes.empty()) << file.name;
        for (const SavedBox& box : file.boxes) {
          EXPECT_TRUE(has_part_in(file, box, rank)) << box.name << " in " << file.name;
        }
      }
      EXPECT_EQ(own.capacity(), own.size()) << "memory of what was dropped";
    }
  }
}

TEST(SavePlan, files_are_named_as_torch_names_them) {
  HandMade model({.ranks = 2, .shards = 2}, 0);
  std::vector<std::string> names;
  for (const SavedFile& file : plan_save(model.held())) {
    names.push_back(file.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("shard-00001-model-00001-of-00002.safetensors",
                                          "shard-00001-model-00002-of-00002.safetensors",
                                          "shard-00002-model-00001-of-00002.safetensors",
                                          "shard-00002-model-00002-of-00002.safetensors"));
  HandMade parameters({.ranks = 1, .shards = 1}, 0, {""});
  EXPECT_EQ(plan_save(parameters.held())[0].name, "shard-00001-model-00001-of-00001.safetensors");
}

TEST(SavePlan, headers_say_where_boxes_lie) {
  HandMade model({.ranks = 2, .shards = 2}, 0);
  const auto files = plan_save(model.held());
  const std::string header = header_of(files[2]);  // rank 1's parameters
  std::uint64_t data = 0;
  for (const SavedBox& box : files[2].boxes) {
    data += box.bytes();
  }
  const auto parsed =
      io::parse_safetensors("f", std::string_view(header).substr(8), header.size() + data);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
  EXPECT_EQ(parsed.metadata.at("DCP_VERSION"), "1.0");
  // Part 1 begins at element 4096 of "embed": row 64 of 64 elements.
  EXPECT_THAT(parsed.metadata.at("DCP_SHARDING_INFO"),
              HasSubstr(R"("wte":{"saved_offsets":[64,0]})"));
  EXPECT_EQ(parsed.tensors[0].name, "wte");
  EXPECT_EQ(parsed.tensors[0].shape, (std::vector<std::uint64_t>{37, 64}));
}

TEST(SavePlan, one_name_for_two_parameters_is_refused) {
  HandMade model({}, 0, {""},
                 {{.name = "a", .parameters = {named("w", {2})}},
                  {.name = "b", .parameters = {named("w", {2})}}});
  try {
    plan_save(model.held());
    FAIL() << "planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("parameter \"w\" of unit \"b\""));
    EXPECT_THAT(error.what(), HasSubstr("unit \"a\""));
  }
}

TEST(LoadPlan, one_copy_reads_every_element_once_whatever_it_was_saved_as) {
  for (const Arrangement& saved : arrangements(4)) {
    HandMade source(saved, 0);
    const Contents contents = contents_of(plan_save(source.held()));
    for (const Arrangement& loaded : arrangements(4)) {
      SCOPED_TRACE(saved.text() + " -> " + loaded.text());
      for (int rank = 0; rank < loaded.ranks; ++rank) {
        HandMade model(loaded, rank);
        model.spoil();
        for (const PartRead& read :
             plan_load("saved", contents, model.held(), LoadWhat::everything)) {
          EXPECT_EQ(read.times, 1u) << "rows alone are read in one piece";
          for (float& value :
               model.held().units[read.unit].values[read.state].subspan(read.offset, read.count)) {
            EXPECT_NE(value, value) << "read twice";  // NaN where nothing was read
            value = 1;
          }
          EXPECT_LE(read.begin + read.count * 4, contents.files[read.file].record.bytes);
        }
        for (std::size_t u = 0; u < model.held().units.size(); ++u) {
          const StoredUnit& unit = model.held().units[u];
          const bool reads = unit.copy == unit.disk_copy(u);
          for (const auto values : unit.values) {
            for (const float value : values) {
              // Parameters are NaN until they are read, gaps between them are zero throughout.
              ASSERT_TRUE(reads ? value == value : value != 1) << "copy " << unit.copy;
            }
          }
        }
      }
    }
  }
}

struct OtherModel {
  const char* what;
  std::vector<std::string> states;
  std::vector<UnitSpec> units;
  std::vector<const char*> says;
};

TEST(LoadPlan, another_model_is_refused_by_name) {
  const std::vector<UnitSpec> own = {
      {.name = "u", .parameters = {named("a", {4, 3}), named("b", {7})}}};
  HandMade source({}, 0, {"", "exp_avg"}, own);
  const Contents contents = contents_of(plan_save(source.held()));
  const OtherModel others[] = {
      {"shape",
       {"", "exp_avg"},
       {{.name = "u", .parameters = {named("a", {3, 4}), named("b", {7})}}},
       {"tensor \"a\"", "[4, 3]", "[3, 4]"}},
      {"missing",
       {"", "exp_avg"},
       {{.name = "u", .parameters = {named("a", {4, 3}), named("b", {7}), named("c", {1})}}},
       {"no tensor \"c\""}},
      {"additional",
       {"", "exp_avg"},
       {{.name = "u", .parameters = {named("a", {4, 3})}}},
       {"has the tensor \"b\" [7]"}},
      {"optimizer that was not saved",
       {"", "exp_avg", "exp_avg_sq"},
       own,
       {"no optimizer state \"exp_avg_sq\" of \"a\"", "parameters alone"}},
      {"optimizer that is not used",
       {""},
       own,
       {"has the tensor \"optimizer.exp_avg.a\"", "parameters alone"}},
  };
  for (const OtherModel& other : others) {
    HandMade model({}, 0, other.states, other.units);
    try {
      plan_load("folder/step-1", contents, model.held(), LoadWhat::everything);
      ADD_FAILURE() << other.what << ": planned";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << other.what;
      EXPECT_THAT(error.what(), HasSubstr("folder/step-1")) << other.what;
      for (const char* says : other.says) {
        EXPECT_THAT(error.what(), HasSubstr(says)) << other.what;
      }
    }
  }
  HandMade plain({}, 0, {""}, own);
  EXPECT_EQ(plan_load("p", contents, plain.held(), LoadWhat::parameters).size(), 2u);
}

}  // namespace
}  // namespace sprat::fsdp
