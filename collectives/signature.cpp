#include "collectives/signature.hpp"

#include <xxhash.h>

#include "comm/base/check.hpp"

namespace sprat::collectives {

Signature signature_of(const Problem& problem) {
  Signature signature;
  signature.count = problem.count;
  signature.root = problem.root;
  signature.collective = problem.collective;
  signature.input = problem.input;
  signature.output = problem.output;
  signature.op = problem.op;
  return signature;
}

std::uint64_t digest(const Signature& signature) {
  return XXH3_64bits(&signature, sizeof signature);
}

std::string describe(const Signature& signature) {
  if (signature.collective == Collective::barrier) {
    return "barrier";
  }
  std::string out =
      text(name(signature.collective), " of ", signature.count, " ", name(signature.input));
  if (reduces(signature.collective)) {
    out += text(", ", name(signature.op));
    if (signature.output != signature.input) {
      out += text(" to ", name(signature.output));
    }
  }
  if (signature.collective == Collective::broadcast) {
    out += text(" from root ", signature.root);
  }
  return out;
}

}  // namespace sprat::collectives
