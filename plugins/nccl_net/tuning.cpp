#include "plugins/nccl_net/tuning.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "comm/base/check.hpp"

namespace sprat::nccl_net::tuning {
namespace {

constexpr std::array<std::string_view, 5> collective_names = {"broadcast", "reduce", "all_gather",
                                                              "reduce_scatter", "all_reduce"};
constexpr std::array<std::string_view, algorithms> algorithm_names = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, protocols> protocol_names = {"ll", "ll128", "simple"};
constexpr int most_channels = 64;

// Microseconds of a message over TCP between nodes, and within one. Measured between network
// namespaces, and rounded: what counts is that the first is several times the second.
constexpr double between_nodes = 25, within_node = 4;
/// What a step costs besides under each protocol: Simple waits for the GPU's word at both ends; LL
/// has a flag beside each word.
constexpr std::array<double, protocols> step_extra = {1, 2, 8};
/// Bytes on the wire for each of the payload's: 4 of 8 in LL, 120 of 128 in LL128.
constexpr std::array<double, protocols> inflation = {2.0, 128.0 / 120.0, 1.0};

template <class Enum, std::size_t count>
std::optional<Enum> named(const std::array<std::string_view, count>& names, std::string_view word) {
  const auto found = std::find(names.begin(), names.end(), word);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<Enum>(found - names.begin()));
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  std::vector<std::string_view> words;
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    if (line.empty()) {
      return words;
    }
    const std::size_t end = std::min(line.find_first_of(blanks), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

/// A number, of bytes with k, m or g behind it; nothing if it is none.
std::optional<std::size_t> number(std::string_view text, bool of_bytes) {
  constexpr std::string_view suffixes = "kmg";
  int shift = 0;
  if (of_bytes && !text.empty() && suffixes.find(text.back()) != suffixes.npos) {
    shift = 10 * static_cast<int>(suffixes.find(text.back()) + 1);
    text.remove_suffix(1);
  }
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() ||
      value > (std::numeric_limits<std::size_t>::max() >> shift)) {
    return std::nullopt;
  }
  return value << shift;
}

/// "0-64k", "1m-".
std::optional<Bound> parse_range(std::string_view word) {
  const std::size_t dash = word.find('-');
  if (dash == word.npos) {
    return std::nullopt;
  }
  const auto least = number(word.substr(0, dash), true);
  const bool open = dash + 1 == word.size();
  const auto most = open ? std::optional(Bound{}.most) : number(word.substr(dash + 1), true);
  return least && most ? std::optional(Bound{*least, *most}) : std::nullopt;
}

/// What stands behind "ranks" or "nodes": "<=8".
std::optional<Bound> parse_bound(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view relation = text.substr(0, digits);
  const auto value = number(text.substr(digits), false);
  if (!value) {
    return std::nullopt;
  }
  if (relation == "=") {
    return Bound{*value, *value};
  }
  if (relation == "<=" || (relation == "<" && *value > 0)) {
    return Bound{0, relation == "<" ? *value - 1 : *value};
  }
  if (relation == ">=" || relation == ">") {
    return Bound{relation == ">" ? *value + 1 : *value, Bound{}.most};
  }
  return std::nullopt;
}

/// Takes a condition, or the number of channels; false if the word is neither.
bool take_condition(Rule& rule, std::string_view word) {
  std::optional<Bound> bound;
  Bound* place = nullptr;
  if (word.starts_with("ranks")) {
    bound = parse_bound(word.substr(5));
    place = &rule.ranks;
  } else if (word.starts_with("nodes")) {
    bound = parse_bound(word.substr(5));
    place = &rule.nodes;
  } else if (word.starts_with("channels=")) {
    const auto channels = number(word.substr(9), false);
    const bool fits = channels && *channels >= 1 && *channels <= most_channels;
    rule.channels = fits ? static_cast<int>(*channels) : 0;
    return fits;
  } else {
    bound = parse_range(word);
    place = &rule.bytes;
  }
  if (bound) {
    *place = *bound;
  }
  return bound.has_value();
}

Rule parse_rule(std::string_view line, std::string_view place) {
  const std::vector<std::string_view> words = words_of(line);
  Rule rule;
  const auto collective = named<Collective>(collective_names, words.front());
  require(collective.has_value(), place, ": rule \"", line, "\": \"", words.front(),
          "\" is none of broadcast, reduce, all_gather, reduce_scatter, all_reduce");
  rule.collective = *collective;
  bool has_algorithm = false, has_protocol = false;
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (const auto algorithm = named<Algorithm>(algorithm_names, words[at])) {
      rule.algorithm = *algorithm;
      has_algorithm = true;
    } else if (const auto protocol = named<Protocol>(protocol_names, words[at])) {
      rule.protocol = *protocol;
      has_protocol = true;
    } else {
      require(take_condition(rule, words[at]), place, ": rule \"", line, "\": \"", words[at],
              "\" is no range like 0-64k, no bound like nodes<=4 or ranks=8, no channels=2, and no "
              "algorithm or protocol of NCCL's");
    }
  }
  require(has_algorithm && has_protocol, place, ": rule \"", line,
          "\" must name an algorithm (tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, "
          "pat) and a protocol (ll, ll128, simple)");
  return rule;
}

float& cost_of(Costs& costs, Algorithm algorithm, Protocol protocol) {
  return costs[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(protocol)];
}

}  // namespace

std::vector<Rule> parse_rules(std::string_view text, std::string_view place) {
  std::vector<Rule> rules;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view part = line.substr(0, line.find(';'));
      line.remove_prefix(std::min(part.size() + 1, line.size()));
      if (!words_of(part).empty()) {
        rules.push_back(parse_rule(part, sprat::text(place, " line ", number)));
      }
    }
  }
  return rules;
}

Choice apply_rules(const std::vector<Rule>& rules, const Job& job, const Call& call,
                   const Costs& costs) {
  Choice choice{.costs = costs, .channels = 0};
  for (const Rule& rule : rules) {
    float& cost = cost_of(choice.costs, rule.algorithm, rule.protocol);
    if (rule.collective == call.collective && rule.bytes.holds(call.bytes) &&
        rule.ranks.holds(job.ranks) && rule.nodes.holds(job.nodes) && cost != not_available) {
      cost = 0;  // NCCL takes what costs least
      choice.channels = rule.channels;
      break;
    }
  }
  return choice;
}

std::optional<float> modelled(const Job& job, const Call& call, Algorithm algorithm,
                              Protocol protocol) {
  if (job.nodes < 2 || job.ranks < job.nodes || job.wire_mbit_s <= 0) {
    return std::nullopt;
  }
  const auto ranks = static_cast<double>(job.ranks), nodes = static_cast<double>(job.nodes);
  const auto p = static_cast<std::size_t>(protocol);
  const double a = between_nodes + step_extra[p], i = within_node + step_extra[p];
  const double wire_us =
      static_cast<double>(call.bytes) * inflation[p] * 8 / job.wire_mbit_s;  // Mbit/s: bits a us
  const bool both_ways = call.collective == Collective::all_reduce;
  const double twice = both_ways ? 2 : 1;
  if (algorithm == Algorithm::tree && both_ways) {
    const double hops = std::log2(nodes) * a + (ranks / nodes - 1) * i;
    return static_cast<float>(2 * (hops + wire_us));
  }
  if (algorithm != Algorithm::ring) {
    return std::nullopt;
  }
  const bool in_parts = both_ways || call.collective == Collective::all_gather ||
                        call.collective == Collective::reduce_scatter;
  const double share = in_parts ? (ranks - 1) / ranks : 1;
  const double hops = nodes * a + (ranks - nodes) * i;
  return static_cast<float>(twice * (hops + share * wire_us));
}

Choice apply_model(const Job& job, const Call& call, const Costs& costs) {
  Choice choice{.costs = costs, .channels = 0};
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    for (int protocol = 0; protocol < protocols; ++protocol) {
      const auto a = static_cast<Algorithm>(algorithm);
      const auto p = static_cast<Protocol>(protocol);
      float& cost = cost_of(choice.costs, a, p);
      const auto time = modelled(job, call, a, p);
      if (time && cost != not_available) {
        cost = *time;
      }
    }
  }
  return choice;
}

}  // namespace sprat::nccl_net::tuning
