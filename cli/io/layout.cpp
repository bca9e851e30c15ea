#include "cli/io/layout.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/base/owned_descriptor.hpp"
#include "io/lustre/detection.hpp"
#include "io/lustre/hsm_calls.hpp"
#include "io/lustre/layout.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

/// An open file that is closed again.
class OpenFile {
 public:
  OpenFile(const io::FsProbe& probe, const std::string& path) {
    std::error_code none;
    // Whoever opens a FIFO waits for its writer.
    const bool file = std::filesystem::is_regular_file(path, none);
    const bool folder = std::filesystem::is_directory(path, none);
    const io::ProbeOpened opened = file || folder || !std::filesystem::exists(path, none)
                                       ? probe.open(path)
                                       : io::ProbeOpened{.descriptor = -1, .error = EINVAL};
    if (opened.descriptor < 0) {
      throw Error(ErrorCode::unavailable,
                  fmt::format("cannot open \"{}\": {}", path, std::strerror(opened.error)));
    }
    descriptor_ = comm::OwnedDescriptor(opened.descriptor);
  }
  int descriptor() const { return descriptor_.number(); }

 private:
  comm::OwnedDescriptor descriptor_;
};

struct ToldFile {
  std::string path;
  io::FileSize size;
  io::StorageFound storage;
  io::LustreFile file;
  std::optional<io::HsmState> hsm;
};

ToldFile tell_file(const io::FsProbe& probe, const std::string& path) {
  // Everything is asked of one descriptor, so that all answers are of one file.
  const OpenFile open(probe, path);
  struct stat status {};
  fstat(open.descriptor(), &status);
  ToldFile told{.path = path,
                .size = {.bytes = static_cast<std::uint64_t>(status.st_size),
                         .blocks = static_cast<std::uint64_t>(status.st_blocks)},
                .storage = io::detect_storage(probe.status(open.descriptor()), probe.mountinfo(),
                                              std::filesystem::canonical(path).string(), {}),
                .file = {},
                .hsm = io::hsm_state_of(probe, open.descriptor())};
  told.file = io::examine_lustre_file(probe, open.descriptor(), told.size, io::unknown_target);
  return told;
}

std::string range_text(const io::StripedRange& range) {
  std::string targets;
  for (const io::Target target : range.targets) {
    targets += fmt::format("{}{}", targets.empty() ? "" : ",", target);
  }
  return fmt::format("[{}, {}) {} B stripes on {}", range.begin, range.end, range.stripe_bytes,
                     targets);
}

}  // namespace

std::string layouts_text(const io::FsProbe& probe, const std::vector<std::string>& paths) {
  std::string words;
  // The sentence on the file system stands with each file: they may lie on different ones.
  for (const std::string& path : paths) {
    const ToldFile told = tell_file(probe, path);
    words += fmt::format("{}: {} B; {}\n", path, told.size.bytes, told.storage.sentence);
    for (const io::StripedRange& range : told.file.layout) {
      words += fmt::format("  {}\n", range_text(range));
    }
    words += told.file.unknown_because.empty()
                 ? ""
                 : fmt::format("  layout unknown: {}\n", told.file.unknown_because);
    words += told.hsm ? fmt::format("  {}\n", io::hsm_text(*told.hsm)) : "";
  }
  return words;
}

std::string layouts_json(const io::FsProbe& probe, const std::vector<std::string>& paths) {
  using LayoutJson = nlohmann::ordered_json;
  std::string lines;
  for (const std::string& path : paths) {
    const ToldFile told = tell_file(probe, path);
    LayoutJson json = {{"path", path},
                       {"bytes", told.size.bytes},
                       {"lustre", told.storage.lustre},
                       {"released", told.file.released},
                       {"unknown_because", told.file.unknown_because},
                       {"ranges", LayoutJson::array()}};
    for (const io::StripedRange& range : told.file.layout) {
      json["ranges"].push_back({{"begin", range.begin},
                                {"end", range.end},
                                {"stripe_bytes", range.stripe_bytes},
                                {"targets", range.targets}});
    }
    json["hsm"] = told.hsm ? LayoutJson(io::hsm_text(*told.hsm)) : LayoutJson();
    lines += json.dump(-1, ' ', false, LayoutJson::error_handler_t::replace) + "\n";
  }
  return lines;
}

Action prepare_io_layout(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> paths;
    bool json = false;
  };
  auto r = std::make_shared<Arguments>();
  app.add_option("FILE", r->paths, "Files to look at")->required();
  app.add_flag("--json", r->json, "One JSON object a line for each");
  return [r] {
    const auto probe = io::system_probe(Config::from_environment().fake_lustre);
    fmt::print("{}", r->json ? layouts_json(*probe, r->paths) : layouts_text(*probe, r->paths));
    return 0;
  };
}

}  // namespace sprat::cli
