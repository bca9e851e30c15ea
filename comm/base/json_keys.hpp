// JSON that gives a key twice: which of its values was meant? Parsers take the last without a word.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sprat {

/// Watches one parse, as nlohmann's callback.
class JsonKeys {
 public:
  /// The key, if this event brings one that its object has already. Wants every event in turn.
  std::optional<std::string> repeated(nlohmann::json::parse_event_t event,
                                      const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == nlohmann::json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == nlohmann::json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      return open_.back().insert(key).second ? std::nullopt : std::optional(key);
    }
    return std::nullopt;
  }

 private:
  std::vector<std::set<std::string>> open_;  // keys so far of each object we are in
};

}  // namespace sprat
