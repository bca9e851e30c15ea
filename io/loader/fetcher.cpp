// One turn of the loop: hear what others tell, plan as far as the window allows, start what the
// scheduler says, sleep until a read has ended, join what has come.
#include "io/loader/fetcher.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"
#include "io/loader/lustre/released_reads.hpp"
#include "io/loader/separators.hpp"
#include "io/readers/cache_bypass.hpp"
#include "io/readers/files_by_way.hpp"
#include "io/reading/retries.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

/// Nobody waits for longer than this without looking at what hangs.
constexpr std::chrono::nanoseconds longest_sleep = 1s;
constexpr int batches_a_turn = 4;
/// Requests that are planned and not whole: enough that a reader always finds one. What is planned
/// earlier only makes queues longer.
constexpr std::size_t most_outstanding = 256;
constexpr std::chrono::nanoseconds between_looks = 1s;
/// What is known of a sample beside its bytes: many short ones are to count, too.
constexpr std::uint64_t bytes_beside_a_sample = 512;
/// With fewer reads under way storage could do more, so nothing is told of its speed.
constexpr std::uint32_t least_busy_reads = 4;

Moment now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::uint64_t bytes_of(const ReadPlan& plan) {
  std::uint64_t bytes = 0;
  for (const Request& request : plan.requests) {
    bytes += request.extent.bytes;
  }
  return bytes;
}

}  // namespace

class Fetcher::Loop {
 public:
  Loop(FetchOrder order, FetchReading reading, FetchPartners partners)
      : order_(std::move(order)),
        reading_(std::move(reading)),
        partners_(std::move(partners)),
        skips_(order_.stream->sources()),
        planner_(reading_.plan),
        scheduler_(reading_.scheduler),
        assembly_(partners_.pool),
        files_(
            {.known = [files = reading_.files](std::uint32_t file) { return files->known(file); },
             .bytes = [files = reading_.files](
                          std::uint32_t file) { return files->place(file, 1).bytes; },
             .direct = reading_.direct,
             .may_bypass = reading_.may_bypass,
             .look_again = reading_.look_again}),
        near_({.caches = reading_.caches,
               .pool = partners_.pool,
               .fill_bytes = reading_.fill_bytes,
               .alignment = reading_.alignment,
               .notice = [this] { wake(); }}),
        // On Lustre a file that is released waits for a restore, whoever reads it. Separators are
        // put in by this thread, when it hands a row on.
        cached_rows_(*reading_.files, files_.usual(), partners_.observer,
                     reading_.tries_cached && !reading_.direct && reading_.lustre == nullptr &&
                         !has_separators()) {
    if (reading_.lustre != nullptr) {
      released_ =
          std::make_unique<ReleasedReads>(reading_.lustre->placement, restoring(), scheduler_);
    }
  }
  // Reads under way write into the assembly's memory, which is to be there until they end.
  ~Loop() {
    near_.settle();
    reading_.reader.reset();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run() noexcept;
  void wake() { reading_.reader->wake(); }

 private:
  /// A read that is under way: its file stays open; null for one that a cache brings.
  struct UnderWay {
    std::shared_ptr<const OpenFile> file;
    ReadStart read;
    std::uint64_t bytes = 0;                   // asked for
    std::optional<CacheBypass::Way> way = {};  // of a long read that the page cache has not
  };

  bool may_begin();
  bool hear();
  bool plan_ahead();
  bool has_room();
  bool has_separators() const;
  void plan_batch(std::uint64_t batch);
  void give_rows(BatchBuild& build) const;
  void add_sample(BatchBuild& build, const Sample& sample, StreamPosition position) const;
  void copy_rows();
  void hand_on_copied(const std::shared_ptr<BatchBuild>& build, std::size_t rows);
  void expect_missing(const std::shared_ptr<BatchBuild>& build);
  bool can_hold(const BatchBuild& build, const ReadPlan& plan) const;
  Error too_large(const BatchBuild& build, const ReadPlan& plan) const;
  void expect(const std::shared_ptr<BatchBuild>& build, const std::vector<std::size_t>& samples,
              std::span<const Extents> extents);
  void replace(const CorruptSample& corrupt);
  RestorerOptions restoring() const;
  PlannedFile place(std::uint32_t file);
  OpenFiles::Opened open(std::uint32_t file);
  void settle_released();
  void start_reads();
  void start(const ReadStart& read);
  void read_file(const ReadStart& read);
  void reap(std::chrono::nanoseconds longest);
  void reap_near();
  void ended(const UnderWay& under_way, const ReadDone& done);
  void judge(std::uint64_t request, const ReadVerdict& verdict);
  void give_up(std::uint64_t request, std::exception_ptr error);
  void hand_on(const std::vector<SampleRef>& samples);
  void separate(DataBatch::Impl& batch, std::size_t number) const;
  void free_unwanted();
  void tell_of_queues();
  void look_around();
  void end_starvation();
  Extents in_table(Sample&& sample) const;

  FetchOrder order_;
  FetchReading reading_;
  FetchPartners partners_;
  SkipList skips_;
  ReadPlanner planner_;
  Scheduler scheduler_;
  Assembly assembly_;
  FilesByWay files_;
  NearReads near_;  // after what its reads write into
  CachedRows cached_rows_;
  std::vector<std::shared_ptr<BatchBuild>> copying_;       // this turn's
  std::unique_ptr<ReleasedReads> released_;                // null where nothing is on Lustre
  std::unordered_map<std::uint64_t, UnderWay> under_way_;  // by request
  std::uint64_t next_batch_ = 0, next_position_ = 0;
  std::uint64_t last_batch_bytes_ = 0;
  std::size_t outstanding_ = 0;  // requests that are planned and not whole
  Moment looked_around_ = now();
  std::optional<std::uint64_t> warned_of_;  // the batch that was last said to wait for memory
  std::set<std::uint64_t> replaced_;  // positions of samples, until what follows is waited for
};

void Fetcher::Loop::run() noexcept {
  const CoreBudget::Member member(*partners_.cores, CoreBudget::Role::reads);
  try {
    if (order_.behind_last == 0) {
      partners_.delivery.end();  // of a run that was resumed behind its last batch
    }
    if (!may_begin()) {
      return;
    }
    while (hear()) {
      const bool more = plan_ahead();
      settle_released();
      start_reads();
      tell_of_queues();
      reap(more ? 0ns : longest_sleep);
      look_around();
    }
  } catch (...) {
    // Whoever waits must hear of it; what was ready before is still given out.
    partners_.delivery.fail_all(std::current_exception());
  }
}

/// Until a batch is asked for, or the time to resume elsewhere is over. False: stop. Nothing else
/// can be told before a batch was given.
bool Fetcher::Loop::may_begin() {
  const Moment begins = now() + order_.idle_first;
  for (Moment left = order_.idle_first; left > 0ns; left = begins - now()) {
    const Inbox::Letters letters = partners_.inbox->take();
    if (letters.begin || letters.stop) {
      return !letters.stop;
    }
    reading_.reader->reap(left);
  }
  return true;
}

/// Memory that comes back is free before samples are replaced, which may want it. False: stop.
bool Fetcher::Loop::hear() {
  const Inbox::Letters letters = partners_.inbox->take();
  for (const std::shared_ptr<BatchBuild>& build : letters.let_go) {
    assembly_.let_go(*build);
  }
  free_unwanted();
  for (const std::shared_ptr<BatchBuild>& build : letters.missing) {
    expect_missing(build);
  }
  for (const CorruptSample& corrupt : letters.corrupt) {
    replace(corrupt);
  }
  return !letters.stop;
}

/// A few batches a turn, so that reads start, and end, meanwhile. True if there is more to plan.
bool Fetcher::Loop::plan_ahead() {
  bool more = true;
  for (int planned = 0; planned < batches_a_turn && more; ++planned) {
    more = next_batch_ < order_.behind_last && has_room();
    if (!more) {
      break;
    }
    plan_batch(next_batch_++);
    if (next_batch_ == order_.behind_last) {
      partners_.delivery.end();
    }
  }
  // Behind the planning of all of them: whoever waits may help with the copies from then on.
  copy_rows();
  return more;
}

/// For one more batch. If there is none, the take() that makes some wakes this thread: not each
/// one, since a wake of a thread costs as much as the copies of several samples.
bool Fetcher::Loop::has_room() {
  // One batch is always under way, however small the window is.
  if (partners_.delivery.untaken() == 0) {
    return true;
  }
  // Planning further than the reader can take would only make every look at the plan slower.
  if (outstanding_ >= most_outstanding) {
    return false;
  }
  // Memory of records that the program still looks at is not there for others. More would be
  // mapped, and unmapped when it comes back, and each time its pages be new ones.
  const std::uint64_t next_bytes = MemoryPool::room_of(last_batch_bytes_);
  if (order_.form.row_bytes == 0 &&
      partners_.pool->taken_bytes() + next_bytes > reading_.memory_bytes) {
    return !partners_.delivery.ask_for_room(0);
  }
  // Reading further ahead than the window would take memory for nothing.
  const std::uint64_t window = partners_.window();
  if (partners_.delivery.untaken_bytes() + last_batch_bytes_ <= window) {
    return true;
  }
  if (scheduler_.takes_more()) {
    partners_.held_back();
  }
  const std::uint64_t free = window - std::min(window, last_batch_bytes_);
  return !partners_.delivery.ask_for_room(std::min(free, window / 2));
}

void Fetcher::Loop::plan_batch(std::uint64_t batch) {
  if (released_ != nullptr) {
    released_->advance(batch * order_.batches.share(0, 1).end);
  }
  const auto build = std::make_shared<BatchBuild>();
  build->begin = next_position_;
  build->batch->index = batch;
  build->batch->first = batch;  // until its samples are numbered
  std::size_t count = 0;
  for (const BatchSlots& slots : order_.slots) {
    count += slots.end - slots.begin;
  }
  build->batch->samples.reserve(count);
  std::vector<Extents> extents;
  for (const BatchSlots& slots : order_.slots) {
    for (std::uint64_t slot = slots.begin; slot < slots.end; ++slot) {
      const StreamPosition position = order_.batches.sample(batch, slot);
      Sample sample = order_.stream->sample(position, skips_);
      add_sample(*build, sample, position);
      for (const Extent& extent : sample.extents) {
        build->bytes += extent.bytes;
      }
      extents.push_back(in_table(std::move(sample)));
    }
  }
  next_position_ += count;
  // One more, since a rank without samples of small batches would else plan batches without end.
  build->bytes += (count + 1) * bytes_beside_a_sample;
  last_batch_bytes_ = build->bytes;  // batches are nearly alike: the next one is taken to be so
  build->left.store(count, std::memory_order_relaxed);  // published by announce()
  give_rows(*build);
  if (build->copies) {
    build->cached = cached_rows_.copies_of(*build->batch, extents);
  }
  const std::size_t tried = build->cached == nullptr ? 0 : build->cached->rows();
  // Announced before its reads start, so that it has its place in line whatever ends first.
  partners_.delivery.announce(build);
  if (tried > 0) {
    copying_.push_back(build);
  }
  std::vector<std::size_t> samples(count - tried);
  std::iota(samples.begin(), samples.end(), tried);
  expect(build, samples, std::span(extents).subspan(tried));
}

/// Together with whoever waits for a batch. The last one tells what the page cache has not.
void Fetcher::Loop::copy_rows() {
  for (const std::shared_ptr<BatchBuild>& build : std::exchange(copying_, {})) {
    std::size_t rows = 0;
    bool leaves_missing = false;
    while (build->cached->has_open_rows()) {
      const RowCopies::Copied copied = build->cached->copy();
      rows += copied.rows;
      leaves_missing = leaves_missing || copied.leaves_missing;
    }
    hand_on_copied(build, rows);
    if (leaves_missing) {
      expect_missing(build);
    }
  }
}

void Fetcher::Loop::hand_on_copied(const std::shared_ptr<BatchBuild>& build, std::size_t rows) {
  if (!partners_.decode) {
    partners_.delivery.sample_done(build, rows);
    return;
  }
  // Nobody helps where samples are decoded, so all rows are this thread's.
  std::vector<SampleRef> copied;
  for (std::size_t row = 0; row < build->cached->rows(); ++row) {
    if (build->cached->is_filled(row)) {
      copied.push_back({build, row});
    }
  }
  partners_.decode(copied);
}

void Fetcher::Loop::expect_missing(const std::shared_ptr<BatchBuild>& build) {
  const std::vector<std::size_t> missing = build->cached->missing();
  std::vector<Extents> extents;
  for (const std::size_t row : missing) {
    extents.push_back(build->cached->extents(row));
  }
  expect(build, missing, extents);
}

void Fetcher::Loop::give_rows(BatchBuild& build) const {
  const SampleForm& form = order_.form;
  DataBatch::Impl& batch = *build.batch;
  if (form.row_bytes == 0) {
    return;
  }
  // Also of a rank that has no sample of a small batch: it makes an empty tensor of that type.
  batch.element_type = form.element_type;
  batch.row_shape = {form.row_elements};
  if (batch.samples.empty()) {
    return;
  }
  build.copies = true;
  batch.rows = partners_.pool->take(form.row_bytes * batch.samples.size());
  if (!form.fills_rows) {
    std::ranges::fill(*batch.rows, std::byte{0});
  }
}

void Fetcher::Loop::add_sample(BatchBuild& build, const Sample& sample,
                               StreamPosition position) const {
  const std::uint64_t number = position.epoch * order_.stream->samples() + position.index;
  if (build.batch->samples.empty()) {
    build.batch->first = number;
  }
  build.batch->samples.push_back({.number = number,
                                  .epoch = position.epoch,
                                  .source = sample.source,
                                  .file = sample.extents.empty() ? 0 : sample.extents.front().file,
                                  .record = sample.record,
                                  .bytes = {},
                                  .fields = {},
                                  .lengths = sample.lengths,
                                  .separated = sample.separated});
}

Extents Fetcher::Loop::in_table(Sample&& sample) const {
  Extents extents = std::move(sample.extents);
  for (Extent& extent : extents) {
    extent.file = reading_.files->number(sample.source, extent.file);
  }
  return extents;
}

void Fetcher::Loop::expect(const std::shared_ptr<BatchBuild>& build,
                           const std::vector<std::size_t>& samples,
                           std::span<const Extents> extents) {
  if (samples.empty()) {
    return;
  }
  std::vector<WantedSample> wanted;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    wanted.push_back({.position = build->begin + samples[i], .extents = extents[i]});
  }
  ReadPlan plan = planner_.plan(wanted, [&](std::uint32_t file) { return place(file); });
  if (!can_hold(*build, plan)) {
    // Said now: to wait would be in vain, and memory for it might be all that the machine has.
    std::vector<std::uint64_t> planned;
    for (const Request& request : plan.requests) {
      planned.push_back(request.id);
    }
    planner_.forget(planned);
    partners_.delivery.fail(build, std::make_exception_ptr(too_large(*build, plan)));
    return;
  }
  near_.place(plan.requests);
  // Before the scheduler has them: their memory must be there when they start.
  const std::vector<SampleRef> complete = assembly_.expect(build, plan, samples);
  scheduler_.add(plan.requests);
  // What takes a damaged record's place may lie in what a later sample has asked for.
  for (const EarlierDue& one : plan.earlier) {
    scheduler_.bring_forward(one.request, one.due);
  }
  outstanding_ += plan.requests.size();
  hand_on(complete);
}

/// Rows let go of their requests as they come. Records need all of theirs until the program has
/// looked at them, and the scheduler lets no more be there than its budget.
bool Fetcher::Loop::can_hold(const BatchBuild& build, const ReadPlan& plan) const {
  return build.copies || bytes_of(plan) <= reading_.scheduler.budget_bytes;
}

Error Fetcher::Loop::too_large(const BatchBuild& build, const ReadPlan& plan) const {
  const std::vector<LoadedSample>& samples = build.batch->samples;
  const auto length_of = [&](const LoadedSample& sample) {
    return reading_.files->source(sample.source).record(sample.record).bytes;
  };
  const LoadedSample& longest = *std::ranges::max_element(samples, {}, length_of);
  return {
      ErrorCode::unavailable,
      text("batch ", build.batch->index, " takes ", bytes_of(plan), " bytes at once for ",
           samples.size(), " samples, and memory_bytes is ", reading_.memory_bytes,
           reading_.caches == nullptr ? "" : ", of which three quarters are for reading",
           ": raise memory_bytes, to four batches at best, or take a smaller batch; the longest "
           "sample, record ",
           longest.record, " of ",
           reading_.files->path(reading_.files->number(longest.source, longest.file)), ", has ",
           length_of(longest), " bytes")};
}

/// Of all ranks' samples: hosts share what is to be restored.
RestorerOptions Fetcher::Loop::restoring() const {
  return {.files = reading_.files,
          .mounts = reading_.lustre->mounts,
          .uses = {.files = reading_.files,
                   .stream = order_.stream,
                   .batches = order_.batches,
                   .behind_last = order_.behind_last},
          .restoring = {.host = order_.rank, .hosts = order_.ranks, .seed = order_.stream->seed()},
          .notice = [inbox = partners_.inbox] { inbox->poke(); }};
}

PlannedFile Fetcher::Loop::place(std::uint32_t file) {
  if (released_ == nullptr) {
    return reading_.files->place(file, reading_.alignment);
  }
  return released_->place(file, reading_.alignment,
                          [this](std::uint32_t one) { return open(one); });
}

OpenFiles::Opened Fetcher::Loop::open(std::uint32_t file) {
  const Moment began = now();
  OpenFiles::Opened opened = files_.usual().open(file);
  if (opened.fresh) {
    partners_.observer.file_opened(now() - began);
  }
  return opened;
}

/// Files that are back are read; batches that want what is lost end with the reason.
void Fetcher::Loop::settle_released() {
  if (released_ == nullptr) {
    return;
  }
  for (const ReleasedReads::LostRead& lost : released_->settle()) {
    give_up(lost.request, lost.error);
  }
}

void Fetcher::Loop::replace(const CorruptSample& corrupt) {
  const auto& [ref, what] = corrupt;
  LoadedSample& sample = ref.build->batch->samples[ref.sample];
  const std::string where =
      text("record ", sample.record, " of source ", sample.source, " (",
           reading_.files->path(reading_.files->number(sample.source, sample.file)), "): ", what);
  if (order_.corrupt == Corrupt::stop) {
    partners_.delivery.fail(
        ref.build, std::make_exception_ptr(Error(
                       ErrorCode::unavailable,
                       text(where,
                            "; mend the file, or let the loader take the next record in its place: "
                            "corrupt = skip"))));
    return;
  }
  log().warn("skipped {}", where);
  const RecordRange refused{.begin = sample.record, .end = sample.record + 1};
  // A row that cannot be used says nothing of its tokens, which other rows hold as well.
  const bool is_row = order_.form.row_bytes > 0;
  SkipList of_row = is_row ? sample.refused.value_or(skips_) : SkipList(0);
  SkipList& skips = is_row ? of_row : skips_;
  skips.add(sample.source, refused);
  // Its bytes go back before the replacement is planned: the same request may serve both.
  assembly_.drop(ref);
  free_unwanted();
  const StreamPosition position{.epoch = sample.epoch,
                                .index = sample.number % order_.stream->samples()};
  Sample next = order_.stream->sample(position, skips);
  if (is_row) {
    sample.refused = std::move(of_row);
  }
  sample.record = next.record;
  sample.file = next.extents.empty() ? 0 : next.extents.front().file;
  sample.lengths = next.lengths;
  sample.separated = next.separated;
  sample.fields.clear();
  sample.own.reset();
  const Extents extents = in_table(std::move(next));
  replaced_.insert(ref.build->begin + ref.sample);
  expect(ref.build, {ref.sample}, std::span(&extents, 1));
}

void Fetcher::Loop::start_reads() {
  while (const std::optional<ReadStart> read = scheduler_.next(now())) {
    start(*read);
  }
  if (scheduler_.in_flight() < least_busy_reads) {
    files_.bypass().idles();
  }
}

void Fetcher::Loop::start(const ReadStart& read) {
  if (near_.start(read, assembly_.memory(read.id).subspan(read.into))) {
    under_way_[read.id] = {.file = nullptr, .read = read, .bytes = read.extent.bytes};
  } else {
    read_file(read);
  }
}

void Fetcher::Loop::read_file(const ReadStart& read) {
  if (read.reopen) {
    // A file handle of a network file system may be stale though the path is well.
    files_.drop(read.extent.file);
  }
  FilesByWay::Chosen chosen;
  try {
    chosen = files_.choose(read.extent, open(read.extent.file));
  } catch (const Error&) {
    // Another file than was indexed. The scheduler hears of an end, so that it counts right.
    scheduler_.done(read.id, 0, EBADF, now());
    give_up(read.id, std::current_exception());
    return;
  }
  // Opening may fail as reading may, by the same causes: the scheduler knows what is to be done.
  if (chosen.opened.error != 0) {
    judge(read.id, scheduler_.done(read.id, 0, chosen.opened.error, now()));
    return;
  }
  const std::span<std::byte> into = assembly_.memory(read.id).subspan(read.into);
  const NearReads::Fill fill =
      near_.fill(read, into).value_or(NearReads::Fill{.extent = read.extent, .into = into});
  const std::shared_ptr<const OpenFile> file = std::move(chosen.opened.file);
  under_way_[read.id] = {.file = file, .read = read, .bytes = fill.extent.bytes, .way = chosen.way};
  const bool taken = reading_.reader->submit({.descriptor = file->descriptor(),
                                              .offset = fill.extent.offset,
                                              .into = fill.into,
                                              .tag = read.id});
  require(taken, "the reader takes fewer reads than the scheduler starts");
}

void Fetcher::Loop::reap(std::chrono::nanoseconds longest) {
  if (const std::optional<Moment> wakes = scheduler_.wakes_at()) {
    longest = std::clamp<std::chrono::nanoseconds>(*wakes - now(), 0ns, longest);
  }
  for (const ReadDone& done : reading_.reader->reap(longest)) {
    // From here on the file may be closed.
    const auto read = under_way_.extract(done.tag);
    ended(read.mapped(), done);
  }
  reap_near();
}

void Fetcher::Loop::ended(const UnderWay& under_way, const ReadDone& done) {
  const Extent& extent = under_way.read.extent;
  if (under_way.way == CacheBypass::Way::past && done.error == EINVAL) {
    // Of another file system than the one that was probed, which wants other blocks, perhaps.
    files_.bypass().refuse();
    read_file(under_way.read);
    return;
  }
  if (under_way.way) {
    files_.bypass().ended(done.bytes, now());
  }
  // What a cache was asked for first, and had no more, is the file's after all.
  const Target target = is_near(under_way.read.target)
                            ? target_run(place(extent.file), extent.offset).target
                            : under_way.read.target;
  partners_.observer.read_ended(done, target, under_way.bytes);
  if (!done.cached) {  // which says nothing of what lies in the file system alone
    near_.read_from_file(done.bytes, done.took, under_way_.size() + 1);
  }
  const bool fill = near_.is_fill(done.tag);
  // A cache keeps blocks under the file's stamp, for this run and the next ones: they must be of
  // the file that has it, and not of one that was written to while it was read.
  const bool may_keep =
      !near_.has_caches() || files_.usual().is_unchanged(extent.file, *under_way.file);
  const std::uint64_t bytes = fill ? near_.filled(done.tag, may_keep ? done.bytes : 0) : done.bytes;
  const ReadVerdict verdict = scheduler_.done(done.tag, bytes, done.error, now());
  if (!fill && may_keep && verdict.kind == ReadVerdict::Kind::whole) {
    // With what earlier calls for it have brought.
    const std::uint64_t before = under_way.read.into;
    near_.offer(
        {.file = extent.file, .offset = extent.offset - before, .bytes = extent.bytes + before},
        assembly_.memory(done.tag), assembly_.owner(done.tag));
  }
  judge(done.tag, verdict);
}

void Fetcher::Loop::reap_near() {
  for (const NearReads::Brought& brought : near_.reap()) {
    const auto read = under_way_.extract(brought.request);
    if (brought.bytes == 0) {
      read_file(read.mapped().read);
      continue;
    }
    partners_.observer.brought_near(brought.source, brought.bytes);
    judge(brought.request, scheduler_.done(brought.request, brought.bytes, 0, now()));
  }
}

void Fetcher::Loop::judge(std::uint64_t request, const ReadVerdict& verdict) {
  switch (verdict.kind) {
    case ReadVerdict::Kind::whole:
      --outstanding_;
      hand_on(assembly_.arrived(request));
      free_unwanted();
      return;
    case ReadVerdict::Kind::continues:
      return;
    case ReadVerdict::Kind::failed:
      give_up(request, std::make_exception_ptr(Error(
                           ErrorCode::unavailable,
                           describe(verdict.failure,
                                    reading_.files->path(verdict.failure.request.extent.file)))));
      return;
  }
}

/// Batches that want its bytes end with the error; the others go on.
void Fetcher::Loop::give_up(std::uint64_t request, std::exception_ptr error) {
  --outstanding_;
  for (const std::shared_ptr<BatchBuild>& build : assembly_.builds_of(request)) {
    partners_.delivery.fail(build, error);
  }
}

bool Fetcher::Loop::has_separators() const {
  return std::ranges::any_of(order_.separators, [](const auto& one) { return !one.empty(); });
}

void Fetcher::Loop::hand_on(const std::vector<SampleRef>& samples) {
  for (const SampleRef& sample : samples) {
    separate(*sample.build->batch, sample.sample);
  }
  if (partners_.decode) {
    partners_.decode(samples);
    return;
  }
  for (const SampleRef& sample : samples) {
    partners_.delivery.sample_done(sample.build);
  }
}

/// A row was filled as if there were no separators: they are put in once it is whole.
void Fetcher::Loop::separate(DataBatch::Impl& batch, std::size_t number) const {
  LoadedSample& sample = batch.samples[number];
  if (!sample.separated.empty()) {
    sample.bytes =
        insert_separators(batch.row(number), {.lengths = sample.lengths,
                                              .separated = sample.separated,
                                              .separator = order_.separators[sample.source]});
  }
}

void Fetcher::Loop::free_unwanted() {
  const std::vector<std::uint64_t> unwanted = assembly_.take_unwanted();
  planner_.forget(unwanted);
  for (const std::uint64_t request : unwanted) {
    scheduler_.release(request);
  }
}

void Fetcher::Loop::tell_of_queues() {
  // Once a turn, not once a read: a turn reaps all that has ended meanwhile.
  std::vector<TargetLoad> targets = scheduler_.targets();
  QueueState state{.in_flight = static_cast<double>(scheduler_.in_flight()),
                   .budget_used = scheduler_.budget_used()};
  // What is said of queues is said of storage.
  std::erase_if(targets, [](const TargetLoad& load) { return is_near(load.target); });
  for (const TargetLoad& target : targets) {
    state.cap += target.cap;
    state.queued += static_cast<double>(target.queued);
  }
  if (released_ != nullptr) {
    ReleasedState released = released_->state();
    state.released = {.reads_blocked = static_cast<double>(released.reads_held),
                      .restored_bytes = released.restored_bytes,
                      .left_bytes = released.left_bytes};
    state.waits_for = std::move(released.waits_for);
  }
  state.budget_blocks = scheduler_.waiting() > 0 && state.queued == 0 && state.in_flight == 0 &&
                        scheduler_.held() == 0;
  partners_.observer.queues_are(state, targets);
}

void Fetcher::Loop::look_around() {
  if (now() - looked_around_ < between_looks) {
    return;
  }
  looked_around_ = now();
  partners_.each_second();
  end_starvation();
  for (const HungRead& read : scheduler_.hung(now())) {
    const Extent& extent = read.request.extent;
    log().warn("a read has not come back for {} s: {}, {} bytes from {}, target {}",
               std::chrono::duration_cast<std::chrono::seconds>(read.lasts).count(),
               reading_.files->path(extent.file), extent.bytes, extent.offset, read.request.target);
  }
}

/// Of a batch that somebody waits for. What takes a damaged record's place is asked for when
/// batches behind it have their memory, which they keep until they are taken: so it gets more than
/// there is. A program that keeps a batch of records while it asks for the next one keeps that
/// one's memory. It may let go of it meanwhile, from another thread: so this ends nothing, but says
/// what to do.
void Fetcher::Loop::end_starvation() {
  const auto awaited = partners_.delivery.awaited();
  const auto position = awaited ? scheduler_.starved(awaited->last_position) : std::nullopt;
  if (!position) {
    return;
  }
  replaced_.erase(replaced_.begin(), replaced_.lower_bound(*position));
  if (replaced_.contains(*position)) {
    scheduler_.exceed_budget(*position);
    return;
  }
  if (std::exchange(warned_of_, awaited->index) == awaited->index) {
    return;
  }
  log().warn(
      "batch {} waits for memory: {} of {} bytes are taken, by batches that the program keeps and "
      "by those read ahead; let go of a batch before the next one is asked for, take smaller ones, "
      "or raise memory_bytes",
      awaited->index, scheduler_.budget_used(), reading_.scheduler.budget_bytes);
}

Fetcher::Fetcher(FetchOrder order, FetchReading reading, FetchPartners partners)
    : inbox_(partners.inbox),
      loop_(std::make_unique<Loop>(std::move(order), std::move(reading), std::move(partners))) {
  inbox_->set_wake([loop = loop_.get()] { loop->wake(); });
  thread_ = start_thread("reading ahead", [loop = loop_.get()] { loop->run(); });
}

Fetcher::~Fetcher() {
  // The reader is woken, too, so that nobody waits for a second that has no read in it.
  inbox_->stop();
  thread_.join();
  inbox_->set_wake({});
}

}  // namespace sprat::io
