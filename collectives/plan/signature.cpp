// What ranks compare: sixteen bytes that differ if calls do, and the words for people.
#include "collectives/plan/signature.hpp"

// Of two words: less is done than a call of the library's takes.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

// As many as fit a line; the rest is in the hash that follows.
constexpr int most_counts_shown = 16;

/// Each count is hashed on top of those before it, so that their order matters.
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
  // Counts of an exchange are known to their two ranks only: each message's length tells them.
  if (!problem.counts || exchanges(problem.collective)) {
    return root;
  }
  return static_cast<std::uint32_t>(hash_of(*problem.counts, root));
}

/// "3, 0, 5"; long lists are cut, but differ whenever the counts do.
std::string counts_text(const BlockCounts& counts) {
  std::string out;
  for (int block = 0; block < std::min(counts.blocks(), most_counts_shown); ++block) {
    out += text(block == 0 ? "" : ", ", counts.count(block));
  }
  if (counts.blocks() > most_counts_shown) {
    out += fmt::format(", ... ({} in all, hash {:016x})", counts.total(), hash_of(counts, 0));
  }
  return out;
}

/// `amount` is what every rank has, or how long its blocks are.
std::string call_words(const Signature& call, std::uint32_t root, const std::string& amount,
                       const Reduction& op) {
  if (call.collective == Collective::barrier) {
    return "barrier";
  }
  std::string out = text(name(call.collective), amount, " ", name(call.input));
  if (reduces(call.collective)) {
    out += text(", ", describe(op));
    if (call.output != call.input) {
      out += text(" to ", name(call.output));
    }
  }
  if (has_root(call.collective)) {
    out += text(", root ", root);
  }
  return out;
}

}  // namespace

[[gnu::hot]] Signature signature_of(const PlainCall& call) {
  // Only the root of a reduce has an output.
  const DType output = call.collective == Collective::reduce ? call.input : call.output;
  return {.count = call.count,
          .detail = static_cast<std::uint32_t>(call.root),
          .collective = call.collective,
          .input = call.input,
          .output = output,
          .op = call.op};
}

[[gnu::hot]] Signature shape_of(const Problem& problem) {
  Signature signature =
      signature_of(PlainCall{.collective = problem.collective,
                             .count = exchanges(problem.collective) ? 0 : problem.count,
                             .root = problem.root,
                             .input = problem.input,
                             .output = problem.output,
                             .op = problem.op.op()});
  signature.detail = detail_of(problem);
  return signature;
}

// Factor and function change what a plan's arithmetic does, not the plan: so they are not in
// shape_of(), by which plans are cached. A function is known by its name; its address differs from
// process to process.
[[gnu::hot]] Signature signature_of(const Problem& problem) {
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

[[gnu::hot]] std::uint64_t digest(const Signature& signature, std::uint64_t prior_calls_hash) {
  return XXH3_64bits_withSeed(&signature, sizeof signature, prior_calls_hash);
}

[[gnu::hot]] bool is_plain(const Problem& problem) {
  return !problem.counts && problem.op.op() != ReduceOp::premultiplied_sum &&
         problem.op.op() != ReduceOp::user;
}

// A rank that only sends to the root, or has nothing in this call, need not meet everybody.
[[gnu::hot]] bool completes_locally(const Problem& problem) {
  return has_root(problem.collective) || problem.counts || exchanges(problem.collective);
}

[[gnu::hot]] bool completes_locally(const Signature& signature) {
  return has_root(signature.collective) || exchanges(signature.collective);
}

std::string describe(const Problem& problem) {
  const std::string amount = exchanges(problem.collective) ? " of"
                             : problem.counts ? text("v of ", counts_text(*problem.counts))
                                              : text(" of ", problem.count);
  return call_words(shape_of(problem), static_cast<std::uint32_t>(problem.root), amount,
                    problem.op);
}

std::string describe(const Signature& call) {
  const std::string amount = exchanges(call.collective) ? " of" : text(" of ", call.count);
  return call_words(call, call.detail, amount, Reduction(call.op));
}

}  // namespace sprat::collectives
