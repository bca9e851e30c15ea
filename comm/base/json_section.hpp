// Reading one section of a JSON configuration so that no key goes unnoticed.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/spelling.hpp"
#include "sprat/error.hpp"

namespace sprat {

/// Of `known`, the name closest to `word` by edits, if it is close at all; else empty.
inline std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Throws Error{invalid_argument}: "unknown key KEY in WHERE (did you mean ...?); known: ...".
[[noreturn]] inline void refuse_key(const std::string& where, const std::string& key,
                                    const std::vector<std::string>& known);

/// One object. Each read() names a key that is known; end() refuses those that were not named.
class JsonSection {
 public:
  /// `root` is the whole document. A section that is missing reads as empty.
  JsonSection(const nlohmann::json& root, std::string name);
  /// The section in this one; its keys are named "outer.inner.key".
  JsonSection section(const std::string& key);

  bool has(const std::string& key) const { return object_.contains(key); }

  /// Leaves `value` as it is if the key is missing.
  template <class T>
  void read(const std::string& key, T& value) {
    known_.push_back(key);
    if (const auto found = object_.find(key); found != object_.end()) {
      convert(key, *found, value);
    }
  }
  /// The value of a key that takes values of several kinds; null if it is missing.
  const nlohmann::json* find(const std::string& key);
  /// All other keys, each a number.
  std::map<std::string, double> numbers();
  void end() const;

  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value,
                           const char* expected) const;

 private:
  JsonSection(std::string name, nlohmann::json object);
  void convert(const std::string& key, const nlohmann::json& from, int& to) const;
  void convert(const std::string& key, const nlohmann::json& from, std::uint64_t& to) const;
  void convert(const std::string& key, const nlohmann::json& from, double& to) const;
  void convert(const std::string& key, const nlohmann::json& from, std::string& to) const;
  void convert(const std::string& key, const nlohmann::json& from,
               std::vector<std::string>& to) const;
  void convert(const std::string& key, const nlohmann::json& from, bool& to) const;

  std::string name_;
  nlohmann::json object_;
  std::vector<std::string> known_;
};

inline std::string nearest(std::string_view word, const std::vector<std::string>& known) {
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

inline void refuse_key(const std::string& where, const std::string& key,
                       const std::vector<std::string>& known) {
  const std::string close = nearest(key, known);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("unknown key \"{}\" in {}{}; known: {}", key, where,
                          close.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", close),
                          fmt::join(known, ", ")));
}

inline JsonSection::JsonSection(const nlohmann::json& root, std::string name)
    : JsonSection(name, root.value(name, nlohmann::json::object())) {}

inline JsonSection::JsonSection(std::string name, nlohmann::json object)
    : name_(std::move(name)), object_(std::move(object)) {
  if (!object_.is_object()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("\"{}\" is {}; it is a section, {{...}}", name_, object_.dump()));
  }
}

inline JsonSection JsonSection::section(const std::string& key) {
  known_.push_back(key);
  return {name_ + "." + key, object_.value(key, nlohmann::json::object())};
}

inline const nlohmann::json* JsonSection::find(const std::string& key) {
  known_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

inline std::map<std::string, double> JsonSection::numbers() {
  std::map<std::string, double> values;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      read(key, values[key]);
    }
  }
  return values;
}

inline void JsonSection::end() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      refuse_key("section \"" + name_ + "\"", key, known_);
    }
  }
}

inline void JsonSection::refuse(const std::string& key, const nlohmann::json& value,
                                const char* expected) const {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}.{} is {}; it is {}", name_, key, value.dump(), expected));
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 int& to) const {
  if (!from.is_number_integer()) {
    refuse(key, from, "a whole number");
  }
  if (from > std::numeric_limits<int>::max() || from < std::numeric_limits<int>::min()) {
    refuse(key, from, "a whole number from -2147483648 to 2147483647");
  }
  to = from.get<int>();
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 std::uint64_t& to) const {
  if (!from.is_number_unsigned()) {
    refuse(key, from, "a whole number, 0 or more");
  }
  to = from.get<std::uint64_t>();
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 double& to) const {
  if (!from.is_number()) {
    refuse(key, from, "a number");
  }
  to = from.get<double>();
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 bool& to) const {
  if (!from.is_boolean()) {
    refuse(key, from, "true or false");
  }
  to = from.get<bool>();
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 std::string& to) const {
  if (!from.is_string()) {
    refuse(key, from, "a string");
  }
  to = from.get<std::string>();
}

inline void JsonSection::convert(const std::string& key, const nlohmann::json& from,
                                 std::vector<std::string>& to) const {
  const auto is_string = [](const nlohmann::json& one) { return one.is_string(); };
  if (!from.is_array() || !std::all_of(from.begin(), from.end(), is_string)) {
    refuse(key, from, "a list of strings");
  }
  to = from.get<std::vector<std::string>>();
}

}  // namespace sprat
