// `sprat io index`: makes a dataset's index, says what is in it, and holds it against the files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/io/io_command.hpp"
#include "cli/progress/live_line.hpp"
#include "cli/tree.hpp"
#include "cli/whole_number.hpp"
#include "io/dataset/index_check.hpp"
#include "io/dataset/indexer.hpp"
#include "io/formats/format.hpp"

namespace sprat::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct IndexArguments {
  io::DatasetOptions dataset;
  bool as_json = false, check = false, quiet = false;
};

/// A line on standard error once work takes longer than a moment: drawn anew on a terminal, else a
/// new one now and then.
class ProgressLine {
 public:
  ProgressLine(const char* verb, bool quiet) : verb_(verb), quiet_(quiet), line_(!quiet) {}

  void tell(const io::IndexProgress& progress) {
    const Clock::time_point now = Clock::now();
    if (quiet_ || now < next_) {
      return;
    }
    const double seconds = std::chrono::duration<double>(now - began_).count();
    const std::string files =
        fmt::format("sprat: {} {} of {} files", verb_, progress.files, progress.of_files);
    const std::string bytes = readable_bytes(progress.bytes);
    const std::string records = fmt::format("{} records", progress.records);
    const std::string rate =
        readable_bytes(static_cast<std::size_t>(static_cast<double>(progress.bytes) / seconds)) +
        "/s";
    if (line_.draws()) {
      line_.show({{files, 3}, {bytes, 2}, {records, 0}, {rate, 1}});
      return;
    }
    fmt::print(stderr, "{}, {}, {}, {}\n", files, bytes, records, rate);
    next_ = now + between_lines;
  }

 private:
  static constexpr std::chrono::seconds first_after{1}, between_lines{10};
  const char* verb_;
  const bool quiet_;
  LiveLine line_;
  Clock::time_point began_ = Clock::now(), next_ = began_ + first_after;
};

/// Of the bytes of records.
struct RecordSizes {
  std::uint64_t records = 0, bytes = 0, least = 0, median = 0, most = 0;
};

RecordSizes sizes_of(const io::DatasetIndex& index) {
  // Sizes repeat, so a table of them is far smaller than one of records.
  std::map<std::uint64_t, std::uint64_t> counts;
  for (const io::NamedRecords& file : index.files) {
    const io::FileRecords& records = file.records;
    if (records.stride > 0) {
      counts[records.stride] += records.count;
      continue;
    }
    for (std::uint64_t record = 0; record < records.records(); ++record) {
      ++counts[records.span(record).bytes];
    }
  }
  RecordSizes sizes;
  for (const auto& [bytes, count] : counts) {
    sizes.records += count;
    sizes.bytes += bytes * count;
  }
  std::uint64_t before = 0;
  for (const auto& [bytes, count] : counts) {
    sizes.least = before == 0 ? bytes : sizes.least;
    sizes.most = bytes;
    // The lower of the two in the middle.
    if (before <= (sizes.records - 1) / 2) {
      sizes.median = bytes;
    }
    before += count;
  }
  return sizes;
}

std::uint64_t file_bytes(const io::DatasetIndex& index) {
  std::uint64_t bytes = 0;
  for (const io::NamedRecords& file : index.files) {
    bytes += file.records.stamp.bytes;
  }
  return bytes;
}

/// "1 file", "2 files".
std::string counted(std::uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Names may be no UTF-8, which JSON is.
std::string index_text(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson dataset_json(const io::IndexedDataset& dataset) {
  const RecordSizes sizes = sizes_of(dataset.index);
  return {{"folder", dataset.folder},
          {"format", dataset.index.format},
          {"how", dataset.index.how},
          {"files", dataset.index.files.size()},
          {"file_bytes", file_bytes(dataset.index)},
          {"records", sizes.records},
          {"record_bytes",
           {{"all", sizes.bytes},
            {"least", sizes.least},
            {"median", sizes.median},
            {"most", sizes.most}}},
          {"index", dataset.kept_at},
          {"indexed_now", dataset.indexed}};
}

void print_table(const io::IndexedDataset& dataset) {
  const io::DatasetIndex& index = dataset.index;
  const RecordSizes sizes = sizes_of(index);
  fmt::print("{}\nformat     {}, {}\nfiles      {}, {}\nrecords    {}, {}\n", dataset.folder,
             index.format, index.how, index.files.size(), readable_bytes(file_bytes(index)),
             sizes.records, readable_bytes(sizes.bytes));
  if (sizes.records > 0) {
    fmt::print("a record   {} at least, {} in the median, {} at most\n",
               readable_bytes(sizes.least), readable_bytes(sizes.median),
               readable_bytes(sizes.most));
  }
  fmt::print("index      {}\n           {} read now, {} known before\n",
             dataset.kept_at.empty() ? "kept nowhere: no place can be written to" : dataset.kept_at,
             counted(dataset.indexed, "file"), index.files.size() - dataset.indexed);
}

void print_findings(const io::IndexFindings& findings) {
  for (const std::string& complaint : findings.complaints) {
    fmt::print("{}\n", complaint);
  }
  fmt::print("checked    {}, {}, {}: {}\n", counted(findings.files, "file"),
             counted(findings.records, "record"), readable_bytes(findings.bytes),
             findings.complaints.empty() ? "all is as the index says" : "not as the index says");
  if (findings.unread > 0) {
    fmt::print("           {} of more than 1 GiB, not taken apart\n",
               counted(findings.unread, "record"));
  }
}

int run_check(const IndexArguments& arguments, const io::IndexedDataset& dataset,
              OrderedJson& json) {
  ProgressLine line("checked", arguments.quiet);
  const io::IndexFindings findings = io::check_index(
      dataset, arguments.dataset, [&](const io::IndexProgress& progress) { line.tell(progress); });
  json["check"] = {{"files", findings.files},
                   {"records", findings.records},
                   {"bytes", findings.bytes},
                   {"records_not_taken_apart", findings.unread},
                   {"complaints", findings.complaints}};
  if (!arguments.as_json) {
    print_findings(findings);
  }
  return findings.complaints.empty() ? 0 : 1;
}

int run_index(const IndexArguments& arguments) {
  io::IndexedDataset dataset;
  {
    ProgressLine line("indexed", arguments.quiet);
    // A check is of the index that is there, so it is not mended first.
    dataset =
        io::index_dataset(arguments.dataset, arguments.check ? io::Trust::names : io::Trust::stamps,
                          [&](const io::IndexProgress& progress) { line.tell(progress); });
  }
  OrderedJson json = dataset_json(dataset);
  if (!arguments.as_json) {
    print_table(dataset);
  }
  const int code = arguments.check ? run_check(arguments, dataset, json) : 0;
  if (arguments.as_json) {
    fmt::print("{}\n", index_text(json));
  }
  return code;
}

std::string formats_help() {
  std::string lines = "Formats:\n";
  for (const io::Format* format : io::formats()) {
    lines += fmt::format("  {:<12} {}\n", format->name, format->about);
  }
  return lines;
}

Action prepare_index(CLI::App& app) {
  auto arguments = std::make_shared<IndexArguments>();
  io::DatasetOptions& dataset = arguments->dataset;
  app.add_option("PATHS", dataset.paths,
                 "Files, folders (not those inside of them), or patterns with * and ? in quotes")
      ->required();
  app.add_option("--format", dataset.format, "One of those below, or auto")->capture_default_str();
  app.add_option("--token-type", dataset.format_options.token_type,
                 "Of tokens in files without a header: u16, u32, ...");
  app.add_option("--separator", dataset.format_options.separator,
                 "Between documents of a text, as '<|endoftext|>'; else each file is one");
  app.add_option("--index", dataset.index_path,
                 "Where the index is kept; else beside the files, or in the user's cache folder");
  app.add_option("--threads", dataset.threads, "That read files; else a quarter of the cores")
      ->check(WholeNumber(1));
  app.add_flag("--check", arguments->check,
               "Read all files again and say what is not as the index says; exit status 1 then");
  app.add_flag("--json", arguments->as_json, "As JSON");
  app.add_flag("--quiet", arguments->quiet, "No lines of how far it is");
  app.footer(app.get_footer() + formats_help());
  return [arguments] { return run_index(*arguments); };
}

}  // namespace

extern const IoCommand io_index_command;
const IoCommand io_index_command = {
    "index",
    "Find the records of files, and keep where they are",
    R"(Reads files once and keeps where their records lie, so that each can be read alone. Files that are as they were
are not read again; if it is stopped, it goes on where it was.

Examples:
  sprat io index train/                                what is in it: files, records, their sizes
  sprat io index 'shards/*.bin' --token-type u16       tokens as nanoGPT writes them
  sprat io index stories.txt --separator '<|endoftext|>'   a document is what is between them
  sprat io index train/ --check                        is every record where the index says, and whole?

)",
    prepare_index,
};

}  // namespace sprat::cli
