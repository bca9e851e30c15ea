// Holds the table of docs/architecture.md, who may include whom, against every #include.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

/// A folder with all under it, and what it may include of ours beside itself: folders, or files.
/// "sprat/" is public.
struct Layer {
  std::string folder;
  std::vector<std::string> may_include;
};

// A file belongs to the first layer whose folder it lies in. Within a module the folders stand in
// their order: each may include those above it in this table, as its row says.
const std::vector<Layer> layers = {
    {"include/sprat/", {"sprat/"}},
    // How bytes move between processes.
    {"comm/base/", {"sprat/"}},
    {"comm/encryption/", {"sprat/", "comm/base/"}},
    {"comm/memory/", {"sprat/", "comm/base/"}},
    {"comm/host/", {"sprat/", "comm/base/"}},
    {"comm/status/", {"sprat/", "comm/base/", "comm/memory/"}},
    {"comm/timeline/", {"sprat/", "comm/base/"}},
    {"comm/transports/", {"sprat/", "comm/base/", "comm/encryption/", "comm/host/"}},
    {"comm/coordinator/",
     {"sprat/", "comm/base/", "comm/encryption/", "comm/memory/", "comm/host/"}},
    {"comm/endpoint/",
     {"sprat/", "comm/base/", "comm/encryption/", "comm/host/", "comm/transports/"}},
    {"comm/bootstrap/",
     {"sprat/", "comm/base/", "comm/encryption/", "comm/host/", "comm/coordinator/"}},
    {"comm/survival/",
     {"sprat/", "comm/base/", "comm/encryption/", "comm/coordinator/", "comm/bootstrap/"}},
    {"comm/context/",
     {"sprat/", "comm/base/", "comm/memory/", "comm/host/", "comm/status/", "comm/timeline/",
      "comm/transports/", "comm/coordinator/", "comm/bootstrap/", "comm/survival/"}},
    // How bytes move between memory and storage.
    {"io/formats/", {"sprat/", "comm/base/"}},
    {"io/dataset/",
     {"sprat/", "comm/base/", "io/formats/", "io/durable.hpp", "io/checked_file.hpp"}},
    {"io/order/", {"sprat/", "comm/base/", "io/dataset/"}},
    {"io/reading/", {"sprat/", "comm/base/", "io/dataset/"}},
    {"io/readers/", {"sprat/", "comm/base/", "io/dataset/", "io/formats/", "io/slot_space.hpp"}},
    {"io/capacity/", {"sprat/", "comm/base/"}},
    {"io/cores/", {"sprat/", "comm/base/"}},
    {"io/caches/",
     {"sprat/", "comm/base/", "comm/encryption/keyed_hash.hpp", "io/durable.hpp", "io/formats/",
      "io/dataset/"}},
    {"io/lustre/",
     {"sprat/", "comm/base/", "io/dataset/extent.hpp", "io/reading/request.hpp", "io/capacity/"}},
    {"io/report/", {"sprat/", "comm/base/", "io/reading/request.hpp", "io/capacity/"}},
    {"io/loader/",
     {"sprat/", "comm/base/", "io/formats/", "io/dataset/", "io/order/", "io/reading/",
      "io/readers/", "io/capacity/", "io/lustre/", "io/report/", "io/cores/", "io/caches/"}},
    {"io/bench/",
     {"sprat/", "comm/base/", "io/dataset/", "io/readers/", "io/report/", "io/loader/"}},
    {"io/", {"sprat/", "comm/base/"}},
    // What ranks do together: kernels < plan < patterns < algorithms < engine.
    {"collectives/kernels/", {"sprat/", "comm/base/"}},
    {"collectives/block_formats/", {"sprat/", "comm/base/", "collectives/kernels/"}},
    {"collectives/plan/", {"sprat/", "comm/base/", "collectives/kernels/"}},
    {"collectives/patterns/", {"sprat/", "comm/base/", "collectives/plan/"}},
    {"collectives/algorithms/",
     {"sprat/", "comm/base/", "collectives/plan/", "collectives/patterns/"}},
    {"collectives/verify/", {"sprat/", "comm/base/", "collectives/plan/"}},
    {"collectives/simulate/", {"sprat/", "comm/base/", "comm/host/", "collectives/plan/"}},
    {"collectives/record/", {"sprat/", "comm/", "collectives/plan/"}},
    {"collectives/digests/", {"sprat/", "comm/", "collectives/plan/"}},
    {"collectives/engine/",
     {"sprat/", "comm/", "collectives/kernels/", "collectives/plan/", "collectives/record/",
      "collectives/digests/"}},
    {"collectives/fusion/",
     {"sprat/", "comm/", "collectives/call.hpp", "collectives/agreement.hpp",
      "collectives/communicator_impl.hpp"}},
    {"collectives/",
     {"sprat/", "comm/", "collectives/kernels/", "collectives/plan/", "collectives/record/",
      "collectives/digests/", "collectives/engine/"}},
    // The same on the memory of devices.
    {"device/kinds/", {"sprat/", "comm/base/", "device/cuda_driver.hpp"}},
    {"device/", {"sprat/", "comm/base/"}},
    // How a model is trained.
    {"memory/", {"sprat/", "comm/base/"}},
    {"gemm/", {"sprat/", "comm/base/"}},
    {"layers/", {"sprat/", "comm/base/"}},
    {"fsdp/plan/", {"sprat/", "comm/base/", "collectives/kernels/", "memory/"}},
    {"fsdp/", {"sprat/", "comm/base/", "io/", "collectives/kernels/", "memory/", "fsdp/plan/"}},
    {"mp/schedules/", {"sprat/", "comm/base/", "mp/schedule.hpp", "mp/schedule_builder.hpp"}},
    {"mp/passes/",
     {"sprat/", "comm/base/", "mp/schedule.hpp", "mp/actions.hpp", "mp/text.hpp", "mp/passes/"}},
    {"mp/context/", {"sprat/", "comm/base/", "mp/failure.hpp"}},
    {"mp/partition/", {"sprat/", "comm/base/"}},
    // Simulated times take the same form as measured ones.
    {"mp/", {"sprat/", "comm/base/", "comm/timeline/", "io/", "memory/", "mp/"}},
    {"checkpoint/plan/",
     {"sprat/", "comm/base/", "io/durable.hpp", "io/formats/", "fsdp/model_state.hpp",
      "fsdp/plan/"}},
    {"checkpoint/", {"sprat/", "comm/base/", "io/", "collectives/", "fsdp/", "checkpoint/plan/"}},
    // Doors into the library.
    // NCCL brings its processes together itself, so its plugin has the connections below a job.
    {"plugins/nccl_net/", {"sprat/", "comm/base/", "comm/transports/", "comm/endpoint/"}},
    // Its variables are read where all are. NCCL's own library, where operations go over to it,
    // wants CUDA's words: a device's place on the bus, and the calling thread's device.
    {"plugins/nccl_abi/",
     {"sprat/", "comm/base/config.hpp", "comm/base/hash.hpp", "comm/base/log.hpp",
      "comm/base/owned_descriptor.hpp", "comm/base/thread.hpp", "device/cuda_driver.hpp",
      "plugins/nccl_abi/"}},
    {"plugins/", {"sprat/"}},
    {"examples/", {"sprat/"}},
    // And the headers of layer 0 that need no library.
    {"train/",
     {"sprat/", "comm/base/hash.hpp", "comm/base/strict_json.hpp", "comm/base/aligned.hpp",
      "comm/base/spelling.hpp", "comm/base/vector.hpp", "comm/base/json_section.hpp"}},
    // What a run would take, by the planners that would run it.
    {"planning/",
     {"sprat/", "comm/base/", "collectives/plan/", "collectives/simulate/", "memory/", "fsdp/plan/",
      "mp/"}},
    // Beside the public API: the functions by which layers describe themselves.
    {"cli/",
     {"sprat/",
      "train/",
      "planning/",
      "comm/base/",
      "comm/timeline/",
      "comm/host/topology.hpp",
      "comm/host/interfaces.hpp",
      "comm/transports/transport_kind.hpp",
      "comm/transports/libfabric/provider.hpp",
      "collectives/plan/problem.hpp",
      "collectives/plan/planner.hpp",
      "collectives/plan/tuning.hpp",
      "collectives/kernels/reduce.hpp",
      "collectives/record/flight_record.hpp",
      "collectives/record/explain.hpp",
      "collectives/digests/",
      "collectives/simulate/cost_model.hpp",
      "collectives/simulate/simulator.hpp",
      "io/caches/",
      "io/formats/format.hpp",
      "io/bench/",
      "io/dataset/",
      "io/durable.hpp",
      "io/capacity/",
      "io/lustre/",
      "io/report/",
      "checkpoint/format.hpp",
      "mp/"}},
};

const Layer* layer_of(const std::string& path) {
  for (const Layer& layer : layers) {
    if (path.starts_with(layer.folder)) {
      return &layer;
    }
  }
  return nullptr;  // tests and bench may include anything
}

/// What `line` includes, if with this opening delimiter: a quote for ours, < for others'.
std::optional<std::string> included(const std::string& line, char open) {
  static const std::regex directive(R"(^\s*#\s*include\s+(["<])([^">]+)[">].*)");
  std::smatch match;
  if (line.find("include") == std::string::npos || !std::regex_match(line, match, directive) ||
      match[1].str()[0] != open) {
    return std::nullopt;
  }
  return match[2].str();
}

bool allowed(const Layer& layer, const std::string& header) {
  return layer_of(header) == &layer ||
         std::ranges::any_of(layer.may_include,
                             [&](const auto& prefix) { return header.starts_with(prefix); });
}

/// The module's own folders that a row names, beside itself.
std::vector<std::string> folders_of(const Layer& layer) {
  std::vector<std::string> folders;
  for (const std::string& path : layer.may_include) {
    if (path.ends_with("/") && path != "sprat/") {
      folders.push_back(path);
    }
  }
  return folders;
}

TEST(Architecture, layers) {
  int checked = 0;
  for (const SourceFile& file : source_files()) {
    const Layer* layer = layer_of(file.path);
    for (const std::string& line : file.lines) {
      const auto header = included(line, '"');
      if (layer == nullptr || !header) {
        continue;
      }
      ++checked;
      EXPECT_TRUE(allowed(*layer, *header))
          << file.path << " includes \"" << *header << "\", which " << layer->folder << " may not";
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Architecture, arrows_point_down) {
  for (std::size_t row = 0; row < layers.size(); ++row) {
    for (const std::string& folder : folders_of(layers[row])) {
      for (std::size_t other = row + 1; other < layers.size(); ++other) {
        const std::string& higher = layers[other].folder;
        // A module's own row stands behind those of its folders: it holds what users hold.
        EXPECT_FALSE(higher.starts_with(folder) && !layers[row].folder.starts_with(folder))
            << layers[row].folder << " may include " << folder << ", and " << higher
            << " stands above it";
      }
    }
  }
}

TEST(Architecture, public_headers_need_only_the_standard_library) {
  for (const SourceFile& file : source_files()) {
    if (!file.path.starts_with("include/")) {
      continue;
    }
    const bool is_c = file.path.ends_with(".h");
    for (const std::string& line : file.lines) {
      if (const auto header = included(line, '<')) {
        EXPECT_EQ(header->find('/'), std::string::npos) << file.path << ": " << line;
        EXPECT_EQ(header->ends_with(".h"), is_c) << file.path << ": " << line;
      }
    }
  }
}

TEST(Architecture, our_headers_are_included_by_their_path_from_the_root) {
  for (const SourceFile& file : source_files()) {
    for (const std::string& line : file.lines) {
      if (const auto header = included(line, '"')) {
        EXPECT_TRUE(std::filesystem::exists(source_root() / *header) ||
                    std::filesystem::exists(source_root() / "include" / *header))
            << file.path << ": " << line;
      }
    }
  }
}

TEST(Architecture, environment_is_read_in_one_file) {
  static const std::regex reads(R"(\b(getenv|secure_getenv|environ)\b)");
  for (const SourceFile& file : source_files()) {
    if (file.path.starts_with("tests/") || file.path == "comm/base/config.cpp" ||
        file.path == "cli/launcher.cpp") {  // which reads those of other processes
      continue;
    }
    for (const std::string& line : file.lines) {
      const std::string code = line.substr(0, line.find("//"));
      if (code.find("env") == std::string::npos) {
        continue;  // regular expressions are slow under sanitizers
      }
      EXPECT_FALSE(std::regex_search(code, reads)) << file.path << ": " << line;
    }
  }
}

TEST(Architecture, files_say_what_they_are_or_their_header_does) {
  for (const SourceFile& file : source_files()) {
    ASSERT_FALSE(file.lines.empty()) << file.path;
    const std::string& first = file.lines.front();
    const bool implements =
        first == "#include \"" + file.path.substr(0, file.path.rfind('.')) + ".hpp\"";
    EXPECT_TRUE(first.starts_with("// ") || first.starts_with("/* ") || implements)
        << file.path << ": " << first;
  }
}

}  // namespace
}  // namespace sprat::architecture
