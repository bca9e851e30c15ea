// A loader's options as JSON: what the C API, Python and the command have in common.
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/json_section.hpp"
#include "comm/base/strict_json.hpp"
#include "sprat/data.hpp"

namespace sprat {
namespace {

template <class Value>
struct Word {
  const char* text;
  Value value;
};

constexpr std::array sample_kinds = {Word<SampleKind>{"auto", SampleKind::automatic},
                                     Word<SampleKind>{"records", SampleKind::records},
                                     Word<SampleKind>{"windows", SampleKind::windows},
                                     Word<SampleKind>{"packed", SampleKind::packed},
                                     Word<SampleKind>{"packed_whole", SampleKind::packed_whole}};
constexpr std::array shuffles = {Word<Shuffle>{"full", Shuffle::full},
                                 Word<Shuffle>{"chunks", Shuffle::chunks},
                                 Word<Shuffle>{"none", Shuffle::none}};
constexpr std::array remainders = {Word<Remainder>{"carry", Remainder::carry},
                                   Word<Remainder>{"drop", Remainder::drop},
                                   Word<Remainder>{"pad", Remainder::pad}};
constexpr std::array corrupt_policies = {Word<Corrupt>{"stop", Corrupt::stop},
                                         Word<Corrupt>{"skip", Corrupt::skip}};

/// Leaves `value` as it is if the key is missing. Throws with the words there are.
template <class Value, std::size_t count>
void read_word(JsonSection& section, const std::string& key,
               const std::array<Word<Value>, count>& words, Value& value) {
  std::string word;
  section.read(key, word);
  std::string known;
  for (const Word<Value>& one : words) {
    if (word == one.text) {
      value = one.value;
    }
    if (word.empty() || word == one.text) {
      return;
    }
    known += text(known.empty() ? "\"" : ", \"", one.text, "\"");
  }
  section.refuse(key, word, known.c_str());
}

DataSource read_source(const nlohmann::json& root, const std::string& name) {
  JsonSection section(root, name);
  DataSource source;
  section.read("paths", source.paths);
  section.read("format", source.format);
  section.read("token_type", source.token_type);
  section.read("weight", source.weight);
  if (section.find("separator") != nullptr) {
    section.read("separator", source.separator.emplace());
  }
  section.end();
  require(!source.paths.empty(), name,
          ".paths is missing or empty; it lists files, folders, or patterns such as data/*.tar");
  require(source.weight > 0, name, ".weight is ", source.weight, "; it is above 0");
  return source;
}

void read_sources(JsonSection& section, const std::string& outer,
                  std::vector<DataSource>& sources) {
  const nlohmann::json* list = section.find("sources");
  require(list != nullptr && list->is_array() && !list->empty(), outer,
          ".sources is missing or empty; it is a list of {\"paths\": [...]}");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string name = text(outer, ".sources[", i, "]");
    sources.push_back(read_source(nlohmann::json{{name, (*list)[i]}}, name));
  }
}

/// Pairs of a first sample and the one behind the last.
void read_slots(JsonSection& section, std::vector<DataSlots>& slots) {
  const auto is_number = [](const nlohmann::json& one) { return one.is_number_unsigned(); };
  const nlohmann::json* list = section.find("slots");
  if (list == nullptr) {
    return;
  }
  for (const nlohmann::json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2 || !std::ranges::all_of(pair, is_number)) {
      section.refuse("slots", *list, "a list of pairs, [first sample, behind the last one]");
    }
    slots.push_back({.begin = pair[0], .end = pair[1]});
  }
}

void read_order(JsonSection section, LoaderOptions& options) {
  section.read("seed", options.seed);
  read_word(section, "samples", sample_kinds, options.samples);
  section.read("length", options.length);
  read_word(section, "shuffle", shuffles, options.shuffle);
  section.read("chunk", options.chunk);
  section.read("mixed_chunks", options.mixed_chunks);
  section.read("epochs", options.epochs);
  read_word(section, "remainder", remainders, options.remainder);
  section.end();
}

void read_reading(JsonSection section, LoaderOptions& options) {
  std::uint64_t timeout = static_cast<std::uint64_t>(options.timeout.count());
  section.read("memory_bytes", options.memory_bytes);
  section.read("reader", options.reader);
  section.read("io_threads", options.io_threads);
  section.read("decode_threads", options.decode_threads);
  read_word(section, "corrupt", corrupt_policies, options.corrupt);
  section.read("timeout_ms", timeout);
  section.read("fsx", options.fsx);
  section.end();
  constexpr std::uint64_t most = std::numeric_limits<std::chrono::milliseconds::rep>::max();
  options.timeout = std::chrono::milliseconds(std::min(timeout, most));
}

void read_cache(JsonSection section, LoaderCache& cache) {
  section.read("folder", cache.folder);
  section.read("bytes", cache.bytes);
  section.end();
}

/// Of a key that is there twice parsers take the last; which was meant, nobody knows.
nlohmann::json parse(std::string_view json) {
  JsonKeys keys;
  std::string repeated;
  const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (const auto key = keys.repeated(event, parsed); key && repeated.empty()) {
      repeated = *key;
    }
    return true;
  };
  nlohmann::json root;
  try {
    root = nlohmann::json::parse(json, watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(ErrorCode::invalid_argument,
                text("the loader's options are no JSON: ", reason_of(error)));
  }
  require(repeated.empty(), "the loader's options have the key \"", repeated, "\" twice");
  return root;
}

}  // namespace

LoaderOptions parse_loader_options(std::string_view json, const std::string& name) {
  LoaderOptions options;
  // Sections are named by their way from the root, so the options become a section of their own.
  const nlohmann::json root{{name, parse(json)}};
  JsonSection section(root, name);
  read_sources(section, name, options.sources);
  section.read("batch", options.batch);
  section.read("rank", options.rank);
  section.read("ranks", options.ranks);
  read_slots(section, options.slots);
  read_order(section.section("order"), options);
  read_reading(section.section("reading"), options);
  read_cache(section.section("cache"), options.cache);
  section.read("ranks_on_host", options.ranks_on_host);
  section.end();
  return options;
}

}  // namespace sprat
