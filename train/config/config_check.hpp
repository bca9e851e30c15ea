// What the sections of a configuration share: refusals, and the readers that have their own files.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/base/json_section.hpp"
#include "train/check.hpp"
#include "train/config/config.hpp"

namespace sprat::train {

inline void check_at_least(const char* key, int value, int least) {
  check(value >= least, "{} is {}; it is at least {}", key, value, least);
}

inline void check_at_most(const char* key, int value, int most) {
  check(value <= most, "{} is {}; it is at most {}", key, value, most);
}

/// The section data.
void read_data(const nlohmann::json& root, DataConfig& data);
/// Paths that are relative become those from `folder` on.
void find_data_from(const std::filesystem::path& folder, DataConfig& data);
/// The section train.precision.
void read_precision(JsonSection& train, FsdpOptions& sharding);
/// The section parallel, by our names and SMP's; also train.clip_norm and train.micro_steps where
/// SMP's names give them.
void read_parallel(const nlohmann::json& root, TrainConfig& config);
/// Of the section parallel: SMP's name of train.micro_steps.
void read_microbatches(const nlohmann::json& root, JsonSection& parallel, int& micro_steps);
/// Of the section parallel: the pipeline, where the model is cut, what its activations do.
void read_pipeline(JsonSection& parallel, int micro_steps, PipelineConfig& pipeline);

/// What the model, and a product whose bits do not depend on the degree, can be cut into.
void check_tensor_degree(const TrainConfig& config);

}  // namespace sprat::train
