#include "io/lustre/detection.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <regex>

#include "comm/base/check.hpp"
#include "io/lustre/hsm_calls.hpp"
#include "io/lustre/layout.hpp"

namespace sprat::io {
namespace {

/// mountinfo writes blanks, tabs, newlines and backslashes as \040 and the like.
std::string without_escapes(std::string_view word) {
  std::string plain;
  for (std::size_t at = 0; at < word.size(); ++at) {
    const std::string_view digits = word.substr(at + 1, 3);
    const bool escape = word[at] == '\\' && digits.size() == 3 &&
                        std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '7'; });
    if (!escape) {
      plain += word[at];
      continue;
    }
    plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
    at += 3;
  }
  return plain;
}

std::vector<std::string_view> mountinfo_words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    if (blank > 0) {
      words.push_back(line.substr(0, blank));
    }
    line.remove_prefix(std::min(blank + 1, line.size()));
  }
  return words;
}

std::optional<Mount> mount_from(std::string_view line) {
  const std::vector<std::string_view> words = mountinfo_words(line);
  const auto dash = std::ranges::find(words, std::string_view("-"));
  constexpr std::ptrdiff_t point = 4, least = 6;
  // Between the options and the dash there may be any number of fields.
  if (dash - words.begin() < least || words.end() - dash < 3) {
    return std::nullopt;
  }
  return Mount{.point = without_escapes(words[point]),
               .type = std::string(dash[1]),
               .source = without_escapes(dash[2])};
}

bool mount_holds(std::string_view point, std::string_view path) {
  return point == "/" ||
         (path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/'));
}

std::string fsx_sentence(const StorageFound& found) {
  switch (found.fsx) {
    case StorageFound::Fsx::no:
      return "no; if it is, say so: --fsx=DEPLOYMENT:MBPS_PER_TIB:GIB";
    case StorageFound::Fsx::by_name:
      return "yes, by its name " + fsx_id_of(found.source);
    case StorageFound::Fsx::by_option:
      return "by option: " + fsx_text(*found.declared);
  }
  return "?";
}

}  // namespace

std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (auto mount = mount_from(text.substr(0, end))) {
      mounts.push_back(std::move(*mount));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return mounts;
}

const Mount* mount_of(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    // Of two mounts at one place the later one lies on top.
    if (mount_holds(mount.point, path) &&
        (best == nullptr || mount.point.size() >= best->point.size())) {
      best = &mount;
    }
  }
  return best;
}

std::string fsx_id_of(std::string_view source) {
  // Compiled once: mounts are looked at for every file that is opened.
  static const std::regex name(
      R"((?:^|[,:])(fs-[0-9a-f]{8,17})\.fsx\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?@)");
  std::match_results<std::string_view::const_iterator> match;
  return std::regex_search(source.begin(), source.end(), match, name) ? match[1].str() : "";
}

StorageFound detect_storage(const FileSystemStatus& status, std::string_view mountinfo,
                            std::string_view path, const std::optional<FsxSystem>& declared) {
  StorageFound found;
  const std::vector<Mount> mounts = parse_mountinfo(mountinfo);
  const Mount* mount = mount_of(mounts, path);
  // By the magic and not by mountinfo, which a container may not show.
  found.lustre = status.magic == lustre_magic;
  if (mount != nullptr) {
    found.mount_point = mount->point;
    found.source = mount->source;
  }
  if (!found.lustre) {
    found.sentence = text(mount == nullptr ? "a file system of type unknown" : mount->type,
                          ", not Lustre", declared ? "; --fsx is not used" : "");
    return found;
  }
  // The user's word counts more than a name: a DNS alias may stand in front of another system.
  if (declared) {
    found.fsx = StorageFound::Fsx::by_option;
    found.declared = declared;
  } else if (!fsx_id_of(found.source).empty()) {
    found.fsx = StorageFound::Fsx::by_name;
  }
  found.sentence = text("Lustre (FSx assumed: ", fsx_sentence(found), ")",
                        mount == nullptr ? "" : ", mounted at " + mount->point + " from ",
                        mount == nullptr ? "" : mount->source);
  return found;
}

LustreFile examine_lustre_file(const FsProbe& probe, int descriptor, const FileSize& size,
                               Target unknown) {
  LustreFile file{.layout = unknown_layout(size.bytes, unknown)};
  const ProbeAnswer answer = probe.attribute(descriptor, "lustre.lov");
  if (answer.error == ENODATA) {
    file.unknown_because = "nothing was ever written to it";
  } else if (answer.error != 0) {
    file.unknown_because = text("lustre.lov: ", std::strerror(answer.error));
  } else {
    try {
      const LustreLayout layout = parse_lustre_layout(answer.bytes);
      file.layout = file_layout(layout, size.bytes, unknown);
      file.released = layout.released;
      file.unknown_because = layout.foreign ? "its data are another system's" : "";
    } catch (const Error& error) {
      // A layout of a later Lustre is no reason not to read the file.
      file.unknown_because = error.what();
    }
  }
  // Sparse files and small ones on the metadata server have no blocks either, so this asks.
  if (!file.released && size.bytes > 0 && size.blocks == 0) {
    const auto state = hsm_state_of(probe, descriptor);
    file.released = state && state->released();
  }
  return file;
}

}  // namespace sprat::io
