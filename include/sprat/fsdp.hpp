// Sharded data parallelism: every rank keeps a shard of parameters, gradients and optimizer state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/parameters.hpp"
#include "sprat/square_sum.hpp"

namespace sprat {

namespace fsdp {
class Engine;
}

/// How one of parameters, gradients, optimizer state lies along one mesh axis.
enum class Placement : std::uint8_t { replicated, flat, partial };

/// A row of the placement table: [0] along the replica axis, [1] along the shard axis.
struct Strategy {
  const char* name;  ///< "ddp", "zero3", "hsdp".
  Placement parameters[2], gradients[2], optimizer[2];
};
SPRAT_API std::span<const Strategy> all_strategies() noexcept;

/// One parameter of a unit.
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;  ///< Of the whole tensor.
  /// What this model has of it, where ranks cut the tensors themselves (tensor parallelism); it
  /// lies row by row in parameter() and gradient(). Empty: all of it. Several parameters of a name
  /// are different parts of one tensor, such as rows of queries, of keys and of values; those that
  /// follow each other in a unit lie there without a gap, so these rows are one matrix. Ranks that
  /// have other boxes are another model of the job. None of its bits depends on the cut: initial
  /// values, random numbers and checkpoints go by places in the whole tensor.
  std::optional<Box> box = {};
  bool decay = true;  ///< Weight decay applies.
  /// Initial value of the element at a row-major index of the whole tensor; pure, so that any
  /// sharding gives the same, and no rank ever holds more than its shard.
  std::function<float(std::uint64_t index)> initial;
  /// Its values are those of the parameter of this name, and box, in another model of the job: on
  /// another stage of a pipeline, whose gradient and this one's are added to each other (see
  /// summed_gradient()), or on another tensor rank. Norms, counts and checkpoints leave it to that
  /// one.
  bool tied = false;
};
/// What a model has of a parameter: its box, or all of it.
SPRAT_API Box held_box(const ParameterSpec& parameter);

/// Parameters that are gathered together, usually a layer.
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
  /// An earlier unit whose parameters this one uses; the specs are the same. It has a gradient of
  /// its own, which is added to that unit's once both are summed, and no values, nor state. -1:
  /// none.
  int tied_to = -1;
  /// Its number in the whole model, of which this may be a part: numbers of no two units are the
  /// same, and all are below 2^32. By it random numbers are drawn, so that they do not depend on
  /// where a model is cut. Empty: its place among the units here.
  std::optional<std::uint64_t> id = {};
};

/// An update rule by name, and its numbers by name; those not given have the rule's defaults
/// (docs/fsdp.md). Unknown ones throw Error{invalid_argument} with what is known.
struct OptimizerOptions {
  std::string name = "adamw";
  std::map<std::string, double> values = {};
};

/// What the loss is multiplied by so that narrow gradients neither overflow nor vanish. Powers of
/// two change no bits of a gradient that does neither.
struct LossScaleOptions {
  bool dynamic = false;
  double initial = 0;  ///< 0: 65536 if dynamic, else 1.
  double growth = 2, backoff = 0.5;
  int window = 1000;   ///< Steps without overflow before the scale grows.
  int hysteresis = 2;  ///< Overflows before it shrinks.
  double least = 1;
};

/// Where the gradients of micro-steps add up.
enum class Accumulate : std::uint8_t {
  two_hop,  ///< In shards: each micro-step sums over the shard axis, the last also over replicas.
  local,    ///< In full on each rank: the last micro-step alone communicates. More memory.
};

/// In which order the gradients of a step's micro-batches, of all ranks, are added.
enum class GradientOrder : std::uint8_t {
  sequence,  ///< On each rank, or in shards, one after another as they come; ranks in a tree.
  /// By the canonical tree (docs/numerics.md) over all of them: micro-batch j of m on rank d is
  /// number d * m + j. Each rank adds its own first, in whichever order they come, in up to
  /// floor(lg m) + 1 full gradients of a unit, or more if they come out of order; so Accumulate is
  /// local. With m a power of two, and f32 wires, one rank of n * m has the bits of n ranks of m.
  tree,
};
/// "sequence", "tree".
SPRAT_API const char* name(GradientOrder order) noexcept;
/// The sum of numbers in that tree, such as micro-batches' losses: the bits of an all_reduce of f64
/// to which rank i contributes values[i]. 0 of none.
SPRAT_API double tree_sum(std::span<const double> values) noexcept;

/// What a visit needs. A backward of inputs alone and a forward that is computed once more add to
/// no gradient: declared as forward, they cost no memory of gradients.
enum class VisitPass : std::uint8_t {
  forward,   ///< Values.
  backward,  ///< Values, and a gradient to add to.
  gradient,  ///< A gradient alone, as a backward of weights does: nothing is gathered for it.
};
constexpr bool adds_gradient(VisitPass pass) { return pass != VisitPass::forward; }
constexpr bool reads_values(VisitPass pass) { return pass != VisitPass::gradient; }

/// A use of a unit's parameters: from acquire() to release().
struct Visit {
  int unit = 0;
  VisitPass pass{};
  int microbatch = 0;  ///< Of the step, 0 first.

  friend bool operator==(const Visit&, const Visit&) = default;
};

/// Forward and then backward for each of `micro_steps` micro-batches, one after another.
SPRAT_API std::vector<Visit> plain_visits(std::span<const int> forward,
                                          std::span<const int> backward, int micro_steps);

/// How a model is sharded, and its optimizer.
struct FsdpOptions {
  /// A row of the table. Empty: by degree, that is ddp for 1, zero3 for all ranks, else hsdp.
  std::string strategy = {};
  /// Ranks that share one copy of the model, consecutive ones; divides world.size(). 0: as many as
  /// the strategy takes, all of them if it leaves the choice.
  int hybrid_shard_degree = 0;
  /// A step's uses of units in their order: those of a pipeline's schedule, for one. Each unit has
  /// a visit that adds to its gradient in each micro-batch; a unit may be visited more than once in
  /// either pass. Empty: plain_visits() of every unit in turn and the reverse.
  std::vector<Visit> visits = {};
  /// Units in the order of an evaluation, of which there may be any number before a step. Empty:
  /// the forward visits of micro-batch 0.
  std::vector<int> evaluation = {};
  int prefetch_units = 1;  ///< Units that are gathered ahead of their use, beside the one in use,
  /// but none that would make more elements full than this.
  std::size_t max_live_elements = 1'000'000'000;
  /// Sums over the shard axis under way at a time,
  int reductions_in_flight = 1;
  /// and the elements that more than one of them may have together.
  std::size_t reduce_bucket_elements = 500'000'000;
  /// Parameters whose whole tensors have fewer elements are replicated on every rank.
  std::size_t persistence_threshold = 0;
  int micro_steps = 1;                          ///< Micro-batches whose gradients a step sums.
  Accumulate accumulate = Accumulate::two_hop;  ///< With GradientOrder::tree always local.
  GradientOrder gradient_order = GradientOrder::sequence;
  /// f32, bf16 or f16: how parameters are gathered and seen. What is updated is always f32.
  DType parameter_dtype = DType::f32;
  /// i8, f8e4m3 or f8e5m2: how parameters travel along the outer axis that they are gathered along
  /// (that of hfsdp is replicas, of others shards), in blocks with a scale (wire.hpp); their owner
  /// uses what the others get. Empty: as parameter_dtype. Parameters that persist always do.
  std::optional<DType> parameter_wire = {};
  /// f32, bf16 or f16: how gradients travel in their first sum. i8, f8e4m3 or f8e5m2: how they
  /// travel in their last one, over replicas if there are any, in blocks with a scale (wire.hpp);
  /// parameters that persist have f32 then. Always they are summed in f32.
  DType gradient_wire = DType::f32;
  /// What blocks lose is kept and added to the next gradient. It begins as nothing, also when
  /// training is resumed or a step was skipped.
  bool error_feedback = false;
  /// Rounds updated parameters up or down by chance, so that the mean is right; else to nearest.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;  ///< Of stochastic rounding.
  LossScaleOptions loss_scale = {};
  OptimizerOptions optimizer = {};
  /// Where optimizer state lives, masters included: "memory", or "file:FOLDER" for files that stand
  /// in for memory, on a disk of this host. Bits are the same.
  std::string state_tier = "memory";
  /// The same for parameters and gradients between their uses, where they are cut into shards. What
  /// is whole on a rank stays in memory.
  std::string shard_tier = "memory";
  float clip_norm = 1.0f;  ///< 0: no clipping.
};

/// What became of a step, the same on every rank.
struct StepResult {
  double grad_norm = 0;   ///< Before clipping, over the whole model, without the loss scale.
  bool skipped = false;   ///< The norm was not finite, so no rank changed anything.
  double loss_scale = 1;  ///< That of this step.
};

/// Bytes a rank has sent in collectives, as their definitions count them: all-gather and
/// reduce-scatter of a buffer over p ranks (p-1)/p of it, all-reduce twice that. Since
/// construction. What travels in blocks counts as their bytes.
struct Traffic {
  std::uint64_t parameters = 0, gradients = 0, norm = 0, control = 0;
};

/// Bytes of a rank's buffers. `kept` is there always; a unit that is full, or a gradient on its
/// way, lies in a slot, and which units share one is fixed beforehand.
struct MemoryPlan {
  std::size_t kept = 0;             ///< Parameters, gradients, optimizer state; in tiers, too.
  std::size_t parameter_slots = 0;  ///< Full parameters.
  std::size_t gradient_slots = 0;   ///< Full gradients, narrowed ones, sums not yet added.
  std::size_t total() const { return kept + parameter_slots + gradient_slots; }
};

/// A full gradient to be written.
struct GradientTarget {
  std::span<float> values;
  bool fresh = false;  ///< Holds nothing yet: every element must be written. Else add to it.
};

/// A model whose units live sharded and are full only while they are used. One thread at a time.
/// A training step is, for each of options.visits: acquire, compute, release; in visits that add
/// gradients they are added into gradient(), and reduce() follows a unit's last one of a
/// micro-batch; then step().
class SPRAT_API ShardedModel {
 public:
  /// Collective. `world` must outlive the model. Ranks of a host should be consecutive:
  /// order_by_host().
  ShardedModel(Communicator& world, std::vector<UnitSpec> units, FsdpOptions options);
  ~ShardedModel();
  ShardedModel(ShardedModel&&) noexcept;

  /// Makes a unit's parameters full unless the visit needs a gradient alone, and starts the gathers
  /// of the visits that follow.
  void acquire(int unit);
  /// Whether an acquired unit's values are there. Where a visit of a gradient alone may be one of
  /// an evaluation as well, they are.
  bool has_values(int unit) const;
  /// The unit's full parameters may go once every acquire() has its release().
  void release(int unit);
  /// Full values of parameter `index` of an acquired unit, of options.parameter_dtype.
  ConstElements parameter_elements(int unit, int index) const;
  /// The same where that is f32.
  std::span<const float> parameter(int unit, int index) const;
  /// Full gradient of that parameter, times loss_scale(); zero when first asked for in a step or,
  /// where first sums are made in each or GradientOrder is tree, in a micro-batch. Add into it. It
  /// is of that micro-batch; if none is named, of the unit's latest visit's that adds gradients.
  std::span<float> gradient(int unit, int index, std::optional<int> microbatch = {});
  /// The same without the zeros: for who can write the first time and add from then on.
  GradientTarget gradient_target(int unit, int index, std::optional<int> microbatch = {});
  /// A micro-batch's gradients of the unit are whole: starts their reduction if it is due. Once for
  /// each micro-batch; units may finish micro-batches in different orders.
  void reduce(int unit, std::optional<int> microbatch = {});
  /// What the loss of this step is to be multiplied by.
  double loss_scale() const noexcept;
  /// Ends the reductions, clips, updates. What is applied is the sum of gradients over ranks and
  /// micro-steps, divided once by `divisor`, such as the count of tokens of all ranks; 0: by the
  /// number of ranks times micro-steps.
  StepResult step(float learning_rate, double divisor = 0);

  /// The parts of step(), for a model that is one of several of a job, such as a pipeline's stages.
  /// Collective, in this order, each once a step. Ends the reductions.
  void finish_gradients();
  /// This rank's part of the unit's summed gradient, times loss_scale(). Until apply() it may be
  /// changed: a weight that another stage has too adds that one's, whose part is the same on a rank
  /// of the same number if both have the same row. Of a unit whose parameters all
  /// persist it is all of them, on every rank; throws Error{invalid_argument} if only some do.
  std::span<float> summed_gradient(int unit);
  /// By unit, the exact sum of squares of its summed gradient over all of this model's ranks, the
  /// same on each. What is tied has none, so models of a job that add theirs, in any order, have
  /// each element of every tensor once, and the same sum wherever units and tensors are cut.
  std::vector<SquareSum> square_sums();
  /// Clips and updates. `grad_norm` is the root of the sum of square_sums() of the whole job: its
  /// loss scale and `divisor`, which is as in step(), are taken out here. The same on every rank of
  /// the job; if it is not finite, all of them skip the step.
  StepResult apply(float learning_rate, double grad_norm, double divisor = 0);

  /// Steps that changed parameters: all but those that were skipped. Checkpoints keep the number.
  std::int64_t updates() const noexcept;

  /// values <- their sums over all ranks, such as loss and tokens; the same bits on each.
  void sum_over_ranks(std::span<double> values);

  std::int64_t parameter_count() const;  ///< Of what is tied none.
  /// The row of the table in use, and how many ranks share a copy.
  const Strategy& strategy() const noexcept;
  int hybrid_shard_degree() const noexcept;
  /// What buffers are planned to take at most, now hold, and have held at most.
  const MemoryPlan& memory_plan() const noexcept;
  std::size_t bytes_held() const;
  std::size_t bytes_high_water() const;
  const Traffic& traffic() const noexcept;

  fsdp::Engine& engine() noexcept { return *engine_; }  ///< For the library itself.

 private:
  std::unique_ptr<fsdp::Engine> engine_;
};

/// `to` <- `from`, which is f32, bf16 or f16; exact. As many elements; no overlap.
SPRAT_API void widen(const ConstElements& from, std::span<float> to);

/// Collective. The same ranks, those of one host next to each other and hosts in the order of their
/// first ranks, so that consecutive ranks share memory where they can.
SPRAT_API Communicator order_by_host(Communicator& world);

}  // namespace sprat
