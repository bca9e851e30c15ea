// Which algorithm is chosen when, as data: one grammar for our defaults and the user's override.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/problem.hpp"
#include "sprat/config.hpp"

namespace sprat {
class Communicator;
}

namespace sprat::collectives {

/// A property of a problem held against a number.
struct Condition {
  enum class Property : std::uint8_t { ranks, hosts, per_host, out_of_place, partials };
  enum class Relation : std::uint8_t { less, at_most, equal, at_least, more };
  Property property = Property::ranks;
  Relation relation = Relation::equal;
  int value = 0;
};

/// "all_reduce 0-64k hosts>1 dtype=f32 one_shot": this algorithm where all conditions hold.
struct Rule {
  const Algorithm* algorithm = nullptr;  ///< Says the collective too.
  std::size_t least_bytes = 0;           ///< Of Problem::payload_bytes(), both ends included.
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
  std::vector<Condition> conditions;
  std::optional<DType> dtype;  ///< Of the input.
  std::string origin;          ///< Who says so: "default", "SPRAT_ALGORITHM", "FILE line 3".
};

using Rules = std::vector<Rule>;

/// Rules separated by `;` or by ends of lines; `#` begins a comment that ends with its line. Each:
/// a collective, conditions in any order, the algorithm's name. Conditions: a range of payload
/// bytes (`0-64k`, `1m-`; k, m, g are powers of 1024); `ranks`, `hosts`, `per_host` (most ranks on
/// a host), `apart` (1: no rank calls in place) or `partials` (most that a host sends of a
/// canonical reduction) with <, <=, =, >=, > and a number; `dtype=f32`. Throws
/// Error{invalid_argument} that shows the word it does not understand, the line and whose rules
/// these are.
Rules parse_rules(std::string_view text, std::string_view origin = "rules");
/// The same of a file. Throws Error{unavailable} too.
Rules read_rules(const std::string& path);
/// The rule in the same grammar.
std::string describe(const Rule& rule);

/// The text of the rules that hold where no override does. The last of a collective fits
/// everywhere and in every order.
std::string_view default_rules();
/// Those of Config::algorithm, then of the file Config::tuning, then the defaults. Where the order
/// must be canonical, defaults that choose another are left out; others that do are an
/// Error{invalid_argument}.
Rules rules_of(const Config& config);

/// From its next call on, the communicator chooses by these rules alone, and those split off from
/// it later. Every rank must do the same between the same calls.
void follow(Communicator& communicator, Rules rules);

bool applies(const Rule& rule, const Problem& problem);

}  // namespace sprat::collectives
