// What files of others say, as messages show it: the text may be anybody's, and of any length.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sprat::planning {

/// What a terminal obeys becomes a question mark.
std::string without_controls(std::string_view text);
/// The same, of a long text the beginning.
std::string printable(std::string_view text);
/// A number, a word or a truth as it stands; of a list or an object only that it is one, since it
/// may be nested deeper than a stack is.
std::string shown(const nlohmann::json& value);
/// The document. Throws Error{invalid_argument} that begins with `origin` and says from which byte
/// on it is none, or that it is cut off.
nlohmann::json parsed_json(std::string_view json, const std::string& origin,
                           bool with_comments = false);

}  // namespace sprat::planning
