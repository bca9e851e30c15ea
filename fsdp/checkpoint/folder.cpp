#include "fsdp/checkpoint/folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "comm/base/check.hpp"
#include "fsdp/checkpoint/manifest.hpp"

namespace sprat::fsdp {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "step-";
constexpr std::string_view unfinished = ".tmp-";

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / manifest_name, ignored);
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename());
  }
  return names;
}

}  // namespace

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
  if (!error && is_checkpoint(fs::path(folder) / target)) {
    return fs::path(folder) / target;
  }
  const std::vector<std::int64_t> steps = steps_in(folder);
  if (steps.empty()) {
    return std::nullopt;
  }
  return fs::path(folder) / step_name(steps.back());
}

std::string checkpoint_at(const std::string& path) {
  if (is_checkpoint(path)) {
    return path;
  }
  const auto latest = latest_in(path);
  std::error_code ignored;
  need(latest.has_value(), "no checkpoint at ", path, ": ",
       fs::exists(path, ignored) ? "neither it nor a step-... in it has a "
                                 : "there is no such folder, and so no ",
       manifest_name);
  return *latest;
}

void prune(const std::string& folder, std::int64_t step, int keep_last, const io::StepHook& hook) {
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
    const std::string doomed = path + std::string(unfinished) + "old";
    io::remove_all(doomed, hook);
    io::rename_over(path, doomed, hook);
  }
  for (const std::string& name : entries_of(folder)) {
    if (name.find(unfinished) != std::string::npos &&
        (name.starts_with(prefix) || name.starts_with("latest"))) {
      io::remove_all(fs::path(folder) / name, hook);
    }
  }
}

FolderLock::FolderLock(const std::string& folder)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor_);
    throw Error(ErrorCode::unavailable, "another job saves checkpoints into " + folder +
                                            "; end it, or give this one a folder of its own");
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

}  // namespace sprat::fsdp
