#include "mp/partition/model_file.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {
namespace {

using Json = nlohmann::json;

/// Sums of a million such numbers are still exact in a double, or nearly.
constexpr double largest = 1e18;
/// Modules within modules; more is an attempt to exhaust the stack.
constexpr int deepest = 200;

double number_of(const Json& json, const std::string& what) {
  require(json.is_number(), what, " is no number but ", json.dump());
  const double value = json.get<double>();
  require(value >= 0 && value <= largest, what, " is ", json.dump(), ", not from 0 to ", largest);
  return value;
}

/// A misspelt key would silently count as 0.
void refuse_other_keys(const Json& json, const std::string& where,
                       std::initializer_list<const char*> known) {
  require(json.is_object(), where, " is no object");
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(known, key) != known.end()) {
      continue;
    }
    std::string names;
    for (const char* name : known) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    throw Error(ErrorCode::invalid_argument,
                text(where, " has no key \"", key, "\"; there are: ", names));
  }
}

std::string text_at(const Json& json, const char* key, const std::string& where) {
  require(json.contains(key) && json.at(key).is_string(), where, " has no text \"", key, "\"");
  return json.at(key).get<std::string>();
}

/// What every form says of a piece; keys that are absent are 0.
ModelPiece piece_from(const Json& json, const std::string& where) {
  ModelPiece piece;
  piece.name = text_at(json, "name", where);
  const auto take = [&](const char* key, double& value) {
    if (json.contains(key)) {
      value = number_of(json.at(key), text("\"", key, "\" of \"", piece.name, "\""));
    }
  };
  take("time", piece.time);
  take("parameter_bytes", piece.parameter_bytes);
  take("activation_bytes", piece.activation_bytes);
  take("output_bytes", piece.output_bytes);
  if (json.contains("shared")) {
    require(json.at("shared").is_object(), "\"shared\" of \"", piece.name,
            "\" is no object of names and bytes");
    for (const auto& [name, bytes] : json.at("shared").items()) {
      piece.shared.push_back({.name = name, .bytes = number_of(bytes, "\"" + name + "\"")});
    }
  }
  return piece;
}

const Json& list_of(const Json& json, const char* key) {
  const Json& list = json.at(key);
  require(list.is_array() && !list.empty(), "\"", key, "\" is no list with something in it");
  return list;
}

LayerChain chain_from(const Json& json) {
  refuse_other_keys(json, "the model", {"layers"});
  LayerChain chain;
  for (const Json& layer : list_of(json, "layers")) {
    const std::string where = text("layer ", chain.size());
    refuse_other_keys(
        layer, where,
        {"name", "time", "parameter_bytes", "activation_bytes", "output_bytes", "shared"});
    chain.push_back(piece_from(layer, where));
  }
  return chain;
}

Module module_from(const Json& json, const std::string& where) {
  refuse_other_keys(json, where,
                    {"name", "time", "parameter_bytes", "activation_bytes", "output_bytes",
                     "shared", "children"});
  Module module{.own = piece_from(json, where), .children = {}};
  if (json.contains("children")) {
    require(json.at("children").is_array(), "\"children\" of \"", module.own.name, "\" is no list");
    for (const Json& child : json.at("children")) {
      module.children.push_back(module_from(
          child, text("child ", module.children.size(), " of \"", module.own.name, "\"")));
    }
  }
  return module;
}

OperationGraph graph_from(const Json& json) {
  refuse_other_keys(json, "the model", {"operations", "edges"});
  OperationGraph graph;
  std::map<std::string, int> index_of;
  for (const Json& operation : list_of(json, "operations")) {
    const std::string where = text("operation ", graph.operations.size());
    refuse_other_keys(operation, where,
                      {"name", "time", "parameter_bytes", "activation_bytes", "shared", "group"});
    index_of.emplace(text_at(operation, "name", where), static_cast<int>(graph.operations.size()));
    graph.operations.push_back(
        {.piece = piece_from(operation, where),
         .group = operation.contains("group") ? text_at(operation, "group", where) : ""});
  }
  const auto end_of = [&](const Json& edge, const char* key, const std::string& where) {
    const std::string name = text_at(edge, key, where);
    const auto found = index_of.find(name);
    require(found != index_of.end(), where, " names the operation \"", name,
            "\", which is not there");
    return found->second;
  };
  if (json.contains("edges")) {
    for (const Json& edge : list_of(json, "edges")) {
      const std::string where = text("edge ", graph.edges.size());
      refuse_other_keys(edge, where, {"from", "to", "bytes"});
      require(edge.contains("bytes"), where, " has no \"bytes\"");
      graph.edges.push_back({.from = end_of(edge, "from", where),
                             .to = end_of(edge, "to", where),
                             .bytes = number_of(edge.at("bytes"), "\"bytes\" of " + where)});
    }
  }
  return graph;
}

/// Other keys say nothing about sizes: a config.json has some thirty.
LayerChain gpt2_from(const Json& json) {
  Gpt2Shape shape;
  const auto take = [&](const char* key, std::int64_t& value) {
    require(json.contains(key), "a GPT-2's config.json has \"", key, "\"; it is missing");
    constexpr std::int64_t most = 1'000'000;
    const Json& given = json.at(key);
    require(given.is_number_integer() && given >= 1 && given <= most, "\"", key, "\" is ",
            given.dump(), ", not a whole number from 1 to ", most);
    value = given.get<std::int64_t>();
  };
  take("n_layer", shape.n_layer);
  constexpr std::int64_t most_layers = 10'000;
  require(shape.n_layer <= most_layers, "\"n_layer\" is ", shape.n_layer, ", more than ",
          most_layers);
  take("n_embd", shape.n_embd);
  take("n_head", shape.n_head);
  take("vocab_size", shape.vocab_size);
  take("n_positions", shape.n_positions);
  if (json.contains("n_inner") && !json.at("n_inner").is_null()) {
    take("n_inner", shape.n_inner);
  }
  if (json.contains("tie_word_embeddings")) {
    require(json.at("tie_word_embeddings").is_boolean(),
            "\"tie_word_embeddings\" is neither true nor false");
    shape.tie_word_embeddings = json.at("tie_word_embeddings").get<bool>();
  }
  return gpt2_layers(shape);
}

PlannedModel model_from(const Json& json) {
  require(json.is_object(), "it is no object");
  if (json.contains("layers")) {
    return chain_from(json);
  }
  if (json.contains("module")) {
    refuse_other_keys(json, "the model", {"module"});
    return module_from(json.at("module"), "the module");
  }
  if (json.contains("operations")) {
    return graph_from(json);
  }
  require(json.contains("n_layer"), "it describes no model: there is none of the keys \"layers\", ",
          "\"module\", \"operations\", and none of a GPT-2's config.json");
  return gpt2_from(json);
}

/// Places are told and kept by name, so no two pieces have one.
void check_pieces(const PlannedModel& model) {
  std::map<std::string, double> bytes_of;
  std::map<std::string, int> pieces;
  for (const ModelPiece* piece : pieces_of(model)) {
    require(!piece->name.empty(), "a piece has an empty name");
    require(pieces[piece->name]++ == 0, "two pieces are named \"", piece->name,
            "\"; use whole paths such as \"h.3.mlp\"");
    for (const SharedParameter& shared : piece->shared) {
      const double first = bytes_of.try_emplace(shared.name, shared.bytes).first->second;
      require(first == shared.bytes, "the shared parameter \"", shared.name, "\" has ", first,
              " bytes in one place and ", shared.bytes, " in \"", piece->name, "\"");
    }
  }
}

}  // namespace

std::vector<const ModelPiece*> pieces_of(const PlannedModel& model) {
  if (const auto* module = std::get_if<Module>(&model)) {
    return pieces_of(*module);
  }
  std::vector<const ModelPiece*> pieces;
  if (const auto* chain = std::get_if<LayerChain>(&model)) {
    for (const ModelPiece& layer : *chain) {
      pieces.push_back(&layer);
    }
    return pieces;
  }
  for (const Operation& operation : std::get<OperationGraph>(model).operations) {
    pieces.push_back(&operation.piece);
  }
  return pieces;
}

PlannedModel parse_model(const std::string& name, std::string_view text) {
  try {
    JsonKeys keys;
    const Json json =
        Json::parse(text.begin(), text.end(),
                    [&keys](int depth, Json::parse_event_t event, const Json& parsed) {
                      require(depth < deepest, "it is nested too deeply");
                      const auto repeated = keys.repeated(event, parsed);
                      require(!repeated, "it gives the key \"", repeated.value_or(""), "\" twice");
                      return true;
                    });
    PlannedModel model = model_from(json);
    check_pieces(model);
    return model;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, sprat::text(name, ": ", reason_of(error)));
  } catch (const Error& error) {
    throw Error(error.code(), sprat::text(name, ": ", error.what()));
  }
}

}  // namespace sprat::mp
