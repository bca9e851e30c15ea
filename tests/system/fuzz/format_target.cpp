// Formats of datasets: of any bytes, records lie within the file or an Error says what is wrong;
// and the same of what is in a record.
#include <fmt/format.h>
#include <isa-l/crc.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "comm/base/hash.hpp"
#include "io/dataset/index.hpp"
#include "io/formats/bytes.hpp"
#include "io/formats/format.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"
#include "tests/unit/io/formats/memory_folder.hpp"

namespace sprat::fuzz {
namespace {

using namespace io;

bool within(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

bool take_apart(const Format& format, std::string_view context, std::uint64_t record,
                std::span<const std::byte> bytes) {
  std::uint64_t looked_at = fnv1a_begin;
  try {
    for (const Field& field : format.fields(context, record, bytes)) {
      // What a field has beside its record is looked at whole: the sanitizer finds what is not
      // there.
      looked_at = fnv1a(field.bytes, looked_at);
      expect(field.owner != nullptr || within(field.bytes, bytes), "a field lies in its record");
    }
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

/// The index, or nothing where the file is refused.
std::optional<FileIndex> index_or_refusal(const Format& format, const FilesByName& files,
                                          const std::string& name, const FormatOptions& options) {
  try {
    MemoryFile file(files, name);
    static_cast<void>(format.recognises(file));
    return format.index(file, options);
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return std::nullopt;
  }
}

/// Indexes files[name], gives the records to the dataset's index, and takes the first of them
/// apart. Whether there are records, and all of them can be.
bool index_and_take_apart(std::string_view name_of_format, const FilesByName& files,
                          const std::string& name, const FormatOptions& options) {
  const Format& format = format_named(name_of_format);
  const auto bytes = bytes_in(files.at(name));
  std::optional<FileIndex> index = index_or_refusal(format, files, name, options);
  if (!index) {
    return false;
  }
  index->stamp.bytes = bytes.size();
  FileRecords records;
  try {
    records = file_records(name, *index, {});
  } catch (const Error&) {
    expect(false, "formats give no record beyond the file");
  }
  expect(records.records() == index->records(), "no record is lost");
  constexpr std::uint64_t enough = 50;
  bool understood = records.records() > 0;
  for (std::uint64_t record = 0; record < std::min(records.records(), enough); ++record) {
    const RecordSpan span = records.span(record);
    expect(span.offset <= bytes.size() && span.bytes <= bytes.size() - span.offset,
           "a record lies in its file");
    understood &=
        take_apart(format, records.context, record, bytes.subspan(span.offset, span.bytes));
  }
  // A record that is not where it was.
  static_cast<void>(take_apart(format, records.context, 0, bytes));
  return understood;
}

bool run_file(std::string_view format, const std::string& name, std::span<const std::byte> input,
              const FormatOptions& options = {}) {
  const FilesByName files = {{name, std::string(text_in(input))}};
  return index_and_take_apart(format, files, name, options);
}

void append_masked_crc(std::string& to, std::string_view of) {
  std::string bytes(of);
  const std::uint32_t crc = ~crc32_iscsi(reinterpret_cast<unsigned char*>(bytes.data()),
                                         static_cast<int>(bytes.size()), ~0u);
  const std::uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8;
  to.append(reinterpret_cast<const char*>(&masked), sizeof masked);
}

}  // namespace

/// As it is, and with the right checksum in each block that looks like a header.
bool run_webdataset(std::span<const std::byte> input) {
  const bool as_it_is = run_file("webdataset", "a.tar", input);
  constexpr std::size_t block = 512, sum_at = 148, sum_bytes = 8, magic_at = 257;
  std::string tar(text_in(input));
  for (std::size_t at = 0; at + block <= tar.size(); at += block) {
    if (tar.compare(at + magic_at, 5, "ustar") != 0) {
      continue;
    }
    tar.replace(at + sum_at, sum_bytes, sum_bytes, ' ');
    unsigned sum = 0;
    for (const char byte : std::string_view(tar).substr(at, block)) {
      sum += static_cast<unsigned char>(byte);
    }
    tar.replace(at + sum_at, sum_bytes, fmt::format("{:08o}", sum));
  }
  return run_file("webdataset", "a.tar", bytes_in(tar)) || as_it_is;
}

bool run_tfrecord(std::span<const std::byte> input) {
  const bool as_it_is = run_file("tfrecord", "a.tfrecord", input);
  // Checksums that are right no fuzzer finds, so what is in a payload is put behind such.
  const std::uint64_t length = input.size();
  std::string record(reinterpret_cast<const char*>(&length), sizeof length);
  append_masked_crc(record, record);
  record.append(text_in(input));
  append_masked_crc(record, text_in(input));
  const FilesByName files = {{"a.tfrecord", record}};
  return index_and_take_apart("tfrecord", files, "a.tfrecord", {}) || as_it_is;
}

/// A first byte "{" is of index.json.
bool run_mds(std::span<const std::byte> input) {
  if (input.empty() || input[0] != std::byte{'{'}) {
    return run_file("mds", "a.mds", input);
  }
  const FilesByName files = {{"index.json", std::string(text_in(input))}};
  MemoryFile file(files, "index.json");
  try {
    format_named("mds").catalogue(file);
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

/// A byte with the length of the .bin, the .bin, the .idx.
bool run_megatron(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const std::string_view rest = text_in(input.subspan(1));
  const auto bin = std::min<std::size_t>(std::to_integer<std::size_t>(input[0]), rest.size());
  const FilesByName files = {{"a.bin", std::string(rest.substr(0, bin))},
                             {"a.idx", std::string(rest.substr(bin))}};
  return index_and_take_apart("megatron", files, "a.bin", {});
}

bool run_tokens(std::span<const std::byte> input) {
  const bool as_it_says = run_file("tokens", "a.bin", input);
  return run_file("tokens", "a.bin", input, {.token_type = "u32"}) || as_it_says;
}

bool run_jsonl(std::span<const std::byte> input) { return run_file("jsonl", "a.jsonl", input); }

/// A byte with the length of the separator, the separator, the text.
bool run_documents(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const auto rest = input.subspan(1);
  const auto length =
      std::min<std::size_t>(std::to_integer<std::size_t>(input[0]) % 8, rest.size());
  return run_file("text", "a.txt", rest.subspan(length),
                  {.separator = std::string(text_in(rest.first(length)))});
}

bool run_tensors(std::span<const std::byte> input) {
  return run_file("safetensors", "a.safetensors", input);
}

bool run_dataset_index(std::span<const std::byte> input) {
  try {
    const NamedRecords file = decode_entry(text_in(input));
    expect(decode_entry(encode_entry(file)) == file, "an entry comes back");
    for (std::uint64_t record = 0; record < std::min<std::uint64_t>(file.records.records(), 50);
         ++record) {
      const RecordSpan span = file.records.span(record);
      expect(span.offset + span.bytes <= file.records.stamp.bytes, "a record lies in its file");
    }
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
