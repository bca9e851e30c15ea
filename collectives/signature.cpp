#include "collectives/signature.hpp"

#include <xxhash.h>

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

constexpr int most_counts_shown = 16;

std::uint64_t hash_of(const BlockCounts& counts, std::uint64_t seed) {
  XXH64_hash_t hash = seed;
  for (int block = 0; block < counts.blocks(); ++block) {
    const std::uint64_t count = counts.count(block);
    hash = XXH3_64bits_withSeed(&count, sizeof count, hash);
  }
  return hash;
}

/// The root, or a hash of it and of all block counts.
std::uint32_t detail_of(const Problem& problem) {
  const auto root = static_cast<std::uint32_t>(problem.root);
  if (!problem.counts || exchanges(problem.collective)) {
    return root;
  }
  return static_cast<std::uint32_t>(hash_of(*problem.counts, root));
}

/// "3, 0, 5"; long lists are cut, but differ whenever the counts do.
std::string text_of(const BlockCounts& counts) {
  std::string out;
  for (int block = 0; block < std::min(counts.blocks(), most_counts_shown); ++block) {
    out += text(block == 0 ? "" : ", ", counts.count(block));
  }
  if (counts.blocks() > most_counts_shown) {
    out += fmt::format(", ... ({} in all, hash {:016x})", counts.total(), hash_of(counts, 0));
  }
  return out;
}

}  // namespace

Signature shape_of(const Problem& problem) {
  Signature signature;
  signature.count = exchanges(problem.collective) ? 0 : problem.count;
  signature.detail = detail_of(problem);
  signature.collective = problem.collective;
  signature.input = problem.input;
  // Only the root of a reduce has an output.
  signature.output = problem.collective == Collective::reduce ? problem.input : problem.output;
  signature.op = problem.op.op();
  return signature;
}

Signature signature_of(const Problem& problem) {
  Signature signature = shape_of(problem);
  const auto mix = [&signature](const void* more, std::size_t bytes) {
    signature.detail =
        static_cast<std::uint32_t>(XXH3_64bits_withSeed(more, bytes, signature.detail));
  };
  if (problem.op.op() == ReduceOp::premultiplied_sum) {
    const double factor = problem.op.factor();
    mix(&factor, sizeof factor);
  }
  if (const UserOp* user = problem.op.user_op()) {
    mix(user->name.data(), user->name.size());
  }
  return signature;
}

std::uint64_t digest(const Signature& signature, std::uint64_t trail) {
  return XXH3_64bits_withSeed(&signature, sizeof signature, trail);
}

bool may_end_unheard(const Problem& problem) {
  return has_root(problem.collective) || problem.counts || exchanges(problem.collective);
}

std::string describe(const Problem& problem) {
  if (problem.collective == Collective::barrier) {
    return "barrier";
  }
  const bool exchange = exchanges(problem.collective);
  std::string out = name(problem.collective);
  if (problem.counts && !exchange) {
    out += text("v of ", text_of(*problem.counts));
  } else if (exchange) {
    out += " of";
  } else {
    out += text(" of ", problem.count);
  }
  out += text(" ", name(problem.input));
  if (reduces(problem.collective)) {
    out += text(", ", describe(problem.op));
    if (problem.output != problem.input && problem.collective != Collective::reduce) {
      out += text(" to ", name(problem.output));
    }
  }
  if (has_root(problem.collective)) {
    out += text(", root ", problem.root);
  }
  return out;
}

}  // namespace sprat::collectives
