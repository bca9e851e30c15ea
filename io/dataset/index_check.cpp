#include "io/dataset/index_check.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "comm/base/check.hpp"
#include "io/dataset/parallel.hpp"
#include "io/dataset/streamed_file.hpp"

namespace sprat::io {
namespace {

constexpr std::size_t complaints_of_a_file = 3;
constexpr std::uint64_t largest_record = std::uint64_t{1} << 30;

/// What one file gave.
struct FileFindings {
  std::vector<std::string> complaints;
  std::uint64_t records = 0, unread = 0;
};

/// The first record that is not where the index says.
std::string difference(const std::string& path, const FileRecords& is, const FileRecords& said) {
  if (is.stamp != said.stamp) {
    return text(path, " changed since it was indexed: it had ", said.stamp.bytes,
                " bytes, and has ", is.stamp.bytes);
  }
  const std::uint64_t both = std::min(is.records(), said.records());
  for (std::uint64_t record = 0; record < both; ++record) {
    const RecordSpan here = is.span(record), there = said.span(record);
    if (here != there) {
      return text(path, ": record ", record, " has ", here.bytes, " bytes at byte ", here.offset,
                  ", and the index says ", there.bytes, " at ", there.offset);
    }
  }
  return text(path, " has ", is.records(), " records, and the index says ", said.records(),
              ", or other columns or files beside it");
}

/// Records of one length have nothing in them that could be wrong.
void take_apart(const Format& format, const std::string& path, const FileRecords& records,
                FileFindings& findings) {
  StreamedFile file(path);
  std::vector<std::byte> bytes;
  for (std::uint64_t record = 0; records.stride == 0 && record < records.records(); ++record) {
    const RecordSpan span = records.span(record);
    if (span.bytes > largest_record) {
      ++findings.unread;
      continue;
    }
    bytes.resize(span.bytes);
    file.read(span.offset, bytes);
    try {
      static_cast<void>(format.fields(records.context, record, bytes));
    } catch (const Error& error) {
      findings.complaints.push_back(
          text(path, ": record ", record, " at byte ", span.offset, ": ", error.what()));
      if (findings.complaints.size() >= complaints_of_a_file) {
        return;
      }
    }
  }
}

FileFindings check_file(const Format& format, const FormatOptions& options, const std::string& path,
                        const FileRecords& said) {
  FileFindings findings;
  try {
    const FileRecords is = index_file(format, options, path);
    findings.records = is.records();
    if (is != said) {
      findings.complaints.push_back(difference(path, is, said));
    }
    take_apart(format, path, is, findings);
  } catch (const std::exception& error) {
    findings.complaints.emplace_back(error.what());
  }
  return findings;
}

}  // namespace

IndexFindings check_index(const IndexedDataset& dataset, const DatasetOptions& options,
                          const ProgressHook& hook) {
  const Format& format = format_named(dataset.index.format);
  const auto& files = dataset.index.files;
  IndexProgress progress{.of_files = files.size()};
  IndexFindings findings;
  std::map<std::size_t, std::vector<std::string>> complaints;
  std::mutex mutex;  // guards the three above
  in_parallel(
      files.size(), indexing_threads(options.threads), "checking files", [&](std::size_t at) {
        const std::string path = path_in(dataset.folder, files[at].name);
        FileFindings found = check_file(format, options.format_options, path, files[at].records);
        const std::scoped_lock lock(mutex);
        findings.unread += found.unread;
        ++progress.files;
        progress.records += found.records;
        progress.bytes += files[at].records.stamp.bytes;
        if (!found.complaints.empty()) {
          complaints.emplace(at, std::move(found.complaints));
        }
        if (hook) {
          hook(progress);
        }
        return true;
      });
  findings.files = progress.files;
  findings.records = progress.records;
  findings.bytes = progress.bytes;
  for (auto& [at, lines] : complaints) {
    std::ranges::move(lines, std::back_inserter(findings.complaints));
  }
  return findings;
}

}  // namespace sprat::io
