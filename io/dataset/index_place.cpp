#include "io/dataset/index_place.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "io/dataset/file_list.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;

std::uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

/// As the XDG base directory specification says; empty where neither variable is set.
std::string cache_folder() {
  const char* const cache = environment("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') {  // others are to be ignored
    return std::string(cache) + "/sprat";
  }
  const char* const home = environment("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/sprat" : std::string();
}

}  // namespace

IndexPlaces index_places(const DatasetOptions& options) {
  require(!options.paths.empty(), "a dataset needs a file, a folder or a pattern");
  IndexPlaces places{.folder = folder_of(options.paths.front()), .key = 0, .paths = {}};
  // Paths relative to the folder: a dataset that is mounted elsewhere has the index that lies in
  // it. Whatever decides on records is in the key.
  std::string what;
  append_text(what, options.format);
  append_text(what, options.format_options.token_type);
  append_text(what, options.format_options.separator);
  for (const std::string& path : options.paths) {
    append_text(what, fs::path(plain_path(path)).lexically_relative(places.folder).native());
  }
  places.key = hash_of(what);
  if (!options.index_path.empty()) {
    places.paths = {plain_path(options.index_path)};
    return places;
  }
  places.paths = {fmt::format("{}/.sprat-index-{:016x}", places.folder == "/" ? "" : places.folder,
                              places.key)};
  if (const std::string cache = cache_folder(); !cache.empty()) {
    // In one folder for all datasets, so the place itself tells them apart.
    append_text(what, places.folder);
    places.paths.push_back(fmt::format("{}/index-{:016x}", cache, hash_of(what)));
  }
  return places;
}

}  // namespace sprat::io
