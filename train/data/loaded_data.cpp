// Rows of a loader become micro-batches.
//
// A rank has parts of a step that do not lie side by side, one a micro-step; the loader is told
// them as slots of its batches, so that it reads nothing that the rank does not use. A validation
// is short, and read again and again: its parts follow from the loader's own rule, and tensor ranks
// that read samples of their own leave out of it what is not theirs.
#include "train/data/loaded_data.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "train/check.hpp"

namespace sprat::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Tokens are few beside a model: this is some hundred batches of most runs. A loader that has
/// less than a few batches would wait for memory instead of storage.
constexpr std::uint64_t usual_memory_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t batches_ahead = 8;
constexpr std::uint64_t widest_token_bytes = 8;
/// Of a validation, which reads in order and is soon over.
constexpr std::uint64_t validation_share_of_memory = 4;
/// Threads that sleep in reads, where a reader has some. A host has many ranks.
constexpr int usual_io_threads = 4;
/// Of English text and vocabularies of some ten thousand tokens.
constexpr double usual_bytes_per_token = 4;

/// The numbers of a row, and where one is none of [0, tokens).
template <class Number>
std::optional<std::int64_t> widen(std::span<const std::byte> bytes, int tokens,
                                  std::vector<std::int32_t>& row) {
  row.resize(bytes.size() / sizeof(Number));
  for (std::size_t at = 0; at < row.size(); ++at) {
    Number number;
    std::memcpy(&number, bytes.data() + at * sizeof number, sizeof number);
    if (std::cmp_less(number, 0) || std::cmp_greater_equal(number, tokens)) {
      return static_cast<std::int64_t>(number);
    }
    row[at] = static_cast<std::int32_t>(number);
  }
  return std::nullopt;
}

struct ElementKind {
  std::string_view type;
  std::size_t bytes;
  std::optional<std::int64_t> (*widen)(std::span<const std::byte>, int, std::vector<std::int32_t>&);
};
constexpr std::array element_kinds = {
    ElementKind{"u8", 1, widen<std::uint8_t>},   ElementKind{"u16", 2, widen<std::uint16_t>},
    ElementKind{"u32", 4, widen<std::uint32_t>}, ElementKind{"i16", 2, widen<std::int16_t>},
    ElementKind{"i32", 4, widen<std::int32_t>},  ElementKind{"i64", 8, widen<std::int64_t>}};

const ElementKind& element_kind_of(std::string_view type) {
  const auto* found = std::ranges::find(element_kinds, type, &ElementKind::type);
  check(found != element_kinds.end(),
        "data.sources hold elements of type {}, which are no tokens; those are u8, u16, u32, i16, "
        "i32 or i64",
        type);
  return *found;
}

/// What of each batch a rank reads, a micro-step after the other.
std::vector<DataSlots> slots_of(const BatchCut& cut, BatchShare share) {
  std::vector<DataSlots> slots;
  for (int micro_step = 0; micro_step < cut.micro_steps(); ++micro_step) {
    const SampleRange own = cut.own_part(micro_step, share);
    slots.push_back({.begin = static_cast<std::uint64_t>(own.first),
                     .end = static_cast<std::uint64_t>(own.first + own.count)});
  }
  return slots;
}

constexpr const char *learnt_key = "data.sources", *held_out_key = "data.validation.sources";

/// Calls a loader, whose errors then begin with the key that names its files.
template <class Body>
auto named(const char* key, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", key, error.what()));
  }
}

Loader open_loader(const char* key, const LoaderOptions& options) {
  return named(key, [&] { return Loader(options); });
}

DataBatch next_of(const char* key, Loader& loader) {
  // It is endless, so there is always one.
  return named(key, [&] { return loader.next().value(); });
}

}  // namespace

LoadedOptions loaded_options(const TrainConfig& config, BatchShare share) {
  const BatchCut cut(config);
  const auto batch = static_cast<std::uint64_t>(config.train.batch);
  LoadedOptions options{.training = config.data.loader, .validation = {}};
  LoaderOptions& training = options.training;
  training.seed = config.sharding.seed;
  training.length = static_cast<std::uint64_t>(config.model.context);
  training.batch = batch;
  training.rank = share.rank;
  training.ranks = share.ranks;
  training.slots = slots_of(cut, share);
  const auto largest = static_cast<std::uint64_t>(cut.largest_share(share.ranks));
  const std::uint64_t share_bytes = largest * static_cast<std::uint64_t>(cut.micro_steps()) *
                                    (training.length + 1) * widest_token_bytes;
  if (training.memory_bytes == 0) {
    training.memory_bytes = std::max(usual_memory_bytes, batches_ahead * share_bytes);
  }
  if (training.io_threads == 0) {
    training.io_threads = usual_io_threads;
  }
  options.validation = training;
  LoaderOptions& validation = options.validation;
  validation.sources = config.data.validation_sources;
  validation.shuffle = Shuffle::none;
  validation.batch = largest * static_cast<std::uint64_t>(share.ranks);
  validation.slots = {};
  validation.cache = {};  // it would take room from what is read each epoch
  validation.memory_bytes = std::max(
      {std::uint64_t{1} << 20, training.memory_bytes / validation_share_of_memory, share_bytes});
  return options;
}

LoadedData::LoadedData(const TrainConfig& config, std::optional<TokenCodec> codec, BatchShare share)
    : share_(share),
      cut_(config),
      context_(config.model.context),
      tokens_(codec ? codec->vocabulary() : config.model.vocabulary),
      codec_(std::move(codec)),
      options_(loaded_options(config, share)),
      training_(open_loader(learnt_key, options_.training)),
      validation_(open_loader(held_out_key, options_.validation)),
      validation_start_(validation_.state()),
      bytes_per_token_(codec_ && codec_->is_bytes() ? 1 : usual_bytes_per_token) {}

std::map<std::string, std::string> LoadedData::settings() const {
  const auto told = [](const Loader& loader) {
    return fmt::format("{} samples with fingerprint {:016x}", loader.samples_per_epoch(),
                       loader.fingerprint());
  };
  return {{learnt_key, told(training_)}, {held_out_key, told(validation_)}};
}

void LoadedData::append(const DataBatch& rows, SampleRange range,
                        const std::vector<DataSource>& sources, Batch& to) const {
  const ElementKind& kind = element_kind_of(rows.element_type());
  const std::size_t row_bytes = static_cast<std::size_t>(context_ + 1) * kind.bytes;
  const std::vector<ContextPiece> positions = own_positions(context_, share_);
  std::vector<std::int32_t> row;
  for (int sample = range.first; sample < range.first + range.count; ++sample) {
    const auto at = static_cast<std::size_t>(sample);
    const auto wrong = kind.widen(rows.elements().subspan(at * row_bytes, row_bytes), tokens_, row);
    check(
        !wrong,
        "data: record {} of {} (format {}), and those behind it, hold the token {}, and the "
        "vocabulary is {}: name the tokenizer that they are of, or a larger model.vocabulary, or, "
        "of files without a header, another token_type",
        rows.record(at), fmt::join(sources[rows.source(at)].paths, " "),
        sources[rows.source(at)].format, wrong.value_or(0), tokens_);
    for (const ContextPiece& piece : positions) {
      const auto first = row.begin() + piece.first;
      to.inputs.insert(to.inputs.end(), first, first + piece.count);
      to.targets.insert(to.targets.end(), first + 1, first + 1 + piece.count);
    }
  }
}

std::vector<Batch> LoadedData::step(std::int64_t) {
  // The loader stands where the run does: it began there, and gives a batch a step.
  const auto begin = Clock::now();
  const DataBatch rows = next_of(learnt_key, training_);
  seconds_waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<Batch> batches;
  int first = 0;
  for (int micro_step = 0; micro_step < cut_.micro_steps(); ++micro_step) {
    const int count = cut_.own_part(micro_step, share_).count;
    batches.push_back(
        {.inputs = {}, .targets = {}, .samples = cut_.micro_batch(micro_step, share_).count});
    append(rows, {.first = first, .count = count}, options_.training.sources, batches.back());
    first += count;
  }
  return batches;
}

int LoadedData::validation_samples(int wanted) const {
  return static_cast<int>(
      std::min(validation_.samples_per_epoch(), static_cast<std::uint64_t>(wanted)));
}

/// A validation that ends early leaves batches that nobody took, so each one begins anew.
DataBatch LoadedData::next_held_out(int index) {
  if (index == 0 && next_validation_ > 0) {
    validation_.resume(validation_start_);
    next_validation_ = 0;
  }
  check(index == next_validation_, "batch {} of a validation is asked for, and {} is next", index,
        next_validation_);
  ++next_validation_;
  return next_of(held_out_key, validation_);
}

Batch LoadedData::validation(int index, int samples) {
  const SampleRange range = cut_.validation_range(index, samples, share_);
  Batch batch{.inputs = {}, .targets = {}, .samples = range.count};
  if (index >= cut_.validation_batches(samples, share_.ranks)) {
    return batch;
  }
  append(next_held_out(index), part_of_batch(range.count, share_.parts, share_.part),
         options_.validation.sources, batch);
  if (index == 0) {
    measure_tokens(batch);
  }
  return batch;
}

void LoadedData::measure_tokens(const Batch& batch) {
  if (codec_ && !batch.inputs.empty()) {
    bytes_per_token_ = static_cast<double>(codec_->decode(batch.inputs).size()) /
                       static_cast<double>(batch.inputs.size());
  }
}

void LoadedData::resume(const TrainingState& saved) {
  const auto place = saved.notes.find(place_note);
  check(place != saved.notes.end(),
        "the checkpoint says no place in data.sources: its run read data.files. Give those, or "
        "begin with its parameters by --start");
  try {
    training_.resume(place->second);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}; to go on with other data, begin with the "
                                          "checkpoint's parameters by --start",
                                          learnt_key, error.what()));
  }
}

std::map<std::string, std::string> LoadedData::notes() const {
  std::map<std::string, std::string> notes = settings();
  notes[place_note] = training_.state();
  if (codec_) {
    notes[tokenizer_note] = codec_->description();
  }
  return notes;
}

std::uint64_t LoadedData::training_tokens() const {
  return samples_per_epoch() * static_cast<std::uint64_t>(context_);
}

std::string LoadedData::about() const {
  return fmt::format("{} samples of {} {}s to learn, {} held out; {}", samples_per_epoch(),
                     context_, token_word(*this), validation_.samples_per_epoch(),
                     training_.describe());
}

void LoadedData::count_memory(RankMemory& memory) const {
  memory.read_ahead += options_.training.memory_bytes + options_.validation.memory_bytes;
}

}  // namespace sprat::train
