// Topologies from XML, this host's identity, and the choice of interfaces.
#include "comm/host/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>
#include <thread>

#include "comm/host/interfaces.hpp"
#include "sprat/error.hpp"
#include "tests/unit/no_files.hpp"

namespace sprat::comm {
namespace {

/// Two packages with a NUMA node, two cores and a network card each; core 3 is not ours. The second
/// has a GPU that no driver has claimed, behind the same switch as its card.
constexpr std::string_view two_packages = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0xff" complete_cpuset="0xff" allowed_cpuset="0x3f"
   nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0xf" complete_cpuset="0xf" nodeset="0x1"
    complete_nodeset="0x1" gp_index="2">
   <info name="CPUModel" value="Herring 9000"/>
   <object type="NUMANode" os_index="0" cpuset="0xf" complete_cpuset="0xf" nodeset="0x1"
     complete_nodeset="0x1" gp_index="3" local_memory="1000000"/>
   <object type="L3Cache" cpuset="0xf" complete_cpuset="0xf" nodeset="0x1" complete_nodeset="0x1"
     gp_index="4" cache_size="8388608" depth="3" cache_linesize="64" cache_associativity="16"
     cache_type="0">
    <object type="Core" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1"
      complete_nodeset="0x1" gp_index="5">
     <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
       complete_nodeset="0x1" gp_index="6"/>
     <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1"
       complete_nodeset="0x1" gp_index="7"/>
    </object>
    <object type="Core" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0x1"
      complete_nodeset="0x1" gp_index="8">
     <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x1"
       complete_nodeset="0x1" gp_index="9"/>
     <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x1"
       complete_nodeset="0x1" gp_index="10"/>
    </object>
   </object>
   <object type="Bridge" gp_index="30" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
    <object type="PCIDev" gp_index="31" pci_busid="0000:00:05.0"
      pci_type="0200 [1d0f:ec20] [0000:0000] 00" pci_link_speed="0.000000">
     <info name="PCIDevice" value="Elastic Network Adapter"/>
     <object type="OSDev" gp_index="32" name="ens5" osdev_type="2"/>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0xf0" complete_cpuset="0xf0" nodeset="0x2"
    complete_nodeset="0x2" gp_index="12">
   <info name="CPUModel" value="Herring 9000"/>
   <object type="NUMANode" os_index="1" cpuset="0xf0" complete_cpuset="0xf0" nodeset="0x2"
     complete_nodeset="0x2" gp_index="13" local_memory="2000000"/>
   <object type="L3Cache" cpuset="0xf0" complete_cpuset="0xf0" nodeset="0x2"
     complete_nodeset="0x2" gp_index="14" cache_size="8388608" depth="3" cache_linesize="64"
     cache_associativity="16" cache_type="0">
    <object type="Core" os_index="0" cpuset="0x30" complete_cpuset="0x30" nodeset="0x2"
      complete_nodeset="0x2" gp_index="15">
     <object type="PU" os_index="4" cpuset="0x10" complete_cpuset="0x10" nodeset="0x2"
       complete_nodeset="0x2" gp_index="16"/>
     <object type="PU" os_index="5" cpuset="0x20" complete_cpuset="0x20" nodeset="0x2"
       complete_nodeset="0x2" gp_index="17"/>
    </object>
    <object type="Core" os_index="1" cpuset="0xc0" complete_cpuset="0xc0" nodeset="0x2"
      complete_nodeset="0x2" gp_index="18">
     <object type="PU" os_index="6" cpuset="0x40" complete_cpuset="0x40" nodeset="0x2"
       complete_nodeset="0x2" gp_index="19"/>
     <object type="PU" os_index="7" cpuset="0x80" complete_cpuset="0x80" nodeset="0x2"
       complete_nodeset="0x2" gp_index="20"/>
    </object>
   </object>
   <object type="Bridge" gp_index="40" bridge_type="0-1" depth="0" bridge_pci="0000:[10-1f]">
    <object type="Bridge" gp_index="41" bridge_type="1-1" depth="1" bridge_pci="0000:[11-13]"
      pci_busid="0000:10:01.0" pci_type="0604 [0000:0000] [0000:0000] 00" pci_link_speed="0.000000">
     <object type="PCIDev" gp_index="42" pci_busid="0000:11:00.0"
       pci_type="0302 [10de:20b0] [0000:0000] 00" pci_link_speed="0.000000">
      <info name="PCIDevice" value="A100"/>
     </object>
     <object type="PCIDev" gp_index="43" pci_busid="0000:12:00.0"
       pci_type="0200 [1d0f:efa1] [0000:0000] 00" pci_link_speed="0.000000">
      <info name="PCIDevice" value="Elastic Fabric Adapter"/>
      <object type="OSDev" gp_index="44" name="rdmap18s0" osdev_type="3"/>
     </object>
    </object>
   </object>
  </object>
 </object>
</topology>
)";

TEST(Topology, xml_is_read_in_full) {
  const Topology topology = parse_topology(two_packages);
  const std::vector<Core> cores = {
      {0, 0, {0, 1}, {0, 1}}, {0, 0, {2, 3}, {2, 3}}, {1, 1, {4, 5}, {4, 5}}, {1, 1, {6, 7}, {}}};
  EXPECT_EQ(topology.cores, cores);
  EXPECT_EQ(topology.packages, std::vector<Package>(2, {"Herring 9000"}));
  EXPECT_EQ(topology.numa_nodes, (std::vector<NumaNode>{{0, 1'000'000}, {1, 2'000'000}}));
  EXPECT_EQ(topology.caches, (std::vector<Cache>{{3, 2, 8 << 20}}));
  EXPECT_EQ(topology.allowed_cores(), 3);
  EXPECT_EQ(topology.allowed_pus(), 6);
  EXPECT_EQ(topology.memory_bytes(), 3'000'000u);
  EXPECT_EQ(topology.cache_bytes(3), std::size_t{8} << 20);
  EXPECT_EQ(topology.cache_bytes(2), 0u);
  using Kind = Device::Kind;
  const std::vector<Device> devices = {
      {Kind::nic, "ens5", "Elastic Network Adapter", "0000:00:05.0", 0, {"0000:00"}},
      {Kind::fabric,
       "rdmap18s0",
       "Elastic Fabric Adapter",
       "0000:12:00.0",
       1,
       {"0000:10", "0000:11"}},
      {Kind::gpu, "0000:11:00.0", "A100", "0000:11:00.0", 1, {"0000:10", "0000:11"}}};
  ASSERT_EQ(topology.devices.size(), devices.size());
  for (std::size_t at = 0; at < devices.size(); ++at) {
    const Device &got = topology.devices[at], &expected = devices[at];
    EXPECT_EQ(got.kind, expected.kind) << expected.name;
    EXPECT_EQ(got.name, expected.name);
    EXPECT_EQ(got.model, expected.model);
    EXPECT_EQ(got.pci, expected.pci);
    EXPECT_EQ(got.numa, expected.numa) << expected.name;
    EXPECT_EQ(got.buses, expected.buses) << expected.name;
  }
}

TEST(Topology, a_blob_gives_the_same_topology_back) {
  const Topology topology = parse_topology(two_packages);
  const Blob blob = to_blob(topology);
  EXPECT_EQ(topology_from_blob(blob), topology);
  EXPECT_THROW(topology_from_blob(std::span(blob).first(blob.size() / 2)), Error);
}

TEST(Topology, what_is_not_a_topology_is_refused) {
  for (const std::string_view text : {"", "no xml", "<topology></topology>", "<a><b></a>"}) {
    EXPECT_THROW(parse_topology(text), Error) << text;
  }
}

TEST(Topology, a_file_replaces_detection) {
  const std::string path =
      testing::TempDir() + "sprat_topology_" + std::to_string(getpid()) + ".xml";
  std::ofstream(path) << two_packages;
  Config config;
  config.topology = path;
  EXPECT_EQ(read_topology(config), parse_topology(two_packages));
  unlink(path.c_str());
  EXPECT_THROW(read_topology(config), Error);
}

TEST(Topology, what_is_no_file_is_refused_and_not_waited_for) {
  const NoFiles none;
  for (const std::string& path : none.paths()) {
    Config config;
    config.topology = path;
    try {
      read_topology(config);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  testing::StartsWith("cannot read SPRAT_TOPOLOGY=\"" + path + "\": it is a "));
    }
  }
}

/// The number of hardware threads that the calling thread may run on.
int affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST(Topology, this_host_has_cores_memory_and_the_threads_we_may_run_on) {
  const Topology topology = read_topology(Config{});
  EXPECT_GE(topology.packages.size(), 1u);
  EXPECT_GE(topology.numa_nodes.size(), 1u);
  EXPECT_GT(topology.memory_bytes(), std::size_t{64} << 20);
  EXPECT_EQ(topology.allowed_pus(), affinity());
  EXPECT_GE(topology.allowed_pus(), topology.allowed_cores());
}

TEST(HostIdentity, names_are_taken_by_rank) {
  struct Case {
    const char* hosts;
    int rank;
    const char* name;  ///< Null: refused.
  };
  constexpr Case cases[] = {{"", 0, ""},       {"", 7, ""},           {"a", 0, "a"},
                            {"a", 7, "a"},     {"a,b,a", 0, "a"},     {"a,b,a", 1, "b"},
                            {"a,b,a", 2, "a"}, {"a,b,a", 3, nullptr}, {"a,,b", 1, nullptr},
                            {"a,b", 1, "b"},   {"a,", 1, nullptr}};
  for (const Case& one : cases) {
    if (one.name == nullptr) {
      EXPECT_THROW(named_host(one.hosts, one.rank), Error) << one.hosts << " " << one.rank;
    } else {
      EXPECT_EQ(named_host(one.hosts, one.rank), one.name) << one.hosts << " " << one.rank;
    }
  }
}

TEST(HostIdentity, names_split_and_merge_and_the_machine_stays) {
  Config plain, named;
  named.host = "a,b,a";
  const HostIdentity real = host_identity(plain, 0), a = host_identity(named, 0),
                     b = host_identity(named, 1), a_again = host_identity(named, 2);
  EXPECT_EQ(real.label, host_identity(plain, 1).label);
  EXPECT_EQ(a.label, a_again.label);
  EXPECT_NE(a.label, b.label);
  EXPECT_NE(a.label, real.label);
  for (const HostIdentity& one : {a, b, a_again}) {
    EXPECT_EQ(one.machine, real.machine);
  }
  EXPECT_EQ(b.name, "b");
  EXPECT_FALSE(real.name.empty());
}

Interface ethernet(const char* name, const char* address, int speed_mbit_s = 0) {
  return {.name = name, .addresses = {address}, .up = true, .speed_mbit_s = speed_mbit_s};
}

TEST(Interfaces, the_usable_ones_are_chosen_best_first) {
  const Interface lo{.name = "lo", .addresses = {"127.0.0.1"}, .up = true, .loopback = true};
  const Interface eth0 = ethernet("eth0", "10.0.0.1", 10'000),
                  eth1 = ethernet("eth1", "10.0.1.1", 25'000),
                  veth0 = ethernet("veth0", "10.0.2.1"), docker = ethernet("docker0", "172.17.0.1");
  Interface down = ethernet("eth2", "10.0.3.1"), mute = ethernet("eth3", "");
  down.up = false;
  mute.addresses.clear();
  struct Case {
    std::string_view wish;
    std::vector<Interface> interfaces;
    std::vector<std::string> chosen;  ///< Empty: refused.
  };
  const Case cases[] = {
      {"", {lo, eth0}, {"eth0"}},
      {"", {lo, eth0, eth1}, {"eth1", "eth0"}},
      {"", {lo, veth0}, {"veth0"}},
      {"", {lo}, {"lo"}},
      {"", {lo, down, mute, docker}, {"lo"}},
      {"", {docker, eth0}, {"eth0"}},
      {"", {down}, {}},
      {"", {}, {}},
      {"eth0", {lo, eth0, eth1}, {"eth0"}},
      {"eth0,eth1", {lo, eth0, eth1}, {"eth0", "eth1"}},
      {" eth1 , lo", {lo, eth0, eth1}, {"eth1", "lo"}},
      {"docker0", {docker, eth0}, {"docker0"}},
      {"eth0,eth7", {lo, eth0}, {"eth0"}},
      {"eth7", {lo, eth0}, {}},
      {"eth", {eth0}, {}},
      {"eth2", {down, eth0}, {}},
      {"^eth1", {lo, eth0, eth1}, {"eth0"}},
      {"^eth0,eth1", {lo, eth0, eth1}, {"lo"}},
      {"^eth0,lo", {lo, eth0}, {}},
      {"^", {eth0}, {}},
      {",", {eth0}, {}},
  };
  for (const Case& one : cases) {
    if (one.chosen.empty()) {
      EXPECT_THROW(choose_interfaces(one.interfaces, one.wish), Error) << one.wish;
      continue;
    }
    const auto choices = choose_interfaces(one.interfaces, one.wish);
    EXPECT_EQ(choices.size(), one.interfaces.size()) << one.wish;
    std::vector<std::string> chosen;
    for (const InterfaceChoice& choice : choices) {
      EXPECT_FALSE(choice.reason.empty()) << one.wish << " " << choice.interface.name;
      if (choice.chosen) {
        chosen.push_back(choice.interface.name);
      }
    }
    EXPECT_EQ(chosen, one.chosen) << "\"" << one.wish << "\"";
  }
}

TEST(Interfaces, a_wish_that_leaves_none_is_refused_with_the_reasons) {
  const std::vector<Interface> interfaces = {ethernet("eth0", "10.0.0.1"),
                                             ethernet("eth1", "10.0.1.1")};
  try {
    choose_interfaces(interfaces, "ib0");
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    for (const char* part : {"ib0", "eth0", "eth1"}) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
}

TEST(Interfaces, this_host_has_a_loopback) {
  const auto interfaces = read_interfaces();
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [](const Interface& one) { return one.loopback; });
  ASSERT_NE(found, interfaces.end());
  EXPECT_TRUE(found->up);
  EXPECT_THAT(found->addresses, testing::Contains("127.0.0.1"));
}

}  // namespace
}  // namespace sprat::comm
