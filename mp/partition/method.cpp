#include "mp/partition/method.hpp"

#include <algorithm>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::mp {
namespace {

/// The pieces one after another. Operations have an order only among their edges.
LayerChain chain_of(const PlannedModel& model) {
  require(!std::holds_alternative<OperationGraph>(model),
          "operations with edges are no chain; cut them with method graph");
  LayerChain chain;
  for (const ModelPiece* piece : pieces_of(model)) {
    chain.push_back(*piece);
  }
  return chain;
}

std::vector<int> by_tree(const PlannedModel& model, const MethodRequest& request) {
  const TreeRequest asked{.partitions = request.partitions,
                          .memory_weight = request.memory_weight,
                          .seats = request.seats};
  if (const auto* module = std::get_if<Module>(&model)) {
    return cut_tree(*module, asked);
  }
  // A module around the layers, which is no piece of the model and costs nothing.
  Module root;
  for (ModelPiece& layer : chain_of(model)) {
    root.children.push_back({.own = std::move(layer), .children = {}});
  }
  std::vector<int> partition_of = cut_tree(root, asked);
  partition_of.erase(partition_of.begin());
  return partition_of;
}

std::vector<int> by_chain(const PlannedModel& model, const MethodRequest& request) {
  ChainRequest asked = request.chain;
  asked.stages = request.partitions;
  LayerChain chain = chain_of(model);
  // Without times, parameters are what is known of the work.
  if (std::ranges::all_of(chain, [](const ModelPiece& layer) { return layer.time == 0; })) {
    for (ModelPiece& layer : chain) {
      layer.time = layer.parameter_bytes;
    }
  }
  std::vector<int> partition_of;
  for (const ChainStage& stage : cut_chain(chain, asked)) {
    const int partition = partition_of.empty() ? 0 : partition_of.back() + 1;
    partition_of.insert(partition_of.end(), stage.end - stage.begin, partition);
  }
  return partition_of;
}

std::vector<int> by_graph(const PlannedModel& model, const MethodRequest& request) {
  OperationGraph graph;
  if (const auto* operations = std::get_if<OperationGraph>(&model)) {
    graph = *operations;
  } else {
    for (ModelPiece& layer : chain_of(model)) {
      const int index = static_cast<int>(graph.operations.size());
      if (index > 0) {
        graph.edges.push_back(
            {.from = index - 1, .to = index, .bytes = graph.operations.back().piece.output_bytes});
      }
      graph.operations.push_back({.piece = std::move(layer), .group = {}});
    }
  }
  // SMP for TensorFlow balances the number of variables where speed is wanted, else their bytes.
  for (Operation& operation : graph.operations) {
    ModelPiece& piece = operation.piece;
    if (request.goal == PartitionGoal::speed) {
      const bool variable = piece.parameter_bytes > 0 || !piece.shared.empty();
      piece.parameter_bytes = variable ? 1 : 0;
      piece.activation_bytes = 0;
      for (SharedParameter& shared : piece.shared) {
        shared.bytes = 0;
      }
    }
  }
  return cut_graph(graph, {.partitions = request.partitions, .contiguity = request.contiguity})
      .partition_of;
}

}  // namespace

const std::vector<PartitionMethod>& all_partition_methods() {
  static const std::vector<PartitionMethod> table = {
      {"chain", "exact, for layers one after another", by_chain},
      {"graph", "the fewest bytes cut, for operations with edges", by_graph},
      {"tree", "SMP's, for modules in modules", by_tree},
  };
  return table;
}

const PartitionMethod& partition_method_named(std::string_view name) {
  const auto& table = all_partition_methods();
  const auto found = std::ranges::find(table, name, &PartitionMethod::name);
  std::string names;
  for (const PartitionMethod& method : table) {
    names += (names.empty() ? "" : ", ") + std::string(method.name);
  }
  require(found != table.end(), "no method \"", name, "\"; there are: ", names);
  return *found;
}

const PartitionMethod& usual_method(const PlannedModel& model) {
  if (std::holds_alternative<Module>(model)) {
    return partition_method_named("tree");
  }
  return partition_method_named(std::holds_alternative<LayerChain>(model) ? "chain" : "graph");
}

std::vector<PlacedPiece> partition_model(const PartitionRequest& request) {
  const PlannedModel model = parse_model("the model", request.model);
  const PartitionMethod& method =
      request.method.empty() ? usual_method(model) : partition_method_named(request.method);
  MethodRequest asked;
  asked.partitions = request.partitions;
  asked.goal = request.speed ? PartitionGoal::speed : PartitionGoal::memory;
  asked.memory_weight = request.memory_weight;
  asked.contiguity = request.any_order ? Contiguity::free : Contiguity::ordered;
  const std::vector<int> partition_of = method.cut(model, asked);
  const std::vector<const ModelPiece*> pieces = pieces_of(model);
  std::vector<PlacedPiece> placed;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    placed.push_back({.name = pieces[i]->name, .partition = partition_of[i]});
  }
  return placed;
}

}  // namespace sprat::mp
