// Files and folders that are whole on the disk, or not there: each step synced and told.
#pragma once

#include <xxhash.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::io {

/// Checksums are of blocks of a file, so that a part of it can be checked alone.
inline constexpr std::size_t checked_block_bytes = std::size_t{4} << 20;

/// XXH3-64 of every block of a stream of bytes, the last one shorter.
class BlockHasher {
 public:
  BlockHasher();
  void add(std::span<const std::byte> bytes);
  /// Of all blocks; none for no bytes. Ends the stream.
  std::vector<std::uint64_t> finish();
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, FreeState> state_;
  std::vector<std::uint64_t> blocks_;
  std::uint64_t bytes_ = 0;
};

/// What a file is to be found as.
struct FileRecord {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> blocks;  ///< Their checksums.
  bool operator==(const FileRecord&) const = default;
};

/// Is told each step that is about to change the disk ("create", "write", "fsync", "rename" ...):
/// tests end the process there. It may be called from any thread that writes.
using StepHook = std::function<void(std::string_view step, const std::string& path)>;

/// A new file, written from begin to end. One thread at a time.
class DurableFile {
 public:
  /// Throws Error{unavailable} naming path, reason and remedy, as all of its calls do.
  DurableFile(std::string path, StepHook hook);
  /// Without finish() the file is removed.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Returns once the disk has it all.
  FileRecord finish();

 private:
  void write_out(std::span<const std::byte> bytes);

  std::string path_;
  StepHook hook_;
  int descriptor_ = -1;
  std::vector<std::byte> collected_;  // pieces that are too small for a call each
  BlockHasher hasher_;
};

/// While it lives, what would grow a file beyond the process's limit fails in this thread (EFBIG),
/// instead of ending the process by SIGXFSZ.
class SizeLimitFails {
 public:
  SizeLimitFails() noexcept;
  ~SizeLimitFails();
  SizeLimitFails(const SizeLimitFails&) = delete;
  SizeLimitFails& operator=(const SizeLimitFails&) = delete;

 private:
  sigset_t before_{};
};

/// A file that is there, written at places that several processes share out. One thread at a time.
class PlacedFile {
 public:
  /// Throws Error{unavailable} naming path, reason and remedy, as all of its calls do.
  PlacedFile(std::string path, StepHook hook);
  ~PlacedFile();
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Returns once the disk has what was written here.
  void finish();

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Throw Error{unavailable} naming path, reason and remedy.
void make_folder(const std::string& path, const StepHook& hook);
void write_file(const std::string& path, std::string_view text, const StepHook& hook);
/// A file that is there has so many bytes from now on, zeros behind those it had. A disk without
/// room for them is noticed here if its file system can set room aside.
void set_length(const std::string& path, std::uint64_t bytes, const StepHook& hook);
/// Entries made, renamed and removed in the folder are on the disk once it returns.
void sync_folder(const std::string& path, const StepHook& hook);
/// `to` becomes what `from` is, in one step. A folder that was `to` is then `from`: in the same
/// step where the file system can exchange two names, else there is a moment without `to`.
void rename_over(const std::string& from, const std::string& to, const StepHook& hook);
/// Ends what `to` is called in that moment; before it comes `from`.
constexpr std::string_view replaced_ending = "-replaced";
/// rename_over() where names cannot be exchanged. If it fails amid that, both are what they were.
void rename_by_turns(const std::string& from, const std::string& to, const StepHook& hook);
/// Makes the link `path` name `target`, in one step; `spare` is a name beside it that is free.
void point_link(const std::string& path, const std::string& target, const std::string& spare,
                const StepHook& hook);
/// Removes a file or a folder with all that is in it. What cannot be removed is logged.
void remove_all(const std::string& path, const StepHook& hook) noexcept;

/// One line for a system call that failed: what, path, the error's text, and what to do.
std::string describe_failure(std::string_view what, const std::string& path, int error);

}  // namespace sprat::io
