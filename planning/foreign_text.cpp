// Bounds on what is repeated of a file.
#include "planning/foreign_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"

namespace sprat::planning {

std::string printable(std::string_view text) {
  constexpr std::size_t most_shown = 80;
  std::string out(text.substr(0, most_shown));
  // Bytes above 127 are of letters, which names may have; a cut one at the end would be none.
  while (text.size() > most_shown && !out.empty() && (out.back() & 0x80) != 0) {
    out.pop_back();
  }
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text.size() > most_shown ? out + "..." : out;
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) {
    return "\"" + printable(value.get_ref<const std::string&>()) + "\"";
  }
  return value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
}

nlohmann::json parsed_json(std::string_view json, const std::string& origin, bool with_comments) {
  const auto refuse = [&origin](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, text(origin, ": ", why));
  };
  if (json.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    refuse("it is empty, and no JSON");
  }
  try {
    return nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/true, with_comments);
  } catch (const nlohmann::json::parse_error& error) {
    // Behind the last byte the parser still waited for more.
    refuse(error.byte > json.size()
               ? text("it ends amid JSON at byte ", json.size(), ": is it whole?")
               : text("it is no JSON from byte ", error.byte, " of ", json.size(), " on"));
  } catch (const nlohmann::json::out_of_range&) {
    refuse("it has a number that is too large");
  }
  return {};
}

}  // namespace sprat::planning
