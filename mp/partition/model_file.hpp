// Models as text, for planners: layers, modules in modules, operations with edges, or a GPT-2's
// config.json. docs/partition.md tells the keys.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mp/partition/graph.hpp"
#include "mp/partition/tree.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {

using LayerChain = std::vector<ModelPiece>;
using PlannedModel = std::variant<LayerChain, Module, OperationGraph>;

/// What is placed, in execution order; of modules as pieces_of(Module). Valid while the model is.
std::vector<const ModelPiece*> pieces_of(const PlannedModel& model);

/// Throws Error{invalid_argument}, beginning with `name`, that says what is wrong and where.
PlannedModel parse_model(const std::string& name, std::string_view text);

}  // namespace sprat::mp
