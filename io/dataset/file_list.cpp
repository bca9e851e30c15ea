#include "io/dataset/file_list.hpp"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;

bool is_pattern(const std::string& path) { return path.find_first_of("*?") != path.npos; }

bool is_there(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

void list_folder(const std::string& folder, FoundFiles& found) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    // The folder itself tells what an entry is, so a hundred thousand files are not asked one by
    // one. Pipes and devices stay in the list: they are refused by name when they are opened.
    std::error_code unknown;
    const std::string& path = entries->path().native();
    if (!name_in(path).starts_with('.') && !entries->is_directory(unknown)) {
      found.in_folders.push_back(path);
    }
  }
  need(!error, "cannot list ", folder, ": ", error.message());
  found.folders.push_back(folder);
}

void list_pattern(const std::string& pattern, FoundFiles& found) {
  glob_t matches{};
  // GLOB_MARK ends folders in a slash.
  const int failed =
      glob(pattern.c_str(), GLOB_NOSORT | GLOB_NOESCAPE | GLOB_MARK, nullptr, &matches);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&matches, globfree);
  need(failed == 0 || failed == GLOB_NOMATCH, "cannot look for ", pattern, ": ",
       failed == GLOB_NOSPACE ? "out of memory" : "a folder cannot be read");
  const std::size_t before = found.named.size();
  for (std::size_t at = 0; at < matches.gl_pathc; ++at) {
    const std::string path = matches.gl_pathv[at];
    if (!path.ends_with('/')) {
      found.named.push_back(path);
    }
  }
  need(found.named.size() > before, "no file is named like ", pattern);
}

/// "12 .tar, 1 .txt": for people who must choose.
std::string counted(const std::map<std::string, std::size_t>& kinds) {
  std::string text;
  for (const auto& [name, count] : kinds) {
    text += sprat::text(text.empty() ? "" : ", ", count, " of ", name);
  }
  return text;
}

const Format* format_by_ending(const std::string& path) {
  const auto all = formats();
  const auto found = std::ranges::find_if(
      all, [&](const Format* format) { return has_ending_of(*format, name_in(path)); });
  return found == all.end() ? nullptr : *found;
}

/// "a/.." is one up from where "a" leads to, which of a link is not where the link lies. What
/// stands behind the last of them keeps its links, since files are known by the names that people
/// gave.
fs::path without_ups(const fs::path& path) {
  fs::path begin, end;
  for (const fs::path& part : path) {
    end /= part;
    if (part == "..") {
      begin /= end;
      end.clear();
    }
  }
  std::error_code error;
  const fs::path led_to = begin.empty() ? begin : fs::canonical(begin, error);
  return error ? path : led_to / end;  // what is not there, or a pattern, has no links
}

std::string folders_text(const FoundFiles& found) {
  std::string text;
  for (const std::string& folder : found.folders) {
    text += (text.empty() ? "" : ", ") + folder;
  }
  return text;
}

}  // namespace

std::string plain_path(const std::string& path) {
  std::string plain = without_ups(fs::absolute(path)).lexically_normal().native();
  while (plain.size() > 1 && plain.ends_with('/')) {
    plain.pop_back();
  }
  return plain;
}

std::string folder_of(const std::string& path) {
  const std::string plain = plain_path(path);
  struct stat status {};
  if (stat(plain.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return plain;
  }
  const std::string begin =
      plain.substr(0, is_there(plain) ? plain.npos : plain.find_first_of("*?"));
  return begin.substr(0, std::max<std::size_t>(begin.rfind('/'), 1));
}

FoundFiles find_files(const std::vector<std::string>& paths) {
  require(!paths.empty(), "a dataset needs a file, a folder or a pattern");
  FoundFiles found;
  for (const std::string& path : paths) {
    require(!path.empty(), "a path of a dataset is empty");
    const std::string plain = plain_path(path);
    struct stat status {};
    if (stat(plain.c_str(), &status) != 0) {
      const int error = errno;
      // A name may have a * of its own: what is there is no pattern.
      need(is_pattern(plain), "cannot find ", path, ": ", std::strerror(error));
      list_pattern(plain, found);
    } else if (S_ISDIR(status.st_mode)) {
      list_folder(plain, found);
    } else {
      found.named.push_back(plain);
    }
  }
  return found;
}

bool has_files_of(const Format& format, const FoundFiles& found) {
  return std::ranges::any_of(found.in_folders, [&](const std::string& path) {
    return has_ending_of(format, name_in(path));
  });
}

std::vector<std::string> files_of(const Format& format, const FoundFiles& found) {
  std::vector<std::string> files = found.named;
  std::ranges::copy_if(found.in_folders, std::back_inserter(files), [&](const std::string& path) {
    return has_ending_of(format, name_in(path));
  });
  std::string endings;
  for (const std::string_view ending : format.endings) {
    endings += (endings.empty() ? "" : " or ") + std::string(ending);
  }
  need(
      !files.empty(), "no file in ", folders_text(found), " ends in ", endings,
      ", as those of the format ", format.name,
      " do: name files themselves, or a pattern, as DATA/*/*; folders in folders are not searched");
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::string typical_file(const FoundFiles& found) {
  if (!found.named.empty()) {
    return std::ranges::min(found.named);
  }
  std::map<std::string, std::size_t> kinds;
  std::string first;
  for (const std::string& path : found.in_folders) {
    if (const Format* format = format_by_ending(path)) {
      ++kinds[std::string(format->name)];
      first = first.empty() ? path : std::min(first, path);
    }
  }
  need(!kinds.empty(), "no file in ", folders_text(found), " has an ending that a format knows: ",
       "name a format (--format), or files; folders in folders are not searched (DATA/*/* is a ",
       "pattern for that)");
  need(kinds.size() == 1, folders_text(found),
       " holds files of several formats, by their endings: ", counted(kinds),
       "; name one (--format)");
  return first;
}

}  // namespace sprat::io
