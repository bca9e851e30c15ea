// Which bytes make which sample: a pure function of seed and position, the same on every rank. One
// file each of samplings/ beside the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dataset/extent.hpp"
#include "io/dataset/record_table.hpp"
#include "io/order/skip_list.hpp"
#include "sprat/data.hpp"

namespace sprat::io {

struct Sample {
  std::uint32_t source = 0;  ///< Of a mixture; the extents' files are that source's.
  std::uint64_t record = 0;  ///< The record, or the first of those that the sample is made of.
  Extents extents = {};
  /// Of packed samples: the elements of each document in it, in their order.
  std::vector<std::uint32_t> lengths = {};
  /// Of each document in it, whether its last element is a separator, which no extent has; empty
  /// where there are none.
  std::vector<bool> separated = {};
};

/// Immutable; any thread may ask, several at once.
class Sampling {
 public:
  virtual ~Sampling() = default;
  /// In each epoch, at least 1.
  virtual std::uint64_t samples() const = 0;
  /// index < samples(). Records of `skipped` are replaced by those that follow them in the files'
  /// order and are not skipped, behind the last by the first: what comes out does not depend on
  /// when a record was found to be damaged. Throws Error{unavailable} if none is left.
  virtual Sample sample(std::uint64_t epoch, std::uint64_t index, SkippedRecords skipped) const = 0;
};

/// In elements; lengths of documents in a sample have 32 bits.
inline constexpr std::uint64_t longest_sample = std::uint64_t{1} << 31;

struct SamplingOptions {
  std::string kind = "records";  ///< A row of the table.
  Shuffle shuffle = Shuffle::full;
  /// Of Shuffle::chunks: records, windows or documents that stay together; 0: those of a file.
  std::uint64_t chunk = 0;
  std::uint64_t mixed_chunks = 16;
  /// Elements of a sample. Windows and cut documents are one longer: the last element is the first
  /// of the next window.
  std::uint64_t length = 0;
  bool across_files = true;         ///< Windows: all files are one stream.
  std::uint64_t element_bytes = 0;  ///< Of packed documents' tokens.
  /// An element that stands behind each document, and in no file.
  std::optional<std::uint64_t> separator = {};
  std::uint64_t block = 1 << 20;  ///< Documents that are packed together whole.

  friend bool operator==(const SamplingOptions&, const SamplingOptions&) = default;
};

/// Runs task(0) to task(tasks - 1), in any order or at once, and returns when all are done.
using RunTasks =
    std::function<void(std::size_t tasks, const std::function<void(std::size_t)>& task)>;
void run_in_turn(std::size_t tasks, const std::function<void(std::size_t)>& task);

struct SamplingInput {
  const RecordTable& table;  ///< Outlives the sampling.
  SamplingOptions options = {};
  std::uint64_t seed = 0;
  RunTasks run = run_in_turn;  ///< Computes tables.
};

struct SamplingKind {
  const char* name;                           ///< As users type it: "windows".
  const char* about;                          ///< One sentence of --help.
  std::span<const std::string_view> options;  ///< Names of those that it takes.
  /// Throws Error{invalid_argument} if the dataset is too small, or of another kind.
  std::unique_ptr<const Sampling> (*make)(SamplingInput input);
};
std::span<const SamplingKind* const> all_sampling_kinds() noexcept;

/// By the row that options.kind names. Throws Error{invalid_argument} with the rows there are, or
/// if the row does not take an option that is set.
std::unique_ptr<const Sampling> make_sampling(SamplingInput input);

/// Kind and options that are not as by default: "kind=windows length=2048". Equal texts are equal
/// orders.
std::string options_text(const SamplingOptions& options);
/// What a name of such a text is by default: "full" of "shuffle"; empty if there is no such name.
std::string default_option(std::string_view name);

}  // namespace sprat::io
