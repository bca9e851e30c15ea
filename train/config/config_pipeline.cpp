// The keys of the section parallel by which a model becomes a pipeline, most of them SMP's. What is
// at odds with the number of ranks is the plan's to refuse.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "sprat/layout.hpp"
#include "sprat/mp.hpp"
#include "train/config/config_check.hpp"
#include "train/config/smp_name.hpp"
#include "train/model/gpt_passes.hpp"

namespace sprat::train {
namespace {

namespace smp {
constexpr SmpName pipeline_parallel_degree = {SmpVersion::v1, "pipeline_parallel_degree"};
constexpr SmpName partitions = {SmpVersion::v1, "partitions"};
constexpr SmpName microbatches = {SmpVersion::v1, "microbatches"};
constexpr SmpName active_microbatches = {SmpVersion::v1, "active_microbatches"};
constexpr SmpName pipeline = {SmpVersion::v1, "pipeline"};
constexpr SmpName placement_strategy = {SmpVersion::v1, "placement_strategy"};
constexpr SmpName auto_partition = {SmpVersion::v1, "auto_partition"};
constexpr SmpName default_partition = {SmpVersion::v1, "default_partition"};
constexpr SmpName load_partition = {SmpVersion::v1, "load_partition"};
constexpr SmpName partition_file = {SmpVersion::v1, "partition_file"};
constexpr SmpName offload_activations = {SmpVersion::v1, "offload_activations"};
constexpr SmpName activation_loading_horizon = {SmpVersion::v1, "activation_loading_horizon"};
constexpr SmpName tensor_parallel_degree = {SmpVersion::v1, "tensor_parallel_degree"};
constexpr SmpName optimize = {SmpVersion::v1, "optimize"};
constexpr SmpName prescaled_batch = {SmpVersion::v1, "prescaled_batch"};
constexpr SmpName context_parallel_degree = {SmpVersion::v2, "context_parallel_degree"};
constexpr SmpName cp_comm_type = {SmpVersion::v2, "cp_comm_type"};
constexpr SmpName expert_parallel_degree = {SmpVersion::v2, "expert_parallel_degree"};
}  // namespace smp

/// A way of SMP to spread a model that the trainer does not have.
void refuse_experts(JsonSection& section) {
  int degree = 1;
  read_whole(section, smp::expert_parallel_degree, degree);
  check(degree == 1,
        "parallel.{} is {}; the GPT has no experts: keep 1, and for less memory a rank take "
        "parallel.pipeline_parallel_degree {} or parallel.hybrid_shard_degree {}",
        smp::expert_parallel_degree.name, degree, degree, degree);
}

/// One of the words that SMP has for a key.
void read_word(JsonSection& section, SmpName name, std::string& word) {
  section.read(name.name, word);
  const SmpKey& key = smp_key(name.version, name.name);
  const std::string words = fmt::format(" {} ", key.choices);
  const bool one = word.find(' ') == std::string::npos;
  check(one && words.find(fmt::format(" {} ", word)) != std::string::npos,
        "parallel.{} is \"{}\"; it is one of {}", name.name, word, legal_values(key));
}

void read_context(JsonSection& section, PipelineConfig& pipeline) {
  read_whole(section, smp::context_parallel_degree, pipeline.context_degree);
  read_word(section, smp::cp_comm_type, pipeline.cp_comm_type);
}

void read_tensor(JsonSection& section, PipelineConfig& pipeline) {
  read_whole(section, smp::tensor_parallel_degree, pipeline.tensor_degree);
  std::string word = optimize_text(pipeline.optimize);
  section.read(smp::optimize.name, word);
  check(word == "memory" || word == "speed",
        "parallel.optimize is \"{}\"; it is \"memory\" (tensor ranks have their own rows between "
        "layers that are cut) or \"speed\" (all rows, so less travels)",
        word);
  pipeline.optimize = word == "speed" ? Optimize::speed : Optimize::memory;
  section.read(smp::prescaled_batch.name, pipeline.prescaled_batch);
}

void read_degree(JsonSection& section, PipelineConfig& pipeline) {
  // SMP called it `partitions` until PyTorch 1.6, and many scripts still do.
  int older = 1;
  const bool given = read_whole(section, smp::pipeline_parallel_degree, pipeline.degree);
  if (read_whole(section, smp::partitions, older)) {
    check(!given || older == pipeline.degree,
          "parallel.pipeline_parallel_degree is {} and parallel.partitions is {}, two names of one "
          "thing",
          pipeline.degree, older);
    pipeline.degree = older;
  }
}

void read_schedule(JsonSection& section, int micro_steps, PipelineConfig& pipeline) {
  section.read(smp::pipeline.name, pipeline.schedule);
  section.read("stages_per_rank", pipeline.stages_per_rank);
  check_at_least("parallel.stages_per_rank", pipeline.stages_per_rank, 0);
  if (read_whole(section, smp::active_microbatches, pipeline.active_microbatches)) {
    check(pipeline.active_microbatches <= micro_steps,
          "parallel.active_microbatches is {} and parallel.microbatches {}: no more are active "
          "than there are; take active_microbatches {} or less, or leave it out",
          pipeline.active_microbatches, micro_steps, micro_steps);
  }
}

/// The first layers of stages as a list, or stages of layers by name.
void read_layers(JsonSection& section, PartitionConfig& partition) {
  const nlohmann::json* layers = section.find("partition");
  if (layers == nullptr) {
    return;
  }
  if (layers->is_array() && !layers->empty()) {
    section.read("partition", partition.first_layers);
    return;
  }
  const bool pins =
      layers->is_object() && std::ranges::all_of(*layers, [](const auto& stage) {
        return stage.is_number_integer() && stage >= 0 && stage <= std::numeric_limits<int>::max();
      });
  if (!pins) {
    section.refuse("partition", *layers,
                   "the names of the stages' first layers as [\"embedding\", \"h.3\"], or stages "
                   "by layer as {\"h.3\": 1}");
  }
  partition.by_hand = true;
  partition.pins = layers->get<std::map<std::string, int>>();
}

void read_partition(JsonSection& section, PartitionConfig& partition) {
  bool automatic = true, load = true;
  section.read(smp::auto_partition.name, automatic);
  read_layers(section, partition);
  const bool has_default = read_whole(section, smp::default_partition, partition.default_stage);
  check(!has_default || partition.first_layers.empty(),
        "parallel.default_partition is {} and parallel.partition names each stage's first layer, "
        "so no layer is left; leave default_partition out",
        partition.default_stage);
  partition.by_hand =
      partition.by_hand || has_default || (!automatic && partition.first_layers.empty());
  section.read(smp::partition_file.name, partition.file);
  section.read(smp::load_partition.name, load);
  check(!section.has(smp::load_partition.name) || load == !partition.file.empty(),
        "parallel.load_partition is {} and parallel.partition_file is \"{}\"; give both, the first "
        "as true, to cut the model as a file says",
        load, partition.file);
  const bool says_where = partition.by_hand || !partition.first_layers.empty();
  check(!says_where || !section.has(smp::auto_partition.name) || !automatic,
        "parallel.auto_partition is true and the configuration says where layers go; leave out "
        "auto_partition, or partition and default_partition");
  check(!says_where || partition.file.empty(),
        "parallel.partition_file is \"{}\" and the configuration says where layers go too; keep "
        "one of them",
        partition.file);
}

/// SMP's strategies of checkpointing.
void read_recomputation(JsonSection& section, ActivationConfig& activations) {
  const char* const key = "activation_checkpointing";
  std::string word = "none";
  section.read(key, word);
  constexpr std::string_view group = "group_";
  int& together = activations.recomputed_together;
  if (word == "each" || word == "contiguous") {
    together = word == "each" ? 1 : whole_stage;
    return;
  }
  if (word.starts_with(group)) {
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + group.size(), end, together);
    if (error == std::errc{} && stop == end && together >= 1) {
      return;
    }
  }
  if (word != "none") {
    section.refuse(key, word,
                   "\"none\", \"each\" (layer by itself), \"contiguous\" (a stage's together) or "
                   "\"group_N\" (N together, such as \"group_2\")");
  }
}

void read_offload(JsonSection& section, ActivationConfig& activations) {
  const char* const horizon_limit = "activation_horizon_limit";
  section.read(smp::offload_activations.name, activations.offload);
  read_whole(section, smp::activation_loading_horizon, activations.horizon);
  // A horizon beside offload_activations is SMP v1's, which counts tasks. Where none is given, few
  // tapes are to be back at a time: four tasks are a whole step of few micro-batches.
  std::string unit = activations.horizon > 0 ? "tasks" : "tensors";
  section.read("activation_horizon_unit", unit);
  check(unit == "tasks" || unit == "tensors",
        "parallel.activation_horizon_unit is \"{}\"; it is \"tasks\" (SMP v1's) or \"tensors\" "
        "(SMP v2's)",
        unit);
  activations.unit = unit == "tasks" ? HorizonUnit::tasks : HorizonUnit::tensors;
  activations.horizon_limit = default_horizon(activations.unit);
  section.read(horizon_limit, activations.horizon_limit);
  check_at_least("parallel.activation_horizon_limit", activations.horizon_limit, 1);
  check(activations.horizon == 0 || !section.has(horizon_limit),
        "parallel.activation_loading_horizon is {} and parallel.activation_horizon_limit is {}, "
        "which bounds a horizon that is chosen from measured times; leave out one of them",
        activations.horizon, activations.horizon_limit);
  section.read("activation_keep_last", activations.keep_last);
  check_at_least("parallel.activation_keep_last", activations.keep_last, 0);
  section.read("activation_tier", activations.tier);
  // A horizon without offload is a mistake that would go unnoticed: memory would tell, much later.
  for (const char* key : {"activation_loading_horizon", "activation_horizon_unit", horizon_limit,
                          "activation_keep_last", "activation_tier"}) {
    check(activations.offload || !section.has(key),
          "parallel.{} is given and parallel.offload_activations is not true, so no activation "
          "leaves memory; set it to true, or leave {} out",
          key, key);
  }
}

}  // namespace

bool read_whole(JsonSection& parallel, SmpName key, int& value) {
  const bool given = parallel.has(key.name);
  parallel.read(key.name, value);
  const SmpKey& known = smp_key(key.version, key.name);
  check(!given || (value >= known.least && value <= known.most), "parallel.{} is {}; it is an {}",
        key.name, value, legal_values(known));
  return given;
}

// Before the pipeline's keys, some of which are held against the number of micro-batches.
void read_microbatches(const nlohmann::json& root, JsonSection& parallel, int& micro_steps) {
  int count = 1;
  if (!read_whole(parallel, smp::microbatches, count)) {
    return;
  }
  check(!JsonSection(root, "train").has("micro_steps") || count == micro_steps,
        "train.micro_steps is {} and parallel.microbatches is {}, two names of one thing",
        micro_steps, count);
  micro_steps = count;
}

void read_pipeline(JsonSection& parallel, int micro_steps, PipelineConfig& pipeline) {
  refuse_experts(parallel);
  read_context(parallel, pipeline);
  read_tensor(parallel, pipeline);
  read_degree(parallel, pipeline);
  read_schedule(parallel, micro_steps, pipeline);
  read_word(parallel, smp::placement_strategy, pipeline.placement);
  read_partition(parallel, pipeline.partition);
  read_recomputation(parallel, pipeline.activations);
  read_offload(parallel, pipeline.activations);
}

// Of SMP's rules a power of two is not asked for: any divisor of the heads works. They divide the
// width, and so the MLP's inner width, which a degree that divides them divides too.
void check_tensor_degree(const TrainConfig& config) {
  const std::int64_t degree = config.pipeline.tensor_degree, heads = config.model.heads;
  check(heads % degree == 0,
        "parallel.tensor_parallel_degree {} does not divide model.heads {}; take a divisor of {}, "
        "or {} heads",
        degree, heads, heads, (heads + degree - 1) / degree * degree);
  check(config.train.gemm != "reference" || virtual_tp % degree == 0,
        "parallel.tensor_parallel_degree {} and train.gemm \"reference\", which adds up {} pieces "
        "so that bits do not depend on the degree; take a divisor of {}, or \"openblas\"",
        degree, virtual_tp, virtual_tp);
}

std::string optimize_text(Optimize optimize) {
  switch (optimize) {
    case Optimize::memory:
      return "memory";
    case Optimize::speed:
      return "speed";
  }
  return {};
}

std::string recomputation_text(const ActivationConfig& activations) {
  switch (activations.recomputed_together) {
    case 0:
      return "none";
    case 1:
      return "each";
    case whole_stage:
      return "contiguous";
  }
  return fmt::format("group_{}", activations.recomputed_together);
}

}  // namespace sprat::train
