// The table of machines, and how XML and words become another.
//
// Sources. Counts and bandwidths: the instances' pages at AWS (Trainium: the Neuron documentation)
// and the makers' data sheets. They are peak rates; programs get some 80 % of them. wire_us: what
// aws-ofi-nccl assumes of a GPU's messages, in platform-aws.cpp for p3dn, p4d and g5, in its tuner
// (net_lat) for p5 and p5en; MPI's 15.5 us for c5n. signal_us: NCCL's ring over NVLink, protocol
// Simple. Assumed: a million messages a second from a NIC, p6's wire like p5en's, trn's like p5's.
#include "collectives/simulate/machine.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

constexpr double message_us = 1;

/// Where a rank computes. It adds at its memory's rate and copies, which reads and writes, at half.
struct Processor {
  std::string_view name;    ///< Part of what the PCI database calls it.
  std::string_view pci_id;  ///< Vendor and device.
  double memory_GBps;
  double pull_GBps, link_GBps;  ///< Reading others, and being read by all of them.
  double signal_us;
};

constexpr Processor v100{"V100 SXM2 32GB", "10de:1db5", 900, 150, 150, 3.4};
constexpr Processor a100_40{"A100 SXM4 40GB", "10de:20b0", 1555, 300, 300, 3.4};
constexpr Processor a100_80{"A100 SXM4 80GB", "10de:20b2", 2039, 300, 300, 3.4};
constexpr Processor h100{"H100", "10de:2330", 3350, 450, 450, 3.4};
constexpr Processor h200{"H200", "10de:2335", 4800, 450, 450, 3.4};
constexpr Processor b200{"B200", "10de:2901", 8000, 900, 900, 3.4};
constexpr Processor a10g{"A10G", "10de:2237", 600, 31.5, 31.5, 3.4};  // PCIe 4 x16
constexpr Processor trainium{"Trainium", "1d0f:7164", 880, 206, 206, 3.4};
constexpr Processor trainium_n{"Trainium", "1d0f:7164", 880, 412, 412, 3.4};
// One of 36 cores at 12 channels of DDR4-2666, 256 GB/s; a pull is a copy.
constexpr Processor core{"", "", 7.1, 3.55, 128, 0.2};

struct Row {
  std::string_view name, summary;
  const Processor& processor;
  int ranks, rails;
  double rail_GBps, wire_us;
};

constexpr std::array rows = {
    Row{"p3dn", "8 V100-32, NVLink 2 (a mesh), 1 x 100 Gb/s", v100, 8, 1, 12.5, 150},
    Row{"p4d", "8 A100-40, NVSwitch, 4 x 100 Gb/s", a100_40, 8, 4, 12.5, 75},
    Row{"p4de", "8 A100-80, NVSwitch, 4 x 100 Gb/s", a100_80, 8, 4, 12.5, 75},
    Row{"p5", "8 H100, NVSwitch, 32 x 100 Gb/s", h100, 8, 32, 12.5, 20},
    Row{"p5e", "8 H200, NVSwitch, 32 x 100 Gb/s", h200, 8, 32, 12.5, 20},
    Row{"p5en", "8 H200, NVSwitch, 16 x 200 Gb/s", h200, 8, 16, 25, 18},
    Row{"p6-b200", "8 B200, NVSwitch, 8 x 400 Gb/s", b200, 8, 8, 50, 18},
    Row{"g5", "8 A10G, PCIe 4, 1 x 100 Gb/s", a10g, 8, 1, 12.5, 75},
    Row{"trn1", "16 Trainium, NeuronLink 2, 8 x 100 Gb/s", trainium, 16, 8, 12.5, 20},
    Row{"trn1n", "16 Trainium, NeuronLink 2, 16 x 100 Gb/s", trainium_n, 16, 16, 12.5, 20},
    Row{"c5n", "36 cores, host memory, 1 x 100 Gb/s", core, 36, 1, 12.5, 15.5},
};

constexpr Machine machine_of(const Row& row) {
  return {.name = row.name,
          .summary = row.summary,
          .ranks = row.ranks,
          .rails = row.rails,
          .rail_GBps = row.rail_GBps,
          .wire_us = row.wire_us,
          .message_us = message_us,
          .pull_GBps = row.processor.pull_GBps,
          .link_GBps = row.processor.link_GBps,
          .copy_GBps = row.processor.memory_GBps / 2,
          .add_GBps = row.processor.memory_GBps,
          .signal_us = row.processor.signal_us};
}

constexpr auto machines = [] {
  std::array<Machine, rows.size()> all;
  std::ranges::transform(rows, all.begin(), [](const Row& row) { return machine_of(row); });
  return all;
}();

bool is_of(const comm::Device& gpu, const Processor& processor) {
  return !processor.name.empty() &&
         (gpu.model == processor.pci_id || gpu.model.find(processor.name) != std::string::npos);
}

int count(const comm::Topology& topology, comm::Device::Kind kind) {
  return static_cast<int>(std::ranges::count(topology.devices, kind, &comm::Device::kind));
}

/// Doors past the kernel where there are any, else network cards on a bus.
int rails_of(const comm::Topology& topology) {
  if (const int fabrics = count(topology, comm::Device::Kind::fabric); fabrics > 0) {
    return fabrics;
  }
  const auto cards = std::ranges::count_if(topology.devices, [](const comm::Device& device) {
    return device.kind == comm::Device::Kind::nic && !device.pci.empty();
  });
  return std::max(1, static_cast<int>(cards));
}

struct Field {
  std::string_view name;
  double Machine::*value;
};
constexpr std::array fields = {
    Field{"rail_GBps", &Machine::rail_GBps},   Field{"wire_us", &Machine::wire_us},
    Field{"message_us", &Machine::message_us}, Field{"pull_GBps", &Machine::pull_GBps},
    Field{"link_GBps", &Machine::link_GBps},   Field{"copy_GBps", &Machine::copy_GBps},
    Field{"add_GBps", &Machine::add_GBps},     Field{"signal_us", &Machine::signal_us},
};

template <class Number>
Number machine_number(std::string_view word, std::string_view digits, Number least) {
  Number value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  constexpr double most = 1e9;  // "inf" is read as a number, too
  require(error == std::errc() && end == digits.data() + digits.size() && value >= least &&
              static_cast<double>(value) <= most,
          "machine: \"", word, "\" does not end in a number from ", least, " to ", most);
  return value;
}

void change_field(Machine& machine, std::string_view word) {
  const std::size_t sign = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, sign);
  const std::string_view digits = word.substr(std::min(sign + 1, word.size()));
  if (name == "ranks" || name == "rails") {
    (name == "ranks" ? machine.ranks : machine.rails) = machine_number(word, digits, 1);
    return;
  }
  const auto field = std::ranges::find(fields, name, &Field::name);
  std::string names = "ranks rails";
  for (const Field& one : fields) {
    names.append(" ").append(one.name);
  }
  require(field != fields.end(), "machine: \"", word, "\" sets none of: ", names);
  const double least = name.ends_with("GBps") ? 1e-6 : 0;
  machine.*field->value = machine_number(word, digits, least);
}

}  // namespace

std::span<const Machine> all_machines() { return machines; }

Machine machine_named(std::string_view name) {
  const auto found = std::ranges::find(machines, name, &Machine::name);
  std::string names;
  for (const Machine& machine : machines) {
    names.append(" ").append(machine.name);
  }
  require(found != machines.end(), "no machine \"", name, "\"; there are:", names,
          ", and hwloc files that end in .xml");
  return *found;
}

Machine machine_of(const comm::Topology& topology) {
  const int gpus = count(topology, comm::Device::Kind::gpu), rails = rails_of(topology);
  const auto has_gpus_of = [&topology](const Row& row) {
    return std::ranges::any_of(topology.devices, [&row](const comm::Device& device) {
      return device.kind == comm::Device::Kind::gpu && is_of(device, row.processor);
    });
  };
  auto alike = std::ranges::find_if(rows, [&](const Row& row) {
    return row.ranks == gpus && row.rails == rails && has_gpus_of(row);
  });
  // Half of a p4d is nearer to p4d than to cores.
  alike = alike != rows.end() ? alike : std::ranges::find_if(rows, has_gpus_of);
  Machine machine = alike != rows.end() ? machine_of(*alike) : machine_named("c5n");
  machine.ranks = gpus > 0 ? gpus : std::max(1, static_cast<int>(topology.cores.size()));
  machine.rails = rails;
  return machine;
}

void change(Machine& machine, std::string_view changes) {
  for (std::size_t begin = 0; begin <= changes.size();) {
    const std::size_t end = std::min(changes.find(',', begin), changes.size());
    change_field(machine, changes.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace sprat::collectives
