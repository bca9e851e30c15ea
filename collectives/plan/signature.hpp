// What a rank called: the words that every rank of a communicator must agree on.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// Trivially copyable, compared bit for bit.
struct Signature {
  std::uint64_t count = 0;
  std::uint32_t detail = 0;  ///< The root, or a hash of it and of whatever else must agree.
  Collective collective = Collective::barrier;
  DType input = DType::f32;
  DType output = DType::f32;
  ReduceOp op = ReduceOp::sum;
  /// Two words at once: a short call asks it of its own and of each peer's, and field by field that
  /// is as many branches.
  constexpr bool operator==(const Signature& other) const {
    using Words = std::array<std::uint64_t, 2>;
    const auto mine = std::bit_cast<Words>(*this), theirs = std::bit_cast<Words>(other);
    return ((mine[0] ^ theirs[0]) | (mine[1] ^ theirs[1])) == 0;
  }
};
static_assert(sizeof(Signature) == 16);
static_assert(std::has_unique_object_representations_v<Signature>, "its words have no gaps");

Signature signature_of(const Problem& problem);
/// All there is to a call without block counts, by an operation that is no more than its name.
struct PlainCall {
  Collective collective;
  std::size_t count;
  int root;
  DType input, output;
  ReduceOp op;
};
Signature signature_of(const PlainCall& call);
/// What a plan depends on: all of that but a reduction's factor and function.
Signature shape_of(const Problem& problem);
/// A well-mixed digest, for message tags. `prior_calls_hash` stands for what was called before.
std::uint64_t digest(const Signature& signature, std::uint64_t prior_calls_hash = 0);
/// Its signature says all that describe() tells of it.
bool is_plain(const Problem& problem);
/// A rank may be through with such a call before it has heard from every other: whether all agreed
/// shows only in a later one.
bool completes_locally(const Problem& problem);
/// The same of a plain one.
bool completes_locally(const Signature& signature);
/// All that must agree, as text: "all_reduce of 1024 f32, sum". Equal only for equal calls.
std::string describe(const Problem& problem);
/// The same of a plain one.
std::string describe(const Signature& signature);

}  // namespace sprat::collectives
