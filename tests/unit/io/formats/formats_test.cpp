// Every format of the table, by its specimens: records and fields are those that were put down, and
// whatever else is in a file, records lie within it or an Error says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "io/formats/format.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/formats/memory_folder.hpp"
#include "tests/unit/io/formats/specimens.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

std::vector<RecordSpan> spans_of(const FileIndex& index) {
  std::vector<RecordSpan> spans = index.spans;
  for (std::uint64_t record = 0; index.stride > 0 && record < index.count; ++record) {
    spans.push_back({index.first + record * index.stride, index.stride});
  }
  return spans;
}

std::vector<ExpectedField> plain(const std::vector<Field>& fields) {
  std::vector<ExpectedField> plain;
  for (const Field& field : fields) {
    plain.push_back({field.name, field.type, field.shape, std::string(text_in(field.bytes))});
  }
  return plain;
}

FileIndex index_of(const Specimen& specimen, const FilesByName& files) {
  MemoryFile file(files, specimen.file);
  return format_named(specimen.format).index(file, specimen.options);
}

std::string specimen_complaint(const Specimen& specimen, const FilesByName& files) {
  try {
    index_of(specimen, files);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Indexes what may be damaged, and takes its records apart: what comes out lies within, or is an
/// Error that names the file.
void expect_records_within_or_error(const Specimen& specimen, const FilesByName& files) {
  const std::string& bytes = files.at(specimen.file);
  FileIndex index;
  try {
    index = index_of(specimen, files);
  } catch (const Error& error) {
    const std::string stem = specimen.file.substr(0, specimen.file.rfind('.'));
    EXPECT_THAT(error.what(), HasSubstr(stem));
    return;
  }
  std::uint64_t record = 0;
  for (const RecordSpan& span : spans_of(index)) {
    ASSERT_LE(span.offset, bytes.size());
    ASSERT_LE(span.bytes, bytes.size() - span.offset);
    try {
      format_named(specimen.format).fields(index.context, record++, record_in(bytes, span));
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  }
}

TEST(Formats, each_has_a_specimen) {
  std::set<std::string_view> seen;
  for (const Specimen& specimen : specimens()) {
    seen.insert(format_named(specimen.format).name);
  }
  EXPECT_EQ(seen.size(), formats().size());
}

TEST(Formats, records_are_where_they_were_put) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    EXPECT_EQ(spans_of(index_of(specimen, specimen.files)), specimen.spans);
  }
}

TEST(Formats, fields_are_what_was_put_into_records) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    const FileIndex index = index_of(specimen, specimen.files);
    const std::string& bytes = specimen.files.at(specimen.file);
    ASSERT_EQ(specimen.fields.size(), specimen.spans.size());
    for (std::size_t record = 0; record < specimen.fields.size(); ++record) {
      // Of a copy, which is as good as the Field itself.
      std::vector<Field> copies;
      {
        copies = format_named(specimen.format)
                     .fields(index.context, record, record_in(bytes, specimen.spans[record]));
      }
      EXPECT_EQ(plain(copies), specimen.fields[record]) << record;
    }
  }
}

TEST(Formats, files_are_recognised_by_what_is_in_them_or_by_their_ending) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    MemoryFile file(specimen.files, specimen.file);
    const Recognised found = recognise(file);
    EXPECT_EQ(found.format->name, specimen.format);
    EXPECT_EQ(found.how, specimen.recognised ? "by what is in it" : "by its ending");
  }
}

TEST(Formats, none_recognises_the_files_of_another_by_what_is_in_them) {
  for (const Specimen& specimen : specimens()) {
    for (const Format* format : formats()) {
      MemoryFile file(specimen.files, specimen.file);
      EXPECT_EQ(format->recognises(file), specimen.recognised && format->name == specimen.format)
          << specimen.name << " by " << format->name;
    }
  }
}

TEST(Formats, an_empty_file_has_no_records) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    if (specimen.format == "megatron") {
      continue;  // its .idx speaks of bytes that are then not there
    }
    FilesByName files = specimen.files;
    files[specimen.file].clear();
    EXPECT_EQ(index_of(specimen, files).records(), 0u);
    MemoryFile file(files, specimen.file);
    for (const Format* format : formats()) {
      EXPECT_FALSE(format->recognises(file)) << format->name;
    }
  }
}

TEST(Formats, a_file_that_is_cut_anywhere_gives_records_within_or_an_error) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    for (const auto& [name, whole] : specimen.files) {
      for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
        FilesByName files = specimen.files;
        files[name].resize(bytes);
        expect_records_within_or_error(specimen, files);
        if (specimen.any_cut_fails) {
          EXPECT_NE(specimen_complaint(specimen, files), "") << name << " cut at " << bytes;
        }
      }
    }
  }
}

TEST(Formats, a_file_with_any_byte_changed_gives_records_within_or_an_error) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    for (const auto& [name, whole] : specimen.files) {
      for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const char byte : {'\0', '\x7f', '\xff'}) {
          FilesByName files = specimen.files;
          files[name][at] = byte;
          expect_records_within_or_error(specimen, files);
        }
      }
    }
  }
}

TEST(Formats, random_bytes_give_records_within_or_an_error) {
  std::mt19937 random(7);
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    for (int round = 0; round < 300; ++round) {
      FilesByName files = specimen.files;
      for (auto& [name, bytes] : files) {
        bytes.resize(random() % 2000);
        for (char& byte : bytes) {
          byte = static_cast<char>(random());
        }
      }
      expect_records_within_or_error(specimen, files);
    }
  }
}

TEST(Formats, compressed_files_are_refused_with_what_unpacks_them) {
  for (const Specimen& specimen : specimens()) {
    if (specimen.format == "tokens" || specimen.format == "megatron" ||
        specimen.format == "safetensors") {
      continue;  // which are not texts or rows of records that people compress
    }
    FilesByName files = specimen.files;
    files[specimen.file] = from_hex("1f8b 0800 0000 0000 0003") + std::string(40, 'x');
    EXPECT_THAT(specimen_complaint(specimen, files), HasSubstr("gunzip")) << specimen.name;
    files[specimen.file] = from_hex("28b5 2ffd") + std::string(40, 'x');
    EXPECT_THAT(specimen_complaint(specimen, files), HasSubstr("unzstd")) << specimen.name;
  }
}

TEST(Formats, parquet_is_refused_with_what_makes_records_of_it) {
  for (const char* name : {"a.parquet", "a.bin", "a.jsonl"}) {
    const FilesByName files = {{name, std::string("PAR1\0\0\0\0PAR1", 12)}};
    MemoryFile file(files, name);
    try {
      recognise(file);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(name) + " is Parquet"));
      EXPECT_THAT(error.what(), HasSubstr("sprat io convert"));
    }
  }
}

TEST(Formats, endings_are_known_in_any_case) {
  EXPECT_TRUE(has_ending_of(format_named("webdataset"), "A.TAR"));
  EXPECT_FALSE(has_ending_of(format_named("webdataset"), ".tar"));
  EXPECT_FALSE(has_ending_of(format_named("webdataset"), "tar"));
}

TEST(Formats, a_name_that_is_none_is_told_the_names_there_are) {
  try {
    format_named("arrow");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("webdataset"));
  }
}

}  // namespace
}  // namespace sprat::io
