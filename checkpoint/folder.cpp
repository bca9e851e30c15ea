#include "checkpoint/folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "checkpoint/manifest.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "step-";
constexpr std::string_view unfinished = ".tmp-";
/// As many as Linux follows.
constexpr int most_links = 40;

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / manifest_name, ignored);
}

/// What a link leads to, there or not; `path` itself if it is none, or leads round in a circle.
std::string target_of(const std::string& path) {
  fs::path at = folder_name(path);  // with a slash it would not be the link itself
  for (int links = 0; links < most_links; ++links) {
    std::error_code error;
    const fs::path target = fs::read_symlink(at, error);
    if (error) {
      return links == 0 ? path : at.string();
    }
    at = at.parent_path() / target;
  }
  return path;
}

/// "step-00002000" if `name` was that one and nothing has taken its place yet; else empty.
std::string stands_for(const std::string& folder, const std::string& name) {
  const auto end = name.find(unfinished);
  const std::string step = name.substr(0, std::min(end, name.size()));
  const bool replaced = end != std::string::npos && name.ends_with(io::replaced_ending);
  return replaced && step_of(step) && !is_checkpoint(fs::path(folder) / step) &&
                 is_checkpoint(fs::path(folder) / name)
             ? step
             : "";
}

/// Puts back what a save that died between two renames left under another name.
void restore_replaced(const std::string& folder, const io::StepHook& hook) {
  for (const std::string& name : entries_of(folder)) {
    if (const std::string step = stands_for(folder, name); !step.empty()) {
      io::rename_over(fs::path(folder) / name, fs::path(folder) / step, hook);
    }
  }
}

/// Gives old checkpoints names that are none's.
void rename_old(const std::string& folder, std::int64_t step, int keep_last, std::uint64_t id,
                const io::StepHook& hook) {
  std::vector<std::int64_t> earlier;
  for (const std::int64_t other : steps_in(folder)) {
    if (other < step) {
      earlier.push_back(other);
    }
  }
  const auto kept = static_cast<std::size_t>(keep_last - 1);
  for (std::size_t index = 0; index + kept < earlier.size(); ++index) {
    // First another name: what is half removed is no checkpoint.
    const std::string path = fs::path(folder) / step_name(earlier[index]);
    io::rename_over(path, fmt::format("{}{}old-{:016x}", path, unfinished, id), hook);
  }
}

/// Whether a save makes entries of this name. Others may write beside the checkpoints, and name
/// what is not finished in the same way: "step-00001000-f32.safetensors.tmp-ID" is a file on its
/// way.
bool is_unfinished(const std::string& name) {
  const auto end = name.find(unfinished);
  const std::string of = name.substr(0, end);
  return end != std::string::npos && (of == "latest" || step_of(of));
}

/// Where a link leads; nullopt if there is none. Throws Error{unavailable} if nobody can tell.
std::optional<std::string> link_at(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  const bool none = error == std::errc::no_such_file_or_directory ||
                    error == std::errc::invalid_argument;  // it is something else than a link
  need(!error || none, "cannot read the link ", path, ": ", error.message());
  return error ? std::nullopt : std::optional(target.string());
}

void point_latest(const NamelessCheckpoint& checkpoint, const std::string& target,
                  const io::StepHook& hook) {
  io::point_link(checkpoint.folder + "/latest", target,
                 fmt::format("{}/latest{}{:016x}", checkpoint.folder, unfinished, checkpoint.id),
                 hook);
}

/// A save that fails has left nothing, though its checkpoint had its name for a moment: where it
/// took another one's place, that one's values are to be found there again.
void take_back(const NamelessCheckpoint& checkpoint, const std::optional<std::string>& latest,
               const io::StepHook& hook) {
  const std::string name = step_name(checkpoint.step), place = checkpoint.folder + "/" + name;
  const std::optional<std::string> now = link_at(checkpoint.folder + "/latest");
  std::error_code ignored;
  if (now == name && now != latest) {
    if (latest) {
      point_latest(checkpoint, *latest, hook);
    } else {
      fs::remove(checkpoint.folder + "/latest", ignored);
    }
  }
  if (fs::exists(checkpoint.unfinished, ignored)) {
    io::rename_over(checkpoint.unfinished, place, hook);
  } else {
    io::rename_over(place, checkpoint.unfinished, hook);
  }
}

/// What saves have left, and no checkpoints.
std::vector<std::string> unfinished_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : entries_of(folder)) {
    if (is_unfinished(name)) {
      paths.push_back(fs::path(folder) / name);
    }
  }
  return paths;
}

}  // namespace

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename());
  }
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  need(!error || absent, "cannot read the folder ", folder, ": ", error.message());
  return names;
}

std::string step_name(std::int64_t step) {
  require(step >= 0, "a checkpoint of step ", step, "; steps are 0 or more");
  return fmt::format("{}{:08}", prefix, step);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || step_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : entries_of(folder)) {
    const auto step = step_of(name);
    if (step && is_checkpoint(fs::path(folder) / name)) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<std::string> latest_in(const std::string& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(fs::path(folder) / "latest", error);
  if (!error) {
    if (is_checkpoint(fs::path(folder) / target)) {
      return fs::path(folder) / target;
    }
    for (const std::string& name : entries_of(folder)) {
      if (stands_for(folder, name) == target.string()) {
        return fs::path(folder) / name;
      }
    }
  }
  const std::vector<std::int64_t> steps = steps_in(folder);
  const bool lost = !error && fs::exists(fs::path(folder) / target, error);
  need(!lost, folder, "/latest is ", target.string(), ", which has no ", manifest_name,
       " and so is no checkpoint any more",
       steps.empty() ? "" : "; name one yourself, such as " + step_name(steps.back()));
  if (!target.empty()) {  // somebody removed it, to go back perhaps
    log().warn("{}/latest is {}, which is not there; taking {}", folder, target.string(),
               steps.empty() ? "none" : step_name(steps.back()));
  }
  if (steps.empty()) {
    return std::nullopt;
  }
  return fs::path(folder) / step_name(steps.back());
}

std::string checkpoint_at(const std::string& path) {
  if (const std::string target = target_of(path); is_checkpoint(target)) {
    return target;
  }
  const auto latest = latest_in(path);
  std::error_code ignored;
  need(latest.has_value(), "no checkpoint at ", path, ": ",
       fs::exists(path, ignored) ? "neither it nor a step-... in it has a "
                                 : "there is no such folder, and so no ",
       manifest_name);
  return *latest;
}

void put_in_place(const NamelessCheckpoint& checkpoint, const io::StepHook& hook) {
  const auto& [folder, whole, step, id] = checkpoint;
  const std::optional<std::string> latest = link_at(folder + "/latest");
  io::rename_over(whole, folder + "/" + step_name(step), hook);
  try {
    io::sync_folder(folder, hook);
    point_latest(checkpoint, step_name(step), hook);
    io::sync_folder(folder, hook);
  } catch (...) {
    try {
      take_back(checkpoint, latest, hook);
    } catch (const std::exception& error) {
      log().error("the save of step {} into {} failed, and its checkpoint stays there: {}", step,
                  folder, error.what());
      // Of what it replaced, if anything: under this name it outlives the save.
      static_cast<void>(
          std::rename(whole.c_str(), (whole + std::string(io::replaced_ending)).c_str()));
    }
    throw;
  }
}

std::vector<std::string> retire(const std::string& folder, std::int64_t step, int keep_last,
                                std::uint64_t id, const io::StepHook& hook) noexcept {
  try {
    restore_replaced(folder, hook);
    rename_old(folder, step, keep_last, id, hook);
    return unfinished_in(folder);
  } catch (const std::exception& error) {
    log().warn("old checkpoints stay in {}: {}", folder, error.what());
    return {};
  }
}

std::string folder_name(const std::string& path) {
  const auto end = path.find_last_not_of('/');
  return end == std::string::npos ? path : path.substr(0, end + 1);
}

void make_durable_folder(const std::string& path, const io::StepHook& hook) {
  std::vector<fs::path> changed;  // innermost first
  std::error_code error;
  for (fs::path at = fs::absolute(folder_name(path));
       !fs::exists(at, error) && at.has_relative_path(); at = at.parent_path()) {
    changed.push_back(at.parent_path());
  }
  io::make_folder(path, hook);
  for (const fs::path& parent : changed) {
    io::sync_folder(parent, hook);
  }
}

// A lock is of what was opened, not of who opened it: a forked child's copy would keep it.
FolderLock::FolderLock(const std::string& folder)
    : descriptor_(comm::open_here_only(
          [&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })) {
  const auto locks = [&] { return descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0; };
  bool locked = locks();
  if (!locked && errno == EBADF) {  // NFS locks only what is open for writing, which no folder is
    comm::close_and_forget(descriptor_);
    const std::string path = folder + "/.lock";
    descriptor_ = comm::open_here_only(
        [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
    locked = locks();
  }
  if (!locked && errno == EWOULDBLOCK) {
    comm::close_and_forget(descriptor_);
    throw Error(ErrorCode::unavailable, "another job saves checkpoints into " + folder +
                                            "; end it, or give this one a folder of its own");
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0 && mark_.here()) {
    comm::close_and_forget(descriptor_);
  }
}

}  // namespace sprat::fsdp
