// Where a model that is a chain of layers is cut into stages: the best cut there is, one by hand,
// or one that a file keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/export.hpp"

namespace sprat::mp {

/// A parameter that several pieces use, such as an embedding that is also the last product.
struct SharedParameter {
  std::string name;
  double bytes = 0;

  friend bool operator==(const SharedParameter&, const SharedParameter&) = default;
};

/// What a piece costs by itself, without what is inside of it. Numbers are from 0 to 1e100;
/// bytes and times are compared with each other only, so any unit does if all pieces have the same.
struct ModelPiece {
  std::string name;
  double time = 0;                        ///< Forward and backward of one micro-batch.
  double parameter_bytes = 0;             ///< Of parameters that no other piece uses.
  double activation_bytes = 0;            ///< Kept from forward to backward, for one micro-batch.
  double output_bytes = 0;                ///< What the next piece takes from it.
  std::vector<SharedParameter> shared{};  ///< Of parameters that other pieces use too.
};

/// By the names of Hugging Face's config.json; 1 at least, each.
struct Gpt2Shape {
  std::int64_t n_layer = 12, n_embd = 768, n_head = 12, vocab_size = 50257, n_positions = 1024;
  std::int64_t n_inner = 0;  ///< 0: four times n_embd.
  bool tie_word_embeddings = true;
};

/// The embedding, the blocks, the last norm with the head: time in FLOPs of one sequence's forward,
/// parameters in f32, activations as 16-bit training keeps them. A tied head shares the embedding's
/// matrix.
SPRAT_API std::vector<ModelPiece> gpt2_layers(const Gpt2Shape& shape);

enum class ChainObjective {
  bottleneck,     ///< The slowest stage's time.
  pipeline_time,  ///< Of a step: all stages' times, and the slowest m - 1 times more.
};

/// What is wanted of a cut of a chain of layers.
struct ChainRequest {
  int stages = 1;
  /// Stage k of p keeps activations of min(p - k, m) micro-batches, as 1F1B does.
  int microbatches = 1;
  ChainObjective objective = ChainObjective::bottleneck;
  /// What a layer's output costs both the stage that sends and the stage that receives it.
  double seconds_per_byte = 0;
  /// Bytes held for each byte of parameters. 4: the parameter, its gradient, two of Adam's.
  double state_factor = 4;
  /// By stage; one number: for each; empty: no limit. Infinity: none for that stage.
  std::vector<double> capacity_bytes{};
};

/// One stage of a chain that is cut.
struct ChainStage {
  std::size_t begin = 0, end = 0;  ///< Layers, the last excluded.
  double time = 0;
  double memory_bytes = 0;
};

/// The cut with the least objective; where several have it, the one whose last stages are as long
/// as can be, since the first ones hold the most activations. Each stage has a layer at least. A
/// shared parameter is held by each stage that uses it. Throws Error{invalid_argument} for numbers
/// out of their range, and if no cut fits, telling which stage lacks what and the least capacity
/// with which one does.
SPRAT_API std::vector<ChainStage> cut_chain(std::span<const ModelPiece> layers,
                                            const ChainRequest& request);

/// A partition as a file, so that a later run cuts the model in the same places.
struct PartitionFile {
  /// A piece of the model, and the partition that it is in.
  struct Entry {
    std::string name;
    double parameter_bytes = 0;  ///< Shared ones included.
    int partition = 0;
  };
  int partitions = 1;
  std::vector<Entry> pieces;  ///< In execution order.
};
/// Throws Error{invalid_argument}, beginning with `name`, for what is no partition file.
SPRAT_API PartitionFile parse_partition_file(const std::string& name, std::string_view text);
/// The partition of each piece. Throws Error{invalid_argument} that says what differs if the file
/// is of another model or another number of partitions.
SPRAT_API std::vector<int> partition_from(const std::string& name, const PartitionFile& file,
                                          std::span<const ModelPiece* const> pieces,
                                          int partitions);

/// `pins`: names to partitions. A piece goes where the longest pin says that is its name or a
/// dotted beginning of it ("h.3" has "h.3.mlp"), else to `default_partition`. Throws
/// Error{invalid_argument} for pins of no piece and for partitions that are not there.
SPRAT_API std::vector<int> manual_partition(std::span<const ModelPiece* const> pieces,
                                            const std::map<std::string, int>& pins,
                                            int default_partition, int partitions);

/// A model as text, cut by a method that is named.
struct PartitionRequest {
  std::string_view model;        ///< JSON in one of the forms of docs/partition.md.
  std::string_view method = "";  ///< "chain", "tree" or "graph"; empty: what its form is for.
  int partitions = 1;
  bool speed = false;          ///< SMP's `optimize`: "speed", else "memory".
  double memory_weight = 0.8;  ///< tree: the share of memory in a module's cost.
  bool any_order = false;      ///< graph: data may go to earlier partitions too.
};
/// A piece of a model, and the partition that it goes to.
struct PlacedPiece {
  std::string name;
  int partition = 0;
};
/// In execution order; of modules, each before those inside of it. Pure. Throws
/// Error{invalid_argument} for what is no model and for methods that do not cut one of this form.
SPRAT_API std::vector<PlacedPiece> partition_model(const PartitionRequest& request);

}  // namespace sprat::mp
