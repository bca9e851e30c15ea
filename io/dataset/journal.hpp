// What an indexing process has done so far, kept for the next one should it be killed.
//
// A journal is: magic, u64 key, then an entry a file: u64 bytes, XXH3 of those, those. Each process
// has its own, so two that index at once do not know of each other. An entry that was cut short by
// a crash ends it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dataset/index.hpp"

namespace sprat::io {

/// One thread at a time.
class IndexJournal {
 public:
  /// Of the index that is to be at `index_path`; nothing is made before the first append(), and
  /// nothing at all if the path is empty.
  IndexJournal(std::string index_path, std::uint64_t key);
  ~IndexJournal();
  IndexJournal(const IndexJournal&) = delete;
  IndexJournal& operator=(const IndexJournal&) = delete;

  /// What was appended outlives the process. Where nothing can be written, it is logged once, and
  /// indexing goes on without a journal.
  void append(const NamedRecords& file);
  /// Removes it, and those that killed processes left.
  void remove();

 private:
  std::string index_path_, path_;
  std::uint64_t key_;
  int descriptor_ = -1;
  bool failed_ = false;
};

/// What journals of killed processes hold, as far as it is whole; nothing for an empty path.
std::vector<NamedRecords> read_journals(const std::string& index_path, std::uint64_t key);

}  // namespace sprat::io
