// What this host is made of, as hwloc sees it.
#include "comm/host/topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::comm {

namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

/// Not loaded yet; will hold disallowed cores and devices too.
Handle open() {
  hwloc_topology_t topology = nullptr;
  const bool made = hwloc_topology_init(&topology) == 0;
  need(made, "hwloc cannot start: ", std::strerror(errno));
  Handle handle(topology);
  // Cores that this process may not use are kept: Core::allowed_pus tells them apart.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // These plugins of hwloc are switched off: gl and opencl start whole runtimes to say what the PCI
  // bus says too, and pci leaks memory. A machine may lack any of them; without them the kernel is
  // asked, in the same way everywhere.
  for (const char* plugin : {"gl", "opencl", "pci"}) {
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  }
  return handle;
}

/// This host as XML, with what this process is bound to as the allowed cores. Detection goes
/// through XML so that a file (SPRAT_TOPOLOGY) takes the same path.
std::string read_xml() {
  const Handle handle = open();
  const bool loaded = hwloc_topology_load(handle.get()) == 0;
  need(loaded, "hwloc cannot read this host: ", std::strerror(errno));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(handle.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_bitmap_and(bound.get(), bound.get(), hwloc_topology_get_allowed_cpuset(handle.get()));
    hwloc_topology_allow(handle.get(), bound.get(), nullptr, HWLOC_ALLOW_FLAG_CUSTOM);
  }
  char* buffer = nullptr;
  int bytes = 0;
  const bool described = hwloc_topology_export_xmlbuffer(handle.get(), &buffer, &bytes, 0) == 0;
  need(described, "hwloc cannot describe this host: ", std::strerror(errno));
  // The length counts the zero at the end.
  std::string xml(buffer, static_cast<std::size_t>(std::max(bytes - 1, 0)));
  hwloc_free_xmlbuffer(handle.get(), buffer);
  return xml;
}

std::vector<int> indices(hwloc_const_bitmap_t set) {
  std::vector<int> out;
  for (int at = hwloc_bitmap_first(set); at != -1; at = hwloc_bitmap_next(set, at)) {
    out.push_back(at);
  }
  return out;
}

/// The position of the package around `object`; 0 if hwloc knows of none.
int package_of(hwloc_topology_t topology, hwloc_obj_t object) {
  const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
  return package == nullptr ? 0 : static_cast<int>(package->logical_index);
}

/// The position of the one NUMA node nearest to `object`; -1 if there are several.
int numa_of(hwloc_topology_t topology, hwloc_obj_t object) {
  if (object->nodeset == nullptr || hwloc_bitmap_weight(object->nodeset) != 1) {
    return -1;
  }
  const auto index = static_cast<unsigned>(hwloc_bitmap_first(object->nodeset));
  const hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(topology, index);
  return node == nullptr ? -1 : static_cast<int>(node->logical_index);
}

std::string info_of(hwloc_obj_t object, const char* key) {
  const char* value = hwloc_obj_get_info_by_name(object, key);
  return value == nullptr ? "" : value;
}

void read_cores(hwloc_topology_t topology, Topology& out) {
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, at)) != nullptr;) {
    out.packages.push_back({info_of(at, "CPUModel")});
  }
  if (out.packages.empty()) {
    out.packages.emplace_back();
  }
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, at)) != nullptr;) {
    out.numa_nodes.push_back({package_of(topology, at), at->attr->numanode.local_memory});
  }
  // Some virtual machines show hardware threads but no cores.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t kind = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const Bitmap allowed(hwloc_bitmap_alloc());
  for (hwloc_obj_t at = nullptr;
       (at = hwloc_get_next_obj_by_type(topology, kind, at)) != nullptr;) {
    hwloc_bitmap_and(allowed.get(), at->cpuset, hwloc_topology_get_allowed_cpuset(topology));
    out.cores.push_back({package_of(topology, at), std::max(0, numa_of(topology, at)),
                         indices(at->cpuset), indices(allowed.get())});
  }
}

void read_caches(hwloc_topology_t topology, Topology& out) {
  for (const hwloc_obj_type_t kind :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    const int count = hwloc_get_nbobjs_by_type(topology, kind);
    if (count > 0) {
      const auto& cache = hwloc_get_obj_by_type(topology, kind, 0)->attr->cache;
      out.caches.push_back({static_cast<int>(cache.depth), count, cache.size});
    }
  }
}

/// Adds the place of a PCI device.
void locate(hwloc_topology_t topology, hwloc_obj_t pci, Device& device) {
  const auto& place = pci->attr->pcidev;
  device.pci =
      fmt::format("{:04x}:{:02x}:{:02x}.{:x}", place.domain, place.bus, place.dev, place.func);
  device.model = info_of(pci, "PCIDevice");
  if (device.model.empty()) {
    device.model = fmt::format("{:04x}:{:04x}", place.vendor_id, place.device_id);
  }
  for (hwloc_obj_t at = pci->parent; at != nullptr && at->type == HWLOC_OBJ_BRIDGE;
       at = at->parent) {
    const auto& below = at->attr->bridge.downstream.pci;
    device.buses.insert(device.buses.begin(),
                        fmt::format("{:04x}:{:02x}", below.domain, below.secondary_bus));
  }
  device.numa = numa_of(topology, hwloc_get_non_io_ancestor_obj(topology, pci));
}

/// Whether a PCI device computes, whatever drivers are loaded: display controllers and processing
/// accelerators of NVIDIA, AMD and Amazon.
bool is_gpu(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  constexpr unsigned nvidia = 0x10de, amd = 0x1002, amazon = 0x1d0f;
  constexpr unsigned display = 0x03, accelerator = 0x12;
  const unsigned kind = pci.class_id >> 8;
  const bool maker = pci.vendor_id == nvidia || pci.vendor_id == amd || pci.vendor_id == amazon;
  return maker && (kind == accelerator || (kind == display && pci.vendor_id != amazon));
}

void read_devices(hwloc_topology_t topology, Topology& out) {
  const auto known_gpu = [&out](const Device& device) {
    return std::any_of(out.devices.begin(), out.devices.end(), [&device](const Device& one) {
      return one.kind == Device::Kind::gpu && !one.pci.empty() && one.pci == device.pci;
    });
  };
  for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_osdev(topology, at)) != nullptr;) {
    Device device;
    const hwloc_obj_osdev_type_t kind = at->attr->osdev.type;
    if (kind == HWLOC_OBJ_OSDEV_NETWORK) {
      device.kind = Device::Kind::nic;
    } else if (kind == HWLOC_OBJ_OSDEV_OPENFABRICS) {
      device.kind = Device::Kind::fabric;
    } else if (kind == HWLOC_OBJ_OSDEV_GPU || kind == HWLOC_OBJ_OSDEV_COPROC) {
      device.kind = Device::Kind::gpu;
    } else {
      continue;
    }
    device.name = at->name == nullptr ? "" : at->name;
    if (at->parent->type == HWLOC_OBJ_PCI_DEVICE) {
      // A display without a computing engine (a virtual machine's screen) is no GPU to us.
      if (device.kind == Device::Kind::gpu && !is_gpu(at->parent->attr->pcidev)) {
        continue;
      }
      locate(topology, at->parent, device);
    } else {
      device.numa = numa_of(topology, hwloc_get_non_io_ancestor_obj(topology, at));
    }
    // Each driver and library names a GPU for itself (cuda0, nvml0, card1): the first one is kept.
    if (device.kind != Device::Kind::gpu || !known_gpu(device)) {
      out.devices.push_back(std::move(device));
    }
  }
  // A GPU whose driver is not loaded has no name, but is on the PCI bus.
  for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_pcidev(topology, at)) != nullptr;) {
    Device device;
    device.kind = Device::Kind::gpu;
    locate(topology, at, device);
    device.name = device.pci;
    if (is_gpu(at->attr->pcidev) && !known_gpu(device)) {
      out.devices.push_back(std::move(device));
    }
  }
}

}  // namespace

const char* name(Device::Kind kind) noexcept {
  switch (kind) {
    case Device::Kind::nic:
      return "nic";
    case Device::Kind::fabric:
      return "fabric";
    case Device::Kind::gpu:
      return "gpu";
  }
  return "unknown device";
}

int Topology::allowed_cores() const {
  return static_cast<int>(std::count_if(
      cores.begin(), cores.end(), [](const Core& core) { return !core.allowed_pus.empty(); }));
}

int Topology::allowed_pus() const {
  std::size_t count = 0;
  for (const Core& core : cores) {
    count += core.allowed_pus.size();
  }
  return static_cast<int>(count);
}

std::size_t Topology::memory_bytes() const {
  std::size_t bytes = 0;
  for (const NumaNode& node : numa_nodes) {
    bytes += node.memory_bytes;
  }
  return bytes;
}

std::size_t Topology::cache_bytes(int level) const {
  const auto found = std::find_if(caches.begin(), caches.end(),
                                  [level](const Cache& cache) { return cache.level == level; });
  return found == caches.end() ? 0 : found->bytes;
}

Topology parse_topology(std::string_view xml) {
  const Handle handle = open();
  const std::string terminated(xml);
  const auto bytes = static_cast<int>(terminated.size() + 1);
  // hwloc's own complaint about a bad text would go to standard error; ours says what to do.
  require(hwloc_topology_set_xmlbuffer(handle.get(), terminated.c_str(), bytes) == 0 &&
              hwloc_topology_load(handle.get()) == 0,
          "the topology is not hwloc XML; make it with: lstopo file.xml");
  Topology out;
  read_cores(handle.get(), out);
  read_caches(handle.get(), out);
  read_devices(handle.get(), out);
  return out;
}

Topology read_topology(const Config& config) {
  if (config.topology.empty()) {
    return parse_topology(read_xml());
  }
  return parse_topology(read_setting_file("SPRAT_TOPOLOGY", config.topology));
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Core, package, numa, pus, allowed_pus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, package, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Package, model)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cache, level, count, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Device, kind, name, model, pci, numa, buses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Topology, packages, numa_nodes, cores, caches, devices)

Blob to_blob(const Topology& topology) {
  const auto bytes = nlohmann::json::to_cbor(nlohmann::json(topology));
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

Topology topology_from_blob(std::span<const std::byte> blob) {
  try {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(blob.data());
    return nlohmann::json::from_cbor(bytes, bytes + blob.size()).get<Topology>();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::invalid_argument,
                text("a peer's topology is garbled: ", reason_of(error)));
  }
}

}  // namespace sprat::comm
