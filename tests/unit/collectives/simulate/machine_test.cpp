// The table of machines, and machines made of words and of what hwloc sees.
#include "collectives/simulate/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "sprat/error.hpp"

namespace sprat::collectives {
namespace {

using ::testing::HasSubstr;

TEST(Machines, have_names_of_their_own_and_rates) {
  std::set<std::string_view> names;
  for (const Machine& machine : all_machines()) {
    EXPECT_TRUE(names.insert(machine.name).second) << machine.name;
    EXPECT_EQ(machine_named(machine.name).summary, machine.summary);
    EXPECT_GT(machine.ranks, 0) << machine.name;
    EXPECT_GT(machine.rails, 0) << machine.name;
    for (double rate : {machine.rail_GBps, machine.pull_GBps, machine.link_GBps, machine.copy_GBps,
                        machine.add_GBps}) {
      EXPECT_GT(rate, 0) << machine.name;
    }
  }
}

std::string complaint(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Machines, unknown_ones_are_refused_with_those_there_are) {
  EXPECT_THAT(complaint([] { machine_named("p9"); }),
              HasSubstr("no machine \"p9\"; there are: p3dn"));
}

TEST(Machines, change_in_words) {
  Machine machine = machine_named("p4d");
  change(machine, "rails=2,wire_us=20.5");
  EXPECT_EQ(machine.rails, 2);
  EXPECT_EQ(machine.wire_us, 20.5);
  EXPECT_EQ(machine.ranks, 8);
  const struct {
    const char* words;
    const char* says;
  } wrong[] = {{"rails", "\"rails\" does not end in a number"},
               {"rails=0", "a number from 1 to "},
               {"rail_GBps=0", "a number from "},
               {"wire_us=inf", "a number from "},
               {"wire_us=nan", "a number from "},
               {"wire_us=1x", "\"wire_us=1x\" does not end in a number"},
               {"wire_us=1,,rails=2", "\"\" sets none of: ranks rails rail_GBps"}};
  for (const auto& [words, says] : wrong) {
    EXPECT_THAT(complaint([&] { change(machine, words); }), HasSubstr(says)) << words;
  }
}

using Kind = comm::Device::Kind;

comm::Topology host_with(int cores, int gpus, const std::string& model, int fabrics) {
  comm::Topology topology;
  topology.cores.resize(static_cast<std::size_t>(cores));
  for (int i = 0; i < gpus; ++i) {
    topology.devices.push_back({.kind = Kind::gpu, .model = model});
  }
  for (int i = 0; i < fabrics; ++i) {
    topology.devices.push_back({.kind = Kind::fabric});
  }
  topology.devices.push_back({.kind = Kind::nic, .name = "eth0", .pci = "0000:00:05.0"});
  topology.devices.push_back({.kind = Kind::nic, .name = "lo"});
  return topology;
}

TEST(Machines, are_known_by_their_gpus_and_nics) {
  const Machine p4d = machine_named("p4d"), p5en = machine_named("p5en");
  EXPECT_EQ(machine_of(host_with(48, 8, "10de:20b0", 4)).pull_GBps, p4d.pull_GBps);
  const Machine read = machine_of(host_with(96, 8, "GH100 [H200 SXM 141GB]", 16));
  EXPECT_EQ(read.rail_GBps, p5en.rail_GBps);
  EXPECT_EQ(read.ranks, 8);
  EXPECT_EQ(read.rails, 16);
}

TEST(Machines, with_other_counts_have_the_rates_of_their_gpus) {
  const Machine read = machine_of(host_with(48, 4, "10de:2330", 2));
  EXPECT_EQ(read.name, "p5");
  EXPECT_EQ(read.pull_GBps, machine_named("p5").pull_GBps);
  EXPECT_EQ(read.ranks, 4);
  EXPECT_EQ(read.rails, 2);
}

TEST(Machines, of_unknown_make_have_the_rates_of_c5n_and_their_own_counts) {
  const Machine read = machine_of(host_with(12, 0, "", 0));
  EXPECT_EQ(read.ranks, 12);
  EXPECT_EQ(read.rails, 1);
  EXPECT_EQ(read.rail_GBps, machine_named("c5n").rail_GBps);
  EXPECT_EQ(read.name, "c5n");
}

}  // namespace
}  // namespace sprat::collectives
