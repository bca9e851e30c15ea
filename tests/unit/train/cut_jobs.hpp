// Small jobs of the trainer whose models are cut, and what they compute, every bit.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/train/small_text.hpp"
#include "train/train.hpp"

namespace sprat::train {

/// So many ranks, and what the model is cut into.
struct CutJob {
  int ranks = 1;
  std::string parallel = {};  ///< Keys of the section parallel.
  std::string train = {};     ///< Further keys of the section train.
  std::string rate = "0.01";
  double held_out = 0.05;
  int steps = 3;
  bool resume = false;
  int heads = 2;
  int context = 8;
  std::string start = {};  ///< The checkpoint whose parameters it begins with, if any.
};

class CutJobs : public testing::Test {
 protected:
  CutJobs() { write_small_text(folder_ / "text.txt"); }

  /// Each step's loss and gradient norm, every bit; at last the validation loss and the text.
  std::vector<std::string> losses(const CutJob& job, StopRequest* stop = nullptr) {
    const auto path = folder_ / "config.json", report = folder_ / "report.jsonl";
    std::ofstream(path) << R"({"model": {"layers": 3, "width": 16, "context": )" << job.context
                        << R"(, "heads": )" << job.heads << R"(},
        "data": {"files": ["text.txt"], "validation_share": )"
                        << job.held_out << R"(}, "checkpoint": {"folder": "saved"}, "parallel": {)"
                        << job.parallel << R"(},
        "train": {"validate_every": 2, "validation_samples": 7, "sample_bytes": 8, "steps": 3,
                  "learning_rate": )"
                        << job.rate << job.train << "}}";
    if (!job.resume) {
      std::filesystem::remove_all(folder_ / "saved");
    }
    testing::internal::CaptureStdout();
    TrainRequest request{
        .config = path, .steps = job.steps, .report = report.string(), .stop = stop};
    request.resume = job.resume ? std::optional<std::string>("") : std::nullopt;
    request.start = job.start.empty() ? std::nullopt : std::optional(job.start);
    try {
      run_virtual_ranks(job.ranks, Config{}, [&](Communicator& world) {
        const int code = run(world, request);
        if (world.rank() == 0) {
          code_ = code;
        }
      });
    } catch (const Error&) {
      testing::internal::GetCapturedStdout();  // else the next test could not capture its own
      throw;
    }
    output_ = testing::internal::GetCapturedStdout();
    std::vector<std::string> lines;
    records_.clear();
    std::ifstream file(report);
    for (std::string line; std::getline(file, line);) {
      record_ = records_.emplace_back(nlohmann::json::parse(line));
      lines.push_back(record_.at("loss_hex").get<std::string>() + " " +
                      record_.at("grad_norm").dump());
    }
    const auto written = output_.find("the model writes");
    lines.push_back(record_.value("validation_loss", nlohmann::json()).dump() +
                    (written == output_.npos ? "" : output_.substr(written, 200)));
    return lines;
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  std::string output_;
  int code_ = 0;
  nlohmann::json record_;  // the last
  std::vector<nlohmann::json> records_;
};

}  // namespace sprat::train
