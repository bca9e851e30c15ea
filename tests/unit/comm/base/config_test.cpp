// Config: what is read from the environment, what is refused, what is documented.
#include "sprat/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "comm/base/config.hpp"
#include "sprat/error.hpp"

namespace sprat {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sets variables for one scope; all of ours are absent otherwise.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const ConfigField& field : describe(Config())) {
      unsetenv(field.variable.c_str());
    }
    for (const auto& [name, value] : variables) {
      setenv(name, value, 1);
    }
  }
  ~Environment() {
    for (const ConfigField& field : describe(Config())) {
      unsetenv(field.variable.c_str());
    }
  }
};

ConfigField find(const std::vector<ConfigField>& fields, const std::string& name) {
  for (const ConfigField& field : fields) {
    if (field.name == name) {
      return field;
    }
  }
  ADD_FAILURE() << "no field " << name;
  return {};
}

TEST(Config, has_defaults_when_nothing_is_set) {
  const Environment none({});
  for (const ConfigField& field : describe(Config::from_environment())) {
    EXPECT_EQ(field.value, field.default_value) << field.name;
    EXPECT_EQ(field.origin, "default") << field.name;
  }
}

TEST(Config, reads_every_variable) {
  const Environment set({{"SPRAT_RANK", "3"},
                         {"SPRAT_SIZE", "8"},
                         {"SPRAT_RENDEZVOUS", "tcp://a:1"},
                         {"SPRAT_HOST", "left,right"},
                         {"SPRAT_INTERFACE", "^docker0"},
                         {"SPRAT_PORTS", "30000-30099"},
                         {"SPRAT_PROVIDER", "tcp"},
                         {"SPRAT_TOPOLOGY", "/a.xml"},
                         {"SPRAT_ALGORITHM", "all_reduce tree"},
                         {"SPRAT_TUNING", "/a.rules"},
                         {"SPRAT_ORDER", "any"},
                         {"SPRAT_TOKEN", "hush"},
                         {"SPRAT_ENCRYPT", "1"},
                         {"SPRAT_LOG", "debug"},
                         {"SPRAT_JOIN_TIMEOUT", "2.5"},
                         {"SPRAT_TIMEOUT", "30"},
                         {"SPRAT_STRAGGLER_AFTER", "0"},
                         {"SPRAT_CROSS_MEMORY", "0"},
                         {"SPRAT_FLIGHT_RECORDER", "/tmp"},
                         {"SPRAT_FAKE_LUSTRE", "/tmp"},
                         {"SPRAT_DIGESTS", "/tmp"},
                         {"SPRAT_DIGESTS_INPUTS", "1"},
                         {"SPRAT_DIGESTS_CHECK", "100"},
                         {"SPRAT_DIGESTS_KEEP", "world 412"},
                         {"SPRAT_TRACE", "/t.json"},
                         {"SPRAT_STAGING", "512K"}});
  const Config config = Config::from_environment();
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.size, 8);
  EXPECT_EQ(config.rendezvous, "tcp://a:1");
  EXPECT_EQ(config.host, "left,right");
  EXPECT_EQ(config.interface, "^docker0");
  EXPECT_EQ(config.ports.first, 30000);
  EXPECT_EQ(config.ports.last, 30099);
  EXPECT_EQ(config.provider, "tcp");
  EXPECT_EQ(config.topology, "/a.xml");
  EXPECT_EQ(config.algorithm, "all_reduce tree");
  EXPECT_EQ(config.tuning, "/a.rules");
  EXPECT_EQ(config.order, ReduceOrder::any);
  EXPECT_EQ(config.token, "hush");
  EXPECT_TRUE(config.encrypt);
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.join_timeout, milliseconds(2500));
  EXPECT_EQ(config.timeout, milliseconds(30'000));
  EXPECT_EQ(config.straggler_after, milliseconds(0));
  EXPECT_EQ(config.flight_recorder, "/tmp");
  EXPECT_EQ(config.fake_lustre, "/tmp");
  EXPECT_EQ(config.digests.folder, "/tmp");
  EXPECT_EQ(config.trace, "/t.json");
  EXPECT_TRUE(config.digests.inputs);
  EXPECT_EQ(config.digests.check, 100);
  EXPECT_EQ(config.digests.keep, "world 412");
  EXPECT_EQ(config.staging_bytes, 512u << 10);
  EXPECT_FALSE(config.cross_memory);
  for (const ConfigField& field : describe(config)) {
    EXPECT_EQ(field.origin, "environment") << field.name;
    EXPECT_NE(field.value, field.default_value) << field.name;
  }
}

TEST(Config, takes_an_empty_variable_for_none) {
  const Environment set({{"SPRAT_RANK", ""}, {"SPRAT_TIMEOUT", ""}});
  EXPECT_EQ(Config::from_environment().rank, -1);
  EXPECT_EQ(Config::from_environment().timeout, Config().timeout);
}

TEST(Config, refuses_values_by_name) {
  const std::pair<const char*, const char*> bad[] = {
      {"SPRAT_RANK", "-1"},          {"SPRAT_RANK", "two"},
      {"SPRAT_RANK", "1 "},          {"SPRAT_SIZE", "0"},
      {"SPRAT_SIZE", "99999999999"}, {"SPRAT_LOG", "loud"},
      {"SPRAT_ORDER", "chain"},      {"SPRAT_JOIN_TIMEOUT", "0"},
      {"SPRAT_TIMEOUT", "nan"},      {"SPRAT_TIMEOUT", "-3"},
      {"SPRAT_TIMEOUT", "inf"},      {"SPRAT_TIMEOUT", "10s"},
      {"SPRAT_STAGING", "0"},        {"SPRAT_STAGING", "4Q"},
      {"SPRAT_STAGING", "K"},        {"SPRAT_PORTS", "0-9"},
      {"SPRAT_PORTS", "9-8"},        {"SPRAT_PORTS", "1-65536"},
      {"SPRAT_PORTS", "5-"},         {"SPRAT_PORTS", "a"},
      {"SPRAT_STAGING", "-1"},       {"SPRAT_STAGING", "99999999999999999G"}};
  for (const auto& [variable, value] : bad) {
    const Environment set({{variable, value}});
    try {
      Config::from_environment();
      ADD_FAILURE() << variable << "=" << value << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(variable), HasSubstr(value)));
    }
  }
}

TEST(Config, tells_variables_that_nothing_reads_from_settings) {
  const Environment set({{"SPRAT_TIMEOUT", "30"}, {"SPRAT_TIMOUT", "3"}, {"SPRAT_TOKN", ""}});
  std::map<std::string, std::string> nearest;
  for (const UnknownVariable& unknown : unknown_variables()) {
    nearest[unknown.name] = unknown.nearest;
  }
  unsetenv("SPRAT_TIMOUT");
  unsetenv("SPRAT_TOKN");
  EXPECT_EQ(nearest["SPRAT_TIMOUT"], "SPRAT_TIMEOUT");
  EXPECT_EQ(nearest["SPRAT_TOKN"], "SPRAT_TOKEN");
  EXPECT_FALSE(nearest.contains("SPRAT_TIMEOUT"));
}

TEST(Config, refuses_a_rank_that_the_size_does_not_hold) {
  const Environment set({{"SPRAT_RANK", "4"}, {"SPRAT_SIZE", "4"}});
  EXPECT_THROW(Config::from_environment(), Error);
}

TEST(Config, tells_who_set_a_value) {
  const Environment set({{"SPRAT_TIMEOUT", "30"}});
  Config config = Config::from_environment();
  EXPECT_EQ(find(describe(config), "timeout").origin, "environment");
  config.timeout = milliseconds(1500);
  EXPECT_EQ(find(describe(config), "timeout").origin, "program");
  EXPECT_EQ(find(describe(config), "timeout").value, "1.5");
}

TEST(Config, never_shows_the_token) {
  Config config;
  config.token = "hush";
  for (const ConfigField& field : describe(config)) {
    EXPECT_THAT(field.value, ::testing::Not(HasSubstr("hush")));
  }
}

/// The rows of the table, without the code marks.
std::vector<std::string> documented_rows() {
  const auto path = std::filesystem::path(SPRAT_SOURCE_DIR) / "docs/configuration.md";
  std::ifstream file(path);
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    std::erase(line, '`');
    if (line.starts_with("| ") && !line.starts_with("| field")) {
      rows.push_back(line);
    }
  }
  return rows;
}

TEST(Config, is_documented_field_by_field) {
  std::vector<std::string> expected;
  for (const ConfigField& field : describe(Config())) {
    std::ostringstream row;
    row << "| " << field.name << " | " << field.variable << " | " << field.unit << " | "
        << field.default_value << (field.default_value.empty() ? "" : " ") << "| " << field.help
        << " |";
    expected.push_back(row.str());
  }
  EXPECT_EQ(documented_rows(), expected);
}

/// describe() is a table beside the struct; this counts the struct's fields by its size.
TEST(Config, describes_every_field) {
  std::ifstream header(std::filesystem::path(SPRAT_SOURCE_DIR) / "include/sprat/config.hpp");
  std::vector<std::string> variables;
  for (std::string line; std::getline(header, line);) {
    const auto at = line.find("///< SPRAT_");
    if (at == line.npos) {
      continue;
    }
    variables.push_back(line.substr(at + 5, line.find_first_of(";:,", at) - at - 5));
  }
  std::vector<std::string> described;
  for (const ConfigField& field : describe(Config())) {
    described.push_back(field.variable);
  }
  // The header has its parts first.
  std::ranges::sort(described);
  std::ranges::sort(variables);
  EXPECT_EQ(described, variables);
}

}  // namespace
}  // namespace sprat
