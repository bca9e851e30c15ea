// The table of formats, and which of them a file has.
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "comm/base/check.hpp"
#include "io/formats/bytes.hpp"
#include "io/formats/format.hpp"

namespace sprat::io {

extern const Format jsonl_format, mds_format, megatron_format, safetensors_format, text_format,
    tfrecord_format, tokens_format, webdataset_format;

std::span<const Format* const> formats() {
  // Those whose magic is hard to meet by chance come first. Endings are asked in the same order: a
  // .bin that neither has a header nor an .idx beside it is one of tokens.
  static constexpr std::array all = {&safetensors_format, &webdataset_format, &tfrecord_format,
                                     &mds_format,         &tokens_format,     &megatron_format,
                                     &jsonl_format,       &text_format};
  return all;
}

const Format& format_named(std::string_view name) {
  std::string names;
  for (const Format* format : formats()) {
    if (format->name == name) {
      return *format;
    }
    names += (names.empty() ? "" : ", ") + std::string(format->name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no format \"", name, "\"; there are ", names));
}

bool has_ending_of(const Format& format, std::string_view name) {
  return std::ranges::any_of(format.endings, [&](std::string_view ending) {
    return name.size() > ending.size() &&
           std::ranges::equal(name.substr(name.size() - ending.size()), ending, {},
                              [](unsigned char letter) { return std::tolower(letter); });
  });
}

Recognised recognise(IndexedFile& file) {
  // Before any ending is asked: a table that is called x.bin is not a file of tokens.
  need(head_of(file, 4) != "PAR1", file.path(), " is Parquet, whose rows lie in compressed pages ",
       "and cannot be read alone: `sprat io convert` makes MDS shards of it, or see docs/data.md");
  for (const Format* format : formats()) {
    if (format->recognises(file)) {
      return {format, "by what is in it"};
    }
  }
  for (const Format* format : formats()) {
    if (has_ending_of(*format, file.path())) {
      return {format, "by its ending"};
    }
  }
  throw Error(ErrorCode::unavailable, text("no format knows ", file.path(),
                                           " by what is in it or by its ending: name one "
                                           "(--format, DatasetOptions::format)"));
}

}  // namespace sprat::io
