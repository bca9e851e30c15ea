// A dataset of no files: records of given sizes, for tests of orders.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "io/dataset/record_table.hpp"

namespace sprat::io {

class MemoryTable final : public RecordTable {
 public:
  /// By file, the bytes of each record. They lie one behind the other from byte 100 on.
  explicit MemoryTable(std::vector<std::vector<std::uint64_t>> files,
                       std::uint64_t record_bytes = 0)
      : record_bytes_(record_bytes) {
    for (const std::vector<std::uint64_t>& file : files) {
      std::uint64_t offset = 100;
      first_.push_back(records_.size());
      for (const std::uint64_t bytes : file) {
        records_.push_back({static_cast<std::uint32_t>(first_.size() - 1), offset, bytes});
        offset += bytes;
        sum_ = mix_bits(sum_ ^ bytes) + first_.size();
      }
    }
    first_.push_back(records_.size());
  }

  std::uint64_t records() const noexcept override { return records_.size(); }
  Extent record(std::uint64_t index) const override {
    require(index < records_.size(), "record ", index, " of ", records_.size());
    return records_[index];
  }
  std::uint32_t file_count() const noexcept override {
    return static_cast<std::uint32_t>(first_.size() - 1);
  }
  std::string file_name(std::uint32_t file) const override { return text("file", file); }
  std::uint64_t first_record(std::uint32_t file) const override { return first_.at(file); }
  std::uint64_t record_bytes() const noexcept override { return record_bytes_; }
  std::uint64_t fingerprint() const noexcept override { return sum_; }

  /// The record that an extent begins in.
  std::uint64_t record_at(const Extent& extent) const {
    const auto behind = std::upper_bound(
        records_.begin(), records_.end(), extent, [](const Extent& at, const Extent& record) {
          return std::pair(at.file, at.offset) < std::pair(record.file, record.offset);
        });
    return static_cast<std::uint64_t>(behind - records_.begin()) - 1;
  }

 private:
  std::vector<Extent> records_;
  std::vector<std::uint64_t> first_;
  std::uint64_t record_bytes_, sum_ = 1;
};

/// Files of so many tokens of two bytes.
inline MemoryTable token_files(const std::vector<std::uint64_t>& tokens) {
  std::vector<std::vector<std::uint64_t>> files;
  for (const std::uint64_t count : tokens) {
    files.emplace_back(count, 2);
  }
  return MemoryTable(std::move(files), 2);
}

/// Sizes of records, from `least` to `most` times `unit` bytes.
struct Sizes {
  std::uint64_t least = 1, most = 9, unit = 1;
};

/// Files of so many records each.
inline MemoryTable sized_files(const std::vector<std::uint64_t>& records, const Sizes& sizes) {
  std::vector<std::vector<std::uint64_t>> files;
  std::uint64_t drawn = 1;
  for (const std::uint64_t count : records) {
    files.emplace_back();
    for (std::uint64_t i = 0; i < count; ++i) {
      drawn = mix_bits(drawn + golden_step);
      files.back().push_back((sizes.least + drawn % (sizes.most - sizes.least + 1)) * sizes.unit);
    }
  }
  return MemoryTable(std::move(files));
}

}  // namespace sprat::io
