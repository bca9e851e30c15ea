// Checkpoints in other forms: one file, Hugging Face's GPT-2 and back; what verify finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/exporter.hpp"
#include "checkpoint/gpt2_names.hpp"
#include "checkpoint/loader.hpp"
#include "checkpoint/saver.hpp"
#include "checkpoint/tensor_reader.hpp"
#include "io/checked_file.hpp"
#include "io/durable.hpp"
#include "io/formats/safetensors.hpp"
#include "sprat/buffer.hpp"
#include "sprat/checkpoint.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

constexpr int width = 24;  // large enough that weights are cut among ranks

/// A GPT-2 of one layer, as ours is named.
std::vector<UnitSpec> gpt_units() {
  const int wide = 4 * width;
  return {
      {.name = "embedding",
       .parameters = {named("wte.weight", {11, width}), named("wpe.weight", {5, width})}},
      {.name = "h.0",
       .parameters =
           {named("h.0.ln_1.weight", {width}), named("h.0.ln_1.bias", {width}),
            named("h.0.attn.c_attn.weight", {3 * width, width}),
            named("h.0.attn.c_attn.bias", {3 * width}),
            named("h.0.attn.c_proj.weight", {width, width}), named("h.0.attn.c_proj.bias", {width}),
            named("h.0.mlp.c_fc.weight", {wide, width}), named("h.0.mlp.c_fc.bias", {wide}),
            named("h.0.mlp.c_proj.weight", {width, wide}), named("h.0.mlp.c_proj.bias", {width})}},
      {.name = "ln_f", .parameters = {named("ln_f.weight", {width}), named("ln_f.bias", {width})}}};
}

/// A tensor of a file that a test writes; its values are a function of the index.
struct Written {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::function<float(std::size_t)> value;
};

void write_file_of(const std::string& path, const std::vector<Written>& tensors,
                   const std::string& dtype) {
  std::vector<io::SafeTensor> header;
  std::string data;
  for (const Written& tensor : tensors) {
    std::size_t count = 1;
    for (const std::uint64_t extent : tensor.shape) {
      count *= extent;
    }
    const std::uint64_t begin = data.size();
    for (std::size_t at = 0; at < count; ++at) {
      const float value = tensor.value(at);
      const std::uint16_t narrow =
          dtype == "F16" ? to_float16(value).bits : to_bfloat16(value).bits;
      data.append(dtype == "F32" ? reinterpret_cast<const char*>(&value)
                                 : reinterpret_cast<const char*>(&narrow),
                  dtype == "F32" ? 4 : 2);
    }
    header.push_back({tensor.name, dtype, tensor.shape, begin, data.size()});
  }
  io::write_file(path, io::write_safetensors_header(header, {}) + data, {});
}

/// What Hugging Face stores for gpt_units(): weights of Conv1D as (in, out), a mask, the head.
std::vector<Written> foreign_gpt(const std::string& prefix, bool with_head) {
  std::vector<Written> tensors;
  for (const UnitSpec& unit : gpt_units()) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const std::string& name = parameter.name;
      const bool turned = name.find("c_") != std::string::npos && name.ends_with("weight");
      std::vector<std::uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
      if (turned) {
        std::swap(shape[0], shape[1]);
      }
      tensors.push_back({prefix + name, shape, [=](std::size_t at) {
                           if (turned) {  // ours at (out, in) is theirs at (in, out)
                             const std::size_t in = at / shape[1], out = at % shape[1];
                             at = out * shape[0] + in;
                           }
                           return value_of("", name, at);
                         }});
    }
  }
  tensors.push_back({prefix + "h.0.attn.bias", {1, 1, 5, 5}, [](std::size_t) { return 1.0f; }});
  tensors.push_back({prefix + "h.0.attn.masked_bias", {}, [](std::size_t) { return -1e4f; }});
  if (with_head) {
    tensors.push_back({"lm_head.weight", {11, width}, [](std::size_t at) {
                         return value_of("", "wte.weight", at);
                       }});
  }
  return tensors;
}

void expect_parameters(const std::string& checkpoint) {
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  run_virtual_ranks(2, {}, [&](Communicator& world) {
    HandMade model(arrangement, world.rank(), {""}, gpt_units());
    model.spoil();
    load(world, model.held(), checkpoint, LoadWhat::everything);
    EXPECT_EQ(model.wrong(), 0u) << "rank " << world.rank();
  });
}

void save_gpt(const std::string& folder) {
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  run_virtual_ranks(2, {}, [&](Communicator& world) {
    HandMade model(arrangement, world.rank(), {"", "exp_avg"}, gpt_units());
    model.fill();
    Saver saver(world, model.held(), {.folder = folder});
    saver.save({.step = 9, .samples = 90, .config = {{"strategy", "zero3"}}});
    saver.wait();
  });
}

template <class Body>
std::string complaint_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Convert, hugging_faces_gpt2_becomes_ours) {
  for (const std::string prefix : {"", "transformer."}) {
    for (const bool with_head : {false, true}) {
      const TemporaryFolder folder;
      write_file_of(folder / "model.safetensors", foreign_gpt(prefix, with_head), "F32");
      convert_checkpoint(folder / "model.safetensors", folder / "ours", CheckpointForm::sprat);
      expect_parameters(folder / "ours");
      EXPECT_THAT(verify_checkpoint(folder / "ours"), IsEmpty());
    }
  }
}

TEST(Convert, narrow_floats_become_f32) {
  for (const std::string dtype : {"F16", "BF16"}) {
    const TemporaryFolder folder;
    const auto value = [](std::size_t at) { return static_cast<float>(at) * 0.25f - 1; };
    write_file_of(folder / "f.safetensors", {{"a", {3, 5}, value}}, dtype);
    convert_checkpoint(folder / "f.safetensors", folder / "g.safetensors", CheckpointForm::single);
    const Opened opened = open_any(folder / "g.safetensors");
    std::vector<float> values(15);
    TensorReader(opened.manifest.contents).read(*opened.manifest.contents.find("a"), 0, values);
    for (std::size_t at = 0; at < values.size(); ++at) {
      EXPECT_EQ(values[at], value(at)) << dtype;
    }
  }
}

TEST(Convert, ours_becomes_hugging_faces_and_comes_back) {
  const TemporaryFolder folder;
  save_gpt(folder / "checkpoints");
  convert_checkpoint(folder / "checkpoints", folder / "gpt2/", CheckpointForm::hf_gpt2);
  const Opened opened = open_any(folder / "gpt2/model.safetensors");
  const Contents& contents = opened.manifest.contents;
  std::size_t tensors = 0;
  for (const Written& expected : foreign_gpt("transformer.", false)) {
    if (expected.name.find("h.0.attn.bias") != std::string::npos ||
        expected.name.find("masked_bias") != std::string::npos) {
      continue;
    }
    const StoredTensor* tensor = contents.find(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    EXPECT_TRUE(std::ranges::equal(tensor->shape, expected.shape)) << expected.name;
    std::vector<float> values(tensor->elements());
    TensorReader(contents).read(*tensor, 0, values);
    for (std::size_t at = 0; at < values.size(); ++at) {
      ASSERT_EQ(values[at], expected.value(at)) << expected.name << ' ' << at;
    }
    ++tensors;
  }
  EXPECT_EQ(contents.tensors.size(), tensors) << "no optimizer state";
  convert_checkpoint(folder / "gpt2", folder / "back/", CheckpointForm::sprat);
  expect_parameters(folder / "back");
}

TEST(Convert, knows_gpt2_by_its_weights_and_not_by_a_prefix) {
  const TemporaryFolder folder;
  const auto value = [](std::size_t at) { return static_cast<float>(at); };
  const std::vector<Written> ours = {{"transformer.h.0.attn.bias", {12}, value},
                                     {"transformer.h.0.attn.c_attn.weight", {12, 4}, value},
                                     {"transformer.h.0.attn.c_proj.weight", {4, 4}, value}};
  write_file_of(folder / "in.safetensors", ours, "F32");
  convert_checkpoint(folder / "in.safetensors", folder / "out", CheckpointForm::single);
  const Opened opened = open_any(folder / "out");
  for (const Written& expected : ours) {
    const StoredTensor* tensor = opened.manifest.contents.find(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    EXPECT_TRUE(std::ranges::equal(tensor->shape, expected.shape)) << expected.name;
    std::vector<float> values(tensor->elements());
    TensorReader(opened.manifest.contents).read(*tensor, 0, values);
    for (std::size_t at = 0; at < values.size(); ++at) {
      EXPECT_EQ(values[at], value(at));
    }
  }
}

TEST(Convert, keeps_where_training_was) {
  const TemporaryFolder folder;
  save_gpt(folder / "checkpoints");
  convert_checkpoint(folder / "checkpoints", folder / "start", CheckpointForm::sprat);
  const CheckpointInfo info = describe_checkpoint(folder / "start");
  EXPECT_EQ(info.state.step, 9);
  EXPECT_EQ(info.state.samples, 90);
  EXPECT_EQ(info.config.at("strategy"), "zero3");
  EXPECT_EQ(info.tensors.size(), 14u);
  expect_parameters(folder / "start");
}

TEST(Convert, what_has_no_place_is_named) {
  const TemporaryFolder folder;
  const auto one = [](std::size_t) { return 1.0f; };
  auto other_head = foreign_gpt("transformer.", true);
  other_head.back().value = one;
  write_file_of(folder / "head.safetensors", other_head, "F32");
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "head.safetensors", folder / "x",
                                   CheckpointForm::sprat);
              }),
              HasSubstr("\"lm_head.weight\" is not \"transformer.wte.weight\""));
  write_file_of(folder / "other.safetensors", {{"conv.weight", {3, 5}, one}}, "F32");
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "other.safetensors", folder / "x",
                                   CheckpointForm::hf_gpt2);
              }),
              HasSubstr("\"conv.weight\" is none of GPT-2's"));
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "none", folder / "x", CheckpointForm::single);
              }),
              HasSubstr("no checkpoint and no safetensors file at " + (folder / "none")));
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "other.safetensors", folder.path(),
                                   CheckpointForm::sprat);
              }),
              HasSubstr("is already there"));
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(Convert, what_cannot_be_looked_into_is_an_error_like_others) {
  const TemporaryFolder folder;
  fs::create_symlink("circle", folder / "circle");
  for (const std::string& path : {folder / "circle", folder / std::string(300, 'x')}) {
    try {
      open_any(path);
      ADD_FAILURE() << "opened " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_THAT(error.what(), HasSubstr("cannot read the folder " + path));
    }
  }
}

TEST(Convert, nothing_that_is_there_is_replaced) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  io::write_file(folder / "mine", "mine", {});
  fs::create_symlink("mine", folder / "link");
  ASSERT_EQ(mkfifo((folder / "device").c_str(), 0600), 0);
  for (const char* name : {"mine", "link", "device"}) {
    EXPECT_THAT(complaint_of([&] {
                  convert_checkpoint(folder / "c", folder / name, CheckpointForm::single);
                }),
                HasSubstr(folder / name + " is "));
  }
  EXPECT_EQ(io::read_whole(folder / "mine", 100), "mine");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_fifo(folder / "device"));
}

TEST(Convert, checkpoints_are_not_written_into) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  for (const char* name : {"c/latest", "c/latest/", "c/latest/x.safetensors"}) {
    EXPECT_THAT(complaint_of([&] {
                  convert_checkpoint(folder / "c", folder / name, CheckpointForm::single);
                }),
                HasSubstr("would lie in the checkpoint " + (folder / "c/latest")))
        << name;
  }
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "c", folder / "c/latest/x", CheckpointForm::sprat);
              }),
              HasSubstr("would lie in the checkpoint"));
  EXPECT_THAT(verify_checkpoint(folder / "c"), IsEmpty());
}

TEST(Convert, damaged_checkpoints_are_not_converted) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  const std::string file = folder / "c/step-00000009/shard-00001-model-00001-of-00002.safetensors";
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(-1, std::ios::end);
  stream.put('x');
  stream.close();
  EXPECT_THAT(complaint_of([&] {
                convert_checkpoint(folder / "c", folder / "x.safetensors", CheckpointForm::single);
              }),
              HasSubstr(file + " is damaged"));
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().filename(), "c") << "nothing else is left";
  }
}

/// The bytes of a file.
std::string bytes_of(const std::string& path) { return io::read_whole(path, 1 << 30); }

TEST(Export, every_arrangement_writes_the_file_that_convert_writes) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  for (const CheckpointForm form : {CheckpointForm::single, CheckpointForm::hf_gpt2}) {
    fs::remove(folder / "converted");
    convert_checkpoint(folder / "c", folder / "converted", form);
    for (const Arrangement arrangement :
         {Arrangement{.ranks = 1, .shards = 1}, Arrangement{.ranks = 3, .shards = 3},
          Arrangement{.ranks = 4, .shards = 2},
          Arrangement{.ranks = 4, .shards = 2, .over_all = true}}) {
      run_virtual_ranks(arrangement.ranks, {}, [&](Communicator& world) {
        HandMade model(arrangement, world.rank(), {"", "exp_avg"}, gpt_units());
        model.fill();
        export_parameters(world, model.held(), {.path = folder / "exported", .form = form});
      });
      EXPECT_EQ(bytes_of(folder / "exported"), bytes_of(folder / "converted"))
          << arrangement.text();
    }
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos);
    ++files;
  }
  EXPECT_EQ(files, 3);
}

TEST(Export, the_file_has_its_whole_length_before_any_rank_writes_its_part) {
  const TemporaryFolder folder;
  constexpr int ranks = 3;
  std::mutex mutex;
  std::vector<std::uintmax_t> lengths;
  const io::StepHook hook = [&](std::string_view step, const std::string& path) {
    if (step == "open") {
      const std::lock_guard lock(mutex);
      lengths.push_back(fs::file_size(path));
    }
  };
  run_virtual_ranks(ranks, {}, [&](Communicator& world) {
    HandMade model({.ranks = ranks, .shards = ranks}, world.rank(), {""}, gpt_units());
    model.fill();
    export_parameters(world, model.held(),
                      {.path = folder / "f", .form = CheckpointForm::single, .hook = hook});
  });
  EXPECT_EQ(lengths, std::vector(ranks, fs::file_size(folder / "f")));
}

TEST(Export, a_folder_that_is_not_there_is_named_on_every_rank) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  run_virtual_ranks(2, {}, [&](Communicator& world) {
    HandMade model(arrangement, world.rank());
    EXPECT_THAT(complaint_of([&] {
                  export_parameters(world, model.held(),
                                    {.path = folder / "no/f", .form = CheckpointForm::single});
                }),
                HasSubstr("rank 0: cannot create " + (folder / "no/f")));
  });
}

TEST(Export, a_device_and_a_checkpoint_are_left_alone) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  ASSERT_EQ(mkfifo((folder / "device").c_str(), 0600), 0);
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  for (const char* name : {"device", "c/latest/f"}) {
    run_virtual_ranks(2, {}, [&](Communicator& world) {
      HandMade model(arrangement, world.rank());
      EXPECT_THAT(complaint_of([&] {
                    export_parameters(world, model.held(),
                                      {.path = folder / name, .form = CheckpointForm::single});
                  }),
                  HasSubstr("choose another place"));
    });
  }
  EXPECT_TRUE(fs::is_fifo(folder / "device"));
  EXPECT_THAT(verify_checkpoint(folder / "c"), IsEmpty());
}

TEST(Verify, names_each_file_that_is_not_as_it_was) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  const std::string step = folder / "c/step-00000009";
  EXPECT_THAT(verify_checkpoint(folder / "c"), IsEmpty());
  fs::resize_file(step + "/shard-00001-model-00001-of-00002.safetensors", 100);
  fs::remove(step + "/shard-00001-model-00002-of-00002.safetensors");
  EXPECT_THAT(verify_checkpoint(folder / "c"),
              ElementsAre(HasSubstr("shard-00001-model-00001-of-00002.safetensors has 100 bytes"),
                          HasSubstr("shard-00001-model-00002-of-00002.safetensors: No such file")));
}

TEST(Verify, names_files_that_other_readers_would_read_as_well) {
  const TemporaryFolder folder;
  save_gpt(folder / "c");
  io::write_file(folder / "c/step-00000009/extra.safetensors", "x", {});
  EXPECT_THAT(verify_checkpoint(folder / "c"),
              ElementsAre(HasSubstr("extra.safetensors is not of this checkpoint")));
}

}  // namespace
}  // namespace sprat::fsdp
