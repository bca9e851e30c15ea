// Finds a run's files, and sorts them by job and rank.
#include "collectives/digests/run_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"

namespace sprat::collectives::digests {
namespace {

namespace fs = std::filesystem;

constexpr const char* ending = ".digests";

/// A folder, and what names of files in it begin with.
struct Place {
  fs::path folder;
  std::string prefix;
};

Place place_of(const std::string& run) {
  std::error_code error;
  if (fs::is_directory(run, error)) {
    return {run, ""};
  }
  const fs::path path(run);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const std::string job = path.filename().string();
  need(fs::is_directory(folder, error) && !job.empty(), run,
       " is no folder; a run is the folder that SPRAT_DIGESTS named");
  return {folder, job + "-rank"};
}

std::vector<fs::path> files_of(const Place& place) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(place.folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(place.prefix) && name.ends_with(ending)) {
      files.push_back(at->path());
    }
  }
  need(!error, place.folder.string(), ": ", error.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const comm::OwnedDescriptor file = comm::open_to_read(path.c_str());
  need(file.open(), path, ": ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode);
  const auto bytes = static_cast<std::size_t>(regular ? status.st_size : 0);
  // Private, and a file of digests only grows: a run that is still going can be looked at.
  void* const data =
      bytes == 0 ? nullptr : ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.number(), 0);
  const int why = errno;
  need(regular, path, " is no file");
  need(data != MAP_FAILED, path, ": ", std::strerror(why));
  bytes_ = {static_cast<const std::byte*>(data), bytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

JobFiles LoadedJob::files(const std::string& shown) const {
  std::vector<const DigestFile*> borrowed;
  for (const auto& file : ranks) {
    borrowed.push_back(file.get());
  }
  return job_of(shown, size, std::move(borrowed));
}

std::unique_ptr<MappedFile> LoadedJob::values(int rank, const Call& call, Side side) const {
  const std::string path = values_path(folder, text(name, "-rank", rank), call, side);
  std::error_code error;
  return fs::exists(path, error) ? std::make_unique<MappedFile>(path) : nullptr;
}

std::vector<LoadedJob> load_run(const std::string& run) {
  const Place place = place_of(run);
  std::map<std::string, LoadedJob> jobs;
  std::vector<std::string> unreadable;
  for (const fs::path& path : files_of(place)) {
    auto mapped = std::make_unique<MappedFile>(path.string());
    std::unique_ptr<DigestFile> file;
    try {
      file = std::make_unique<DigestFile>(parse(path.string(), mapped->bytes()));
    } catch (const Error& error) {
      // One bad file does not hide what the other ranks have to tell.
      unreadable.emplace_back(error.what());
      continue;
    }
    LoadedJob& job = jobs[file->about.job];
    if (job.ranks.empty()) {
      job.name = file->about.job;
      job.folder = place.folder.string();
      job.size = file->about.size;
      job.ranks.resize(static_cast<std::size_t>(job.size));
    }
    const auto rank = static_cast<std::size_t>(file->about.rank);
    if (file->about.size != job.size || job.ranks[rank]) {
      unreadable.push_back(text(path.string(), " says that it is of rank ", rank, " of ",
                                file->about.size, " of a job of which that cannot be"));
      continue;
    }
    job.ranks[rank] = std::move(file);
    job.mapped.push_back(std::move(mapped));
  }
  need(!jobs.empty() || !unreadable.empty(), run,
       " holds no digests; start the run with "
       "SPRAT_DIGESTS=",
       run);
  need(!jobs.empty(), unreadable.empty() ? std::string() : unreadable.front());
  std::vector<LoadedJob> sorted;
  for (auto& [name, job] : jobs) {
    sorted.push_back(std::move(job));
  }
  std::ranges::sort(sorted, {}, [](const LoadedJob& job) { return job.files(job.name).began_ns; });
  sorted.front().unreadable = std::move(unreadable);
  return sorted;
}

}  // namespace sprat::collectives::digests
