// A loader at work: who waits, who reads, who decodes. What does not change is LoaderSetup's.
#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/fork.hpp"
#include "comm/base/hash.hpp"
#include "comm/base/reduction_observer.hpp"
#include "io/cores/core_budget.hpp"
#include "io/loader/core_watch.hpp"
#include "io/loader/decoder.hpp"
#include "io/loader/delivery.hpp"
#include "io/loader/fetcher.hpp"
#include "io/loader/gpu_use.hpp"
#include "io/loader/observer.hpp"
#include "io/loader/read_again.hpp"
#include "io/loader/setup.hpp"
#include "io/order/stream_state.hpp"
#include "io/readers/warm_up.hpp"
#include "io/report/report_line.hpp"
#include "sprat/data.hpp"

namespace sprat {
namespace {

/// Whoever goes on from a state makes a loader and says so at once. What it had begun to read by
/// then would be read for nothing, and be in the way of what is wanted.
constexpr std::chrono::milliseconds time_to_resume{100};
/// What a disk or a file system needs to be busy.
constexpr int reads_under_way = 128;

/// Servers show by their times what they can take at once. A disk of this host shows nothing: it
/// answers late or soon as it likes, and is as quick as its queue is long.
io::FlowLimits flow_of(const io::FileSystem& where) {
  constexpr std::uint32_t all = reads_under_way;
  return where.tries_reads ? io::FlowLimits{all, all, all} : io::FlowLimits{};
}

/// Who says a million years means for ever; clocks of 64 bits end before that.
LoaderOptions with_bounded_timeout(LoaderOptions options) {
  constexpr std::chrono::hours century{24 * 365 * 100};
  options.timeout = std::min<std::chrono::milliseconds>(options.timeout, century);
  return options;
}

/// How long a file that is open is taken to be as it was. On a parallel file system each look asks
/// servers.
std::chrono::nanoseconds look_again_of(const io::FileSystem& where) {
  return where.tries_reads ? std::chrono::seconds(1) : std::chrono::seconds(60);
}

/// Batches that begin before the end of epoch `epochs`; of Remainder::carry those that end there.
std::uint64_t batches_until(const io::GlobalBatches& batches, std::uint64_t epochs, bool to_end) {
  // Positions have 64 bits. So many epochs nobody lives to see: they are no end either.
  constexpr std::uint64_t endless = std::uint64_t{1} << 62;
  if (epochs == 0 || epochs > endless / batches.epoch_samples()) {
    return std::numeric_limits<std::uint64_t>::max() - 1;
  }
  const auto within = [&](std::uint64_t batch) {
    const io::StreamPosition end = batches.position(to_end ? batch + 1 : batch);
    return end.epoch < epochs || (to_end && end.epoch == epochs && end.index == 0);
  };
  // Positions are closed forms, so the end of the last epoch is found without counting to it.
  std::uint64_t low = 0, high = 1;
  while (within(high - 1)) {
    low = high;
    high *= 2;
  }
  while (low < high) {  // all below low are within, that at high - 1 is not
    const std::uint64_t middle = low + (high - low) / 2;
    within(middle) ? low = middle + 1 : high = middle;
  }
  return low;
}

}  // namespace

class Loader::Impl {
 public:
  explicit Impl(LoaderOptions options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<DataBatch> next();
  bool wait(std::chrono::milliseconds longest);
  std::string state() const;
  void resume(std::string_view state);
  LoaderReport report();
  const io::LoaderSetup& setup() const { return setup_; }
  io::Observer& observer() { return observer_; }

 private:
  void start(io::StreamPosition from, std::chrono::nanoseconds idle_first);
  void begin_reading();
  void warm_up();
  void stop();
  void require_here() const;
  void help(const std::shared_ptr<io::BatchBuild>& build);
  io::FetchReading reading() const;
  io::DecoderOptions decoding() const;
  std::vector<io::StageInterval> stages() const;

  const comm::ProcessMark process_;
  const LoaderOptions options_;
  const io::LoaderSetup setup_;
  const std::shared_ptr<io::MemoryPool> pool_;
  const std::shared_ptr<io::CoreBudget> cores_;  // shared with whoever carries out reductions
  io::CoreWatch core_watch_{cores_};
  io::Observer observer_;
  mutable std::mutex
      mutex_;  // guards what report() shares: those below, but for given_ and batches_
  io::Diagnoser diagnoser_;
  io::ReadAhead window_;
  io::GpuUse gpus_;
  std::unique_ptr<io::WarmUp> warm_up_;  // null where nothing is read ahead in sequence

  // From a position on.
  std::optional<io::GlobalBatches> batches_;
  std::uint64_t given_ = 0;
  bool begun_ = false;
  std::optional<io::Delivery::Clock::time_point> waits_since_;  // of wait()s in a row
  std::shared_ptr<io::Inbox> inbox_;
  std::unique_ptr<io::Delivery> delivery_;
  std::unique_ptr<io::Decoder> decoder_;
  std::unique_ptr<io::Fetcher> fetcher_;
};

Loader::Impl::Impl(LoaderOptions options)
    : options_(with_bounded_timeout(std::move(options))),
      setup_(io::set_up(options_)),
      pool_(io::MemoryPool::make(setup_.memory_bytes)),
      cores_(std::make_shared<io::CoreBudget>(setup_.cores)),
      observer_(setup_.memory_bytes),
      diagnoser_(setup_.facts),
      window_(2 * setup_.batch_bytes, setup_.memory_bytes) {
  ReductionObservers::add(cores_);
  start({}, time_to_resume);
  warm_up();
}

Loader::Impl::~Impl() {
  stop();
  if (!process_.here()) {
    static_cast<void>(warm_up_.release());  // the thread is the parent's, as in stop()
  }
}

void Loader::Impl::warm_up() {
  if (!setup_.choice.warms_up) {
    return;
  }
  // As they were indexed: a file that has another size now is refused by whoever reads it.
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t file = 0; file < setup_.files->files(); ++file) {
    sizes.push_back(setup_.files->known(file).stamp.bytes);
  }
  // Of ranks on several hosts each host has a part of it, and loses nothing by that. It begins with
  // the first batch's reads and shares the disk with them: a third of their rate is theirs
  // meanwhile.
  warm_up_ = std::make_unique<io::WarmUp>(
      [files = setup_.files](std::uint32_t file) { return files->known(file); },
      io::warm_up_pieces(sizes, {.part = static_cast<std::uint64_t>(options_.rank),
                                 .parts = static_cast<std::uint64_t>(options_.ranks)}));
}

void Loader::Impl::start(io::StreamPosition from, std::chrono::nanoseconds idle_first) {
  // Everything that knows a position is made anew; sources, memory and sums stay.
  batches_.emplace(io::BatchOptions{.epoch_samples = setup_.stream->samples(),
                                    .batch = options_.batch,
                                    .remainder = options_.remainder,
                                    .start = from});
  given_ = 0;
  begun_ = false;
  inbox_ = std::make_shared<io::Inbox>();
  std::function<void(const std::vector<io::SampleRef>&)> decode;
  {
    const std::lock_guard lock(mutex_);
    // Rows of tokens are done once they are copied: no thread is woken for them, and who waits for
    // them copies, too.
    if (setup_.form.row_bytes > 0 && options_.decode.empty()) {
      delivery_ = std::make_unique<io::Delivery>([this](const auto& build) { help(build); });
    } else {
      delivery_ = std::make_unique<io::Delivery>();
      decoder_ = std::make_unique<io::Decoder>(decoding());
      decode = [this](const std::vector<io::SampleRef>& samples) { decoder_->push(samples); };
    }
  }
  fetcher_ = std::make_unique<io::Fetcher>(
      io::FetchOrder{.stream = setup_.stream,
                     .batches = *batches_,
                     .rank = options_.rank,
                     .ranks = options_.ranks,
                     .slots = setup_.slots,
                     .behind_last = batches_until(*batches_, options_.epochs,
                                                  options_.remainder == Remainder::carry),
                     .form = setup_.form,
                     .separators = setup_.separators,
                     .corrupt = options_.corrupt,
                     .idle_first = idle_first},
      reading(),
      io::FetchPartners{
          .delivery = *delivery_,
          .inbox = inbox_,
          .pool = pool_,
          .decode = std::move(decode),
          .window =
              [this] {
                const std::lock_guard lock(mutex_);
                return window_.bytes();
              },
          .held_back =
              [this] {
                const std::lock_guard lock(mutex_);
                window_.held_back();
              },
          .each_second =
              [this] { core_watch_.look(delivery_->waited(), io::CoreWatch::Clock::now()); },
          .cores = cores_,
          .observer = observer_});
}

/// On the thread that waits for a batch.
void Loader::Impl::help(const std::shared_ptr<io::BatchBuild>& build) {
  const io::RowCopies::Copied copied = build->cached->copy();
  delivery_->sample_done(build, copied.rows);
  if (copied.leaves_missing) {
    inbox_->missing(build);
  }
}

/// The fetcher first: it hands on to the decoder, whose threads write to its inbox.
void Loader::Impl::stop() {
  if (!process_.here()) {
    // The threads are the parent's.
    // Joining them would wait for ever, and their locks may be held by nobody.
    static_cast<void>(fetcher_.release());
    static_cast<void>(decoder_.release());
    static_cast<void>(delivery_.release());
    return;
  }
  fetcher_.reset();
  const std::lock_guard lock(mutex_);
  decoder_.reset();
}

io::FetchReading Loader::Impl::reading() const {
  // A request has room beside three others, however small the budget is.
  const std::uint64_t request_bytes = std::bit_floor(
      std::min<std::uint64_t>(io::ReadPlanLimits{}.request_bytes, setup_.memory_bytes / 4));
  // Blocks that a cache of ours keeps are whole ones, read and counted otherwise. Records that come
  // as they lie share a block of direct reads with the one before, and would be copied for it.
  const bool may_bypass =
      setup_.choice.may_bypass && setup_.caches == nullptr && options_.shuffle != Shuffle::none;
  return {
      .files = setup_.files,
      .reader = setup_.choice.kind->open(
          {.depth = reads_under_way, .threads = setup_.io_threads, .direct = setup_.choice.direct}),
      .alignment = setup_.choice.direct || may_bypass ? setup_.where.alignment : 1,
      .direct = setup_.choice.direct,
      .may_bypass = may_bypass,
      // Caches fill with what is read: rows that are copied before would never come into one.
      .tries_cached = setup_.where.tries_reads && setup_.caches == nullptr,
      .look_again = look_again_of(setup_.where),
      .scheduler = {.budget_bytes =
                        setup_.memory_bytes - setup_.storing_bytes - setup_.filling_bytes,
                    .reads = reads_under_way,
                    .target_bytes = setup_.lustre != nullptr ? setup_.lustre->target_bytes
                                                             : io::SchedulerLimits{}.target_bytes,
                    .flow = flow_of(setup_.where),
                    .retry_for = io::retry_time(setup_.where.kind),
                    .seed = options_.seed + static_cast<std::uint64_t>(options_.rank)},
      .plan = {.request_bytes = request_bytes},
      .memory_bytes = setup_.memory_bytes,
      .caches = setup_.caches,
      .fill_bytes = setup_.filling_bytes,
      .lustre = setup_.lustre};
}

io::DecoderOptions Loader::Impl::decoding() const {
  const bool rows = setup_.form.row_bytes > 0;
  return {
      .threads = setup_.cores.decode_threads,
      .cores = cores_,
      .stages = options_.decode,
      .take_apart =
          [&setup = setup_, rows](io::LoadedSample& sample) {
            if (rows) {
              sample.fields = {
                  {.name = "tokens",
                   .type = setup.form.element_type,
                   .shape = {setup.form.row_elements * sample.bytes.size() / setup.form.row_bytes},
                   .bytes = sample.bytes}};
              return;
            }
            const io::Dataset& source = *setup.sources[sample.source];
            sample.fields = source.format().fields(source.context(sample.file),
                                                   sample.record - source.first_record(sample.file),
                                                   sample.bytes);
          },
      // A row has no bytes of its own that others could take the place of.
      .read_again =
          rows ? std::function<void(io::LoadedSample&)>()
               : [&setup = setup_, pool = pool_](
                     io::LoadedSample& sample) { io::read_again(*setup.files, *pool, sample); },
      .done = [this](const io::SampleRef& ref) { delivery_->sample_done(ref.build); },
      .corrupt =
          [this](const io::SampleRef& ref, std::string what) {
            inbox_->corrupt({.sample = ref, .what = std::move(what)});
          },
      // No record of another file stands in for one of this one, so nothing is skipped here.
      .lost = [this](const io::SampleRef& ref,
                     std::exception_ptr error) { delivery_->fail(ref.build, std::move(error)); }};
}

void Loader::Impl::require_here() const {
  need(process_.here(),
       "a child of fork() has none of the loader's threads: make a loader of its "
       "own there");
}

void Loader::Impl::begin_reading() {
  if (!std::exchange(begun_, true)) {
    inbox_->begin();
  }
}

bool Loader::Impl::wait(std::chrono::milliseconds longest) {
  require_here();
  begin_reading();
  const auto now = io::Delivery::Clock::now();
  const auto patience_ends = waits_since_.value_or(now) + options_.timeout;
  waits_since_ = waits_since_.value_or(now);
  longest = std::min(longest, options_.timeout);
  return delivery_->wait(std::min<io::Delivery::Clock::time_point>(now + longest, patience_ends)) ||
         io::Delivery::Clock::now() >= patience_ends;
}

std::optional<DataBatch> Loader::Impl::next() {
  require_here();
  begin_reading();
  const auto begin = std::exchange(waits_since_, std::nullopt);
  const auto taken = delivery_->take(begin.value_or(io::Delivery::Clock::now()) + options_.timeout);
  if (!taken) {
    const io::QueueState queues = observer_.queues();
    throw Error(ErrorCode::timeout,
                text("batch ", given_, " did not come within ", options_.timeout.count(),
                     " ms: ", queues.in_flight, " reads are under way, ", queues.queued,
                     " wait for storage, ", queues.budget_used, " of ", setup_.memory_bytes,
                     " bytes are taken", io::what_to_do_about(queues)));
  }
  if (taken->batch == nullptr) {
    return std::nullopt;
  }
  bool makes_room = taken->makes_room;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = window_.bytes();
    window_.taken(taken->was_ready, taken->ready_bytes);
    makes_room = makes_room || window_.bytes() > before;
  }
  // Only a batch that was given can be let go of; the closure keeps what the fetcher needs to know.
  // Rows are the batch's own: there is nothing that the fetcher would let go of with them.
  if (!taken->build->copies) {
    taken->batch->let_go = [inbox = inbox_, build = taken->build] { inbox->let_go(build); };
  }
  if (makes_room) {
    inbox_->poke();
  }
  observer_.samples_given(taken->batch->samples.size());
  ++given_;
  return DataBatch(taken->batch);
}

std::string Loader::Impl::state() const {
  // Not the records that were skipped: each rank has met others, and meets them again.
  return io::write_state(*setup_.stream, {.position = batches_->position(given_),
                                          .skips = io::SkipList(setup_.stream->sources())});
}

void Loader::Impl::resume(std::string_view state) {
  require_here();
  // Read before anything is stopped: a state that is refused changes nothing.
  const io::StreamState from = io::read_state(*setup_.stream, state);
  stop();
  start(from.position, std::chrono::nanoseconds(0));
}

std::vector<io::StageInterval> Loader::Impl::stages() const {
  std::vector<io::StageInterval> stages;
  if (decoder_ == nullptr) {
    return stages;
  }
  const std::vector<std::chrono::nanoseconds> busy = decoder_->busy();
  for (std::size_t i = 0; i < busy.size(); ++i) {
    stages.push_back({.name = i == 0 ? "taking records apart" : options_.decode[i - 1].name,
                      .threads = decoder_->threads(),
                      .busy_seconds = std::chrono::duration<double>(busy[i]).count()});
  }
  return stages;
}

LoaderReport Loader::Impl::report() {
  const std::optional<double> gpu_busy = gpus_.busy();  // next() need not wait for a driver
  const std::lock_guard lock(mutex_);
  io::Interval interval = observer_.take(
      {.waited = delivery_->waited(), .stages = stages(), .cores = core_watch_.take()});
  if (setup_.lustre != nullptr) {
    diagnoser_.learn(setup_.lustre->facts(setup_.facts));
  }
  interval.gpu_busy = gpu_busy;
  diagnoser_.add(interval);
  return {.json = io::report_json(options_.rank, setup_.facts, interval, diagnoser_.diagnosis()),
          .text = io::interval_text(interval, diagnoser_.diagnosis())};
}

Loader::Loader(LoaderOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;
std::optional<DataBatch> Loader::next() { return impl_->next(); }
bool Loader::wait(std::chrono::milliseconds longest) { return impl_->wait(longest); }
std::string Loader::state() const { return impl_->state(); }
void Loader::resume(std::string_view state) { impl_->resume(state); }
std::uint64_t Loader::samples_per_epoch() const { return impl_->setup().stream->samples(); }
LoaderReport Loader::report() { return impl_->report(); }

std::string Loader::describe() const {
  const io::LoaderSetup& setup = impl_->setup();
  return setup.lustre == nullptr ? setup.choice.sentence
                                 : setup.choice.sentence + "; " + setup.lustre->describe();
}

void Loader::note_step(std::chrono::nanoseconds took) {
  impl_->observer().step_ended(std::chrono::duration<double>(took).count());
}

std::uint64_t Loader::fingerprint() const {
  std::uint64_t sum = fnv1a_begin;
  for (const std::shared_ptr<const io::Dataset>& source : impl_->setup().sources) {
    sum = mix_bits(sum ^ source->fingerprint());
  }
  return sum;
}

}  // namespace sprat
