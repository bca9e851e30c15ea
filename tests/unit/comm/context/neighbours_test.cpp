// Who shares a process, a machine and a host, as a table.
#include "comm/context/neighbours.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sprat::comm {
namespace {

PeerInfo info(const std::string& label, const std::string& machine, pid_t pid,
              std::vector<int> cores) {
  return {.label = label,
          .machine = machine,
          .name = label,
          .cores = std::move(cores),
          .memory = {.pid = pid}};
}

TEST(Neighbours, are_found_by_what_ranks_tell) {
  struct Case {
    const char* name;
    std::vector<PeerInfo> infos;
    int rank;
    std::vector<int> same_host;
    bool one_process;
    std::size_t ranks_a_core;
  };
  const std::vector<Case> cases = {
      {"alone", {info("a", "m", 1, {0})}, 0, {0}, true, 1},
      {"processes of one host",
       {info("a", "m", 1, {0, 1}), info("a", "m", 2, {0, 1})},
       1,
       {0, 1},
       false,
       1},
      {"threads of one process",
       {info("a", "m", 1, {0, 1}), info("a", "m", 1, {0, 1})},
       0,
       {0, 1},
       true,
       1},
      {"threads of one process that call themselves two hosts",
       {info("a", "m", 1, {0, 1}), info("b", "m", 1, {0, 1})},
       0,
       {0},
       true,
       1},
      {"one process id on two machines",
       {info("a", "m", 1, {0}), info("b", "n", 1, {0})},
       0,
       {0},
       false,
       1},
      {"one name on two machines",  // as containers of one label: mapping will tell
       {info("a", "m", 1, {0}), info("a", "n", 1, {0})},
       0,
       {0, 1},
       false,
       1},
      {"three ranks on two cores",
       {info("a", "m", 1, {0}), info("a", "m", 2, {1}), info("a", "m", 3, {0, 1})},
       2,
       {0, 1, 2},
       false,
       2},
      {"two hosts of one machine share its cores",
       {info("a", "m", 1, {0}), info("b", "m", 2, {0})},
       0,
       {0},
       false,
       2},
      {"ranks that are bound to a core each",
       {info("a", "m", 1, {0}), info("a", "m", 2, {1}), info("b", "n", 3, {0})},
       0,
       {0, 1},
       false,
       1},
      {"a rank whose cores are not known", {info("a", "m", 1, {})}, 0, {0}, true, 2},
  };
  for (const Case& one : cases) {
    const Neighbours found = find_neighbours(one.infos, one.rank);
    EXPECT_EQ(found.same_host, one.same_host) << one.name;
    EXPECT_EQ(found.one_process, one.one_process) << one.name;
    EXPECT_EQ(found.ranks_a_core, one.ranks_a_core) << one.name;
  }
}

TEST(Neighbours, become_hosts_by_what_they_can_map_and_read) {
  struct Case {
    const char* name;
    std::vector<Reach> reaches;
    int rank;
    std::vector<int> host_of;
    bool mine, everybodys, several;
  };
  const std::vector<Case> cases = {
      {"all is well", {{"a", {0, 1}, {0, 1}}, {"a", {0, 1}, {0, 1}}}, 0, {0, 0}, true, true, false},
      {"nobody may read", {{"a", {0, 1}, {}}, {"a", {0, 1}, {}}}, 0, {0, 0}, false, false, false},
      {"rank 1 cannot read rank 0",
       {{"a", {0, 1}, {0, 1}}, {"a", {0, 1}, {1}}},
       0,
       {0, 0},
       false,
       false,
       false},
      {"the same, as rank 1 sees it",
       {{"a", {0, 1}, {0, 1}}, {"a", {0, 1}, {1}}},
       1,
       {0, 0},
       true,
       false,
       false},
      {"rank 1 cannot map rank 0",
       {{"a", {0, 1}, {0, 1}}, {"a", {1}, {1}}},
       0,
       {0, 1},
       true,
       true,
       true},
      {"two hosts",
       {{"a", {0, 2}, {0, 2}}, {"b", {1}, {1}}, {"a", {0, 2}, {0, 2}}},
       2,
       {0, 1, 0},
       true,
       true,
       true},
      {"another host's ranks cannot read each other",
       {{"a", {0}, {0}}, {"b", {1, 2}, {1}}, {"b", {1, 2}, {2}}},
       0,
       {0, 1, 1},
       true,
       false,
       true},
  };
  for (const Case& one : cases) {
    const Hosts hosts = decide_hosts(one.reaches, one.rank);
    EXPECT_EQ(hosts.host_of, one.host_of) << one.name;
    EXPECT_EQ(hosts.readability.mine, one.mine) << one.name;
    EXPECT_EQ(hosts.readability.everybodys, one.everybodys) << one.name;
    EXPECT_EQ(hosts.several, one.several) << one.name;
  }
}

}  // namespace
}  // namespace sprat::comm
