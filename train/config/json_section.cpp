// Conversions with messages, and the nearest known word.
#include "train/config/json_section.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "comm/base/spelling.hpp"

namespace sprat::train {

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t fewest = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : known) {
    if (const std::size_t distance = edit_distance(word, candidate); distance < fewest) {
      fewest = distance;
      best = candidate;
    }
  }
  return best;
}

void refuse_key(const std::string& where, const std::string& key,
                const std::vector<std::string>& known) {
  const std::string close = nearest(key, known);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown key \"{}\" in {}{}; known: {}", key, where,
                          close.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", close),
                          fmt::join(known, ", ")));
}

JsonSection::JsonSection(const nlohmann::json& root, std::string name)
    : JsonSection(name, root.value(name, nlohmann::json::object())) {}

JsonSection::JsonSection(std::string name, nlohmann::json object)
    : name_(std::move(name)), object_(std::move(object)) {
  if (!object_.is_object()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("\"{}\" is {}; it is a section, {{...}}", name_, object_.dump()));
  }
}

JsonSection JsonSection::section(const std::string& key) {
  known_.push_back(key);
  return {name_ + "." + key, object_.value(key, nlohmann::json::object())};
}

const nlohmann::json* JsonSection::find(const std::string& key) {
  known_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

std::map<std::string, double> JsonSection::numbers() {
  std::map<std::string, double> values;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      read(key, values[key]);
    }
  }
  return values;
}

void JsonSection::end() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      refuse_key("section \"" + name_ + "\"", key, known_);
    }
  }
}

void JsonSection::refuse(const std::string& key, const nlohmann::json& value,
                         const char* expected) const {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}.{} is {}; it is {}", name_, key, value.dump(), expected));
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from, int& to) const {
  if (!from.is_number_integer()) {
    refuse(key, from, "a whole number");
  }
  if (from > std::numeric_limits<int>::max() || from < std::numeric_limits<int>::min()) {
    refuse(key, from, "a whole number from -2147483648 to 2147483647");
  }
  to = from.get<int>();
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                          std::uint64_t& to) const {
  if (!from.is_number_unsigned()) {
    refuse(key, from, "a whole number, 0 or more");
  }
  to = from.get<std::uint64_t>();
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from, double& to) const {
  if (!from.is_number()) {
    refuse(key, from, "a number");
  }
  to = from.get<double>();
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from, bool& to) const {
  if (!from.is_boolean()) {
    refuse(key, from, "true or false");
  }
  to = from.get<bool>();
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                          std::string& to) const {
  if (!from.is_string()) {
    refuse(key, from, "a string");
  }
  to = from.get<std::string>();
}

void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                          std::vector<std::string>& to) const {
  const auto is_string = [](const nlohmann::json& one) { return one.is_string(); };
  if (!from.is_array() || !std::all_of(from.begin(), from.end(), is_string)) {
    refuse(key, from, "a list of strings");
  }
  to = from.get<std::vector<std::string>>();
}

}  // namespace sprat::train
