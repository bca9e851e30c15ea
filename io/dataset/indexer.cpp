#include "io/dataset/indexer.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "io/dataset/file_list.hpp"
#include "io/dataset/index_place.hpp"
#include "io/dataset/index_turn.hpp"
#include "io/dataset/journal.hpp"
#include "io/dataset/parallel.hpp"
#include "io/dataset/streamed_file.hpp"
#include "io/durable.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;
/// Errors that are told by name; so many files that cannot be read have one cause.
constexpr std::size_t most_complaints = 10;

/// An index that is there, and where.
struct KeptIndex {
  DatasetIndex index;
  std::string path;
};

/// A damaged index is no reason to stop: it is made from the files, and can be made again.
std::optional<KeptIndex> find_index(const IndexPlaces& places) {
  for (const std::string& path : places.paths) {
    try {
      if (auto index = read_index(path, places.key)) {
        return KeptIndex{std::move(*index), path};
      }
    } catch (const Error& error) {
      log().warn("{}; the index is made anew", error.what());
    }
  }
  return std::nullopt;
}

std::string name_under(const std::string& folder, const std::string& path) {
  const bool inside =
      path.starts_with(folder) && path.size() > folder.size() + 1 && path[folder.size()] == '/';
  return inside ? path.substr(folder.size() + 1)
                : fs::path(path).lexically_relative(folder).native();
}

/// Names, ascending. Those of one folder stand in the order of their paths already.
std::vector<std::string> names_under(const std::string& folder,
                                     const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  names.reserve(paths.size());
  for (const std::string& path : paths) {
    names.push_back(name_under(folder, path));
  }
  std::ranges::sort(names);
  return names;
}

bool has_names(const DatasetIndex& index, const std::vector<std::string>& names) {
  return std::ranges::equal(index.files, names, {}, &NamedRecords::name);
}

/// What is known of files by name, before any of them is read.
using KnownFiles = std::map<std::string, FileRecords>;

KnownFiles known_files(std::vector<NamedRecords> kept, std::vector<NamedRecords> journaled) {
  KnownFiles known;
  for (auto* files : {&kept, &journaled}) {  // journals are younger
    for (NamedRecords& file : *files) {
      known.insert_or_assign(std::move(file.name), std::move(file.records));
    }
  }
  return known;
}

bool is_as_it_was(const std::string& path, const FileRecords& known) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return stamp_of(path) == known.stamp &&
         std::ranges::all_of(known.companions, [&](const Companion& companion) {
           return stamp_of(folder + companion.name) == companion.stamp;
         });
}

/// One run over the files, by several threads.
class IndexRun {
 public:
  struct Task {
    const Format& format;
    const FormatOptions& options;
    const std::string& folder;
    const std::vector<std::string>& names;
    const ProgressHook& hook;
  };

  IndexRun(const Task& task, KnownFiles known, IndexJournal& journal)
      : task_(task), known_(std::move(known)), results_(task.names.size()), journal_(journal) {
    progress_.of_files = task.names.size();
  }

  void run(int threads) {
    in_parallel(results_.size(), threads, "indexing files",
                [this](std::size_t at) { return take_one(at); });
  }

  /// Files that could be indexed, by name.
  std::vector<NamedRecords> take_files() {
    std::vector<NamedRecords> files;
    for (std::size_t at = 0; at < results_.size(); ++at) {
      if (results_[at]) {
        files.push_back({task_.names[at], std::move(*results_[at])});
      }
    }
    return files;
  }
  /// In the order of names.
  const std::map<std::size_t, std::string>& complaints() const { return complaints_; }
  std::uint64_t indexed() const { return indexed_; }

 private:
  /// Indexes one file, or knows it; then tells. False if there is no use in going on.
  bool take_one(std::size_t at) {
    const std::string& name = task_.names[at];
    const std::string path = path_in(task_.folder, name);
    std::string complaint;
    bool fresh = false;
    try {
      const auto known = known_.find(name);
      fresh = known == known_.end() || !is_as_it_was(path, known->second);
      results_[at] =
          fresh ? index_file(task_.format, task_.options, path) : std::move(known->second);
    } catch (const std::bad_alloc&) {
      complaint = text("there is no memory for where the records of ", path, " lie");
    } catch (const std::exception& error) {
      complaint = error.what();
    }
    const std::scoped_lock lock(mutex_);
    ++progress_.files;
    if (!complaint.empty()) {
      complaints_.emplace(at, complaint);
      return complaints_.size() < most_complaints;
    }
    if (fresh) {
      ++indexed_;
      journal_.append({name, *results_[at]});
    }
    progress_.bytes += results_[at]->stamp.bytes;
    progress_.records += results_[at]->records();
    if (task_.hook) {
      task_.hook(progress_);
    }
    return true;
  }

  const Task& task_;
  KnownFiles known_;                                 // each name is one thread's
  std::vector<std::optional<FileRecords>> results_;  // likewise
  std::mutex mutex_;                                 // guards what follows
  IndexJournal& journal_;
  IndexProgress progress_;
  std::map<std::size_t, std::string> complaints_;
  std::uint64_t indexed_ = 0;
};

/// By what users say, by the index that is there, or by what files are.
Recognised choose_format(const DatasetOptions& options, const std::optional<KeptIndex>& kept,
                         const FoundFiles& found) {
  if (options.format != "auto") {
    return {&format_named(options.format), "as it was named"};
  }
  if (kept) {
    // Unless all files of that format went, and others came.
    const Format& format = format_named(kept->index.format);
    if (!found.named.empty() || has_files_of(format, found)) {
      return {&format, "as its index says"};
    }
  }
  StreamedFile file(typical_file(found));
  return recognise(file);
}

/// A format's own list of a folder's files tells which are missing, and which are others than those
/// that were written.
void check_catalogues(const Format& format, const FoundFiles& found, const std::string& folder,
                      const std::vector<NamedRecords>& files) {
  if (format.catalogue == nullptr) {
    return;
  }
  std::map<std::string, const FileRecords*> by_path;
  for (const NamedRecords& file : files) {
    by_path.emplace(path_in(folder, file.name), &file.records);
  }
  for (const std::string& whole : found.folders) {
    const std::string path = whole + "/" + std::string(format.catalogue_name);
    std::error_code none;
    if (!fs::exists(path, none)) {
      continue;
    }
    StreamedFile file(path);
    for (const CatalogueEntry& entry : format.catalogue(file)) {
      const auto listed = by_path.find(whole + "/" + entry.name);
      need(listed != by_path.end(), path, " lists ", entry.name, ", which is not in the folder");
      const FileRecords& records = *listed->second;
      need(records.stamp.bytes == entry.bytes && records.records() == entry.records, path,
           " gives ", entry.name, " ", entry.records, " records and ", entry.bytes,
           " bytes, and the file has ", records.records(), " and ", records.stamp.bytes,
           ": one of the two is of another dataset");
    }
  }
}

/// The first place whose folder can be written to; empty if there is none.
std::string writable_place(const IndexPlaces& places) {
  for (const std::string& path : places.paths) {
    const std::string folder = fs::path(path).parent_path().native();
    std::error_code error;
    fs::create_directories(folder, error);
    if (access(folder.c_str(), W_OK) == 0) {
      return path;
    }
  }
  return {};
}

/// Where it was kept; empty, and a line in the log, where it could not.
std::string keep(const IndexPlaces& places, const std::string& first, const DatasetIndex& index) {
  bool begun = false;
  for (const std::string& path : places.paths) {
    begun = begun || path == first;
    if (!begun) {
      continue;
    }
    try {
      make_folder(fs::path(path).parent_path().native(), {});
      write_index(path, places.key, index);
      log().info("the index of {} files is kept in {}", index.files.size(), path);
      return path;
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
  }
  log().warn(
      "the index of {} is kept nowhere, so it is made anew each time: name a place for it "
      "(--index, DatasetOptions::index_path)",
      places.folder);
  return {};
}

[[noreturn]] void complain_of_files(const IndexRun& run, std::size_t files) {
  const auto& complaints = run.complaints();
  std::string lines;
  for (const auto& [at, complaint] : complaints) {
    lines += (lines.empty() ? "" : "\n") + complaint;
  }
  const bool stopped = complaints.size() >= most_complaints;
  throw Error(ErrorCode::unavailable,
              complaints.size() == 1 ? lines
                                     : text(stopped ? "at least " : "", complaints.size(), " of ",
                                            files, " files cannot be indexed:\n", lines));
}

/// What is there before anything is indexed.
struct Before {
  std::optional<KeptIndex> kept;
  Recognised chosen;
  std::vector<std::string> names;

  bool is_done(Trust trust) const {
    return kept && trust == Trust::names && has_names(kept->index, names);
  }
};

Before look_around(const DatasetOptions& options, const IndexPlaces& places,
                   const FoundFiles& found) {
  Before before{.kept = find_index(places), .chosen = {}, .names = {}};
  before.chosen = choose_format(options, before.kept, found);
  before.names = names_under(places.folder, files_of(*before.chosen.format, found));
  return before;
}

/// Whether an index came or changed since the last call.
class IndexWatch {
 public:
  explicit IndexWatch(const IndexPlaces& places) : places_(places), seen_(stamps()) {}
  bool changed() {
    std::vector<FileStamp> now = stamps();
    const bool differs = now != seen_;
    seen_ = std::move(now);
    return differs;
  }

 private:
  std::vector<FileStamp> stamps() const {
    std::vector<FileStamp> stamps;
    for (const std::string& path : places_.paths) {
      std::error_code none;
      stamps.push_back(fs::exists(path, none) ? stamp_of(path) : FileStamp{});
    }
    return stamps;
  }

  const IndexPlaces& places_;
  std::vector<FileStamp> seen_;
};

/// Of files that cannot be indexed the index says nothing, so whoever opens the dataset next asks
/// them again, and only them. An index of none at all would be of no use.
bool is_useful(const IndexRun& run, const DatasetIndex& index) {
  return run.complaints().empty() || !index.files.empty();
}

/// Reads what is not known, and keeps what was found at `place`, or at the next one.
IndexedDataset make_index(const DatasetOptions& options, const IndexPlaces& places,
                          const std::string& place, const FoundFiles& found, Before before,
                          const ProgressHook& hook) {
  auto& [kept, chosen, names] = before;
  const bool same_format = kept && kept->index.format == chosen.format->name;
  IndexedDataset made{.index = {.format = std::string(chosen.format->name),
                                .how = same_format ? kept->index.how : std::string(chosen.how),
                                .files = {}},
                      .folder = places.folder,
                      .kept_at = kept ? kept->path : std::string()};
  const bool same_names = kept && has_names(kept->index, names);
  KnownFiles known = known_files(kept ? std::move(kept->index.files) : std::vector<NamedRecords>(),
                                 read_journals(place, places.key));
  IndexJournal journal(place, places.key);
  const IndexRun::Task task{*chosen.format, options.format_options, places.folder, names, hook};
  IndexRun run(task, std::move(known), journal);
  run.run(indexing_threads(options.threads));
  made.index.files = run.take_files();
  made.indexed = run.indexed();
  if (run.complaints().empty()) {
    try {
      check_catalogues(*chosen.format, found, places.folder, made.index.files);
    } catch (...) {
      journal.remove();  // an index of what is not whole would be taken as one of what is
      throw;
    }
  }
  if (is_useful(run, made.index) && (!same_names || made.indexed > 0)) {
    made.kept_at = keep(places, place, made.index);
  }
  journal.remove();
  if (!run.complaints().empty()) {
    complain_of_files(run, names.size());
  }
  return made;
}

}  // namespace

int indexing_threads(int wanted) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::max(1, cores / 4);
}

std::string path_in(const std::string& folder, const std::string& name) {
  return name.starts_with("..") ? (fs::path(folder) / name).lexically_normal().native()
                                : (folder == "/" ? "" : folder) + "/" + name;
}

FileRecords index_file(const Format& format, const FormatOptions& options,
                       const std::string& path) {
  StreamedFile file(path);
  FileIndex index = format.index(file, options);
  index.stamp = file.stamp();
  file.require_unchanged();
  return file_records(path, index, file.companions());
}

IndexedDataset index_dataset(const DatasetOptions& options, Trust trust, const ProgressHook& hook) {
  const IndexPlaces places = index_places(options);
  const FoundFiles found = find_files(options.paths);
  IndexWatch watch(places);
  Before before = look_around(options, places, found);
  const auto known = [&] {
    return IndexedDataset{.index = std::move(before.kept->index),
                          .folder = places.folder,
                          .kept_at = std::move(before.kept->path)};
  };
  if (before.is_done(trust)) {
    return known();
  }
  const std::string place = writable_place(places);
  const auto made = [&] {
    if (watch.changed()) {
      before = look_around(options, places, found);
    }
    return before.is_done(trust);
  };
  IndexTurn turn(place, made);
  if (made()) {  // another process may have been at work until now
    return known();
  }
  const ProgressHook tell = [&](const IndexProgress& progress) {
    turn.progress(progress.files, progress.of_files);
    if (hook) {
      hook(progress);
    }
  };
  return make_index(options, places, place, found, std::move(before), tell);
}

}  // namespace sprat::io
