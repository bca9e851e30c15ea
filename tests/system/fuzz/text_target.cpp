// Texts from outside: each is taken, or refused with an Error; nothing else happens.
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/tuning.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/host/interfaces.hpp"
#include "comm/host/topology.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

/// Every setting at once: a variable a line, in the order of the table.
void read_configuration(std::string text) {
  static const auto fields = describe(Config());
  std::size_t begin = 0;
  for (const ConfigField& field : fields) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    setenv(field.variable.c_str(), text.substr(begin, end - begin).c_str(), 1);
    begin = std::min(end + 1, text.size());
  }
  const Config config = Config::from_environment();
  for (const ConfigField& field : describe(config)) {
    expect(field.name != "token" || field.value.size() <= 5, "the token is not shown");
  }
}

void read_rules(std::string_view text) {
  std::string again;
  const auto rules = collectives::parse_rules(text);
  for (const collectives::Rule& rule : rules) {
    again += describe(rule) + ";";
  }
  expect(collectives::parse_rules(again).size() == rules.size(), "rules come back as they were");
}

void choose_of_three(std::string_view wish) {
  std::vector<comm::Interface> machine;
  for (const char* name : {"eth0", "eth1", "docker0"}) {
    machine.push_back({.name = name, .addresses = {"10.0.0.1"}, .up = true});
  }
  expect(comm::choose_interfaces(machine, wish).front().chosen, "the first one is chosen");
}

bool read_contact_file(std::string_view text) {
  const auto contact = comm::read_contact(text);
  expect(!contact || comm::read_contact(comm::write_contact(*contact)) == contact,
         "a contact comes back");
  return contact.has_value();
}

}  // namespace

/// The first byte says what the text is.
bool run_text(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const std::string text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    switch (std::to_integer<char>(input[0])) {
      case 'c':
        read_configuration(text);
        return true;
      case 'r':
        read_rules(text);
        return true;
      case 'd':
        comm::parse_address(text, "here");
        return true;
      case 'f':
        return read_contact_file(text);
      case 'i':
        choose_of_three(text);
        return true;
      case 't':  // what a peer sends. XML is read by hwloc, from a file that the user names
        comm::topology_from_blob(std::as_bytes(std::span(text)));
        return true;
      default:
        return false;
    }
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
