// A Lustre that answers as a test says, for files that truly are there.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/dataset/dataset.hpp"
#include "io/loader/file_table.hpp"
#include "io/lustre/detection.hpp"
#include "io/lustre/fs_probe.hpp"
#include "io/lustre/hsm.hpp"
#include "tests/unit/io/lustre/lov_bytes.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {

/// A plain layout over these OSTs; released files have none.
inline std::vector<std::byte> plain_lov(const std::vector<std::uint32_t>& osts,
                                        std::uint32_t stripe_bytes, bool released = false) {
  LovBytes lov;
  lov.u32(0x0BD10BD0).u32(released ? 0x80000001 : 1).u64(1).u64(0x200000401);
  lov.u32(stripe_bytes).u16(static_cast<std::uint16_t>(osts.size())).u16(0xffff);
  for (const std::uint32_t ost : released ? std::vector<std::uint32_t>{} : osts) {
    lov.u64(100 + ost).u64(UINT64_C(1) << 32).u32(0).u32(ost);
  }
  return lov.bytes();
}

/// Of files in one folder, by their names. All are on Lustre; OSTs are those that lay() says.
class ScriptedLustre final : public FsProbe {
 public:
  explicit ScriptedLustre(std::string folder) : folder_(std::move(folder)) {}

  // The test's side. Any thread.
  void lay(const std::string& name, const std::vector<std::uint32_t>& osts,
           std::uint32_t stripe_bytes = 1 << 20) {
    const std::lock_guard lock(mutex_);
    files_[name].lov = plain_lov(osts, stripe_bytes);
  }
  void release(const std::string& name, std::uint32_t states = 0xd) {
    const std::lock_guard lock(mutex_);
    files_[name].states = states;
  }
  /// What a request to restore answers: 0 or an errno. Files come back when their state was asked
  /// for so often as is said.
  void answer_requests(int error, int questions = 1) {
    const std::lock_guard lock(mutex_);
    request_error_ = error;
    questions_ = questions;
  }
  /// Of how much there is, how much is free. 0, 0: nobody says.
  void have_room(std::uint64_t bytes, std::uint64_t free_bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ = bytes;
    free_bytes_ = free_bytes;
  }
  std::vector<std::string> requested() const {
    const std::lock_guard lock(mutex_);
    return requested_;
  }
  /// How often files were opened by a probe, by name.
  std::map<std::string, int> opens() const {
    const std::lock_guard lock(mutex_);
    return opens_;
  }
  int layout_questions() const {
    const std::lock_guard lock(mutex_);
    return layout_questions_;
  }

  FileSystemStatus status(int) const override {
    const std::lock_guard lock(mutex_);
    return {.magic = lustre_magic, .bytes = bytes_, .free_bytes = free_bytes_};
  }
  ProbeAnswer attribute(int descriptor, const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(name, "lustre.lov");
    ++layout_questions_;
    const ScriptedFile& file = files_[name_of(descriptor)];
    if (file.lov.empty()) {
      return {.error = ENODATA};
    }
    return {.bytes = (file.states & hsm_released) != 0 ? plain_lov({}, 1 << 20, true) : file.lov};
  }
  ProbeAnswer control(int descriptor, unsigned long request,
                      std::span<const std::byte> argument) const override {
    const std::lock_guard lock(mutex_);
    if (request == hsm_request_ioctl) {
      return answer_request(argument);
    }
    ScriptedFile& file = files_[name_of(descriptor)];
    if (request == path_to_fid_ioctl) {
      const auto place = static_cast<std::uint32_t>(
          std::distance(files_.begin(), files_.find(name_of(descriptor))));
      return {.bytes = LovBytes().u64(0x200000401).u32(place).u32(0).bytes()};
    }
    EXPECT_EQ(request, hsm_state_ioctl);
    if (file.coming > 0 && --file.coming == 0) {
      file.states &= ~hsm_released;
    }
    return {.bytes = LovBytes()
                         .u32(file.states)
                         .u32(1)
                         .u32(file.coming > 0 ? 2 : 0)
                         .u32(file.coming > 0 ? 11 : 0)
                         .u64(0)
                         .u64(0)
                         .bytes()};
  }
  ProbeOpened open(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    ++opens_[std::filesystem::path(path).filename()];
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    return {.descriptor = descriptor, .error = descriptor < 0 ? errno : 0};
  }
  std::string mountinfo() const override {
    return "1 1 0:0 / " + folder_ + " rw - lustre 10.0.0.1@tcp:/scratch rw\n";
  }
  std::string sysfs_root() const override { return folder_ + "/sys"; }

 private:
  struct ScriptedFile {
    std::vector<std::byte> lov;
    std::uint32_t states = 0x9;
    int coming = 0;  // questions until it is back
  };

  static std::string name_of(int descriptor) {
    std::array<char, PATH_MAX> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    EXPECT_GT(readlink(link.c_str(), path.data(), path.size() - 1), 0);
    return std::filesystem::path(path.data()).filename();
  }

  ProbeAnswer answer_request(std::span<const std::byte> argument) const {
    if (request_error_ != 0) {
      return {.error = request_error_};
    }
    constexpr std::size_t head = 24, item = 32, object_at = 8;
    for (std::size_t at = head; at + item <= argument.size(); at += item) {
      std::uint32_t place = 0;
      std::memcpy(&place, argument.data() + at + object_at, sizeof place);
      const auto file = std::next(files_.begin(), place);
      requested_.push_back(file->first);
      file->second.coming = (file->second.states & hsm_lost) != 0 ? 0 : questions_;
    }
    return {};
  }

  const std::string folder_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::map<std::string, ScriptedFile> files_;
  mutable std::map<std::string, int> opens_;
  mutable std::vector<std::string> requested_;
  mutable int layout_questions_ = 0;
  int request_error_ = 0, questions_ = 1;
  std::uint64_t bytes_ = UINT64_C(1) << 50, free_bytes_ = UINT64_C(1) << 50;
};

/// Files of tokens of two bytes on a scripted Lustre: a.bin, b.bin ..., of so many bytes each.
class LustreFolder {
 public:
  explicit LustreFolder(const std::vector<std::size_t>& bytes) {
    std::vector<std::string> paths;
    for (std::size_t file = 0; file < bytes.size(); ++file) {
      paths.push_back(folder_ / name(file));
      std::ofstream(paths.back(), std::ios::binary) << std::string(bytes[file], 'x');
    }
    dataset = Dataset::open({.paths = paths,
                             .format = "tokens",
                             .format_options = {.token_type = "u16"},
                             .threads = 1});
    files = std::make_shared<const FileTable>(std::vector{dataset});
    lustre = std::make_shared<ScriptedLustre>(folder_.path());
  }
  static std::string name(std::size_t file) {
    return std::string(1, static_cast<char>('a' + file)) + ".bin";
  }

 private:
  TemporaryFolder folder_;

 public:
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const FileTable> files;
  std::shared_ptr<ScriptedLustre> lustre;
};

/// What a fetcher is told of: it waits for it at most as long as a test may take.
class Bell {
 public:
  std::function<void()> ring() {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++rings_;
      rung_.notify_all();
    };
  }
  /// Until `done`, which is asked after each ring. False if it never is.
  template <class Done>
  bool wait_for(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::unique_lock lock(mutex_);
    while (true) {
      const int seen = rings_;
      lock.unlock();
      if (done()) {
        return true;
      }
      lock.lock();
      if (!rung_.wait_until(lock, end, [&] { return rings_ != seen; })) {
        return false;
      }
    }
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable rung_;
  int rings_ = 0;
};

}  // namespace sprat::io
