#include "checkpoint/saver.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <random>
#include <utility>

#include "checkpoint/agreement.hpp"
#include "checkpoint/checks/counters.hpp"
#include "checkpoint/checks/replicas.hpp"
#include "checkpoint/checks/ties.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::fsdp {
namespace {

/// A save ends whenever the disk is done, and so its calls come in another step of each run: they
/// are not what runs are compared by.
constexpr Options at_once{.timeout = {}, .blocking = true, .digested = false};
/// How long a rank waits for its own disk before it asks the others, so that no collective lasts.
constexpr std::chrono::milliseconds patience{200};
constexpr std::size_t piece_elements = std::size_t{1} << 22;  // of a write that may be given up

constexpr int keep_all = std::numeric_limits<int>::max();

std::uint64_t random_id() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

/// This rank's files on their way to the disk, on a thread.
class Saver::Writing {
 public:
  struct File {
    std::string path, header;
    std::vector<std::span<const float>> data;
  };

  Writing(std::vector<File> files, io::StepHook hook)
      : files_(std::move(files)), hook_(std::move(hook)), thread_([this] { run(); }) {}
  /// Drops what is not written yet.
  ~Writing() {
    stop_ = true;
    join();
  }

  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return done_; });
  }
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  // Once joined:
  const std::optional<Error>& error() const { return error_; }
  const std::vector<io::FileRecord>& records() const { return records_; }

 private:
  void run() {
    error_ = outcome_of([this] {
      for (const File& file : files_) {
        write(file);
      }
    });
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void write(const File& file) {
    io::DurableFile out(file.path, hook_);
    out.write(std::as_bytes(std::span(file.header)));
    for (std::span<const float> values : file.data) {
      while (!values.empty()) {
        need(!stop_, "the save was given up");
        const auto piece = values.first(std::min(values.size(), piece_elements));
        out.write(std::as_bytes(piece));
        values = values.subspan(piece.size());
      }
    }
    records_.push_back(out.finish());
  }

  const std::vector<File> files_;
  const io::StepHook hook_;
  std::optional<Error> error_;
  std::vector<io::FileRecord> records_;
  std::atomic<bool> stop_ = false;  // a hint alone: nothing is read because of it
  std::mutex mutex_;                // guards done_
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

/// What a commit found old, on its way out. The names are taken before, so that a save that begins
/// meanwhile has nothing to do with them.
class Saver::Removing {
 public:
  Removing(std::vector<std::string> paths, io::StepHook hook)
      : thread_([paths = std::move(paths), hook = std::move(hook)] {
          for (const std::string& path : paths) {
            io::remove_all(path, hook);
          }
        }) {}
  ~Removing() { thread_.join(); }

 private:
  std::thread thread_;
};

Saver::Saver(Communicator& world, const ModelState& held, SaverOptions options)
    : world_(world), held_(held), options_(std::move(options)), plan_(plan_save(held)) {
  require(options_.keep_last >= 1, "keep_last is ", options_.keep_last, "; it is at least 1");
  require(!options_.folder.empty(), "checkpoints need a folder");
  options_.folder = folder_name(options_.folder);
  Contents contents = contents_of(plan_);  // on every rank: what it refuses is refused on all
  if (world_.rank() == 0) {
    contents_ = std::move(contents);
    for (const SavedFile& file : plan_) {
      writers_.push_back(file.writer);
    }
  }
  plan_ = part_of(std::move(plan_), world_.rank());
}

Saver::~Saver() = default;

std::string Saver::unfinished_name() const {
  return fmt::format("{}/{}.tmp-{:016x}", options_.folder, step_name(about_.step), id_);
}

void Saver::open_folder(std::uint64_t id) {
  world_.broadcast(elements(std::span(&id, 1)), 0, at_once).wait();
  id_ = id;
  std::optional<Error> error;
  if (world_.rank() == 0) {
    error = outcome_of([this] {
      make_durable_folder(options_.folder, options_.hook);
      if (!lock_) {
        lock_.emplace(options_.folder);
      }
      io::make_folder(unfinished_name(), options_.hook);
    });
  }
  agree(world_, error);
}

void Saver::prepare() {
  wait();
  about_ = {};
  open_folder(random_id());
  const auto writes = [this](const SavedFile& file) { return file.writer == world_.rank(); };
  const std::optional<Error> error = outcome_of([&] {
    if (std::ranges::any_of(plan_, writes)) {
      io::write_file(fmt::format("{}/trial-{:05}", unfinished_name(), world_.rank() + 1), "x",
                     options_.hook);
    }
  });
  try {
    agree(world_, error);  // and so nobody writes any more
  } catch (...) {
    drop_unfinished();
    throw;
  }
  drop_unfinished();
}

void Saver::save(Manifest about) { start(std::move(about), options_.keep_last); }

void Saver::save_beside(Manifest about) { start(std::move(about), keep_all); }

void Saver::start(Manifest about, int keep_last) {
  wait();
  about_ = std::move(about);
  keep_last_ = keep_last;
  step_name(about_.step);  // refuses a step that is none
  check_counters(world_, about_);
  check_replicas(world_, held_);
  check_ties(world_, held_);
  open_folder(random_id());
  try {
    rows_ = gather_rows(world_, held_, plan_);
    agree(world_, outcome_of([this] { start_writing(); }));
  } catch (...) {
    writing_.reset();
    drop_once_all_have_stopped();
    throw;
  }
  if (!options_.asynchronous) {
    wait();
  }
}

void Saver::start_writing() {
  if (options_.asynchronous) {
    take_snapshot(rows_, snapshot_);
  }
  std::vector<Writing::File> files;
  for (const SavedFile& file : plan_) {
    if (file.writer == world_.rank()) {
      files.push_back({.path = unfinished_name() + "/" + file.name,
                       .header = header_of(file),
                       .data = std::move(rows_.files[files.size()])});
    }
  }
  writing_ = std::make_unique<Writing>(std::move(files), options_.hook);
}

void Saver::drop_once_all_have_stopped() noexcept {
  outcome_of([this] { world_.barrier(at_once); });  // fails where the job has ended
  drop_unfinished();
}

void Saver::drop_unfinished() noexcept {
  if (world_.rank() == 0) {
    io::remove_all(unfinished_name(), options_.hook);
  }
}

void Saver::poll() {
  if (writing_ == nullptr) {
    return;
  }
  std::int64_t done = writing_->done() ? 1 : 0;
  world_.all_reduce(elements(std::span(&done, 1)), ReduceOp::min, at_once).wait();
  if (done == 1) {
    commit();
  }
}

void Saver::wait() {
  while (writing_ != nullptr) {
    writing_->wait_for(patience);
    poll();
  }
  removing_.reset();
}

void Saver::commit() {
  const std::unique_ptr<Writing> writing = std::move(writing_);
  writing->join();
  rows_ = {};
  try {
    agree(world_, writing->error());
    std::vector<std::uint64_t> checksums = gather_checksums(writing->records());
    std::optional<Error> error;
    if (world_.rank() == 0) {
      error = outcome_of([&] { publish(std::move(checksums)); });
      if (!error) {
        remove_old();
      }
    }
    agree(world_, error);
  } catch (...) {
    drop_unfinished();
    throw;
  }
}

/// Whatever fails here, the save has succeeded.
void Saver::remove_old() noexcept {
  const auto failed = outcome_of([this] {
    removing_.reset();  // at most one at a time
    removing_ = std::make_unique<Removing>(
        retire(options_.folder, about_.step, keep_last_, id_, options_.hook), options_.hook);
  });
  if (failed) {
    log().warn("old checkpoints stay in {}: {}", options_.folder, failed->what());
  }
}

std::vector<std::uint64_t> Saver::gather_checksums(const std::vector<io::FileRecord>& mine) {
  std::vector<std::uint64_t> part;
  for (const io::FileRecord& record : mine) {
    part.insert(part.end(), record.blocks.begin(), record.blocks.end());
  }
  std::vector<std::size_t> counts(static_cast<std::size_t>(world_.size()), 0);
  std::vector<std::uint64_t> all;
  if (world_.rank() == 0) {
    std::size_t total = 0;
    for (std::size_t index = 0; index < writers_.size(); ++index) {
      const std::uint64_t bytes = contents_.files[index].record.bytes;
      const std::size_t blocks = (bytes + io::checked_block_bytes - 1) / io::checked_block_bytes;
      counts[static_cast<std::size_t>(writers_[index])] += blocks;
      total += blocks;
    }
    all.resize(total);
  }
  world_.gatherv(elements(std::as_const(part)), elements(all), counts, 0, at_once).wait();
  return all;
}

void Saver::publish(std::vector<std::uint64_t> checksums) {
  about_.contents = contents_;
  auto next = checksums.begin();
  for (StoredFile& file : about_.contents.files) {
    const auto blocks = static_cast<std::ptrdiff_t>(
        (file.record.bytes + io::checked_block_bytes - 1) / io::checked_block_bytes);
    file.record.blocks.assign(next, next + blocks);
    next += blocks;
  }
  const std::string unfinished = unfinished_name();
  io::write_file(unfinished + "/" + manifest_name, write_manifest(about_), options_.hook);
  io::sync_folder(unfinished, options_.hook);
  put_in_place(
      {.folder = options_.folder, .unfinished = unfinished, .step = about_.step, .id = id_},
      options_.hook);
}

}  // namespace sprat::fsdp
