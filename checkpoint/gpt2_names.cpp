#include "checkpoint/gpt2_names.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

constexpr std::string_view model_prefix = "transformer.";
constexpr std::string_view head_name = "lm_head.weight";
constexpr std::string_view embedding_name = "wte.weight";

/// Weights that lie the other way round there, by the end of their names.
constexpr std::array<std::string_view, 4> transposed_weights = {
    ".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"};
/// No parameters: what attention may look at.
constexpr std::array<std::string_view, 2> masks = {".attn.bias", ".attn.masked_bias"};

template <std::size_t size>
bool ends_with_one_of(std::string_view name, const std::array<std::string_view, size>& ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

std::string without_prefix(const std::string& name) {
  return name.starts_with(model_prefix) ? name.substr(model_prefix.size()) : name;
}

/// (1, 1, context, context), or a single number. Parameters of these names would be vectors.
bool is_mask(const StoredTensor& tensor) {
  return ends_with_one_of(tensor.name, masks) && (tensor.shape.size() == 4 || tensor.shape.empty());
}

bool is_parameter(const StoredTensor& tensor) { return !tensor.name.starts_with("optimizer."); }

}  // namespace

CheckpointForm form_of(const Contents& contents) {
  for (const StoredTensor& tensor : contents.tensors) {
    const bool fused_across = tensor.name.ends_with(transposed_weights[0]) &&
                              tensor.shape.size() == 2 && tensor.shape[1] == 3 * tensor.shape[0];
    if (fused_across) {
      return CheckpointForm::hf_gpt2;
    }
  }
  return CheckpointForm::sprat;
}

CopyPlan plan_copies(const Contents& contents, CheckpointForm from, CheckpointForm to) {
  const bool foreign = from == CheckpointForm::hf_gpt2;
  const bool to_foreign = to == CheckpointForm::hf_gpt2;
  CopyPlan plan;
  for (const StoredTensor& tensor : contents.tensors) {
    if (!is_parameter(tensor)) {
      continue;
    }
    std::string name = foreign ? without_prefix(tensor.name) : tensor.name;
    if (foreign && name == head_name) {
      plan.head = &tensor;
      continue;
    }
    if (foreign && is_mask(tensor)) {
      continue;
    }
    const bool transposed = foreign != to_foreign && ends_with_one_of(name, transposed_weights);
    require(!transposed || tensor.shape.size() == 2, "tensor \"", tensor.name, "\" has ",
            tensor.shape.size(), " dimensions; as a weight of GPT-2 it has 2");
    if (name == embedding_name) {
      plan.embedding = &tensor;
    }
    if (to_foreign) {
      require(foreign || name.starts_with("h.") || name.starts_with("wte.") ||
                  name.starts_with("wpe.") || name.starts_with("ln_f."),
              "tensor \"", tensor.name, "\" is none of GPT-2's");
      name.insert(0, model_prefix);
    }
    plan.tensors.push_back({.name = std::move(name), .from = &tensor, .transposed = transposed});
  }
  std::ranges::sort(plan.tensors, {}, &CopiedTensor::name);
  const auto twice = std::ranges::adjacent_find(plan.tensors, {}, &CopiedTensor::name);
  require(twice == plan.tensors.end(), "two tensors would be named \"",
          twice == plan.tensors.end() ? "" : twice->name, "\"");
  require(plan.head == nullptr || plan.embedding != nullptr, "there is a \"", head_name,
          "\" and no \"", embedding_name, "\"");
  return plan;
}

}  // namespace sprat::fsdp
