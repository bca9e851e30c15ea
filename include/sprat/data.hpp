// Data for training: samples of files on storage, in an order that every restart continues exactly,
// read ahead while others compute.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/export.hpp"

namespace sprat {

/// Files of one format.
struct DataSource {
  /// Files, folders (their files with the format's endings), or patterns with * and ?.
  std::vector<std::string> paths;
  /// "auto" asks each format whether the file is its own; docs/data.md lists them.
  std::string format = "auto";
  /// Of files of tokens that do not say: "u16" (nanoGPT's) or "u32".
  std::string token_type = {};
  /// Its share of the samples, beside the other sources' weights.
  double weight = 1;
  /// A token that stands behind each document where documents are packed. For files that have none
  /// there; a document with it is one token longer.
  std::optional<std::uint64_t> separator = {};
};

/// What a sample is.
enum class SampleKind : std::uint8_t {
  automatic,     ///< windows of tokens if `length` is given, else records.
  records,       ///< What the format calls one: an image with its label, a line, a document.
  windows,       ///< `length` + 1 consecutive tokens; the last is the next window's first.
  packed,        ///< Documents one after another, cut at `length` + 1 tokens.
  packed_whole,  ///< Whole documents, as many as fit into `length` + 1 tokens; zeros behind them.
};

enum class Shuffle : std::uint8_t {
  full,    ///< Any sample may come next.
  chunks,  ///< Files in any order, samples within a few files: neighbours are read together.
  none,
};

/// Of the samples at an epoch's end that make no whole batch.
enum class Remainder : std::uint8_t {
  carry,  ///< The batch goes on with the next epoch.
  drop,
  pad,  ///< The batch goes on with the epoch's first samples again.
};

/// Of records whose bytes are not what the format says.
enum class Corrupt : std::uint8_t {
  stop,  ///< next() throws.
  skip,  ///< The source's next record takes its place, on any rank the same, and the log says so.
};

/// A part of a record, as the loader's memory has it.
struct DataField {
  std::string_view name;
  /// "bytes", "text", "json", or an element's: "u16", "f32" ...
  std::string_view type;
  std::span<const std::uint64_t> shape;  ///< Of elements; empty for one, or where there are none.
  std::span<const std::byte> bytes;
};

/// A record while a decode stage works on it.
class SPRAT_API DecodedRecord {
 public:
  class Impl;
  explicit DecodedRecord(Impl& impl) noexcept : impl_(&impl) {}

  std::size_t fields() const noexcept;
  DataField field(std::size_t index) const;
  /// Null if there is none of that name.
  std::optional<DataField> find(std::string_view name) const;
  /// Puts `bytes` in the place of the field of that name, or adds one.
  void set(std::string_view name, std::string_view type, std::vector<std::uint64_t> shape,
           std::vector<std::byte> bytes);
  void remove(std::string_view name);
  /// Of the whole run: equal for a sample whatever the number of ranks. Random numbers of a stage
  /// begin here.
  std::uint64_t sample() const noexcept;

 private:
  Impl* impl_;
};

/// What a program does to each record before it is given, as decompressing an image. Called on the
/// loader's threads, several at once. What it throws makes the record a corrupt one.
struct DecodeStage {
  std::string name;
  std::function<void(DecodedRecord&)> run;
};

/// How hosts that give each other what they have read come together.
struct DataPeersOptions {
  std::string host;  ///< This host's name, unlike other hosts', the same in the next run.
  /// At which other hosts reach this process, as numbers: "10.0.0.7", "fd00::7".
  std::string address;
  /// Gives every process' text, in one order on all of them: an all_gather. Called once, by all
  /// together. What passes through it is a secret of the job's.
  std::function<std::vector<std::string>(const std::string&)> gather;
};

/// Processes of a job that give each other blocks of files, over connections of their own. For one
/// loader of each process at a time.
class SPRAT_API DataPeers {
 public:
  /// Throws what gather throws, and Error naming the address or the process that makes no sense.
  explicit DataPeers(const DataPeersOptions& options);

  class Impl;
  const std::shared_ptr<Impl>& impl() const noexcept { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// Blocks of files that were read, kept on a local disk for the next epochs and runs. All processes
/// of a host name the same folder and as many bytes.
struct LoaderCache {
  std::string folder;  ///< Of a local disk; it is made. Empty: no cache.
  std::uint64_t bytes = 0;
  /// Hosts then keep different blocks, and together as many as all have room for. Null: each host
  /// keeps for itself.
  std::shared_ptr<DataPeers> peers = nullptr;
};

/// Samples [begin, end) of each batch.
struct DataSlots {
  std::uint64_t begin = 0, end = 0;
};

/// What is read, in which order, and by what means.
struct LoaderOptions {
  std::vector<DataSource> sources;

  // The order.
  std::uint64_t seed = 0;
  SampleKind samples = SampleKind::automatic;
  std::uint64_t length = 0;  ///< Tokens of a sample, without the last target.
  Shuffle shuffle = Shuffle::full;
  std::uint64_t chunk = 0;  ///< Of Shuffle::chunks: samples that stay together; 0: a file's.
  std::uint64_t mixed_chunks = 16;  ///< Chunks whose samples are mixed.
  /// 0: endless. Samples at the very end that fill no batch are left out, but with Remainder::pad.
  std::uint64_t epochs = 0;
  Remainder remainder = Remainder::carry;

  // Who gets what.
  std::uint64_t batch = 1;  ///< Samples of one step of all ranks together.
  int rank = 0, ranks = 1;  ///< Among those that read different samples.
  /// Whose part is not that of `rank`, as that of a rank with several micro-batches of a step: the
  /// samples of each batch that this loader gives, in this order.
  std::vector<DataSlots> slots = {};

  // Reading.
  std::uint64_t memory_bytes =
      0;  ///< What lies ready at most; 0: 1 GiB, or an eighth of what there is.
  std::string reader = "auto";  ///< "uring" or "pool"; Loader::describe() says which it is.
  int io_threads = 0;           ///< Of readers that have some; 0: 16, which sleep in the kernel.
  int decode_threads = 0;       ///< 0: a quarter of this rank's cores.
  std::vector<DecodeStage> decode;
  Corrupt corrupt = Corrupt::stop;
  /// next() throws Error{timeout} with what is waited for.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// What the file system is where it does not say: "PERSISTENT_2:250:12000".
  std::string fsx = {};
  LoaderCache cache = {};

  /// Ranks of this host, which share its cores; 0: as the launcher says, else one.
  int ranks_on_host = 0;
};

/// From JSON, as docs/data.md has it. Throws Error{invalid_argument} naming the key, as
/// SECTION.order.length for one.
SPRAT_API LoaderOptions parse_loader_options(std::string_view json,
                                             const std::string& section = "loader");

/// One rank's part of a batch. Copies share its memory, which the loader takes back when the last
/// is gone: who holds many stops the loader from reading ahead. Any thread.
class SPRAT_API DataBatch {
 public:
  class Impl;
  explicit DataBatch(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

  std::uint64_t index() const noexcept;  ///< Of the batches since the loader began, or resumed.
  std::uint64_t first() const noexcept;  ///< The run's sample that is this rank's first of it.
  std::size_t size() const noexcept;     ///< Samples of this rank. May be 0.
  std::uint64_t epoch(std::size_t sample) const;
  std::size_t source(std::size_t sample) const;
  /// In its source, counted over the files in the order of their names.
  std::uint64_t record(std::size_t sample) const;
  std::size_t fields(std::size_t sample) const;
  DataField field(std::size_t sample, std::size_t index) const;
  /// Windows and packed samples: the elements of all of them, size() rows of length + 1. Else
  /// empty.
  std::span<const std::byte> elements() const noexcept;
  std::string_view element_type() const noexcept;
  /// Of a packed sample: tokens of each document in it.
  std::span<const std::uint32_t> lengths(std::size_t sample) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// What limited a loader, and its rates.
struct LoaderReport {
  std::string json;  ///< One line; `sprat io diagnose` reads a file of them.
  std::string text;  ///< One line for people.
};

/// Gives this rank's part of one batch after the other. One thread at a time calls, but for
/// report().
class SPRAT_API Loader {
 public:
  /// Opens the sources, whose indexes are made if there are none, and begins to read ahead, a
  /// moment later, in which resume() may say from where. Throws Error naming the file or the
  /// option, and the remedy.
  explicit Loader(LoaderOptions options);
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  /// The next batch; nothing after the last epoch. Waits for it at most options.timeout.
  std::optional<DataBatch> next();
  /// Whether next() would not wait, be it that it gives, ends or throws: waits for that at most so
  /// long. Waits in a row are one: after options.timeout it is true, and next() throws at once.
  bool wait(std::chrono::milliseconds longest);
  /// What was given so far, as JSON of less than 1 KB, equal on all ranks that have taken as many
  /// batches. Ranks of another number may resume from it.
  std::string state() const;
  /// Goes on behind that state. Throws Error{invalid_argument} naming what differs: another
  /// dataset, another order; Error{unavailable} if it is no state. Then nothing has changed.
  void resume(std::string_view state);
  /// Samples of an epoch: of a mixture, as many as all sources have.
  std::uint64_t samples_per_epoch() const;
  /// Equal on ranks that see the same data.
  std::uint64_t fingerprint() const;
  /// What was observed since the last report, or since the loader began: rates, waits, latencies,
  /// and a sentence on what limits it. Once a second is a good measure. Any thread.
  LoaderReport report();
  /// A step of training has ended: the report then tells of steps that took much longer. Any
  /// thread.
  void note_step(std::chrono::nanoseconds took);
  /// How files are read, and why so: one sentence.
  std::string describe() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
