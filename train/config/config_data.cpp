// The section data: a text, or sources that a loader reads.
#include <algorithm>
#include <array>
#include <utility>

#include "train/config/config_check.hpp"

namespace sprat::train {
namespace {

/// Keys of a loader's order that the run's own say.
constexpr std::array derived_keys = {
    std::pair{"seed", "train.seed"}, std::pair{"length", "model.context"},
    std::pair{"epochs", "endless, and train.steps ends it"},
    std::pair{"remainder", "\"carry\", so that all steps are of one size"}};

void check_order(const nlohmann::json& order) {
  for (const auto& [key, is] : derived_keys) {
    check(!order.is_object() || !order.contains(key), "data.order.{} is {}; leave it out", key, is);
  }
}

void check_samples(SampleKind kind) {
  check(kind == SampleKind::automatic || kind == SampleKind::windows || kind == SampleKind::packed,
        "data.order.samples is of records, or of documents with zeros behind them, and a step "
        "learns every token of its samples: take \"windows\" or \"packed\"");
}

/// The loader's part of the section, as its own options have it: errors then name the same keys.
LoaderOptions read_loader(JsonSection& section) {
  nlohmann::json options = nlohmann::json::object();
  if (const nlohmann::json* sources = section.find("sources")) {
    options["sources"] = *sources;
  }
  for (const char* key : {"order", "reading", "cache"}) {
    if (const nlohmann::json* found = section.find(key)) {
      options[key] = *found;
    }
  }
  return parse_loader_options(options.dump(), "data");
}

std::vector<DataSource> read_held_out(JsonSection section) {
  const nlohmann::json* sources = section.find("sources");
  check(sources != nullptr,
        "data.validation.sources is missing; it lists files that are not learnt, as data.sources "
        "does: {{\"paths\": [...]}}");
  section.end();
  return parse_loader_options(nlohmann::json{{"sources", *sources}}.dump(), "data.validation")
      .sources;
}

}  // namespace

bool DataConfig::is_bytes() const {
  const auto are_bytes = [](const DataSource& source) { return source.token_type == "u8"; };
  return tokenizer.empty() && (!has_sources() || std::ranges::all_of(loader.sources, are_bytes));
}

void read_data(const nlohmann::json& root, DataConfig& data) {
  JsonSection section(root, "data");
  section.read("files", data.files);
  section.read("tokenizer", data.tokenizer);
  if (section.has("sources")) {
    check(data.files.empty(), "data.files and data.sources are given; give one of them");
    check(!section.has("validation_share"),
          "data.validation_share is of data.files; with data.sources, those of "
          "data.validation are held out");
    if (const nlohmann::json* order = section.find("order")) {
      check_order(*order);
    }
    data.loader = read_loader(section);
    check_samples(data.loader.samples);
    data.validation_sources = read_held_out(section.section("validation"));
  } else {
    for (const char* key : {"validation", "order", "reading", "cache"}) {
      check(section.find(key) == nullptr, "data.{} is given without data.sources", key);
    }
  }
  section.read("validation_share", data.validation_share);
  section.find("sources");
  section.end();
  check(data.has_sources() || !data.files.empty(),
        "data.files is missing or empty; it lists the text files to learn. Or give data.sources, "
        "files of tokens");
  check(data.validation_share > 0 && data.validation_share < 1,
        "data.validation_share is {}; it is between 0 and 1", data.validation_share);
}

void find_data_from(const std::filesystem::path& folder, DataConfig& data) {
  const auto find = [&](std::string& name) {
    name = (folder / name).string();  // an absolute name replaces the folder
  };
  std::ranges::for_each(data.files, find);
  for (auto* sources : {&data.loader.sources, &data.validation_sources}) {
    for (DataSource& source : *sources) {
      std::ranges::for_each(source.paths, find);
    }
  }
  if (!data.loader.cache.folder.empty()) {
    find(data.loader.cache.folder);
  }
  if (!data.tokenizer.empty()) {
    find(data.tokenizer);
  }
}

}  // namespace sprat::train
