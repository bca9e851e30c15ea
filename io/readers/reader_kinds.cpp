// The table of readers: every file of io/readers/kinds/, the preferred one first.
#include <array>
#include <string>

#include "comm/base/check.hpp"
#include "io/readers/reader.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_READERS(entry) entry(uring) entry(pool)

namespace sprat::io {

#define SPRAT_DECLARE(name) extern const ReaderKind name##_reader;
SPRAT_READERS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const ReaderKind* const> all_reader_kinds() noexcept {
#define SPRAT_ADDRESS(name) &name##_reader,
  static constexpr std::array readers = {SPRAT_READERS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return readers;
}

const ReaderKind& reader_kind_named(std::string_view name) {
  std::string known;
  for (const ReaderKind* kind : all_reader_kinds()) {
    if (kind->name == name) {
      return *kind;
    }
    known += text(known.empty() ? "" : ", ", kind->name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no reader \"", name, "\"; there are: ", known));
}

}  // namespace sprat::io
