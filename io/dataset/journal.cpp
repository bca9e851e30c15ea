#include "io/dataset/journal.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "io/checked_file.hpp"
#include "io/durable.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view journal_magic = "SPRATJNL";
constexpr std::string_view journal_ending = ".part-", unfinished_ending = ".new-";
constexpr std::size_t journal_head = 16, journal_entry_head = 16;
constexpr std::uint64_t longest_journal = std::uint64_t{1} << 40;

std::string as_bytes(std::uint64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

/// Files beside an index whose names go on with `ending`.
std::vector<std::string> files_beside(const std::string& index_path, std::string_view ending) {
  std::vector<std::string> paths;
  if (index_path.empty()) {
    return paths;
  }
  const std::string prefix = std::string(name_in(index_path)) + std::string(ending);
  std::error_code error;
  fs::directory_iterator entries(fs::path(index_path).parent_path(), error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string& path = entries->path().native();
    if (name_in(path).starts_with(prefix)) {
      paths.push_back(path);
    }
  }
  return paths;
}

void read_journal(const std::string& path, std::uint64_t key, std::vector<NamedRecords>& files) {
  const std::string bytes = read_whole(path, longest_journal);
  std::string_view rest = bytes;
  if (!rest.starts_with(std::string(journal_magic) + as_bytes(key))) {
    return;
  }
  rest.remove_prefix(journal_head);
  while (rest.size() >= journal_entry_head) {
    const auto length = number_at<std::uint64_t>(bytes_in(rest), 0);
    const auto sum = number_at<std::uint64_t>(bytes_in(rest), 8);
    rest.remove_prefix(journal_entry_head);
    if (length > rest.size() || XXH3_64bits(rest.data(), length) != sum) {
      return;
    }
    files.push_back(decode_entry(rest.substr(0, length)));
    rest.remove_prefix(length);
  }
}

/// Another process may write one at this moment; one that is this old nobody writes any more.
bool is_forgotten(const std::string& path) {
  std::error_code error;
  const fs::file_time_type written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::hours(24);
}

}  // namespace

IndexJournal::IndexJournal(std::string index_path, std::uint64_t key)
    : index_path_(std::move(index_path)), key_(key), failed_(index_path_.empty()) {}

IndexJournal::~IndexJournal() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void IndexJournal::append(const NamedRecords& file) {
  if (failed_) {
    return;
  }
  const std::string entry = encode_entry(file);
  std::string bytes;
  if (descriptor_ < 0) {
    path_ = index_path_ + std::string(journal_ending) + unique_ending();
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bytes = std::string(journal_magic) + as_bytes(key_);
  }
  bytes += as_bytes(entry.size()) + as_bytes(XXH3_64bits(entry.data(), entry.size())) + entry;
  const SizeLimitFails limit;
  for (std::string_view rest = bytes; descriptor_ >= 0 && !rest.empty() && !failed_;) {
    const ssize_t wrote = ::write(descriptor_, rest.data(), rest.size());
    // No fsync: the entry outlives this process as soon as the kernel has it. Should the machine
    // itself go down, its checksum tells whether it came to the disk.
    failed_ = wrote < 0 && errno != EINTR;
    rest.remove_prefix(wrote > 0 ? static_cast<std::size_t>(wrote) : 0);
  }
  if (descriptor_ < 0 || failed_) {
    failed_ = true;
    log().warn("{}; should indexing be ended before it is done, it begins anew",
               describe_failure("write to", path_, errno));
  }
}

void IndexJournal::remove() {
  // Journals of processes that are still at work may go with those of killed ones: what they are to
  // save is saved now.
  for (const std::string& path : files_beside(index_path_, journal_ending)) {
    unlink(path.c_str());
  }
  for (const std::string& path : files_beside(index_path_, unfinished_ending)) {
    if (is_forgotten(path)) {
      unlink(path.c_str());
    }
  }
}

std::vector<NamedRecords> read_journals(const std::string& index_path, std::uint64_t key) {
  std::vector<NamedRecords> files;
  for (const std::string& path : files_beside(index_path, journal_ending)) {
    try {
      read_journal(path, key, files);
    } catch (const Error& error) {
      // It is a help, not a truth: what it holds is found again.
      log().warn("{} is left aside: {}", path, error.what());
    }
  }
  return files;
}

}  // namespace sprat::io
