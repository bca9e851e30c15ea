// What a DataBatch is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/formats/format.hpp"
#include "io/loader/memory_pool.hpp"
#include "io/order/skip_list.hpp"
#include "sprat/data.hpp"

namespace sprat::io {

/// A sample of this rank's.
struct LoadedSample {
  std::uint64_t number = 0;  ///< Of the run's, whatever the number of ranks.
  std::uint64_t epoch = 0;
  std::uint32_t source = 0, file = 0;
  std::uint64_t record = 0;  ///< Of the source.
  std::span<const std::byte> bytes;
  PooledMemory own = {};  ///< Of bytes that were read anew for this sample alone.
  std::vector<Field> fields;
  std::vector<std::uint32_t> lengths;
  std::vector<bool> separated;  ///< As Sample has it.
  /// Of a row: what it was not to begin with, since a stage refused that.
  std::optional<SkipList> refused = std::nullopt;
};

}  // namespace sprat::io

namespace sprat {

class DataBatch::Impl {
 public:
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (let_go) {
      let_go();
    }
  }

  std::uint64_t index = 0, first = 0;
  std::vector<io::LoadedSample> samples;
  /// Rows of equal length, where samples are tokens; else null.
  io::PooledMemory rows;
  std::span<std::byte> row(std::size_t sample) const {
    const std::size_t bytes = rows->size() / samples.size();
    return rows->subspan(sample * bytes, bytes);
  }
  std::string element_type;
  std::vector<std::uint64_t> row_shape;  ///< The one number of elements in a row.
  /// What samples' bytes and fields point into.
  std::vector<io::PooledMemory> memory;
  /// Tells the loader that nobody looks at the batch any more. Does not throw.
  std::function<void()> let_go;
};

class DecodedRecord::Impl {
 public:
  std::vector<io::Field>& fields;
  std::uint64_t sample;
};

}  // namespace sprat
