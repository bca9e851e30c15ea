// Hugging Face's GPT-2 beside ours: names, and weights that lie the other way round. Pure.
//
// Ours are GPT-2's names without "transformer.", and weights of linear layers are (out, in).
// There, such weights are (in, out), the head is stored although it is the embedding, and masks of
// attention may be stored. Source: transformers, models/gpt2/modeling_gpt2.py (Conv1D,
// _tied_weights).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/plan/contents.hpp"
#include "sprat/checkpoint.hpp"

namespace sprat::fsdp {

/// One tensor that is written, and the one it comes from.
struct CopiedTensor {
  std::string name;
  const StoredTensor* from = nullptr;
  bool transposed = false;  ///< A matrix whose rows become columns.
};

struct CopyPlan {
  std::vector<CopiedTensor> tensors;        ///< In the order of their names.
  const StoredTensor* head = nullptr;       ///< A stored head, which must equal
  const StoredTensor* embedding = nullptr;  ///< the embedding: there is one for both.
};

/// Whose names and weights these are: hf_gpt2 if the fused attention weight is three times as wide
/// as high, else sprat, which `single` has as well.
CheckpointForm form_of(const Contents& contents);

/// Parameters of `contents` (no optimizer state) as the form `to` has them. `contents` outlives the
/// plan. Throws Error{invalid_argument} naming what has no place there.
CopyPlan plan_copies(const Contents& contents, CheckpointForm from, CheckpointForm to);

}  // namespace sprat::fsdp
