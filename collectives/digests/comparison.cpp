// What is said of a difference.
#include "collectives/digests/comparison.hpp"

#include <fmt/format.h>

#include "comm/base/check.hpp"

namespace sprat::collectives::digests {
namespace {

/// 131,071.
std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace

std::string place_text(const Difference& difference) {
  const Call& call = difference.call;
  const std::string when =
      call.step < 0 ? std::string("before the first step") : text("step ", call.step);
  if (call.kind != CallKind::collective) {
    return text(when, ", message ", call.number, " (", difference.call_words, " on ",
                difference.communicator, ")");
  }
  const std::string nth = call.step < 0 ? std::string()
                                        : text(", ", name(call.signature.collective), " ",
                                               difference.of_step, " of the step");
  return text(when, nth, " (operation ", call.number, " of ", difference.communicator, ": ",
              difference.call_words, ")");
}

std::string range_text(const Difference& difference) {
  const bool bytes = difference.call.kind != CallKind::collective;
  const Range& range = difference.range;
  std::string out =
      text(bytes ? "bytes " : "elements ", grouped(range.first), " to ", grouped(range.last),
           " of the ", difference.what == Parting::input ? "input" : "result");
  if (difference.block >= 0) {
    out += text(" (the block of rank ", difference.block, ")");
  }
  return out + text("; ", range.chunks, " of ", range.of, " chunk", range.of == 1 ? "" : "s",
                    range.chunks == 1 ? " differs" : " differ");
}

}  // namespace sprat::collectives::digests
