// Reading one section of a JSON configuration so that no key goes unnoticed.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/error.hpp"

namespace sprat::train {

/// Of `known`, the name closest to `word` by edits, if it is close at all; else empty.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Throws Error{invalid_argument}: "unknown key KEY in WHERE (did you mean ...?); known: ...".
[[noreturn]] void refuse_key(const std::string& where, const std::string& key,
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

}  // namespace sprat::train
