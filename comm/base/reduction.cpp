// The public reductions: which exist, what each takes, and how they are said.
#include "sprat/reduction.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {

namespace {

bool is_floating(DType dtype) noexcept {
  switch (dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return !std::is_integral_v<type>;
#include "sprat/dtypes.def"
  }
  return false;
}

}  // namespace

const char* name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
    case ReduceOp::land:
      return "land";
    case ReduceOp::lor:
      return "lor";
    case ReduceOp::premultiplied_sum:
      return "premultiplied_sum";
    case ReduceOp::user:
      return "user operation";
  }
  return "unknown op";
}

const char* name(ReduceOrder order) noexcept {
  switch (order) {
    case ReduceOrder::canonical:
      return "canonical";
    case ReduceOrder::any:
      return "any";
  }
  return "unknown order";
}

// Only what its name alone describes: a premultiplied sum needs a factor, a user operation a
// function.
std::span<const ReduceOp> all_reduce_ops() noexcept {
  static constexpr std::array ops = {ReduceOp::sum,  ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                     ReduceOp::avg,  ReduceOp::band, ReduceOp::bor, ReduceOp::bxor,
                                     ReduceOp::land, ReduceOp::lor};
  return ops;
}

[[gnu::hot]] bool takes(ReduceOp op, DType dtype) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::user:
      return true;
    case ReduceOp::avg:
      return dtype != DType::boolean;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
      return !is_floating(dtype);
    case ReduceOp::premultiplied_sum:
      return is_floating(dtype);
  }
  return false;
}

Reduction Reduction::premultiplied_sum(double factor) {
  require(std::isfinite(factor), "a sum cannot be premultiplied by ", factor,
          "; the factor must be finite");
  Reduction reduction(ReduceOp::premultiplied_sum);
  reduction.factor_ = factor;
  return reduction;
}

Reduction Reduction::user(UserOp op) {
  require(!op.name.empty(), "a user operation needs a name, for ranks to agree on");
  require(op.function != nullptr, "user operation ", op.name, " has no function");
  Reduction reduction(ReduceOp::user);
  reduction.user_ = std::make_shared<const UserOp>(std::move(op));
  return reduction;
}

std::string describe(const Reduction& reduction) {
  std::string out = name(reduction.op());
  if (reduction.op() == ReduceOp::premultiplied_sum) {
    std::array<char, 32> digits;  // to_chars() writes the fewest that read back as the same number
    const auto end = std::to_chars(digits.begin(), digits.end(), reduction.factor()).ptr;
    out += " by " + std::string(digits.begin(), end);
  }
  if (reduction.user_op() != nullptr) {
    out += " " + reduction.user_op()->name;
  }
  return out;
}

}  // namespace sprat
