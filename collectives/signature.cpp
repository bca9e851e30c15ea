#include "collectives/signature.hpp"

#include <xxhash.h>

#include "comm/base/check.hpp"

namespace sprat::collectives {

Signature signature_of(const Problem& problem) {
  Signature signature;
  signature.count = problem.count;
  signature.detail = static_cast<std::uint32_t>(problem.root);
  signature.collective = problem.collective;
  signature.input = problem.input;
  signature.output = problem.output;
  signature.op = problem.op;
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
    out += text(", ", name(problem.op));
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
