// Texts from outside: each is taken, or refused with an Error; nothing else happens.
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

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

void read_contact_file(std::string_view text) {
  if (const auto contact = comm::read_contact(text)) {
    expect(comm::read_contact(comm::write_contact(*contact)) == contact, "a contact comes back");
  }
}

}  // namespace

/// The first byte says what the text is.
void run_text(std::span<const std::byte> input) {
  if (input.empty()) {
    return;
  }
  const std::string text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    switch (std::to_integer<char>(input[0])) {
      case 'c':
        return read_configuration(text);
      case 'r':
        return read_rules(text);
      case 'd':
        comm::parse_address(text, "here");
        return;
      case 'f':
        return read_contact_file(text);
      case 'i':
        comm::choose_interfaces({}, text);
        return;
      case 't':  // what a peer sends. XML is read by hwloc, from a file that the user names
        comm::topology_from_blob(std::as_bytes(std::span(text)));
        return;
      default:
        return;
    }
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
  }
}

}  // namespace sprat::fuzz
