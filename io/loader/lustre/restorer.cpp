// The state machine (RestoreAhead) says what to do, one for each mount; this does it. All that may
// wait for the metadata server is done here, on a thread of its own.
#include "io/loader/lustre/restorer.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"
#include "io/loader/lustre/first_bytes.hpp"
#include "io/lustre/hsm_calls.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;
using Time = RestoreAhead::Time;

/// A turn is so long that whoever tells this thread something waits for milliseconds at most.
constexpr std::uint64_t samples_a_turn = 4096;
constexpr std::size_t looks_a_turn = 32;
/// Files by which the window may be too long, where its bytes decide.
constexpr std::size_t few_files = 8;
/// How far ahead of the reader samples are looked at, however few files they lie in.
constexpr std::uint64_t most_samples_ahead = std::uint64_t{1} << 20;
/// Files are opened to be looked at, which costs the metadata server a request each. Where the
/// first ones were all there, few are likely to be released: one in so many is looked at.
constexpr std::uint64_t looked_at_first = 64, looked_at_then = 16;
constexpr Time between_log_lines = 10s;

Time restorer_clock() { return std::chrono::steady_clock::now().time_since_epoch(); }

double giga(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

std::string lost_text(const std::string& path, const std::string& why) {
  return text(path, " was released to the archive and does not come back: ", why,
              "; `lfs hsm_state ", path, "` says how it stands and `lfs hsm_restore ", path,
              "` tries again, else put it back from where it came; then make the loader anew");
}

class Restorer::Engine {
 public:
  Engine(RestorerOptions options, std::function<void()> notice)
      : options_(std::move(options)),
        uses_(options_.uses),
        span_(std::min(options_.uses.stream->samples(), most_samples_ahead)),
        first_bytes_(options_.mounts->probe(), std::move(notice)) {}

  /// One turn: what is needed, by a reader that has come to `position`.
  void turn(const std::vector<FirstUse>& needed, std::uint64_t position);
  /// When the next one has something to do, if nothing is told before.
  Time wakes_at() const;
  /// Where the reader makes room for looking further ahead.
  std::uint64_t wakes_at_position() const;
  std::vector<EndedRestore> take_ended() { return std::exchange(ended_, {}); }
  RestoreProgress progress() const;

 private:
  struct RestoredMount {
    RestoredMount(const FsProbe& probe, const std::string& point, const RestoreOptions& options)
        : root(probe, point), ahead({}, options) {}
    ProbedFile root;
    RestoreAhead ahead;
    bool told_of_space = false, told_of_reads = false;
  };

  const std::string& path(std::uint32_t file) const { return options_.files->path(file); }
  const FsProbe& probe() const { return *options_.mounts->probe(); }
  bool look_ahead();
  bool window_is_full() const;
  bool is_to_be_looked_at(std::uint32_t file);
  bool look(std::uint32_t file, std::uint64_t position);
  void step(RestoredMount& mount);
  std::uint64_t free_bytes(const RestoredMount& mount) const;
  void request(RestoredMount& mount, const std::vector<std::uint32_t>& files);
  void ask(RestoredMount& mount, std::uint32_t file);
  void hear(RestoredMount& mount);
  void say(RestoredMount& mount);

  const RestorerOptions options_;
  FirstUses uses_;
  const std::uint64_t span_;  // samples ahead of the reader that may be looked at
  FirstBytes first_bytes_;
  std::map<int, RestoredMount> mounts_;
  std::map<std::uint32_t, int> mount_of_;      // of files that were released
  std::map<std::uint32_t, std::string> lost_;  // and why
  std::deque<FirstUse> to_look_at_;
  std::deque<FirstUse> window_;  // files ahead of the reader, as far as the order was looked at
  std::uint64_t window_bytes_ = 0, position_ = 0, looked_ = 0;
  std::vector<EndedRestore> ended_;
  bool more_ahead_ = true, any_released_ = false;
  Time said_at_{};
};

void Restorer::Engine::turn(const std::vector<FirstUse>& needed, std::uint64_t position) {
  position_ = position;
  for (auto& [number, mount] : mounts_) {
    mount.ahead.advance(position);
  }
  for (const FirstUse& use : needed) {
    if (const auto lost = lost_.find(use.file); lost != lost_.end()) {
      ended_.push_back({.file = use.file, .lost = true, .why = lost->second});
    } else if (!look(use.file, use.position)) {
      ended_.push_back({.file = use.file});  // it has come back meanwhile
    }
  }
  more_ahead_ = look_ahead();
  for (const FirstByte& read : first_bytes_.take()) {
    mounts_.at(mount_of_.at(read.file))
        .ahead.first_byte_read(read.file, read.error, restorer_clock());
  }
  for (auto& [number, mount] : mounts_) {
    step(mount);
    hear(mount);
    say(mount);
  }
}

Time Restorer::Engine::wakes_at() const {
  Time earliest = more_ahead_ ? Time::min() : Time::max();
  for (const auto& [number, mount] : mounts_) {
    earliest = std::min(earliest, mount.ahead.wakes_at());
  }
  return earliest;
}

std::uint64_t Restorer::Engine::wakes_at_position() const {
  if (uses_.complete() && to_look_at_.empty() && mounts_.empty()) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  // One file further, or, where there are few, a good part of what may be looked at.
  const std::uint64_t part = position_ + span_ / 4 + 1;
  return window_.empty() ? part : std::min(part, window_.front().position + 1);
}

/// True if there is more to look at now.
bool Restorer::Engine::look_ahead() {
  for (; !window_.empty() && window_.front().position < position_; window_.pop_front()) {
    window_bytes_ -= options_.files->known(window_.front().file).stamp.bytes;
  }
  const std::uint64_t until = position_ + span_;
  const auto order_has_more = [&] {
    return !window_is_full() && !uses_.complete() && uses_.position() < until;
  };
  if (to_look_at_.empty() && order_has_more()) {
    const std::size_t wanted = options_.restoring.horizon_files, found = window_.size();
    const std::size_t files = found < wanted ? std::min(wanted - found, looks_a_turn) : few_files;
    for (const FirstUse& use :
         uses_.next({.samples = samples_a_turn, .until = until, .files = files})) {
      window_.push_back(use);
      window_bytes_ += options_.files->known(use.file).stamp.bytes;
      if (is_to_be_looked_at(use.file)) {
        to_look_at_.push_back(use);
      }
    }
  }
  for (std::size_t looks = 0; looks < looks_a_turn && !to_look_at_.empty(); ++looks) {
    look(to_look_at_.front().file, to_look_at_.front().position);
    to_look_at_.pop_front();
  }
  return !to_look_at_.empty() || order_has_more();
}

bool Restorer::Engine::window_is_full() const {
  return window_.size() >= options_.restoring.horizon_files &&
         window_bytes_ >= options_.restoring.horizon_bytes;
}

/// Each file is looked at ahead by the one rank that would ask for it. Another one that needs it
/// finds out when it plans to read it.
bool Restorer::Engine::is_to_be_looked_at(std::uint32_t file) {
  const RestoreOptions& shared = options_.restoring;
  if (restoring_host(shared.seed, file, shared.hosts) != shared.host) {
    return false;
  }
  ++looked_;
  return any_released_ || looked_ <= looked_at_first || looked_ % looked_at_then == 0;
}

/// True if the file is released: then it is in a list from now on.
bool Restorer::Engine::look(std::uint32_t file, std::uint64_t position) {
  const FileLook looked = look_at_file(*options_.mounts, path(file));
  // What cannot be opened is left to the read, which knows what to do about it.
  if (looked.error != 0 || looked.mount == nullptr || !looked.released) {
    return false;
  }
  if (!std::exchange(any_released_, true)) {
    // Once, and where everybody sees it: it is why a run begins slowly, and can be avoided.
    log().warn(
        "{} is in the archive of Lustre alone: released files are restored ahead of reading; "
        "restore "
        "them before the run (lfs hsm_restore), and nothing waits",
        path(file));
  }
  RestoredMount& mount =
      mounts_.try_emplace(looked.mount->number, probe(), looked.mount->point, options_.restoring)
          .first->second;
  mount_of_[file] = looked.mount->number;
  mount.ahead.add(
      {.file = file, .bytes = options_.files->known(file).stamp.bytes, .first_use = position});
  mount.ahead.advance(position_);
  return true;
}

void Restorer::Engine::step(RestoredMount& mount) {
  if (restorer_clock() < mount.ahead.wakes_at()) {
    return;
  }
  const RestoreStep step = mount.ahead.next(restorer_clock(), free_bytes(mount));
  if (!step.restore.empty()) {
    request(mount, step.restore);
  }
  for (const std::uint32_t file : step.ask_state) {
    ask(mount, file);
  }
  for (const std::uint32_t file : step.first_byte) {
    first_bytes_.read(file, path(file));
  }
}

std::uint64_t Restorer::Engine::free_bytes(const RestoredMount& mount) const {
  const FileSystemStatus status =
      mount.root.error() == 0 ? probe().status(mount.root.descriptor()) : FileSystemStatus{};
  // A file system that does not say may have room, and refuses what it has none for.
  return status.bytes > 0 ? status.free_bytes : std::numeric_limits<std::uint64_t>::max();
}

void Restorer::Engine::request(RestoredMount& mount, const std::vector<std::uint32_t>& files) {
  std::vector<std::uint32_t> named, unnamed;
  std::vector<LustreFid> fids;
  for (const std::uint32_t file : files) {
    const ProbedFile opened(probe(), path(file));
    const auto fid = opened.error() == 0 ? fid_of(probe(), opened.descriptor()) : std::nullopt;
    if (fid) {
      named.push_back(file);
      fids.push_back(*fid);
    } else {
      unnamed.push_back(file);
    }
  }
  // Where files have no names to ask by, or no root to ask at, a read brings them back.
  if (mount.root.error() != 0) {
    mount.ahead.refused(files, EOPNOTSUPP, restorer_clock());
    return;
  }
  if (!unnamed.empty()) {
    mount.ahead.refused(unnamed, ENOTTY, restorer_clock());
  }
  const int error = fids.empty() ? 0 : request_restore(probe(), mount.root.descriptor(), fids);
  if (error != 0) {
    mount.ahead.refused(named, error, restorer_clock());
  }
}

void Restorer::Engine::ask(RestoredMount& mount, std::uint32_t file) {
  const ProbedFile opened(probe(), path(file));
  if (opened.error() != 0) {
    // Whoever reads it meets the same, and says so; nobody is to wait for it here.
    mount.ahead.told(file, {}, restorer_clock());
    return;
  }
  if (const auto state = hsm_state_of(probe(), opened.descriptor())) {
    mount.ahead.told(file, *state, restorer_clock());
    return;
  }
  const FileLook looked = look_at_file(*options_.mounts, path(file));
  mount.ahead.told(file, {.states = looked.released ? hsm_released : 0}, restorer_clock());
}

void Restorer::Engine::hear(RestoredMount& mount) {
  for (EndedRestore& end : mount.ahead.take_ended()) {
    if (end.lost) {
      lost_[end.file] = end.why;
      log().error("{}", lost_text(path(end.file), end.why));
    }
    ended_.push_back(std::move(end));
  }
}

void Restorer::Engine::say(RestoredMount& mount) {
  const RestoreReport report = mount.ahead.report();
  if (report.by_first_byte && !std::exchange(mount.told_of_reads, true)) {
    log().warn(
        "requests to restore files are refused here; they are brought back by reading a byte "
        "of {} files at a time, which is slower: let root allow them, or restore the files "
        "before the run (lfs hsm_restore)",
        options_.restoring.first_byte_threads);
  }
  if (report.waits_for_space && !std::exchange(mount.told_of_space, true)) {
    log().warn(
        "released files wait for room on their file system: make some, or release others "
        "(lfs hsm_release)");
  }
  if (report.left_files > 0 && restorer_clock() - said_at_ >= between_log_lines) {
    log().info(
        "{:.1f} GB were restored, {} files are on their way, {} files of {:.1f} GB are left "
        "as far as the order was looked at",
        giga(report.restored_bytes), report.outstanding, report.left_files,
        giga(report.left_bytes));
    said_at_ = restorer_clock();
  }
}

RestoreProgress Restorer::Engine::progress() const {
  RestoreProgress progress;
  for (const auto& [number, mount] : mounts_) {
    const RestoreReport report = mount.ahead.report();
    progress.restored_bytes += report.restored_bytes;
    progress.left_bytes += report.left_bytes;
  }
  return progress;
}

Restorer::Restorer(RestorerOptions options) : notice_(options.notice) {
  engine_ = std::make_unique<Engine>(std::move(options), [this] {
    const std::lock_guard lock(mutex_);
    letters_.woken = true;
    changed_.notify_one();
  });
  thread_ = start_thread("restoring released files", [this] { run(); });
}

Restorer::~Restorer() {
  {
    const std::lock_guard lock(mutex_);
    letters_.stop = true;
    changed_.notify_one();
  }
  thread_.join();
  engine_.reset();  // from here on no read of a first byte calls back
}

void Restorer::run() noexcept {
  try {
    while (const std::optional<std::vector<FirstUse>> needed = wait(engine_->wakes_at())) {
      engine_->turn(*needed, position_.load(std::memory_order_relaxed));
      wakes_at_position_.store(engine_->wakes_at_position(), std::memory_order_relaxed);
      tell(engine_->take_ended(), engine_->progress());
    }
  } catch (const std::exception& error) {
    log().error("released files are not restored ahead any more, reads of them wait instead: {}",
                error.what());
    std::vector<EndedRestore> ended;
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
      for (const std::uint32_t file : needed_) {
        ended.push_back({.file = file});
      }
    }
    tell(std::move(ended), progress());
  }
}

/// What is needed by now; nothing: stop.
std::optional<std::vector<FirstUse>> Restorer::wait(Time wakes_at) {
  std::unique_lock lock(mutex_);
  const auto told = [this] { return letters_.stop || letters_.woken || !letters_.needed.empty(); };
  if (wakes_at == Time::max()) {
    changed_.wait(lock, told);
  } else if (wakes_at > restorer_clock()) {
    changed_.wait_until(lock, std::chrono::steady_clock::time_point(wakes_at), told);
  }
  RestoreLetters letters = std::exchange(letters_, {});
  return letters.stop ? std::nullopt : std::optional(std::move(letters.needed));
}

void Restorer::tell(std::vector<EndedRestore> ended, const RestoreProgress& progress) {
  const bool any = !ended.empty();
  {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    for (EndedRestore& end : ended) {
      std::erase(needed_, end.file);
      ended_.push_back(std::move(end));
    }
  }
  if (any) {
    notice_();
  }
}

void Restorer::needs(std::uint32_t file, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  if (broken_) {
    ended_.push_back({.file = file});
    return;
  }
  needed_.push_back(file);
  letters_.needed.push_back({.file = file, .position = position});
  changed_.notify_one();
}

void Restorer::advance(std::uint64_t position) {
  position_.store(position, std::memory_order_relaxed);
  // Batches may be short, and most of them change nothing here.
  if (position < wakes_at_position_.load(std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  letters_.woken = true;
  changed_.notify_one();
}

std::vector<EndedRestore> Restorer::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

RestoreProgress Restorer::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

}  // namespace sprat::io
