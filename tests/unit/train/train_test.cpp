// A whole run on ranks that are threads: the same losses however parameters are sharded.
#include "train/train.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"
#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/io/tokenizer/small_tokenizer.hpp"
#include "tests/unit/train/small_text.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;
using testing::Not;

class Run : public testing::Test {
 protected:
  Run() { write_small_text(folder_ / "text.txt"); }

  /// A configuration file of these sections beside model and data; "train" gets more keys.
  std::string config(const std::string& train, const std::string& sections) const {
    const auto path = folder_ / "config.json";
    std::ofstream(path) << R"({
      "model": {"layers": 2, "width": 16, "heads": 2, "context": 16},
      "data": {"files": ["text.txt"]},
      "train": {"steps": 12, "learning_rate": 0.01, "validate_every": 5,
                "validation_samples": 10, "sample_bytes": 20)"
                        << (train.find("\"batch\"") == train.npos ? R"(, "batch": 8)" : "") << train
                        << "}, " << sections << "}";
    return path;
  }
  static std::string degree(int degree) {
    return R"("parallel": {"hybrid_shard_degree": )" + std::to_string(degree) + "}";
  }

  struct Outcome {
    std::vector<nlohmann::json> lines;
    std::string output;
    int code = 0;
    std::vector<std::string> loss_hex() const {
      std::vector<std::string> all;
      for (const auto& line : lines) {
        all.push_back(line.at("loss_hex"));
      }
      return all;
    }
  };
  Outcome train(int ranks, TrainRequest request) const {
    request.report = (folder_ / "report.jsonl").string();
    std::mutex mutex;  // guards the outcome's code
    Outcome outcome;
    testing::internal::CaptureStdout();
    run_virtual_ranks(ranks, Config{}, [&](Communicator& world) {
      const int code = run(world, request);
      const std::lock_guard lock(mutex);
      outcome.code = std::max(outcome.code, code);
    });
    outcome.output = testing::internal::GetCapturedStdout();
    std::ifstream report(*request.report);
    for (std::string line; std::getline(report, line);) {
      outcome.lines.push_back(nlohmann::json::parse(line));
    }
    return outcome;
  }
  Outcome train(int ranks, int degree, std::optional<int> steps = {}) const {
    return train(ranks, {.config = config("", Run::degree(degree)), .steps = steps});
  }

  /// Of the checkpoints, ascending.
  std::vector<std::string> saved_names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "saved")) {
      if (entry.is_directory() && !entry.is_symlink()) {
        names.push_back(entry.path().filename());
      }
    }
    std::ranges::sort(names);
    return names;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(Run, losses_have_the_same_bits_at_every_sharding_degree) {
  const auto reference = train(4, 1);
  ASSERT_EQ(reference.lines.size(), 12u);
  for (const int degree : {2, 4}) {
    const auto other = train(4, degree);
    EXPECT_EQ(other.loss_hex(), reference.loss_hex()) << "degree " << degree;
    EXPECT_EQ(other.lines.back().at("validation_loss"),
              reference.lines.back().at("validation_loss"));
  }
}

TEST_F(Run, losses_have_the_same_bits_at_every_degree_where_the_batch_does_not_divide) {
  const auto losses = [&](int degree) {
    return train(4, {.config = config(R"(, "batch": 11)", Run::degree(degree))}).loss_hex();
  };
  const auto reference = losses(1);
  ASSERT_EQ(reference.size(), 12u);
  EXPECT_EQ(losses(2), reference);
  EXPECT_EQ(losses(4), reference);
}

/// The text's bytes as shards of tokens, of which a loader makes the same samples.
class LoadedRun : public Run {
 protected:
  LoadedRun() {
    std::ifstream file(folder_ / "text.txt", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto held_out = static_cast<std::size_t>(static_cast<double>(text.size()) * 0.05);
    const std::size_t learnt = text.size() - held_out;
    std::ofstream(folder_ / "learn0.bin") << text.substr(0, 3000);
    std::ofstream(folder_ / "learn1.bin") << text.substr(3000, learnt - 3000);
    std::ofstream(folder_ / "held.bin") << text.substr(learnt);
  }
  /// config(), but with sources of tokens instead of the text.
  std::string loaded_config(const std::string& train, const std::string& sections) const {
    std::ifstream file(config(train, sections));
    nlohmann::json root = nlohmann::json::parse(file);
    root["data"] = nlohmann::json::parse(R"({
      "sources": [{"paths": ["learn*.bin"], "format": "tokens", "token_type": "u8"}],
      "validation": {"sources": [{"paths": ["held.bin"], "format": "tokens", "token_type": "u8"}]},
      "reading": {"memory_bytes": 4000000}})");
    const auto path = folder_ / "loaded.json";
    std::ofstream(path) << root.dump();
    return path;
  }
};

TEST_F(LoadedRun, has_the_bits_of_the_text_that_its_shards_hold) {
  const std::string tree =
      R"("parallel": {"gradient_order": "tree", "hybrid_shard_degree": 1, "microbatches": )";
  const std::pair<int, std::string> runs[] = {
      {1, degree(1)},
      {4, degree(2)},
      {2, tree + "2}"},
      {2, R"("parallel": {"microbatches": 2})"},
      {4, tree + R"(2, "tensor_parallel_degree": 2, "prescaled_batch": false})"},
      {4, tree + R"(4, "pipeline_parallel_degree": 2})"},
      {4, R"("parallel": {"context_parallel_degree": 2})"}};
  for (const auto& [ranks, sections] : runs) {
    const std::string train_keys = R"(, "gemm": "reference")";
    const auto text = train(ranks, {.config = config(train_keys, sections)});
    const auto loaded = train(ranks, {.config = loaded_config(train_keys, sections)});
    ASSERT_EQ(text.lines.size(), 12u);
    EXPECT_EQ(loaded.loss_hex(), text.loss_hex()) << sections;
    EXPECT_EQ(loaded.lines.back().at("validation_loss"), text.lines.back().at("validation_loss"))
        << sections;
    EXPECT_TRUE(loaded.lines.back().contains("data_wait_ms"));
    EXPECT_FALSE(text.lines.back().contains("data_wait_ms"));
    EXPECT_THAT(loaded.output, HasSubstr("the model writes"));
    EXPECT_THAT(loaded.output, HasSubstr("MiB data that is read ahead"));
  }
}

TEST_F(LoadedRun, resumes_on_another_number_of_ranks_with_the_same_bits) {
  const auto sections = [](int microbatches) {
    return R"("checkpoint": {"folder": "saved"}, "parallel": {"gradient_order": "tree",
              "hybrid_shard_degree": 1, "microbatches": )" +
           std::to_string(microbatches) + "}";
  };
  const auto whole = train(1, {.config = loaded_config("", sections(4))}).loss_hex();
  std::filesystem::remove_all(folder_ / "saved");
  train(2, {.config = loaded_config("", sections(2)), .steps = 5});
  EXPECT_EQ(train(4, {.config = loaded_config("", sections(1)), .resume = ""}).loss_hex(), whole);
}

TEST_F(LoadedRun, on_ranks_that_see_other_files_is_refused_on_all) {
  const std::string mine = loaded_config("", degree(1));
  std::ofstream(folder_ / "other.bin") << std::string(3000, 'x');
  std::ifstream file(mine);
  nlohmann::json root = nlohmann::json::parse(file);
  root["data"]["sources"][0]["paths"] = {"other.bin"};
  std::ofstream(folder_ / "other.json") << root.dump();
  std::vector<std::string> said(3, "trained");
  testing::internal::CaptureStdout();
  run_virtual_ranks(3, Config{}, [&](Communicator& world) {
    try {
      run(world, {.config = world.rank() == 1 ? (folder_ / "other.json").string() : mine});
    } catch (const Error& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  testing::internal::GetCapturedStdout();
  for (const std::string& one : said) {
    EXPECT_THAT(one, testing::AllOf(HasSubstr("data.sources is "), HasSubstr("on ranks 0, 2"),
                                    HasSubstr("on rank 1")));
  }
}

TEST_F(Run, learns) {
  const auto outcome = train(2, 2);
  EXPECT_LT(outcome.lines.back().at("loss"), 0.8 * outcome.lines.front().at("loss").get<double>());
  EXPECT_THAT(outcome.output, HasSubstr("step 12/12"));
  EXPECT_THAT(outcome.output, HasSubstr("what to try next"));
}

TEST_F(Run, other_numbers_of_ranks_begin_with_the_same_loss_but_for_rounding) {
  const double one = train(1, 1, 1).lines.front().at("loss");
  const double four = train(4, 2, 1).lines.front().at("loss");
  // Same samples, same parameters; only sums over rows are grouped differently.
  EXPECT_NEAR(one, four, 128 * 1.2e-7 * one);
}

TEST_F(Run, steps_cut_a_run_short_on_the_same_path) {
  const auto whole = train(2, 1).loss_hex();
  const auto start = train(2, 1, 5).loss_hex();
  EXPECT_EQ(start, std::vector(whole.begin(), whole.begin() + 5));
}

TEST_F(Run, more_ranks_than_samples_are_refused) {
  try {
    train(9, 1);
    FAIL() << "ran";
  } catch (const Error& error) {
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("train.batch 8"));
  }
}

constexpr const char* saved = R"("checkpoint": {"folder": "saved"})";

TEST_F(Run, resumes_with_the_bits_of_a_run_that_went_on) {
  const auto whole = train(4, {.config = config("", degree(2))});
  const auto start = train(4, {.config = config("", degree(2) + ", " + saved), .steps = 5});
  const auto rest = train(4, {.config = config("", degree(2) + ", " + saved), .resume = ""});
  EXPECT_THAT(whole.output, Not(HasSubstr("in the checkpoint")));
  EXPECT_THAT(rest.output, HasSubstr("resuming after step 5"));
  EXPECT_THAT(rest.output, Not(HasSubstr("in the checkpoint")));
  EXPECT_THAT(rest.output, HasSubstr("step  6/12"));
  EXPECT_EQ(rest.lines.size(), 12u) << "the report goes on";
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
  EXPECT_EQ(rest.lines.back().at("validation_loss"), whole.lines.back().at("validation_loss"));
}

TEST_F(Run, resumes_under_any_strategy_with_the_same_bits) {
  const auto whole = train(4, {.config = config("", degree(4))});
  train(4, {.config = config("", degree(4) + ", " + saved), .steps = 5});
  const auto rest = train(4, {.config = config("", degree(1) + ", " + saved), .resume = ""});
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
}

TEST_F(Run, resumes_on_another_number_of_ranks) {
  const auto whole = train(4, {.config = config("", degree(0))});
  train(4, {.config = config("", degree(0) + ", " + saved), .steps = 5});
  const auto rest = train(2, {.config = config("", degree(0) + ", " + saved), .resume = ""});
  EXPECT_THAT(rest.output, HasSubstr("warning: data ranks is 2, in the checkpoint 4"));
  ASSERT_EQ(rest.lines.size(), 12u);
  for (int step = 5; step < 12; ++step) {
    // Same samples and parameters; sums over rows are grouped differently, step after step.
    EXPECT_NEAR(rest.lines[step].at("loss").get<double>(),
                whole.lines[step].at("loss").get<double>(), (step - 4) * 128 * 1.2e-7 * 5)
        << "step " << step + 1;
  }
}

TEST_F(Run, resumes_a_tree_on_another_number_of_ranks_with_the_same_bits) {
  const auto tree = [&](int micro_steps, const std::string& sections) {
    return config(R"(, "micro_steps": )" + std::to_string(micro_steps),
                  R"("parallel": {"gradient_order": "tree"})" + sections);
  };
  const auto whole = train(4, {.config = tree(2, "")});
  train(4, {.config = tree(2, std::string(", ") + saved), .steps = 5});
  const auto rest = train(2, {.config = tree(4, std::string(", ") + saved), .resume = ""});
  EXPECT_THAT(rest.output, Not(HasSubstr("in the checkpoint")));
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
}

TEST_F(Run, resumes_the_loss_scale_and_the_rounding) {
  const std::string narrow = R"(, "precision": {"parameters": "bf16", "gradient_wire": "f16",
      "stochastic_rounding": true, "loss_scale": {"initial": 64, "window": 3}})";
  const auto whole = train(2, {.config = config(narrow, degree(0))});
  train(2, {.config = config(narrow, degree(0) + ", " + saved), .steps = 4});
  const auto rest = train(2, {.config = config(narrow, degree(0) + ", " + saved), .resume = ""});
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
  EXPECT_EQ(whole.lines[0].at("loss_scale"), 64.0);
  EXPECT_EQ(whole.lines[11].at("loss_scale"), 512.0);
  EXPECT_EQ(rest.lines[11].at("loss_scale"), 512.0);
}

TEST_F(Run, the_default_loss_scale_does_not_have_to_fall_by_the_tokens_of_a_step) {
  // The gradient of the sum over 128 tokens, times 65536, is more than an f16 holds.
  const auto outcome =
      train(2, {.config = config(R"(, "precision": {"gradient_wire": "f16"})", degree(0))});
  for (const auto& line : outcome.lines) {
    EXPECT_FALSE(line.contains("skipped")) << line;
    EXPECT_EQ(line.at("loss_scale"), 65536.0);
  }
}

TEST_F(Run, skips_steps_that_overflow_until_the_loss_scale_fits) {
  // The largest f16 is 65504, so a gradient of 2^-24 already overflows at 2^40.
  const auto outcome = train(2, {.config = config(R"(, "precision": {"gradient_wire": "f16",
      "loss_scale": {"initial": 1099511627776, "hysteresis": 1}})",
                                                  degree(0))});
  EXPECT_TRUE(outcome.lines[0].at("skipped"));
  EXPECT_EQ(outcome.lines[0].at("loss_scale"), 0x1p40);
  EXPECT_EQ(outcome.lines[1].at("loss_scale"), 0x1p39);
  EXPECT_THAT(outcome.output, HasSubstr("step 1: gradients overflow, nothing was changed"));
}

TEST_F(Run, starts_with_the_parameters_of_another) {
  train(2, {.config = config(R"(, "seed": 7)", saved), .steps = 3});
  const std::string path = *latest_checkpoint((folder_ / "saved").string());
  const auto fresh = train(4, {.config = config("", degree(4)), .steps = 2});
  const auto started = train(4, {.config = config("", degree(4)), .steps = 2, .start = path});
  const auto replicated = train(4, {.config = config("", degree(1)), .steps = 2, .start = path});
  EXPECT_THAT(started.output, HasSubstr("starting with the parameters in " + path));
  EXPECT_THAT(started.output, HasSubstr("step 1/2"));
  EXPECT_EQ(started.loss_hex(), replicated.loss_hex());
  // What three steps have learned is there: the first loss is a trained model's.
  EXPECT_LT(started.lines[0].at("loss"), fresh.lines[0].at("loss"));
}

TEST_F(Run, resumes_rather_than_starts) {
  train(2, {.config = config("", saved), .steps = 3});
  const std::string path = *latest_checkpoint((folder_ / "saved").string());
  const auto rest = train(2, {.config = config("", saved), .resume = "", .start = path});
  EXPECT_THAT(rest.output, HasSubstr("resuming after step 3"));
  EXPECT_THAT(rest.output, Not(HasSubstr("starting with")));
}

TEST_F(Run, begins_anew_where_nothing_was_saved_yet) {
  const auto fresh = train(2, {.config = config("", saved), .steps = 2, .resume = ""});
  EXPECT_THAT(fresh.output, HasSubstr("no checkpoint in"));
  EXPECT_EQ(fresh.lines.size(), 2u);
  const auto again = train(2, {.config = config("", saved), .steps = 2, .resume = ""});
  EXPECT_THAT(again.output, HasSubstr("2 steps are done already"));
}

TEST_F(Run, warns_where_a_resumed_run_differs) {
  train(2, {.config = config("", saved), .steps = 2});
  const auto other =
      train(2, {.config = config(R"(, "seed": 7)", saved), .steps = 3, .resume = ""});
  EXPECT_THAT(other.output, HasSubstr("train.seed is 7, in the checkpoint 1"));
}

TEST_F(Run, warns_where_a_resumed_run_has_other_heads) {
  train(2, {.config = config("", saved), .steps = 2});
  std::string path = config("", saved), text;
  std::getline(std::ifstream(path), text, '\0');
  text.replace(text.find("\"heads\": 2"), 10, "\"heads\": 4");
  std::ofstream(path) << text;
  const auto other = train(2, {.config = path, .steps = 3, .resume = ""});
  EXPECT_THAT(other.output, HasSubstr("model.heads is 4, in the checkpoint 2"));
}

TEST_F(Run, that_is_asked_to_stop_saves_and_says_so) {
  const auto whole = train(2, {.config = config("", saved)});
  std::filesystem::remove_all(folder_ / "saved");
  StopRequest stop;
  stop.ask(SIGTERM);
  const auto stopped = train(2, {.config = config("", saved), .stop = &stop});
  EXPECT_EQ(stopped.code, 143);
  EXPECT_TRUE(stop.settled());
  EXPECT_EQ(stopped.lines.size(), 1u);
  EXPECT_THAT(stopped.output, HasSubstr("stopped after step 1, saved in"));
  const auto rest = train(2, {.config = config("", saved), .resume = ""});
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
}

TEST_F(Run, saves_on_schedule_and_keeps_the_last) {
  train(2, {.config = config("", R"("checkpoint": {"folder": "saved", "every": 2, "keep": 3})")});
  EXPECT_EQ(saved_names(),
            (std::vector<std::string>{"step-00000008", "step-00000010", "step-00000012"}));
}

/// Saves each step; `keep` stay. The rule's numbers are to be changed: with such a decay the first
/// update makes values that no forward pass survives.
std::string save_each_step(int keep) {
  const std::string begin = R"("checkpoint": {"folder": "saved", "every": 1, "keep": )";
  return begin + std::to_string(keep) + "}";
}
constexpr const char* diverging = R"(, "optimizer": {"name": "adamw", "weight_decay": 1e38},
    "max_skipped_steps": 5)";

TEST_F(Run, that_diverges_ends_and_keeps_what_was_saved_before) {
  train(2, {.config = config("", save_each_step(2)), .steps = 3});
  testing::internal::CaptureStderr();
  const auto rest = train(2, {.config = config(diverging, save_each_step(2)), .resume = ""});
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(rest.code, 1);
  ASSERT_EQ(rest.lines.size(), 9u) << "steps 5 to 9 were skipped";
  EXPECT_EQ(saved_names(), (std::vector<std::string>{"step-00000003", "step-00000004"}));
  EXPECT_THAT(errors, HasSubstr("after step 9: 5 steps in a row were skipped"));
  EXPECT_THAT(errors, HasSubstr("saved/step-00000004 is from before; lower train.learning_rate"));
  EXPECT_THAT(errors, HasSubstr("or from an earlier one by --resume PATH"));
}

TEST_F(Run, that_diverges_without_checkpoints_says_that_nothing_is_saved) {
  testing::internal::CaptureStderr();
  const auto outcome = train(2, {.config = config(diverging, degree(0))});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("Nothing is saved; lower train."));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.lines.size(), 6u);
}

TEST_F(Run, that_may_skip_without_end_goes_on) {
  const std::string endless = R"(, "optimizer": {"name": "adamw", "weight_decay": 1e38},
    "max_skipped_steps": 0)";
  EXPECT_EQ(train(2, {.config = config(endless, degree(0))}).lines.size(), 12u);
}

TEST_F(Run, that_is_stopped_while_it_skips_saves_beside_what_was_saved_before) {
  train(2, {.config = config("", save_each_step(1)), .steps = 3});
  train(2, {.config = config(diverging, save_each_step(1)), .steps = 4, .resume = ""});
  StopRequest stop;
  stop.ask(SIGTERM);
  const auto rest =
      train(2, {.config = config(diverging, save_each_step(1)), .resume = "", .stop = &stop});
  EXPECT_EQ(rest.code, 143);
  EXPECT_TRUE(rest.lines.back().at("skipped"));
  EXPECT_EQ(saved_names(), (std::vector<std::string>{"step-00000004", "step-00000005"}));
}

TEST_F(Run, skipped_at_the_least_loss_scale_ends) {
  // Steps at a scale that can still fall do not count.
  const auto outcome = train(2, {.config = config(R"(, "max_skipped_steps": 3,
      "optimizer": {"name": "adamw", "weight_decay": 1e38}, "precision": {"gradient_wire": "f16",
      "loss_scale": {"initial": 256, "least": 16, "hysteresis": 1}})",
                                                  degree(0))});
  EXPECT_EQ(outcome.code, 1);
  ASSERT_EQ(outcome.lines.size(), 8u) << "an update, four scales that fall, three at the least";
  EXPECT_EQ(outcome.lines.back().at("loss_scale"), 16);
}

TEST_F(Run, that_skips_goes_on_with_the_rate_that_it_did_not_use) {
  std::ofstream(folder_ / "text.txt")
      << std::string(2000, 'a');  // every sample is like every other
  const auto begin_at = [&](double scale) {
    return train(2, {.config = config(R"(, "warmup_steps": 6, "precision": {"gradient_wire": "f16",
        "loss_scale": {"hysteresis": 1, "initial": )" +
                                          std::to_string(scale) + "}}",
                                      degree(0))});
  };
  const auto skipping = begin_at(0x1p20);
  std::size_t skipped = 0;
  while (skipping.lines.at(skipped).contains("skipped")) {
    ++skipped;
  }
  ASSERT_GE(skipped, 1u);
  const auto straight = begin_at(skipping.lines[skipped].at("loss_scale"));
  const auto after = skipping.loss_hex(), losses = straight.loss_hex();
  EXPECT_EQ(std::vector(after.begin() + static_cast<std::ptrdiff_t>(skipped), after.end()),
            std::vector(losses.begin(), losses.end() - static_cast<std::ptrdiff_t>(skipped)));
}

TEST_F(Run, saves_what_was_due_at_a_skipped_step_after_the_next_that_is_not) {
  const auto outcome =
      train(2, {.config = config(R"(, "precision": {"gradient_wire": "f16",
              "loss_scale": {"initial": 8388608, "hysteresis": 1}})",
                                 R"("checkpoint": {"folder": "saved", "every": 2, "keep": 100})")});
  const auto skipped = std::ranges::count_if(
      outcome.lines, [](const auto& line) { return line.contains("skipped"); });
  ASSERT_GE(skipped, 2);
  ASSERT_LT(skipped, 9);
  EXPECT_EQ(saved_names().front(), "step-0000000" + std::to_string(skipped + 1));
}

/// A run of byte-pair tokens.
class TokenizedRun : public Run {
 protected:
  TokenizedRun() { write_tokenizer("tokens.json", {{"l", "i"}, {"n", "e"}, {"li", "ne"}}); }

  void write_tokenizer(const std::string& name, const io::SpeltMerges& merges) const {
    std::ofstream(folder_ / name) << io::small_tokenizer(merges);
  }
  /// A configuration file with one of those, and more keys of the model.
  std::string config(const std::string& sections, const std::string& tokenizer = "tokens.json",
                     const std::string& model = "") const {
    std::string path = Run::config("", sections), text;
    std::getline(std::ifstream(path), text, '\0');
    const std::string files = "\"files\": [\"text.txt\"]", context = "\"context\": 16";
    text.replace(text.find(files), files.size(), files + ", \"tokenizer\": \"" + tokenizer + "\"");
    text.replace(text.find(context), context.size(), context + model);
    std::ofstream(path) << text;
    return path;
  }
  std::string refusal(const TrainRequest& request) const {
    try {
      train(2, request);
    } catch (const Error& error) {
      testing::internal::GetCapturedStdout();
      return error.what();
    }
    return "trained";
  }
};

TEST_F(TokenizedRun, has_the_same_bits_however_it_is_cut) {
  const auto losses = [&](int ranks, const std::string& parallel) {
    return train(ranks, {.config = config("\"parallel\": {" + parallel + "}")}).loss_hex();
  };
  const auto reference = losses(4, R"("hybrid_shard_degree": 1)");
  ASSERT_EQ(reference.size(), 12u);
  EXPECT_EQ(losses(4, R"("hybrid_shard_degree": 4)"), reference);
  const auto tree = [&](int ranks, int pipeline, int microbatches) {
    return losses(ranks, R"("gradient_order": "tree", "pipeline_parallel_degree": )" +
                             std::to_string(pipeline) + R"(, "microbatches": )" +
                             std::to_string(microbatches));
  };
  EXPECT_EQ(tree(2, 1, 2), tree(1, 1, 4));
  EXPECT_EQ(tree(2, 2, 4), tree(1, 1, 4));
  EXPECT_EQ(tree(4, 2, 2), tree(1, 1, 4));
}

TEST_F(TokenizedRun, learns_and_tells_of_tokens) {
  const auto outcome = train(2, {.config = config(degree(2))});
  EXPECT_LT(outcome.lines.back().at("loss"), 0.8 * outcome.lines.front().at("loss").get<double>());
  EXPECT_THAT(outcome.output, HasSubstr(" tokens of 260, "));
  EXPECT_THAT(outcome.output, HasSubstr(" tokens to learn, "));
  EXPECT_THAT(outcome.output, HasSubstr(" nats per token ("));
  EXPECT_THAT(outcome.output, HasSubstr(" a byte)"));
  EXPECT_THAT(outcome.output, HasSubstr("the model writes"));
}

TEST_F(TokenizedRun, begins_with_the_loss_of_chance_over_the_models_vocabulary) {
  const auto first = [&](const std::string& model) {
    return train(1, {.config = config(degree(1), "tokens.json", model), .steps = 1})
        .lines[0]
        .at("loss")
        .get<double>();
  };
  // Logits have a deviation of 0.02 * sqrt(16), the mean loss of 128 tokens a 64th of the bound.
  EXPECT_NEAR(first(""), std::log(260.0), 0.05);
  EXPECT_NEAR(first(R"(, "vocabulary": 4096)"), std::log(4096.0), 0.05);
}

TEST_F(TokenizedRun, resumes_with_the_bits_of_a_run_that_went_on) {
  const auto whole = train(4, {.config = config(degree(2))});
  train(4, {.config = config(degree(2) + ", " + saved), .steps = 5});
  const auto rest = train(4, {.config = config(degree(2) + ", " + saved), .resume = ""});
  EXPECT_THAT(rest.output, Not(HasSubstr("in the checkpoint")));
  EXPECT_EQ(rest.loss_hex(), whole.loss_hex());
}

TEST_F(TokenizedRun, goes_on_with_the_tokenizer_that_it_had_alone) {
  write_tokenizer("other.json", {{"l", "i"}, {"n", "e"}, {"t", "e"}});  // as many tokens
  train(2, {.config = config(saved), .steps = 2});
  const std::string path = *latest_checkpoint((folder_ / "saved").string());
  const std::string said = "the model in " + path + " was trained with data.tokenizer 260 tokens";
  EXPECT_THAT(refusal({.config = config(saved, "other.json"), .resume = ""}), HasSubstr(said));
  EXPECT_THAT(refusal({.config = config(degree(1), "other.json"), .start = path}), HasSubstr(said));
  EXPECT_THAT(refusal({.config = Run::config("", saved), .resume = ""}),
              HasSubstr("and this run's is bytes; give data.tokenizer the file that it"));
}

TEST_F(TokenizedRun, is_refused_in_one_line_that_names_the_key) {
  std::ofstream(folder_ / "list.json") << "[1]";
  std::ofstream(folder_ / "words.json") << R"({"model": {"type": "WordLevel", "vocab": {}}})";
  struct Case {
    std::string tokenizer, model, said;
  };
  const std::vector<Case> cases = {
      {"none.json", "", "data.tokenizer: cannot open "},
      {"list.json", "", "is JSON, but no object; give a tokenizer.json of GPT-2's kind, or leave"},
      {"words.json", "", "which is not built"},
      {"text.txt", "", "text.txt is no JSON"},
      {"tokens.json", R"(, "vocabulary": 259)", "tokens.json has 260 tokens; leave it out, or"},
  };
  for (const auto& [tokenizer, model, said] : cases) {
    const std::string message = refusal({.config = config(degree(1), tokenizer, model)});
    EXPECT_THAT(message, HasSubstr(said));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_F(TokenizedRun, of_a_text_that_is_none_is_refused) {
  std::ofstream(folder_ / "text.txt") << "";
  EXPECT_THAT(refusal({.config = config(degree(1))}), HasSubstr("data.files hold 0 tokens: 0 to "));
  std::ofstream(folder_ / "text.txt") << "line \xff";
  EXPECT_THAT(refusal({.config = config(degree(1))}),
              HasSubstr("data.files: the text is no UTF-8 at byte 5; convert it"));
}

TEST_F(Run, without_a_folder_there_is_nothing_to_resume) {
  try {
    train(2, {.config = config("", degree(0)), .resume = ""});
    FAIL() << "ran";
  } catch (const Error& error) {
    testing::internal::GetCapturedStdout();
    EXPECT_THAT(error.what(), HasSubstr("--resume without a path looks in checkpoint.folder"));
  }
}

}  // namespace
}  // namespace sprat::train
