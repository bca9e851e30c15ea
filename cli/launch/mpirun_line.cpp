#include "cli/launch/mpirun_line.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using Words = std::vector<std::string>;

/// What an option sets, however it is spelled: "x NAME", "mca KEY", "oversubscribe".
std::string subject(const Words& words, std::size_t at) {
  std::string_view name = words[at];
  if (!name.starts_with('-')) {
    return {};
  }
  name.remove_prefix(name.starts_with("--") ? 2 : 1);
  if ((name != "x" && name != "mca") || at + 1 == words.size()) {
    return std::string(name);
  }
  return fmt::format("{} {}", name, words[at + 1].substr(0, words[at + 1].find('=')));
}

/// More processes than any job has: counts are added up.
constexpr int most_slots = 1 << 24;

/// "a:8,b" has 9. Null if it makes no sense.
std::optional<int> count_slots(std::string_view hosts) {
  int slots = 0;
  while (true) {
    const std::string_view host = hosts.substr(0, hosts.find(','));
    // The last colon, for an IPv6 address has others before it.
    const std::size_t colon = host.rfind(':');
    int here = 1;
    if (colon != host.npos) {
      const auto [end, error] =
          std::from_chars(host.data() + colon + 1, host.data() + host.size(), here);
      if (error != std::errc{} || end != host.data() + host.size() || here < 1 ||
          here > most_slots - slots) {
        return std::nullopt;
      }
    }
    if (host.substr(0, colon).empty()) {
      return std::nullopt;
    }
    slots += here;
    if (host.size() == hosts.size()) {
      return slots;
    }
    hosts.remove_prefix(host.size() + 1);
  }
}

/// Whether an interface list can be given to Open MPI as it is.
bool names_interfaces(std::string_view interface) {
  return !interface.empty() && !interface.starts_with('^');
}

std::vector<Words> our_options(const LaunchRequest& request) {
  const bool several = !request.hosts.empty();
  const auto slots = several ? count_slots(request.hosts) : request.cores;
  if (!slots) {
    throw UsageError(fmt::format("--hosts \"{}\" is not a list like a:8,b:8", request.hosts));
  }
  // Without a number every slot that was named gets a rank.
  const int ranks = request.ranks > 0 ? request.ranks : *slots;
  std::vector<Words> options = {{"-np", std::to_string(ranks)}};
  if (several) {
    options.insert(options.begin(), {"--host", request.hosts});
  }
  if (request.as_root) {
    options.push_back({"--allow-run-as-root"});
  }
  // Open MPI counts its own slots on this machine, without hardware threads.
  if (!several || ranks > *slots) {
    options.push_back({"--oversubscribe"});
  }
  if (several) {
    options.push_back({"--tag-output"});
    options.push_back({"-mca", "plm_rsh_no_tree_spawn", "1"});  // hosts need no ssh to each other
    if (names_interfaces(request.interface)) {
      options.push_back({"-mca", "btl_tcp_if_include", request.interface});
      options.push_back({"-mca", "oob_tcp_if_include", request.interface});
    }
  }
  for (const std::string& variable : request.variables) {
    options.push_back({"-x", variable});
  }
  return options;
}

}  // namespace

Words mpirun_line(const LaunchRequest& request) {
  if (request.command.empty()) {
    throw UsageError("what is to be launched? sprat launch -n 4 -- COMMAND [ARGUMENT ...]");
  }
  const Words custom = split_words(request.custom_options);
  std::set<std::string> said;
  for (std::size_t at = 0; at < custom.size(); ++at) {
    said.insert(subject(custom, at));
  }
  // -n, -c and -np are one option of mpirun, as -H and --host are: whichever of its names the user
  // takes, ours is left out.
  for (const char* count : {"n", "c"}) {
    if (said.contains(count)) {
      said.insert("np");
    }
  }
  if (said.contains("H")) {
    said.insert("host");
  }
  Words line = {"mpirun"};
  for (const Words& option : our_options(request)) {
    if (!said.contains(subject(option, 0))) {
      line.insert(line.end(), option.begin(), option.end());
    }
  }
  line.insert(line.end(), custom.begin(), custom.end());
  line.insert(line.end(), request.command.begin(), request.command.end());
  return line;
}

Words split_words(std::string_view text) {
  Words words;
  bool inside = false;  // a word, which may be empty: ''
  char quote = 0;
  std::string word;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    const bool escapes = letter == '\\' && quote != '\'' && at + 1 < text.size();
    if (escapes) {
      const char next = text[++at];
      if (quote == '"' && next != '"' && next != '\\' && next != '$' && next != '`') {
        word += letter;
      }
      word += next;
      inside = true;
    } else if (quote != 0) {
      if (letter == quote) {
        quote = 0;
      } else {
        word += letter;
      }
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
      inside = true;
    } else if (letter == ' ' || letter == '\t' || letter == '\n') {
      if (inside) {
        words.push_back(std::exchange(word, {}));
      }
      inside = false;
    } else {
      word += letter;
      inside = true;
    }
  }
  if (quote != 0) {
    throw UsageError(fmt::format("a {} is not closed in: {}", quote, text));
  }
  if (inside) {
    words.push_back(word);
  }
  return words;
}

std::string shell_line(const Words& words) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%^";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) {
      line += ' ';
    }
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char letter : word) {
      line += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    line += '\'';
  }
  return line;
}

}  // namespace sprat::cli
