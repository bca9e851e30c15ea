#include "tests/system/io_simulation/run.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tests/system/io_simulation/observer.hpp"

namespace sprat::io_simulation {
namespace {

/// Wrong bytes are read so often before they are taken as they are.
constexpr int most_rereads = 3;

class Reading {
 public:
  explicit Reading(const RunSetup& setup)
      : setup_(setup),
        storage_(setup.storage, setup.files, setup.troubles, setup.seed),
        planner_(setup.plan),
        scheduler_(setup.scheduler),
        observer_(setup.storage.network, setup.scheduler, setup.host) {
    needs_.resize(setup.batches.size());
    missing_.resize(setup.batches.size());
  }

  RunResult run() {
    while (result_.batches < setup_.batches.size() && !result_.failure && !result_.stuck) {
      plan_ahead();
      start_reads();
      if (decode() || compute()) {
        continue;
      }
      move_on();
    }
    result_.seconds = std::max(storage_.now(), computing_until_);
    result_.intervals = observer_.finish(result_.seconds);
    return std::move(result_);
  }

 private:
  Moment clock() const { return moment_of(storage_.now()); }

  /// Somewhat beyond the budget, so that requests wait for room in it.
  void plan_ahead() {
    const std::uint64_t ahead = setup_.scheduler.budget_bytes / 2 * 3;
    while (planned_ < setup_.batches.size() &&
           (planned_ == result_.batches || planned_bytes_ < ahead)) {
      std::vector<io::WantedSample> samples;
      for (const io::Extents& extents : setup_.batches[planned_]) {
        samples.push_back({.position = planned_, .extents = extents});
      }
      planner_.forget(std::exchange(forgotten_, {}));
      const io::ReadPlan plan = planner_.plan(samples, [&](std::uint32_t file) {
        return io::PlannedFile{.bytes = setup_.files[file].bytes,
                               .layout = &setup_.files[file].layout,
                               .alignment = setup_.alignment};
      });
      for (const io::Request& request : plan.requests) {
        bytes_[request.id] = request.extent.bytes;
        planned_bytes_ += request.extent.bytes;
        result_.read_bytes += request.extent.bytes;
      }
      for (const io::SamplePiece& piece : plan.pieces) {
        if (needs_[planned_].insert(piece.request).second) {
          ++wanted_by_[piece.request];
          if (!whole_.contains(piece.request)) {
            waits_for_[piece.request].push_back(planned_);
            ++missing_[planned_];
          }
        }
      }
      scheduler_.add(plan.requests);
      ++planned_;
    }
  }

  void start_reads() {
    while (const std::optional<io::ReadStart> start = scheduler_.next(clock())) {
      storage_.start({.id = start->id,
                      .extent = start->extent,
                      .target = start->target,
                      .reopen = start->reopen});
    }
    observer_.opened(storage_.take_opens());
    result_.most_budget_used = std::max(result_.most_budget_used, scheduler_.budget_used());
  }

  /// Whether a batch was decoded now. Batches are decoded in order, one by all threads.
  bool decode() {
    if (setup_.host.decode_s == 0) {
      return false;
    }
    const bool ended = decoding_ && storage_.now() >= decoding_until_;
    if (ended) {
      decoding_ = false;
      ++decoded_;
    }
    const auto ahead = static_cast<std::uint64_t>(setup_.host.decoded_ahead);
    if (!decoding_ && decoded_ < std::min(planned_, result_.batches + ahead) &&
        missing_[decoded_] == 0) {
      decoding_ = true;
      decoding_until_ =
          storage_.now() + decoding_slower() * setup_.host.decode_s / setup_.host.decode_threads;
    }
    return ended;
  }

  double decoding_slower() const {
    double slower = 1;
    for (const Trouble& trouble : setup_.troubles) {
      const bool now = trouble.kind == Trouble::Kind::decoding && trouble.at(storage_.now());
      slower *= now ? trouble.factor : 1;
    }
    return slower;
  }

  /// What a reduction takes that begins now: decoding threads and it share the cores.
  double reduction() const {
    const double wanted = 1 + (decoding_ ? setup_.host.decode_threads : 0);
    const double slower = setup_.host.cores > 0 ? std::max(1.0, wanted / setup_.host.cores) : 1;
    return slower * setup_.host.reduce_s;
  }

  bool there(std::uint64_t batch) const {
    return setup_.host.decode_s > 0 ? batch < decoded_ : missing_[batch] == 0;
  }

  /// Whether a batch was taken now.
  bool compute() {
    const std::uint64_t batch = result_.batches;
    if (storage_.now() < computing_until_ || !there(batch)) {
      return false;
    }
    computing_until_ = storage_.now() + setup_.compute_s;
    if (setup_.host.reduce_s > 0) {
      computing_until_ += reduction();
      observer_.reduces(reduction());
    }
    ++result_.batches;
    bool wrong = false;
    for (const std::uint64_t request : needs_[batch]) {
      wrong = wrong || flipped_.contains(request);
      if (--wanted_by_[request] == 0) {
        let_go(request);
      }
    }
    result_.wrong_batches += wrong ? 1 : 0;
    observer_.took(setup_.batches[batch]);
    return true;
  }

  void let_go(std::uint64_t request) {
    scheduler_.release(request);
    forgotten_.push_back(request);
    planned_bytes_ -= bytes_[request];
    bytes_.erase(request);
    wanted_by_.erase(request);
    whole_.erase(request);
    flipped_.erase(request);
    rereads_.erase(request);
  }

  void move_on() {
    double next = std::min(storage_.next_event(), observer_.next_second());
    const bool computes = storage_.now() < computing_until_;
    if (computes) {
      next = std::min(next, computing_until_);
    }
    if (decoding_) {
      next = std::min(next, decoding_until_);
    }
    const std::optional<Moment> wakes = scheduler_.wakes_at();
    if (wakes) {
      next = std::min(next, seconds_of(*wakes));
    }
    if (!computes && !decoding_ && !wakes && scheduler_.in_flight() == 0) {
      result_.stuck = true;
      return;
    }
    observer_.passes(next - storage_.now(), {.computes = computes,
                                             .decodes = decoding_,
                                             .reads_wait_for_restore = storage_.waits_for_restore(),
                                             .scheduler = scheduler_});
    for (const SimulatedDone& done : storage_.advance(next)) {
      ended(done);
    }
    observer_.reach(storage_.now(), storage_.take_restored(), storage_.released_bytes());
    for (const io::HungRead& hung : scheduler_.hung(clock())) {
      result_.hung.push_back(hung);
    }
  }

  void ended(const SimulatedDone& done) {
    observer_.ended(done);
    if (done.flipped) {
      flipped_.insert(done.id);
    }
    const io::ReadVerdict verdict = scheduler_.done(done.id, done.bytes, done.error, clock());
    if (verdict.kind == io::ReadVerdict::Kind::failed) {
      result_.failure = verdict.failure;
    }
    if (verdict.kind != io::ReadVerdict::Kind::whole) {
      return;
    }
    if (flipped_.contains(done.id) && ++rereads_[done.id] <= most_rereads) {
      flipped_.erase(done.id);
      scheduler_.again(done.id);
      return;
    }
    whole_.insert(done.id);
    for (const std::uint64_t batch : waits_for_[done.id]) {
      --missing_[batch];
    }
    waits_for_.erase(done.id);
  }

  const RunSetup& setup_;
  Storage storage_;
  io::ReadPlanner planner_;
  io::Scheduler scheduler_;
  Observer observer_;
  RunResult result_;

  std::uint64_t planned_ = 0, planned_bytes_ = 0;
  double computing_until_ = 0, decoding_until_ = 0;
  bool decoding_ = false;
  std::uint64_t decoded_ = 0;                   // batches
  std::vector<std::set<std::uint64_t>> needs_;  // requests of each batch
  std::vector<std::uint64_t> missing_;          // how many of them are not whole
  std::unordered_map<std::uint64_t, std::uint64_t> wanted_by_, bytes_;  // by request
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> waits_for_;
  std::unordered_set<std::uint64_t> whole_, flipped_;
  std::unordered_map<std::uint64_t, int> rereads_;
  std::vector<std::uint64_t> forgotten_;
};

}  // namespace

RunResult run_reading(const RunSetup& setup) { return Reading(setup).run(); }

}  // namespace sprat::io_simulation
