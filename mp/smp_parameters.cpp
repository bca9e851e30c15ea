// Reading a configuration of SMP: what is given, then what follows, then what keys ask of each
// other.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/spelling.hpp"
#include "comm/base/strict_json.hpp"
#include "sprat/smp.hpp"

namespace sprat {
namespace {

using Json = nlohmann::json;
constexpr int deepest = 16;

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw Error(ErrorCode::invalid_argument, text(args...));
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80);
}

Json parse(std::string_view source) {
  JsonKeys keys;
  const auto note = [&](int depth, Json::parse_event_t event, Json& value) {
    require(depth <= deepest, "the SMP configuration is nested too deeply");
    if (const auto again = keys.repeated(event, value)) {
      refuse(*again, " is given twice in the SMP configuration: keep one");
    }
    return true;
  };
  try {
    return Json::parse(source.begin(), source.end(), note);
  } catch (const Json::exception& error) {
    refuse("the SMP configuration is not JSON: ", reason_of(error).substr(0, 200));
  }
}

std::string unknown(std::string_view key, const std::vector<std::string_view>& known,
                    std::string_view what) {
  const auto near = std::ranges::min_element(
      known, {}, [&](std::string_view other) { return edit_distance(key, other); });
  return text('"', key, "\" is no ", what, ": did you mean \"", *near, "\"?");
}

void refuse_others(const Json& object, const std::vector<std::string_view>& known,
                   std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      refuse(unknown(key, known, text("key in ", where)));
    }
  }
}

/// The object under `name`, if it is there; refuses other keys beside it than `known`.
std::optional<Json> opened(const Json& object, const char* name,
                           const std::vector<std::string_view>& known, std::string_view where) {
  if (!object.contains(name)) {
    return std::nullopt;
  }
  refuse_others(object, known, where);
  const Json& inside = object.at(name);
  if (!inside.is_object()) {
    refuse(name, " = ", shown(inside), ": it must be an object, {\"key\": value, ...}");
  }
  return inside;
}

/// Out of what SageMaker's estimator wraps around the parameters.
Json unwrapped(Json object) {
  if (!object.is_object()) {
    refuse("the SMP configuration is JSON, but no object: it must be {\"key\": value, ...}");
  }
  if (auto inside =
          opened(object, "smdistributed",
                 {"smdistributed", "mpi", "torch_distributed", "pytorchddp"}, "distribution")) {
    object = std::move(*inside);
    refuse_others(object, {"modelparallel"}, "smdistributed");
    require(object.contains("modelparallel"), "smdistributed has no modelparallel");
  }
  if (auto inside = opened(object, "modelparallel", {"modelparallel"}, "smdistributed")) {
    object = std::move(*inside);
  }
  if (object.contains("enabled") && object.at("enabled") != true) {
    refuse("modelparallel has enabled = ", shown(object.at("enabled")),
           ": set it to true, or leave this configuration out");
  }
  if (auto inside = opened(object, "parameters", {"enabled", "parameters"}, "modelparallel")) {
    return *inside;
  }
  object.erase("enabled");
  return object;
}

bool has_key(SmpVersion version, std::string_view wanted) {
  return std::ranges::any_of(
      smp_keys(), [&](const SmpKey& key) { return key.version == version && key.name == wanted; });
}

/// Names and values overlap between the versions (activation_loading_horizon counts tasks in one
/// and layers in the other), so nothing is read before the version is known.
SmpVersion version_of(const Json& given) {
  std::vector<std::string_view> known;
  for (const SmpKey& key : smp_keys()) {
    known.push_back(key.name);
  }
  std::string unknown_keys, only_v1, only_v2;
  const auto append = [](std::string& list, std::string_view mark, std::string_view word) {
    list += text(list.empty() ? "" : mark, word);
  };
  for (const auto& [key, value] : given.items()) {
    const bool in_v1 = has_key(SmpVersion::v1, key), in_v2 = has_key(SmpVersion::v2, key);
    if (!in_v1 && !in_v2) {
      append(unknown_keys, "; ", unknown(key, known, "configuration key"));
    } else if (!in_v2) {
      append(only_v1, ", ", key);
    } else if (!in_v1) {
      append(only_v2, ", ", key);
    }
  }
  require(unknown_keys.empty(), unknown_keys);
  require(only_v1.empty() || only_v2.empty(), "keys of both generations of SMP: ", only_v1,
          " (v1) and ", only_v2, " (v2); keep those of one");
  return only_v1.empty() ? SmpVersion::v2 : SmpVersion::v1;
}

std::optional<SmpValue> converted(const SmpKey& key, const Json& value) {
  const auto inside = [&](double number) { return number >= key.least && number <= key.most; };
  switch (key.kind) {
    case SmpKind::flag:
      return value.is_boolean() ? std::optional<SmpValue>(value.get<bool>()) : std::nullopt;
    case SmpKind::word: {
      if (!value.is_string()) {
        return std::nullopt;
      }
      const auto word = value.get<std::string>();
      const bool listed =
          text(' ', key.choices, ' ').find(text(' ', word, ' ')) != std::string::npos;
      const bool one = !word.empty() && word.find(' ') == std::string::npos;
      return key.choices.empty() || (one && listed) ? std::optional<SmpValue>(word) : std::nullopt;
    }
    case SmpKind::number:
      return value.is_number() && inside(value.get<double>())
                 ? std::optional<SmpValue>(value.get<double>())
                 : std::nullopt;
    case SmpKind::whole: {
      // 5e8 is whole too. Doubles hold all whole numbers up to 2^53.
      const double number = value.is_number() ? value.get<double>() : 0.5;
      return std::floor(number) == number && std::abs(number) <= 0x1p53 && inside(number)
                 ? std::optional<SmpValue>(static_cast<std::int64_t>(number))
                 : std::nullopt;
    }
  }
  return std::nullopt;
}

SmpValue checked(const SmpKey& key, const Json& value) {
  const bool has_none = std::holds_alternative<std::monostate>(key.standard) && key.follows.empty();
  if (value.is_null() && has_none) {
    return {};
  }
  if (const auto legal = converted(key, value)) {
    return *legal;
  }
  refuse(key.name, " = ", shown(value), " of SMP ", name(key.version), " must be ",
         legal_values(key), " (default ",
         key.follows.empty() ? describe(key.standard) : std::string(key.follows), ")");
}

/// A parsed configuration, read by type.
struct Reader {
  const SmpParameters& parameters;

  bool given(std::string_view key) const {
    return std::ranges::find(parameters.given, key) != parameters.given.end();
  }
  std::int64_t whole(std::string_view key) const {
    return std::get<std::int64_t>(parameters.values.find(key)->second);
  }
  bool flag(std::string_view key) const {
    return std::get<bool>(parameters.values.find(key)->second);
  }
  const std::string& word(std::string_view key) const {
    return std::get<std::string>(parameters.values.find(key)->second);
  }
};

/// Default of a key that follows from others, which are there already.
SmpValue following(std::string_view key, const SmpParameters& parameters) {
  const Reader read{parameters};
  if (key == "active_microbatches") {
    return read.whole("pipeline_parallel_degree") + 2;
  }
  return read.word("optimize") == "speed" ? 0.2 : 0.8;  // memory_weight
}

/// What version 1 asks of keys together. Pipelines with sharded data and sharding with tensor
/// parallelism, which SMP refuses too, are no contradiction: whether they are built is for
/// require_served().
void check_v1(const Reader& read) {
  const std::int64_t stages = read.whole("pipeline_parallel_degree");
  require(!read.given("partitions") || !read.given("pipeline_parallel_degree"),
          "partitions and pipeline_parallel_degree are two names of one key: keep the second");
  require(read.flag("auto_partition") || read.given("default_partition"),
          "auto_partition = false needs default_partition, which is missing");
  require(read.whole("default_partition") < stages,
          "default_partition = ", read.whole("default_partition"),
          " must be less than pipeline_parallel_degree = ", stages);
  require(!read.flag("ddp") || !read.flag("horovod"), "ddp and horovod are both true: keep ddp");
  for (const char* key : {"ddp_port", "ddp_dist_backend"}) {
    require(!read.given(key) || read.given("ddp"), key, " needs ddp, which is missing");
  }
  const std::int64_t tensor = read.whole("tensor_parallel_degree");
  require(tensor == 1 || read.flag("ddp"), "tensor_parallel_degree = ", tensor,
          " needs ddp = true");
  const std::int64_t shards = read.whole("sharded_data_parallel_degree");
  require(shards == 1 || !read.flag("shard_optimizer_state"),
          "sharded_data_parallel_degree = ", shards,
          " shards optimizer state already: remove shard_optimizer_state");
  require(shards > 1 || !read.flag("bf16"), "bf16 needs sharded_data_parallel_degree above 1");
}

void check_v2(const Reader& read) {
  const std::int64_t degree = read.whole("hybrid_shard_degree");
  const std::int64_t context = read.whole("context_parallel_degree");
  require(degree == 0 || context <= degree, "context_parallel_degree = ", context,
          " must be at most hybrid_shard_degree = ", degree);
}

SmpValue default_of(const SmpKey& key, const SmpParameters& parameters) {
  return key.follows.empty() ? key.standard : following(key.name, parameters);
}

}  // namespace

std::string describe(const SmpValue& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t whole) const { return text(whole); }
    std::string operator()(double number) const { return text(number); }
    std::string operator()(const std::string& word) const { return shown(Json(word)); }
  };
  return std::visit(Show{}, value);
}

SmpParameters parse_smp_parameters(std::string_view json) {
  const Json given = unwrapped(parse(json));
  SmpParameters out{.version = version_of(given), .values = {}, .given = {}};
  for (const auto& [key, value] : given.items()) {
    out.given.push_back(key);
    out.values[key] = checked(smp_key(out.version, key), value);
  }
  // First the defaults that stand alone, then those that follow from values which are there by
  // then.
  for (const bool follows : {false, true}) {
    for (const SmpKey& key : smp_keys()) {
      if (key.version == out.version && key.follows.empty() != follows &&
          !out.values.contains(key.name)) {
        out.values[std::string(key.name)] = default_of(key, out);
      }
    }
    // An older name's value is that of the newer one before anything follows from it.
    if (!follows && out.version == SmpVersion::v1) {
      const bool older = given.contains("partitions");
      out.values[older ? "pipeline_parallel_degree" : "partitions"] =
          out.values[older ? "partitions" : "pipeline_parallel_degree"];
    }
  }
  const Reader read{out};
  out.version == SmpVersion::v1 ? check_v1(read) : check_v2(read);
  return out;
}

void require_served(const SmpParameters& parameters) {
  const Reader read{parameters};
  for (const SmpKey& key : smp_keys()) {
    // A value that nobody gave is SMP's default, which changes nothing here.
    if (key.version != parameters.version || key.served || !read.given(key.name)) {
      continue;
    }
    const SmpValue& value = parameters.values.find(key.name)->second;
    const SmpValue only = default_of(key, parameters);
    require(value == only, key.name, " = ", describe(value), " of SMP ", name(key.version),
            " is not served yet, only ", describe(only), " is: ", key.how);
  }
}

ParallelDegrees parallel_degrees(const SmpParameters& parameters, int world) {
  const Reader read{parameters};
  const auto degree = [&](std::string_view key) {
    const std::int64_t value = read.whole(key);
    require(value <= world, key, " = ", value, " is more than the ", world,
            " ranks of the world; it is at most that");
    return static_cast<int>(value);
  };
  ParallelDegrees out{.world = world, .tensor = degree("tensor_parallel_degree")};
  if (parameters.version == SmpVersion::v1) {
    out.shard = degree("sharded_data_parallel_degree");
    out.pipeline = degree("pipeline_parallel_degree");
    out.placement = read.word("placement_strategy");
  } else {
    out.shard = degree("hybrid_shard_degree");
    out.context = degree("context_parallel_degree");
  }
  return out;
}

}  // namespace sprat
