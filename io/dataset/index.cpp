#include "io/dataset/index.hpp"

#include <sys/stat.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"
#include "io/checked_file.hpp"
#include "io/durable.hpp"
#include "io/formats/bytes.hpp"

namespace sprat::io {
namespace {

constexpr std::string_view index_magic = "SPRATIDX";
constexpr std::uint32_t index_version = 1;
constexpr std::uint64_t largest_file = std::uint64_t{1} << 48;

template <class Number>
void append_number(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Takes numbers and texts off the front of bytes.
class EntryReader {
 public:
  explicit EntryReader(std::string_view bytes) : rest_(bytes) {}
  template <class Number>
  Number number() {
    return number_at<Number>(bytes_in(raw(sizeof(Number))), 0);
  }
  std::string_view text() { return raw(number<std::uint64_t>()); }
  std::string_view raw(std::uint64_t bytes) {
    need(bytes <= rest_.size(), "an entry is cut short");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

void append_long_text(std::string& to, std::string_view text) {
  append_number<std::uint64_t>(to, text.size());
  to.append(text);
}

/// Records that lie beyond the file would be read as an error much later, or not at all.
void require_within(const std::string& path, const FileRecords& records) {
  const std::uint64_t end = records.stamp.bytes;
  need(end < largest_file, path, " has ", end, " bytes; indexes take fewer than 2^48");
  if (records.stride > 0) {
    std::uint64_t bytes = 0;
    need(records.spans.size() == 0 &&
             !__builtin_mul_overflow(records.stride, records.count, &bytes) &&
             records.first <= end && bytes <= end - records.first,
         path, ": ", records.count, " records of ", records.stride, " bytes from byte ",
         records.first, " on do not lie in a file of ", end);
    return;
  }
  for (std::size_t at = 0; at < records.spans.size(); ++at) {
    const RecordSpan span = records.spans[at];
    need(span.offset <= end && span.bytes <= end - span.offset, path, ": record ", at, " of ",
         span.bytes, " bytes at byte ", span.offset, " does not lie in a file of ", end);
  }
}

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

/// All that was added, as one checksum.
class RunningHash {
 public:
  RunningHash() : state_(XXH3_createState()) {
    need(state_ != nullptr, "no memory for a checksum");
    XXH3_64bits_reset(state_.get());
  }
  void add(std::string_view bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::uint64_t sum() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, FreeHash> state_;
};

/// Reads an index's parts in order, and sums them up.
class IndexReader {
 public:
  explicit IndexReader(const std::string& path) : file_(path) {}
  std::string part(std::uint64_t bytes) {
    // A length may lie: nothing is made for it that the file cannot fill, or, where that has holes,
    // the machine.
    need(bytes <= file_.bytes() - at_, file_.path(), " ends at byte ", file_.bytes(),
         ", within an entry of ", bytes, ": it is cut short or damaged");
    comm::need_memory(bytes, file_.path().c_str());
    std::string part(bytes, '\0');
    file_.read(at_, std::as_writable_bytes(std::span(part)));
    at_ += bytes;
    hash_.add(part);
    return part;
  }
  template <class Number>
  Number number() {
    return number_at<Number>(bytes_in(part(sizeof(Number))), 0);
  }
  std::string text() { return part(number<std::uint64_t>()); }
  void finish() {
    const std::uint64_t sum = hash_.sum();
    need(number<std::uint64_t>() == sum && at_ == file_.bytes(), file_.path(),
         " is damaged: its checksum differs");
  }

 private:
  StreamedFile file_;
  RunningHash hash_;
  std::uint64_t at_ = 0;
};

}  // namespace

void SpanTable::append(RecordSpan span) {
  rows_.push_back({static_cast<std::uint32_t>(span.offset), static_cast<std::uint32_t>(span.bytes),
                   static_cast<std::uint32_t>(span.offset >> 32) << 16 |
                       static_cast<std::uint32_t>(span.bytes >> 32)});
}

RecordSpan SpanTable::operator[](std::size_t at) const {
  const Row& row = rows_[at];
  return {.offset = std::uint64_t{row[2] >> 16} << 32 | row[0],
          .bytes = std::uint64_t{row[2] & 0xffff} << 32 | row[1]};
}

void SpanTable::assign(std::span<const std::byte> bytes) {
  need(bytes.size() % sizeof(Row) == 0, "a table of spans is cut short");
  rows_.resize(bytes.size() / sizeof(Row));
  if (!bytes.empty()) {
    std::memcpy(rows_.data(), bytes.data(), bytes.size());
  }
}

FileRecords file_records(const std::string& path, const FileIndex& index,
                         std::vector<Companion> companions) {
  FileRecords records{.stamp = index.stamp,
                      .companions = std::move(companions),
                      .first = index.first,
                      .stride = index.stride,
                      .count = index.count,
                      .spans = {},
                      .context = index.context};
  need(index.stamp.bytes < largest_file, path, " has 2^48 bytes or more");
  for (const RecordSpan& span : index.spans) {
    // Before they are packed, which would cut bits off.
    need(span.offset < largest_file && span.bytes < largest_file, path, ": a record at byte ",
         span.offset, " of ", span.bytes, " bytes does not lie in the file");
    records.spans.append(span);
  }
  require_within(path, records);
  return records;
}

std::string encode_entry(const NamedRecords& file) {
  const FileRecords& records = file.records;
  std::string entry;
  append_long_text(entry, file.name);
  append_number(entry, records.stamp.bytes);
  append_number(entry, records.stamp.modified_ns);
  append_number(entry, records.first);
  append_number(entry, records.stride);
  append_number(entry, records.count);
  append_long_text(entry, records.context);
  append_number<std::uint64_t>(entry, records.companions.size());
  for (const Companion& companion : records.companions) {
    append_long_text(entry, companion.name);
    append_number(entry, companion.stamp.bytes);
    append_number(entry, companion.stamp.modified_ns);
  }
  append_long_text(entry, text_in(records.spans.bytes()));
  return entry;
}

NamedRecords decode_entry(std::string_view bytes) {
  EntryReader reader(bytes);
  NamedRecords file;
  FileRecords& records = file.records;
  file.name = reader.text();
  // A path ends at a NUL, so such a name would be that of another file.
  need(!file.name.empty() && file.name.find('\0') == file.name.npos, "an entry has no name");
  records.stamp.bytes = reader.number<std::uint64_t>();
  records.stamp.modified_ns = reader.number<std::int64_t>();
  records.first = reader.number<std::uint64_t>();
  records.stride = reader.number<std::uint64_t>();
  records.count = reader.number<std::uint64_t>();
  records.context = reader.text();
  for (auto left = reader.number<std::uint64_t>(); left > 0; --left) {
    Companion companion{.name = std::string(reader.text()), .stamp = {}};
    companion.stamp.bytes = reader.number<std::uint64_t>();
    companion.stamp.modified_ns = reader.number<std::int64_t>();
    records.companions.push_back(std::move(companion));
  }
  records.spans.assign(bytes_in(reader.text()));
  need(reader.done(), "an entry is too long");
  require_within(file.name, records);
  return file;
}

void write_index(const std::string& path, std::uint64_t key, const DatasetIndex& index) {
  const std::string spare = path + ".new-" + unique_ending();
  DurableFile file(spare, {});
  RunningHash hash;
  const auto write = [&](std::string_view bytes) {
    hash.add(bytes);
    file.write(bytes_in(bytes));
  };
  std::string head(index_magic);
  append_number(head, index_version);
  append_number(head, key);
  append_long_text(head, index.format);
  append_long_text(head, index.how);
  append_number<std::uint64_t>(head, index.files.size());
  write(head);
  for (const NamedRecords& entry : index.files) {
    const std::string bytes = encode_entry(entry);
    std::string length;
    append_number<std::uint64_t>(length, bytes.size());
    write(length);
    write(bytes);
  }
  std::string sum;
  append_number(sum, hash.sum());
  file.write(bytes_in(sum));
  file.finish();
  try {
    rename_over(spare, path, {});
  } catch (...) {
    remove_all(spare, {});
    throw;
  }
  sync_folder(std::filesystem::path(path).parent_path(), {});
}

std::optional<DatasetIndex> read_index(const std::string& path, std::uint64_t key) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return std::nullopt;
  }
  IndexReader reader(path);
  need(reader.part(index_magic.size()) == index_magic, path, " is no index of Sprat's");
  const auto version = reader.number<std::uint32_t>();
  need(version == index_version, path, " has version ", version, "; this Sprat knows ",
       index_version);
  need(reader.number<std::uint64_t>() == key, path, " is the index of another dataset");
  DatasetIndex index;
  index.format = reader.text();
  index.how = reader.text();
  try {
    for (auto left = reader.number<std::uint64_t>(); left > 0; --left) {
      index.files.push_back(decode_entry(reader.text()));
      const std::size_t files = index.files.size();
      need(files < 2 || index.files[files - 2].name < index.files[files - 1].name,
           "names are not in order");
    }
  } catch (const Error& error) {
    throw Error(ErrorCode::unavailable, text(path, " is damaged: ", error.what()));
  }
  reader.finish();
  return index;
}

std::string unique_ending() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace sprat::io
