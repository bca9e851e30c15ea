// What tests of single formats ask: the records of bytes, or the complaint about them.
#pragma once

#include <string>
#include <vector>

#include "io/formats/format.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/formats/memory_folder.hpp"

namespace sprat::io {

inline FileIndex indexed(std::string_view format, const FilesByName& files, const std::string& name,
                         const FormatOptions& options = {}) {
  MemoryFile file(files, name);
  return format_named(format).index(file, options);
}

/// What is said against it; empty if nothing is.
inline std::string complaint(std::string_view format, const FilesByName& files,
                             const std::string& name, const FormatOptions& options = {}) {
  try {
    indexed(format, files, name, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::string fields_complaint(std::string_view format, std::string_view context,
                                    std::string_view record) {
  try {
    format_named(format).fields(context, 0, bytes_in(record));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// "name:type=bytes" of each field.
inline std::vector<std::string> told(const std::vector<Field>& fields) {
  std::vector<std::string> lines;
  for (const Field& field : fields) {
    lines.push_back(field.name + ":" + field.type + "=" + std::string(text_in(field.bytes)));
  }
  return lines;
}

inline std::vector<std::string> fields_told(std::string_view format, std::string_view context,
                                            std::string_view record) {
  return told(format_named(format).fields(context, 0, bytes_in(record)));
}

}  // namespace sprat::io
