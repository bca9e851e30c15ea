#include "cli/io/cache.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/tree.hpp"
#include "io/caches/block_store.hpp"

namespace sprat::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Folders may be named in no encoding, which JSON cannot say.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

IoCacheAnswer clear(const IoCacheRequest& request) {
  const std::uint64_t freed = io::clear_block_store(request.folder);
  if (request.as_json) {
    const Json json = {{"folder", request.folder}, {"freed_bytes", freed}};
    return {.text = dumped(json, -1)};
  }
  return {.text =
              fmt::format("{} is cleared: {} free again\n", request.folder, readable_bytes(freed))};
}

Json cache_json(const IoCacheRequest& request, const io::BlockStoreInfo& info) {
  return {{"folder", request.folder},
          {"capacity_bytes", info.shape.data_bytes()},
          {"blocks", info.blocks},
          {"bytes", info.bytes},
          {"spare_blocks", info.spare_blocks},
          {"spare_bytes", info.spare_bytes},
          {"unfinished_blocks", info.unfinished},
          {"files", info.files},
          {"in_use", info.in_use}};
}

std::string to_text(const IoCacheRequest& request, const io::BlockStoreInfo& info) {
  std::string text = fmt::format("{}{}\n", request.folder, info.in_use ? ", in use" : "");
  text += fmt::format("room    {} in {} blocks\n", readable_bytes(info.shape.data_bytes()),
                      info.shape.slots());
  text += fmt::format("kept    {} in {} blocks of {} files\n", readable_bytes(info.bytes),
                      info.blocks, info.files);
  if (info.spare_blocks > 0) {
    text += fmt::format("spare   {} in {} blocks, of other data than the last run's\n",
                        readable_bytes(info.spare_bytes), info.spare_blocks);
  }
  if (info.unfinished > 0) {
    text += fmt::format("being written, or left by a process that was ended: {} blocks\n",
                        info.unfinished);
  }
  return text;
}

}  // namespace

IoCacheAnswer answer_io_cache(const IoCacheRequest& request) {
  if (request.clear) {
    return clear(request);
  }
  const io::BlockStoreInfo info = io::describe_block_store(request.folder);
  std::vector<std::uint64_t> damaged;
  if (request.check) {
    damaged = io::damaged_slots(request.folder);
  }
  if (request.as_json) {
    Json json = cache_json(request, info);
    if (request.check) {
      json["damaged_blocks"] = damaged.size();
    }
    return {.text = dumped(json, 2), .damaged = !damaged.empty()};
  }
  std::string text = to_text(request, info);
  if (request.check && damaged.empty()) {
    text += "all are as they were written\n";
  } else if (request.check) {
    text += fmt::format(
        "{} blocks are not as they were written, the first in slot {}: loaders read those from the "
        "file system; look after that disk\n",
        damaged.size(), damaged.front());
  }
  return {.text = text, .damaged = !damaged.empty()};
}

Action prepare_io_cache(CLI::App& app) {
  // Shared by the parser, which fills it, and the action.
  const auto request = std::make_shared<IoCacheRequest>();
  app.add_option("FOLDER", request->folder, "The loader's cache.folder")->required();
  CLI::Option* const check =
      app.add_flag("--check", request->check, "Read all blocks and compare their checksums");
  app.add_flag("--clear", request->clear, "Remove the cache's files")->excludes(check);
  app.add_flag("--json", request->as_json, "For machines");
  return [request] {
    const IoCacheAnswer answer = answer_io_cache(*request);
    fmt::print("{}", answer.text);
    return answer.damaged ? 1 : 0;
  };
}

}  // namespace sprat::cli
