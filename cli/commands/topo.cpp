// `sprat topo`: what the hosts of the job are made of, and where its ranks run.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/tree.hpp"
#include "comm/host/topology.hpp"
#include "sprat/communicator.hpp"

namespace sprat::cli {
namespace {

using Json = nlohmann::ordered_json;
using comm::Topology;

/// What a rank tells the others.
struct Member {
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  Topology topology;
};

std::vector<std::uint8_t> to_bytes(const Member& member) {
  const comm::Blob topology = comm::to_blob(member.topology);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(topology.data());
  return Json::to_cbor(
      {{"host", member.host},
       {"pid", member.pid},
       {"topology", Json::binary(std::vector<std::uint8_t>(bytes, bytes + topology.size()))}});
}

Member from_bytes(int rank, std::span<const std::uint8_t> bytes) {
  const Json json = Json::from_cbor(bytes.begin(), bytes.end());
  return {.rank = rank,
          .host = json["host"].get<std::string>(),
          .pid = json["pid"].get<std::int64_t>(),
          .topology = comm::topology_from_blob(
              std::as_bytes(std::span<const std::uint8_t>(json["topology"].get_binary())))};
}

/// Collective: every rank's own, by rank.
std::vector<Member> gather(Communicator& world, const Member& mine) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::uint8_t> bytes = to_bytes(mine);
  std::uint64_t length = bytes.size();
  std::vector<std::uint64_t> lengths(ranks);
  world.all_gather(elements(std::span<const std::uint64_t>(&length, 1)), elements(lengths)).wait();

  // Parts of an all_gather are equally long and topologies are not: all are padded to the longest.
  const std::size_t longest = *std::ranges::max_element(lengths);
  bytes.resize(longest);
  std::vector<std::uint8_t> all(ranks * longest);
  world.all_gather(elements(bytes), elements(all)).wait();
  std::vector<Member> members;
  for (std::size_t r = 0; r < ranks; ++r) {
    members.push_back(from_bytes(static_cast<int>(r), {all.data() + r * longest, lengths[r]}));
  }
  return members;
}

/// Ranks that share memory, with the machine they share.
struct Host {
  std::vector<const Member*> members;
  const Topology& topology() const { return members.front()->topology; }
};

std::vector<Host> hosts_of(const std::vector<Member>& members, const std::vector<int>& host_of) {
  std::vector<Host> hosts(static_cast<std::size_t>(*std::ranges::max_element(host_of)) + 1);
  for (const Member& member : members) {
    const auto host = static_cast<std::size_t>(host_of[static_cast<std::size_t>(member.rank)]);
    hosts[host].members.push_back(&member);
  }
  return hosts;
}

std::vector<int> allowed_pus(const Topology& topology) {
  std::vector<int> pus;
  for (const comm::Core& core : topology.cores) {
    pus.insert(pus.end(), core.allowed_pus.begin(), core.allowed_pus.end());
  }
  std::ranges::sort(pus);
  return pus;
}

/// The NUMA node that holds every hardware thread the rank may use; -1 if there is more than one.
int numa_of(const Topology& topology) {
  int numa = -1;
  for (const comm::Core& core : topology.cores) {
    if (core.allowed_pus.empty()) {
      continue;
    }
    if (numa >= 0 && numa != core.numa) {
      return -1;
    }
    numa = core.numa;
  }
  return numa;
}

std::string device_text(const comm::Device& device) {
  return fmt::format("{} {}{}{}", name(device.kind), device.name,
                     device.pci.empty() || device.pci == device.name ? "" : " at " + device.pci,
                     device.model.empty() ? "" : ": " + device.model);
}

/// What lies at NUMA node `numa`, or near none if it is -1.
void add_devices_and_ranks(Tree& tree, const Host& host, int numa) {
  for (const comm::Device& device : host.topology().devices) {
    if (device.numa == numa) {
      tree.branches.push_back({device_text(device), {}});
    }
  }
  for (const Member* member : host.members) {
    if (numa_of(member->topology) == numa) {
      tree.branches.push_back({fmt::format("rank {}: process {}, hardware threads {}", member->rank,
                                           member->pid, ranges(allowed_pus(member->topology))),
                               {}});
    }
  }
}

Tree numa_tree(const Host& host, int numa) {
  const Topology& topology = host.topology();
  std::vector<int> pus;
  int cores = 0;
  for (const comm::Core& core : topology.cores) {
    if (core.numa == numa) {
      ++cores;
      pus.insert(pus.end(), core.pus.begin(), core.pus.end());
    }
  }
  std::ranges::sort(pus);
  const auto& node = topology.numa_nodes[static_cast<std::size_t>(numa)];
  Tree tree{fmt::format("NUMA node {}: {}, {} cores, hardware threads {}", numa,
                        readable_bytes(node.memory_bytes), cores, ranges(pus)),
            {}};
  add_devices_and_ranks(tree, host, numa);
  return tree;
}

Tree host_tree(const Host& host, std::size_t index) {
  const Topology& topology = host.topology();
  std::string caches;
  for (const comm::Cache& cache : topology.caches) {
    caches += fmt::format(", {} x L{} {}", cache.count, cache.level, readable_bytes(cache.bytes));
  }
  Tree tree{fmt::format("host {} {}: {} cores, {}{}", index, host.members.front()->host,
                        topology.cores.size(), readable_bytes(topology.memory_bytes()), caches),
            {}};
  for (std::size_t p = 0; p < topology.packages.size(); ++p) {
    const std::string& model = topology.packages[p].model;
    Tree package{fmt::format("package {}{}", p, model.empty() ? "" : ": " + model), {}};
    for (std::size_t n = 0; n < topology.numa_nodes.size(); ++n) {
      if (topology.numa_nodes[n].package == static_cast<int>(p)) {
        package.branches.push_back(numa_tree(host, static_cast<int>(n)));
      }
    }
    tree.branches.push_back(std::move(package));
  }
  add_devices_and_ranks(tree, host, -1);
  return tree;
}

Json host_json(const Host& host) {
  const Topology& topology = host.topology();
  Json json;
  json["name"] = host.members.front()->host;
  json["memory_bytes"] = topology.memory_bytes();
  for (const char* key : {"packages", "numa_nodes", "cores", "caches", "devices", "ranks"}) {
    json[key] = Json::array();
  }
  for (const auto& package : topology.packages) {
    json["packages"].push_back({{"model", package.model}});
  }
  for (const auto& node : topology.numa_nodes) {
    json["numa_nodes"].push_back({{"package", node.package}, {"memory_bytes", node.memory_bytes}});
  }
  for (const auto& core : topology.cores) {
    json["cores"].push_back({{"package", core.package}, {"numa", core.numa}, {"pus", core.pus}});
  }
  for (const auto& cache : topology.caches) {
    json["caches"].push_back(
        {{"level", cache.level}, {"count", cache.count}, {"bytes", cache.bytes}});
  }
  for (const auto& device : topology.devices) {
    json["devices"].push_back({{"kind", name(device.kind)},
                               {"name", device.name},
                               {"model", device.model},
                               {"pci", device.pci},
                               {"numa", device.numa}});
  }
  for (const Member* member : host.members) {
    json["ranks"].push_back({{"rank", member->rank},
                             {"pid", member->pid},
                             {"allowed_pus", allowed_pus(member->topology)}});
  }
  return json;
}

int run_topo(bool as_json) {
  const Config config = Config::from_environment();
  auto world = Communicator::join(config);
  const std::vector<Member> members =
      gather(world, {.rank = world.rank(),
                     .host = comm::host_identity(config, world.rank()).name,
                     .pid = getpid(),
                     .topology = comm::read_topology(config)});
  // Every rank has all of it by now, and one tells it.
  if (world.rank() != 0) {
    return 0;
  }
  const std::vector<Host> hosts = hosts_of(members, world.hosts());
  Json json = {{"size", world.size()}, {"hosts", Json::array()}};
  Tree tree{fmt::format("{} rank{} on {} host{}", world.size(), world.size() == 1 ? "" : "s",
                        hosts.size(), hosts.size() == 1 ? "" : "s"),
            {}};
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    tree.branches.push_back(host_tree(hosts[h], h));
    json["hosts"].push_back(host_json(hosts[h]));
  }
  fmt::print("{}", as_json ? json.dump(2) + "\n" : drawn(tree));
  return 0;
}

Action prepare_topo(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "One JSON object");
  return [as_json] { return run_topo(*as_json); };
}

}  // namespace

extern const Command topo_command;
const Command topo_command = {
    "topo",
    "Draw the hosts of the job: NUMA nodes, cores, NICs, GPUs, ranks",
    R"(Alone it shows this machine; under a launcher every host of the job, and where each rank may run.

Examples:
  sprat topo
  mpirun -np 4 sprat topo                              which rank may use which cores?
  SPRAT_HOST=a,a,b,b mpirun -np 4 sprat topo           as if the ranks were on two hosts
  SPRAT_TOPOLOGY=cluster.xml sprat topo                another machine, from lstopo cluster.xml
)",
    prepare_topo,
};

}  // namespace sprat::cli
