// A small file of each format, its bytes put down by hand, with the records that are in it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/formats/format.hpp"
#include "tests/unit/io/formats/memory_folder.hpp"

namespace sprat::io {

/// A field as text, for comparison: name, type, shape and bytes.
struct ExpectedField {
  std::string name, type;
  std::vector<std::uint64_t> shape;
  std::string bytes;

  friend bool operator==(const ExpectedField&, const ExpectedField&) = default;
};

struct Specimen {
  std::string name;    ///< Of this one; a format may have several.
  std::string format;  ///< As the table has it.
  std::string file;    ///< The one that has the records.
  FilesByName files;   ///< It, and those beside it.
  FormatOptions options = {};
  std::vector<RecordSpan> spans;
  std::vector<std::vector<ExpectedField>> fields;  ///< Of each record.
  bool recognised = true;                          ///< By what is in the file.
  bool any_cut_fails = true;                       ///< The file tells when its end is missing.
};

std::vector<Specimen> specimens();

/// "0a ff" as two bytes; other letters are left out.
std::string from_hex(std::string_view digits);

/// A header of a tar as GNU tar writes POSIX ustar, with its checksum.
std::string tar_header(const std::string& name, std::size_t bytes, char type = '0');
/// And the data, padded.
std::string tar_member(const std::string& name, const std::string& data, char type = '0');
/// The end mark.
std::string tar_end();

}  // namespace sprat::io
