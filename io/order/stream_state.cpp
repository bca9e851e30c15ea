#include "io/order/stream_state.hpp"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "comm/base/strict_json.hpp"

namespace sprat::io {
namespace {

using Json = nlohmann::json;
constexpr int state_version = 1;
constexpr std::size_t most_state_ranges = 24;
constexpr const char* state_remedy =
    "; give what the state was saved with, or start without the state to begin another order";

/// How much of the sources a state tells.
enum class SourceDetail { all, digests, one_digest };

struct StateAttempt {
  SourceDetail detail;
  std::size_t ranges;
};

std::string source_digest(std::string_view of) { return fmt::format("#{:08x}", fnv1a(of) >> 32); }

Json sources_json(const SampleStream& stream, SourceDetail detail) {
  std::vector<std::string> sources;
  std::string all;
  for (std::size_t i = 0; i < stream.sources(); ++i) {
    const std::string source = stream.source_text(i);
    sources.push_back(detail == SourceDetail::all ? source : source_digest(source));
    all += source + '\n';
  }
  return detail == SourceDetail::one_digest ? Json(fmt::format("#{:016x}", fnv1a(all)))
                                            : Json(sources);
}

/// Three numbers a range: source, begin, size.
Json ranges_json(const SkipList& skips) {
  Json numbers = Json::array();
  for (std::size_t source = 0; source < skips.sources(); ++source) {
    for (const RecordRange& range : skips.of(source)) {
      numbers.push_back(source);
      numbers.push_back(range.begin);
      numbers.push_back(range.size());
    }
  }
  return numbers;
}

Json parse_stream_state(std::string_view text_of_state) {
  need(text_of_state.size() <= longest_state, "a state of an order has at most ", longest_state,
       " bytes, and this one ", text_of_state.size());
  JsonKeys keys;
  const auto note = [&](int depth, Json::parse_event_t event, Json& value) {
    // A state is an object of arrays.
    need(depth <= 3, "the state of an order is nested too deeply to be one");
    const auto again = keys.repeated(event, value);
    need(!again, "the state of an order gives a key twice: ", Json(again.value_or("")).dump());
    return true;
  };
  try {
    return Json::parse(text_of_state.begin(), text_of_state.end(), note);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable,
                text("the state of an order is no JSON: ", reason_of(error).substr(0, 200)));
  }
}

const Json& state_member(const Json& json, const char* key) {
  const auto found = json.find(key);
  need(found != json.end(), "the state of an order has no \"", key, "\": it is damaged");
  return *found;
}

std::uint64_t state_number(const Json& json, const char* key) {
  const Json& value = state_member(json, key);
  need(value.is_number_unsigned(), "the state of an order has no whole number as \"", key,
       "\": it is damaged");
  return value.get<std::uint64_t>();
}

using OptionValues = std::map<std::string, std::string>;

OptionValues option_values(const std::string& source) {
  OptionValues values;
  std::istringstream words(source);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    values[word.substr(0, equals)] = equals == word.npos ? "" : word.substr(equals + 1);
  }
  return values;
}

std::string option_value(const OptionValues& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? default_option(name) : found->second;
}

/// "length is 2048 there and 4096 here; ...": of all names that either text has.
std::string option_differences(const std::string& there, const std::string& here) {
  const OptionValues saved = option_values(there), own = option_values(here);
  OptionValues names = saved;
  names.insert(own.begin(), own.end());
  std::string all;
  for (const auto& [name, any] : names) {
    if (option_value(saved, name) != option_value(own, name)) {
      all += text(all.empty() ? "" : ", ", name, " is ", option_value(saved, name), " there and ",
                  option_value(own, name), " here");
    }
  }
  return all;
}

void require_same_sources(const SampleStream& stream, const Json& saved) {
  if (saved.is_string()) {
    require(saved == sources_json(stream, SourceDetail::one_digest),
            "the state is of other sources: a dataset, an option, a weight or their number differs",
            " (they are too many for the state to say which)", state_remedy);
    return;
  }
  need(saved.is_array(), "the state of an order has no list as \"sources\": it is damaged");
  require(saved.size() == stream.sources(), "the state is of ", saved.size(), " sources, and here ",
          "are ", stream.sources(), state_remedy);
  for (std::size_t i = 0; i < stream.sources(); ++i) {
    need(saved[i].is_string(), "source ", i, " in the state of an order is no text: it is damaged");
    const auto there = saved[i].get<std::string>();
    const std::string here = stream.source_text(i);
    if (there.starts_with('#')) {
      require(there == source_digest(here), "the state is of another source ", i,
              ": its dataset, an option or its weight differs", state_remedy);
    } else {
      require(there == here, "the state is of another source ", i, ": ",
              option_differences(there, here), state_remedy);
    }
  }
}

SkipList read_ranges(const SampleStream& stream, const Json& numbers) {
  need(numbers.is_array() && numbers.size() % 3 == 0, "the state of an order has no ranges as ",
       "\"skipped\": it is damaged");
  SkipList skips(stream.sources());
  for (std::size_t i = 0; i < numbers.size(); i += 3) {
    std::uint64_t values[3] = {};
    for (std::size_t k = 0; k < 3; ++k) {
      need(numbers[i + k].is_number_unsigned(), "the state of an order skips ",
           numbers[i + k].dump().substr(0, 40), ", which is no number: it is damaged");
      values[k] = numbers[i + k].get<std::uint64_t>();
    }
    std::uint64_t end = 0;
    need(values[0] < stream.sources() && values[2] > 0 &&
             !__builtin_add_overflow(values[1], values[2], &end) &&
             end <= stream.records(values[0]),
         "the state of an order skips ", values[2], " records from ", values[1], " of source ",
         values[0], ", which are not there: it is damaged");
    skips.add(values[0], {.begin = values[1], .end = end});
  }
  return skips;
}

}  // namespace

std::string write_state(const SampleStream& stream, const StreamState& state) {
  require(state.skips.sources() == stream.sources(), "a skip list of ", state.skips.sources(),
          " sources is not that of ", stream.sources());
  require(state.position.index < stream.samples(), "sample ", state.position.index,
          " is outside an epoch of ", stream.samples());
  // What is told less of first is what only messages need.
  constexpr std::array attempts = {StateAttempt{SourceDetail::all, most_state_ranges},
                                   StateAttempt{SourceDetail::digests, most_state_ranges},
                                   StateAttempt{SourceDetail::one_digest, most_state_ranges},
                                   StateAttempt{SourceDetail::one_digest, most_state_ranges / 2}};
  std::string json;
  for (const StateAttempt& attempt : attempts) {
    json = Json{{"version", state_version},
                {"sources", sources_json(stream, attempt.detail)},
                {"seed", stream.seed()},
                {"epoch", state.position.epoch},
                {"index", state.position.index},
                {"skipped", ranges_json(state.skips.longest(attempt.ranges))}}
               .dump();
    if (json.size() <= longest_state) {
      break;
    }
  }
  return json;
}

StreamState read_state(const SampleStream& stream, std::string_view json) {
  const Json state = parse_stream_state(json);
  need(state.is_object(), "the state of an order is no JSON object");
  const std::uint64_t version = state_number(state, "version");
  require(version == state_version, "the state has version ", version,
          ", and this Sprat reads version ", state_version,
          ": read it with the Sprat that wrote it, or start without the state");
  require_same_sources(stream, state_member(state, "sources"));
  const std::uint64_t seed = state_number(state, "seed");
  require(seed == stream.seed(), "the state is of another order: seed is ", seed, " there and ",
          stream.seed(), " here", state_remedy);
  const StreamPosition position{.epoch = state_number(state, "epoch"),
                                .index = state_number(state, "index")};
  need(position.index < stream.samples(), "the state stands at sample ", position.index,
       " of an epoch of ", stream.samples(), ": it is damaged");
  return {.position = position, .skips = read_ranges(stream, state_member(state, "skipped"))};
}

}  // namespace sprat::io
