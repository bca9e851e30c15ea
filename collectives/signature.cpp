#include "collectives/signature.hpp"

#include <xxhash.h>

#include "comm/base/check.hpp"

namespace sprat::collectives {

Signature shape_of(const Problem& problem) {
  Signature signature;
  signature.count = problem.count;
  signature.detail = static_cast<std::uint32_t>(problem.root);
  signature.collective = problem.collective;
  signature.input = problem.input;
  signature.output = problem.output;
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

std::uint64_t digest(const Signature& signature) {
  return XXH3_64bits(&signature, sizeof signature);
}

std::string describe(const Problem& problem) {
  if (problem.collective == Collective::barrier) {
    return "barrier";
  }
  std::string out = text(name(problem.collective), " of ", problem.count, " ", name(problem.input));
  if (reduces(problem.collective)) {
    out += text(", ", describe(problem.op));
    if (problem.output != problem.input) {
      out += text(" to ", name(problem.output));
    }
  }
  if (problem.collective == Collective::broadcast) {
    out += text(" from root ", problem.root);
  }
  return out;
}

}  // namespace sprat::collectives
