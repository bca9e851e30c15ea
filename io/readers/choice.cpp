#include "io/readers/choice.hpp"

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

/// Of free memory, what an epoch may take so that the page cache still has it when the next one
/// comes by: others grow, too.
constexpr double cached_share = 0.7;
/// Shorter ones cost storage about the same time as these.
constexpr std::uint64_t short_record_bytes = std::uint64_t{256} << 10;

/// Shorter ones wait for the disk whichever way they come; a copy of them costs little.
constexpr std::uint64_t long_record_bytes = std::uint64_t{1} << 20;

std::string bytes_in_words(std::uint64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes >= 1'000'000'000 ? fmt::format("{:.3g} GB", number / 1e9)
         : bytes >= 1'000'000   ? fmt::format("{:.3g} MB", number / 1e6)
                                : fmt::format("{:.3g} KB", number / 1e3);
}

struct ChosenCache {
  bool direct = false;
  std::string reason;
};

bool fits(std::uint64_t bytes, const ReadingShape& shape) {
  return static_cast<double>(bytes) <= cached_share * static_cast<double>(shape.free_memory_bytes);
}

bool is_short_and_scattered(const ReadingShape& shape) {
  return shape.scattered && shape.record_bytes < short_record_bytes;
}

ChosenCache choose_direct(const FileSystem& where, const ReadingShape& shape, DirectReads wish) {
  require(wish != DirectReads::always || where.takes_direct, "the file system here, ", where.kind,
          ", takes no direct reads; read through the page cache");
  if (wish != DirectReads::automatic) {
    return {.direct = wish == DirectReads::always, .reason = "as is wished"};
  }
  if (!where.takes_direct) {
    return {.direct = false, .reason = text(where.kind, " takes no direct reads")};
  }
  if (fits(shape.epoch_bytes, shape)) {
    return {.direct = false,
            .reason = text("an epoch's ", bytes_in_words(shape.epoch_bytes), " fit into ",
                           bytes_in_words(shape.free_memory_bytes), " of free memory")};
  }
  // Servers merge and keep what clients read through their caches; each direct read is a question
  // to them. A disk of this host takes many short ones at once past the page cache, which takes
  // few.
  if (is_short_and_scattered(shape) && !where.tries_reads) {
    return {.direct = false,
            .reason = text("records of ", bytes_in_words(shape.record_bytes), " are scattered")};
  }
  return {.direct = true,
          .reason = text("an epoch's ", bytes_in_words(shape.epoch_bytes),
                         " are more than 70 % of ", bytes_in_words(shape.free_memory_bytes),
                         " of free memory, so nothing would be there when it is read again")};
}

struct ChosenKind {
  const ReaderKind* kind = nullptr;
  std::string reason;
};

ChosenKind choose_kind(const FileSystem& where, const std::string& wish) {
  if (wish != "auto") {
    const ReaderKind& kind = reader_kind_named(wish);
    const std::string_view refusal = kind.refusal(where);
    require(refusal.empty(), "the reader \"", wish, "\" does not read here: ", refusal,
            "; leave the choice to Sprat, or name another one");
    return {.kind = &kind, .reason = "as is wished"};
  }
  std::string refusals;
  for (const ReaderKind* kind : all_reader_kinds()) {
    const std::string_view refusal = kind->refusal(where);
    if (refusal.empty()) {
      return {.kind = kind, .reason = refusals.empty() ? "the preferred one" : refusals};
    }
    refusals += text(refusals.empty() ? "" : "; ", "not ", kind->name, ": ", refusal);
  }
  throw Error(ErrorCode::internal, text("no reader reads from ", where.kind, ": ", refusals));
}

}  // namespace

ReaderChoice choose_reader(const FileSystem& where, const ReadingShape& shape,
                           const ReaderWish& wish) {
  const ChosenKind kind = choose_kind(where, wish.reader);
  const ChosenCache cached = choose_direct(where, shape, wish.direct);
  // Not from servers: there other hosts would read all of it, too.
  const bool warms_up = !cached.direct && where.takes_direct && where.tries_reads &&
                        is_short_and_scattered(shape) && fits(shape.data_bytes, shape);
  const bool may_bypass = !cached.direct && wish.direct == DirectReads::automatic &&
                          where.takes_direct && where.tries_reads && where.tells_cached &&
                          shape.record_bytes >= long_record_bytes;
  return {
      .kind = kind.kind,
      .direct = cached.direct,
      .warms_up = warms_up,
      .may_bypass = may_bypass,
      .sentence = text("reads from ", where.kind, " by ", kind.kind->name, " (", kind.reason, "), ",
                       cached.direct ? "directly" : "through the page cache", " (", cached.reason,
                       ")", warms_up ? ", whole files ahead in sequence" : "",
                       may_bypass ? ", and what it has not past it where that is quicker" : "")};
}

}  // namespace sprat::io
