// Windows of tokens that lie one behind the other: length + 1 tokens, of which the last is the
// first of the next window, so that each token but the first is a target once.
//
// Across files, all tokens are one stream, which is shifted by less than a window each epoch: with
// Shuffle::full the windows begin where SampleOrder(seed, tokens - 1, length) says, as those of
// `sprat train` do. Within files, the tokens that a file has beyond whole windows are at its
// beginning or its end as a shift of the epoch's decides, and no file loses a window by it. In
// order (Shuffle::none) nothing is shifted: of one file these are the windows that llm.c's loader
// takes unshuffled.
//
// Use: token shards. Cost: O(1), within files O(log files).
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "comm/base/check.hpp"
#include "io/order/order_key.hpp"
#include "io/order/visit_order.hpp"
#include "sprat/io.hpp"

namespace sprat::io {
namespace {

/// Tokens whose windows are cut together: a file's, or all.
struct TokenRun {
  std::uint64_t first_token = 0, tokens = 0;
  std::uint64_t first_window = 0;
};

std::uint64_t windows_of(const TokenRun& run, std::uint64_t length) {
  return run.tokens > length ? (run.tokens - 1) / length : 0;
}

/// Where each window of an epoch begins. Pure.
class WindowCut {
 public:
  WindowCut(const SamplingInput& input, std::vector<TokenRun> runs)
      : runs_(std::move(runs)), length_(input.options.length), seed_(input.seed) {
    const bool shifted = input.options.shuffle != Shuffle::none;
    if (input.options.across_files && shifted) {
      stream_.emplace(seed_, runs_.front().tokens - 1, length_);
      windows_ = stream_->per_epoch();
      return;
    }
    shifts_ = shifted;
    for (TokenRun& run : runs_) {
      run.first_window = windows_;
      windows_ += windows_of(run, length_);
    }
  }

  std::uint64_t windows() const { return windows_; }

  /// Ascending with `window`, and not beyond the window's tokens.
  std::uint64_t begin(std::uint64_t epoch, std::uint64_t window) const {
    if (stream_) {
      return stream_->shift(epoch) + window * length_;
    }
    const auto behind = std::ranges::upper_bound(runs_, window, {}, &TokenRun::first_window);
    // Of runs that begin with this window the last one, as those before it have none.
    const TokenRun& run = *std::prev(behind);
    return run.first_token + shift_of(run, epoch) + (window - run.first_window) * length_;
  }

  /// The windows that begin at each file's first token, or behind it.
  ChunkBegins file_chunks_of(const RecordTable& table) const {
    ChunkBegins chunks = file_chunks(table);
    for (std::uint64_t& chunk : chunks) {
      const auto run = std::ranges::upper_bound(runs_, chunk, {}, &TokenRun::first_token);
      const TokenRun& in = *std::prev(run);
      chunk = std::min(windows_, in.first_window + (chunk - in.first_token) / length_);
    }
    chunks.back() = windows_;
    return chunks;
  }

 private:
  std::uint64_t shift_of(const TokenRun& run, std::uint64_t epoch) const {
    if (!shifts_) {
      return 0;
    }
    const std::uint64_t rest = (run.tokens - 1) % length_;
    // Files of equal size have shifts of their own by their first token.
    const std::uint64_t drawn =
        order_key(order_key(order_key(seed_, DrawnFor::shifts) + epoch) ^ run.first_token);
    return drawn % (rest + 1);
  }

  std::vector<TokenRun> runs_;
  std::uint64_t length_, seed_, windows_ = 0;
  bool shifts_ = false;
  std::optional<SampleOrder> stream_;
};

class WindowSampling final : public Sampling {
 public:
  WindowSampling(const RecordTable& table, std::uint64_t length, WindowCut cut, VisitOptions visits)
      : table_(table), tokens_(length + 1), cut_(std::move(cut)), visits_(std::move(visits)) {}

  std::uint64_t samples() const override { return cut_.windows(); }

  Sample sample(std::uint64_t epoch, std::uint64_t index, SkippedRecords skipped) const override {
    const std::uint64_t first =
        cut_.begin(epoch, usable_window(epoch, visits_(epoch, index), skipped));
    Sample sample{.record = first};
    for (std::uint64_t token = first; token < first + tokens_;) {
      Extent extent = table_.record(token);
      const std::uint64_t count =
          std::min(first + tokens_, table_.first_record(extent.file + 1)) - token;
      extent.bytes *= count;
      sample.extents.push_back(extent);
      token += count;
    }
    return sample;
  }

 private:
  /// The window, or the next one in the files' order of whose tokens none is skipped.
  std::uint64_t usable_window(std::uint64_t epoch, std::uint64_t window,
                              SkippedRecords skipped) const {
    // Each turn passes a range or the end; the second time around it has seen all of them.
    for (std::size_t turn = 0; turn <= 2 * skipped.size() + 2; ++turn) {
      const std::uint64_t first = cut_.begin(epoch, window);
      const RecordRange* range = range_from(skipped, first);
      if (range == nullptr || range->begin >= first + tokens_) {
        return window;
      }
      window = first_window_from(epoch, window + 1, range->end);
      window = window == samples() ? 0 : window;
    }
    throw Error(ErrorCode::unavailable, text("each of ", samples(), " windows of ", tokens_,
                                             " tokens has damaged ones: repair or replace files"));
  }

  /// The first window from `window` on that begins at `token` or behind it; samples() if none does.
  std::uint64_t first_window_from(std::uint64_t epoch, std::uint64_t window,
                                  std::uint64_t token) const {
    std::uint64_t end = samples();
    while (window < end) {
      const std::uint64_t middle = std::midpoint(window, end);
      if (cut_.begin(epoch, middle) < token) {
        window = middle + 1;
      } else {
        end = middle;
      }
    }
    return window;
  }

  const RecordTable& table_;
  std::uint64_t tokens_;
  WindowCut cut_;
  VisitOrder visits_;
};

/// All tokens as one run, or those of each file.
std::vector<TokenRun> runs_of(const RecordTable& table, bool across_files) {
  if (across_files) {
    return {{.first_token = 0, .tokens = table.records()}};
  }
  std::vector<TokenRun> runs;
  for (std::uint32_t file = 0; file < table.file_count(); ++file) {
    const std::uint64_t first = table.first_record(file);
    runs.push_back({.first_token = first, .tokens = table.first_record(file + 1) - first});
  }
  return runs;
}

std::unique_ptr<const Sampling> make_windows(SamplingInput input) {
  const SamplingOptions& options = input.options;
  const std::uint64_t tokens = input.table.records();
  require(options.length > 0 && options.length <= longest_sample,
          "windows need length=TOKENS from 1 to ", longest_sample, ", which ", options.length,
          " is not");
  require(input.table.record_bytes() > 0,
          "windows are cut from tokens of one size, and this dataset's records have several: take "
          "kind=packed_cut or packed_whole, or kind=records");
  const std::uint64_t least = options.across_files && options.shuffle != Shuffle::none
                                  ? 2 * options.length + 1
                                  : options.length + 1;
  require(tokens >= least, "a dataset of ", tokens, " tokens is too short for windows of ",
          options.length, ": give at least ", least, " tokens, or a smaller length");
  WindowCut cut(input, runs_of(input.table, options.across_files));
  require(cut.windows() > 0, "no file has the ", options.length + 1,
          " tokens of a window: give across_files=yes, or a smaller length");
  VisitOptions visits{.shuffle = options.shuffle,
                      .seed = input.seed,
                      .count = cut.windows(),
                      .mixed_chunks = options.mixed_chunks};
  if (options.shuffle == Shuffle::chunks) {
    visits.chunks = options.chunk > 0 ? equal_chunks(cut.windows(), options.chunk)
                                      : cut.file_chunks_of(input.table);
  }
  return std::make_unique<WindowSampling>(input.table, options.length, std::move(cut),
                                          std::move(visits));
}

constexpr std::array<std::string_view, 5> windows_options = {"shuffle", "chunk", "mixed_chunks",
                                                             "length", "across_files"};

}  // namespace

extern const SamplingKind windows_sampling;
const SamplingKind windows_sampling = {
    .name = "windows",
    .about = "a sample is length + 1 tokens that lie one behind the other",
    .options = windows_options,
    .make = make_windows};

}  // namespace sprat::io
