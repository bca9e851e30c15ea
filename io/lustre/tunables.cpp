#include "io/lustre/tunables.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;

/// A setting's name and where sysfs has it: one * stands for each device.
struct TunablePlace {
  std::string_view name;
  std::string_view folder, leaf;  ///< Devices are the folders in `folder`; empty leaf: a file.
};
constexpr TunablePlace tunable_places[] = {
    {"osc.*.max_rpcs_in_flight", "fs/lustre/osc", "max_rpcs_in_flight"},
    {"osc.*.max_pages_per_rpc", "fs/lustre/osc", "max_pages_per_rpc"},
    {"mdc.*.max_rpcs_in_flight", "fs/lustre/mdc", "max_rpcs_in_flight"},
    {"mdc.*.max_mod_rpcs_in_flight", "fs/lustre/mdc", "max_mod_rpcs_in_flight"},
    {"llite.*.max_read_ahead_mb", "fs/lustre/llite", "max_read_ahead_mb"},
    {"llite.*.max_read_ahead_per_file_mb", "fs/lustre/llite", "max_read_ahead_per_file_mb"},
    {"llite.*.hybrid_io", "fs/lustre/llite", "hybrid_io"},
    {"lov.*.numobd", "fs/lustre/lov", "numobd"},
    {"lov.*.activeobd", "fs/lustre/lov", "activeobd"},
    {"ldlm.namespaces.*.lru_max_age", "fs/lustre/ldlm/namespaces", "lru_max_age"},
    {"ptlrpcd_per_cpt_max", "module/ptlrpc/parameters/ptlrpcd_per_cpt_max", ""},
    {"ksocklnd credits", "module/ksocklnd/parameters/credits", ""},
};

/// AWS's settings for clients above a size. What is at least as high stays.
struct WantedSetting {
  std::string_view name;
  std::uint64_t value;
  bool for_cores;  ///< Above 64 of them; else above 64 GiB of memory.
  bool at_load;    ///< Set when the module is loaded, not by lctl.
};
constexpr WantedSetting wanted_settings[] = {
    {"osc.*.max_rpcs_in_flight", 32, true, false},
    {"mdc.*.max_rpcs_in_flight", 64, true, false},
    {"mdc.*.max_mod_rpcs_in_flight", 50, true, false},
    {"ptlrpcd_per_cpt_max", 32, true, true},
    {"ksocklnd credits", 2560, true, true},
    // Milliseconds; it is lowered, so that locks of files that are read once go.
    {"ldlm.namespaces.*.lru_max_age", 600'000, false, false},
};
constexpr int many_cores = 64;
constexpr std::uint64_t much_memory = std::uint64_t{64} << 30;

std::string tunable_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A number at the beginning of a file: "256MB" is 256.
std::optional<std::uint64_t> number_in(const fs::path& path) {
  const std::string line = tunable_line(path);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

void take_number(Tunable& tunable, const fs::path& path) {
  if (const auto value = number_in(path)) {
    tunable.least = tunable.devices == 0 ? *value : std::min(tunable.least, *value);
    tunable.most = std::max(tunable.most, *value);
    ++tunable.devices;
  }
}

Tunable read_tunable(const fs::path& root, const TunablePlace& place) {
  Tunable tunable{.name = place.name};
  const fs::path folder = root / place.folder;
  if (place.leaf.empty()) {
    take_number(tunable, folder);
    return tunable;
  }
  std::error_code none;  // devices may go while this looks
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none)) {
    take_number(tunable, entry->path() / place.leaf);
  }
  return tunable;
}

std::string command_for(const WantedSetting& setting) {
  if (!setting.at_load) {
    return text("lctl set_param ", setting.name, "=", setting.value);
  }
  const std::size_t blank = setting.name.find(' ');
  const std::string_view module =
      blank == std::string_view::npos ? "ptlrpc" : setting.name.substr(0, blank);
  const std::string_view option =
      blank == std::string_view::npos ? setting.name : setting.name.substr(blank + 1);
  return text("echo options ", module, " ", option, "=", setting.value,
              " >> /etc/modprobe.d/lustre.conf, then mount anew");
}

/// Clients from 2.17 on read and write large requests directly; with older servers writes hung.
bool may_hang(const ClientSettings& settings) {
  const Tunable* hybrid = settings.find("llite.*.hybrid_io");
  return hybrid != nullptr && hybrid->most > 0 && settings.version.starts_with("2.17");
}

}  // namespace

const Tunable* ClientSettings::find(std::string_view name) const {
  const auto found = std::ranges::find(tunables, name, &Tunable::name);
  return found == tunables.end() ? nullptr : &*found;
}

ClientSettings read_client_settings(const FsProbe& probe) {
  ClientSettings settings;
  const fs::path root = probe.sysfs_root();
  settings.version = tunable_line(root / "fs/lustre/version");
  // Some clients write "lustre: 2.15.3".
  settings.version.erase(0, settings.version.find_first_of("0123456789"));
  for (const TunablePlace& place : tunable_places) {
    const Tunable tunable = read_tunable(root, place);
    if (tunable.devices > 0) {
      settings.tunables.push_back(tunable);
    } else {
      settings.unread.push_back(place.name);
    }
  }
  return settings;
}

std::vector<ClientAdvice> client_advice(const ClientSettings& settings, const HostSize& host) {
  std::vector<ClientAdvice> advice;
  for (const WantedSetting& setting : wanted_settings) {
    const bool large =
        setting.for_cores ? host.cores > many_cores : host.memory_bytes > much_memory;
    const Tunable* is = settings.find(setting.name);
    if (!large || is == nullptr) {
      continue;
    }
    const bool lower_is_better = !setting.for_cores;
    if (lower_is_better ? is->most > setting.value : is->least < setting.value) {
      advice.push_back({text(setting.name, "=", lower_is_better ? is->most : is->least,
                             "; AWS sets ", setting.value, " on hosts of ",
                             setting.for_cores ? "more than 64 cores" : "more than 64 GiB"),
                        command_for(setting)});
    }
  }
  const Tunable *targets = settings.find("lov.*.numobd"),
                *active = settings.find("lov.*.activeobd");
  if (targets != nullptr && active != nullptr && active->least < targets->least) {
    advice.push_back(
        {text(active->least, " of ", targets->least, " OSTs are active"), "lfs check osts"});
  }
  if (may_hang(settings)) {
    advice.push_back({text("client ", settings.version,
                           " with hybrid I/O: writes to servers before 2.16 may hang (LU-18033)"),
                      "lctl set_param llite.*.hybrid_io=0"});
  }
  return advice;
}

std::uint64_t target_cap_bytes(const ClientSettings& settings) {
  constexpr std::uint64_t page = 4096, rpcs = 8, rpc_bytes = 1 << 20;
  const Tunable* in_flight = settings.find("osc.*.max_rpcs_in_flight");
  const Tunable* pages = settings.find("osc.*.max_pages_per_rpc");
  // Old servers take 1 MiB at once, so that is what a client is trusted with that does not tell.
  const std::uint64_t count =
      in_flight == nullptr ? rpcs : std::clamp<std::uint64_t>(in_flight->least, 1, 256);
  const std::uint64_t bytes =
      pages == nullptr ? rpc_bytes : std::clamp<std::uint64_t>(pages->least, 1, 16384) * page;
  return count * bytes;
}

}  // namespace sprat::io
