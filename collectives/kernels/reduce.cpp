// Checks a reduction, then hands it to the kernels of its types and of this processor.
#include "collectives/kernels/reduce.hpp"

#include "collectives/kernels/reduce_environment.hpp"
#include "collectives/kernels/reduce_kernels.hpp"
#include "collectives/kernels/reduce_targets.hpp"
#include "comm/base/check.hpp"

// After reduce_targets.hpp, which tells it what to know of.
#include <hwy/cache_control.h>
#include <hwy/targets.h>

namespace sprat::collectives {

namespace {

/// The instruction sets that the kernels are compiled for and this processor has, best first. They
/// are asked for once, before a test restricts Highway to some of them.
const std::vector<std::int64_t>& available_targets() {
  static const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

bool combines_bits(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor ||
         op == ReduceOp::land || op == ReduceOp::lor;
}

void require_sound(const Arithmetic& arithmetic, std::span<const Term> terms) {
  require(!terms.empty(), "a reduction needs at least one term");
  for (std::size_t i = 0; i < terms.size(); ++i) {
    require(terms[i].covers.size() > 0, "term ", i, " of a reduction covers no rank");
    if (i == 0) {
      continue;
    }
    require(terms[i].covers.first == terms[i - 1].covers.last, "term ", i,
            " of a reduction begins at rank ", terms[i].covers.first,
            ", the one before it ends at ", terms[i - 1].covers.last);
  }
  require_takes(arithmetic.op, arithmetic.input);
  require((arithmetic.op == ReduceOp::user) == (arithmetic.user != nullptr),
          "a user operation is one with a function: see Reduction::user()");
  if (!arithmetic.complete) {
    return;
  }
  require(terms.front().covers.first == 0 && terms.back().covers.last == arithmetic.ranks,
          "a complete reduction of ", arithmetic.ranks, " ranks got terms of ranks [",
          terms.front().covers.first, ", ", terms.back().covers.last, ")");
  require(arithmetic.output == arithmetic.input ||
              arithmetic.output == accumulator_of(arithmetic.input, arithmetic.op),
          "a reduction of ", name(arithmetic.input), " cannot give ", name(arithmetic.output));
}

void run(const CheckedReduction& reduction) {
  // Floats are reduced in PlainArithmetic, so that the result does not depend on the modes that the
  // calling thread has set. That includes user operations, whose function may use floats for any
  // type; integers and bits have no modes.
  if (reduction.arithmetic.user != nullptr) {
    const PlainArithmetic mode;
    return reduce_user(reduction);
  }
  switch (reduction.arithmetic.input) {
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
      return combines_bits(reduction.arithmetic.op) ? reduce_bits(reduction)
                                                    : reduce_integers(reduction);
    case DType::boolean:
      return reduce_bits(reduction);
    case DType::f32:
    case DType::f64: {
      const PlainArithmetic mode;
      return reduce_floats(reduction);
    }
    case DType::f16:
    case DType::bf16: {
      const PlainArithmetic mode;
      return reduce_float16(reduction);
    }
    case DType::f8e4m3:
    case DType::f8e5m2: {
      const PlainArithmetic mode;
      return reduce_float8(reduction);
    }
  }
}

}  // namespace

DType accumulator_of(DType input, ReduceOp op) noexcept {
  // A user's function knows only elements of the input's type.
  if (op == ReduceOp::user) {
    return input;
  }
  switch (input) {
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return DType::f32;
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
    case DType::f32:
    case DType::f64:
    case DType::boolean:
      return input;
  }
  return input;
}

[[gnu::hot]] void require_takes(ReduceOp op, DType dtype) {
  if (takes(op, dtype)) {
    return;
  }
  std::string names;
  for (const DType candidate : all_dtypes()) {
    if (takes(op, candidate)) {
      names += text(" ", name(candidate));
    }
  }
  throw Error(ErrorCode::invalid_argument,
              text(name(op), " does not reduce ", name(dtype), "; it takes", names));
}

[[gnu::hot]] void reduce(const Arithmetic& arithmetic, std::span<const Term> terms, void* to,
                         std::size_t count) {
  require_sound(arithmetic, terms);
  run({.arithmetic = arithmetic,
       .terms = terms,
       .covers = {terms.front().covers.first, terms.back().covers.last},
       .to = to,
       .count = count});
  // Stores past the cache are not ordered with later ones, such as the one that tells a peer that
  // the result is there: this fence orders them.
  if (arithmetic.past_cache) {
    hwy::FlushStream();
  }
}

void refuse_terms(RankRange missing) {
  throw Error(ErrorCode::invalid_argument,
              text("the terms of a reduction do not make up ranks [", missing.first, ", ",
                   missing.last, ") of the canonical tree"));
}

std::vector<std::string> reduce_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : available_targets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

bool use_reduce_target(const std::string& target) {
  std::int64_t chosen = 0;  // Highway takes 0 for all of them
  for (const std::int64_t candidate : available_targets()) {
    if (target == hwy::TargetName(candidate)) {
      chosen = candidate;
    }
  }
  if (chosen == 0 && !target.empty()) {
    return false;
  }
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

}  // namespace sprat::collectives
