// A model of three units whose gradients are a formula: what a training step must give is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/engine.hpp"
#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// A value in [-1, 1) that looks random and depends only on the key.
float noise(std::uint64_t key);
std::uint64_t key_of(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d);

/// An embedding that is also the head, and two blocks; sizes that no alignment divides.
extern const std::vector<std::vector<std::vector<std::int64_t>>> small_shapes;
extern const std::vector<int> small_forward, small_backward;
std::vector<UnitSpec> small_units();
/// The same with the head as a unit of its own, the last, which is tied to the embedding.
std::vector<UnitSpec> small_tied_units();
extern const std::vector<int> small_tied_forward, small_tied_backward;

/// What a rank adds to a gradient element at one visit. Backward visits of a unit in a step: 0, 1,
/// ... ; those of a tied head are the embedding's.
struct GradientKey {
  int rank = 0, step = 0, visit = 0, unit = 0, index = 0;
  std::size_t element = 0;
  float parameter = 0;
  int microbatch = 0, use = 0;  ///< The visit again: backward number `use` of the unit in that one.
};
using Gradient = std::function<float(const GradientKey&)>;
float noisy(const GradientKey& at);
/// Every partial sum of these is exact, in f32 and as bf16.
float small_integer(const GradientKey& at);

/// Whether a unit gets a gradient on that rank in that micro-step. Empty: always.
using Used = std::function<bool(int rank, int micro_step, int unit)>;

struct Job {
  int ranks = 1;
  FsdpOptions options = {};
  int steps = 3;
  bool evaluate = false;  ///< A forward pass after each step.
  Used used = {};
  std::vector<UnitSpec> units = small_units();
  std::string hosts = {};  ///< By rank, as "a,a,b,b"; empty: one.
};
constexpr float small_rate = 0.02f;

/// small_forward and small_backward, options.micro_steps times, if options.visits is empty.
FsdpOptions with_small_order(FsdpOptions options);
/// The visits of a step; without the step. Each backward visit adds to the gradient.
void run_passes(Engine& model, int rank, int step, const Gradient& gradient, const Used& used = {});
/// Bits of every parameter as f32, in order, from an evaluation. Collective.
using Values = std::vector<std::uint32_t>;
Values read_parameters(Engine& model);

struct Outcome {
  Values values;
  std::vector<double> norms;
  std::vector<bool> skipped;
};
/// Trains on threads, and checks that every rank ends with the same.
Outcome train(const Job& job, const Gradient& gradient, const QueueKind& queues = inline_queue());
void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what);

/// Every row of the table on so many ranks, with every degree it takes, as options.
std::vector<FsdpOptions> all_rows(int ranks);
/// "hsdp of 2".
std::string row_name(const FsdpOptions& options);

}  // namespace sprat::fsdp
