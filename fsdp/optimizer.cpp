// The table of optimizers: every file of fsdp/optimizers/, in order.
#include "fsdp/optimizer.hpp"

#include <algorithm>
#include <array>

#include "comm/base/check.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_OPTIMIZERS(entry) entry(adamw) entry(lion) entry(sgd)

namespace sprat::fsdp {
namespace {

/// The names of rows, joined by commas.
template <class Rows>
std::string names_of(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) {
    names += text(names.empty() ? "" : ", ", row.name);
  }
  return names;
}

}  // namespace

#define SPRAT_DECLARE(file) extern const OptimizerKind file##_optimizer;
SPRAT_OPTIMIZERS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const OptimizerKind* const> all_optimizers() noexcept {
#define SPRAT_ADDRESS(file) &file##_optimizer,
  static constexpr std::array optimizers = {SPRAT_OPTIMIZERS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return optimizers;
}

const OptimizerKind& optimizer_named(std::string_view name) {
  std::string known;
  for (const OptimizerKind* kind : all_optimizers()) {
    if (kind->name == name) {
      return *kind;
    }
    known += text(known.empty() ? "" : ", ", kind->name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no optimizer \"", name, "\"; there are: ", known));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  const OptimizerKind& kind = optimizer_named(options.name);
  for (const auto& [name, value] : options.values) {
    const auto row = std::ranges::find(kind.hyperparameters, name, &Hyperparameter::name);
    require(row != kind.hyperparameters.end(), "optimizer ", kind.name, " has no hyperparameter \"",
            name, "\"; it has: ", names_of(kind.hyperparameters));
    const bool is_below = value < row->below && double{static_cast<float>(value)} < row->below;
    require(value >= row->least && is_below, "hyperparameter ", name, " of optimizer ", kind.name,
            " is ", value, "; it is at least ", row->least, " and below ", row->below, ", in f32");
  }
  std::map<std::string, double> values = options.values;
  for (const Hyperparameter& row : kind.hyperparameters) {
    values.try_emplace(row.name, row.standard);
  }
  return kind.make(values);
}

}  // namespace sprat::fsdp
