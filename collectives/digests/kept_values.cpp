// Values of one call, as a file each for what went in and what came out.
#include "collectives/digests/kept_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::collectives::digests {
namespace {

constexpr std::array<char, 8> values_magic = {'S', 'P', 'R', 'A', 'T', 'V', 'A', 'L'};

struct ValuesHead {
  std::array<char, 8> magic{};
  std::uint32_t byte_order = 0, dtype = 0;
  std::uint64_t count = 0;
};
static_assert(sizeof(ValuesHead) == 24);

/// Takes the last word off.
std::string_view take_word(std::string_view& text) {
  const std::size_t space = text.rfind(' ');
  const std::string_view word = space == text.npos ? text : text.substr(space + 1);
  text = text.substr(0, space == text.npos ? 0 : space);
  return word;
}

template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  const std::string_view word = take_word(text);
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

/// From the end, since a communicator's name may hold anything.
std::optional<KeptCall> message_of(std::string_view text, CallKind kind) {
  const bool sends = kind == CallKind::send;
  const auto tag = take_number<std::int32_t>(text);
  if (!tag || take_word(text) != "tag") {
    return std::nullopt;
  }
  const auto partner = take_number<std::int32_t>(text);
  if (!partner || take_word(text) != (sends ? "to" : "from")) {
    return std::nullopt;
  }
  const auto number = take_number<std::int64_t>(text);
  if (!number || take_word(text) != (sends ? "send" : "recv") || text.empty()) {
    return std::nullopt;
  }
  return KeptCall{.communicator = std::string(text),
                  .kind = kind,
                  .number = static_cast<std::uint64_t>(*number),
                  .partner = *partner,
                  .tag = *tag};
}

std::optional<KeptCall> collective_of(std::string_view text) {
  const auto number = take_number<std::int64_t>(text);
  if (!number || text.empty()) {
    return std::nullopt;
  }
  return KeptCall{.communicator = std::string(text), .number = static_cast<std::uint64_t>(*number)};
}

template <class Value>
Value element_at(const Values& values, std::size_t index) {
  Value value;
  std::memcpy(&value, values.bytes.data() + index * sizeof value, sizeof value);
  return value;
}

std::string bits_text(const Values& values, std::size_t index) {
  std::string digits;
  const std::size_t bytes = size_of(values.dtype);
  for (std::size_t at = bytes; at-- > 0;) {  // the highest first, as people write numbers
    digits += fmt::format("{:02x}", static_cast<unsigned>(values.bytes[index * bytes + at]));
  }
  return "0x" + digits;
}

}  // namespace

bool KeptCall::names(const Call& call) const {
  return call.kind == kind && call.number == number &&
         (kind == CallKind::collective || (call.partner == partner && call.tag == tag));
}

KeptCall kept_call(std::string_view text) {
  for (const CallKind kind : {CallKind::send, CallKind::receive}) {
    if (const auto call = message_of(text, kind)) {
      return *call;
    }
  }
  const auto call = collective_of(text);
  require(call.has_value(), "SPRAT_DIGESTS_KEEP is \"", text,
          "\"; it must name a call, as \"world 412\" or \"world recv 3 from 1 tag 7\"");
  return *call;
}

std::string to_text(const KeptCall& call) {
  switch (call.kind) {
    case CallKind::collective:
      break;
    case CallKind::send:
      return text(call.communicator, " send ", call.number, " to ", call.partner, " tag ",
                  call.tag);
    case CallKind::receive:
      return text(call.communicator, " recv ", call.number, " from ", call.partner, " tag ",
                  call.tag);
  }
  return text(call.communicator, " ", call.number);
}

const char* name(Side side) noexcept { return side == Side::input ? "input" : "result"; }

std::string values_path(const std::string& folder, const std::string& log, const Call& call,
                        Side side) {
  std::string which;
  switch (call.kind) {
    case CallKind::collective:
      which = text("call", call.number);
      break;
    case CallKind::send:
      which = text("send", call.number, "-to", call.partner, "-tag", call.tag);
      break;
    case CallKind::receive:
      which = text("recv", call.number, "-from", call.partner, "-tag", call.tag);
      break;
  }
  return text(folder, "/", log, "-communicator", call.group, "-", which, ".", name(side),
              ".values");
}

void keep_values(const std::string& path, ConstElements values) noexcept {
  const ValuesHead head{.magic = values_magic,
                        .byte_order = byte_order,
                        .dtype = static_cast<std::uint32_t>(values.dtype),
                        .count = values.count};
  std::FILE* file = std::fopen(path.c_str(), "we");
  bool good = file != nullptr && std::fwrite(&head, sizeof head, 1, file) == 1 &&
              std::fwrite(values.data, 1, values.bytes(), file) == values.bytes();
  good = file != nullptr && std::fclose(file) == 0 && good;  // a full disk may tell only now
  if (!good) {
    log().error("SPRAT_DIGESTS_KEEP: {}: {}", path, std::strerror(errno));
  }
}

std::optional<Values> parse_values(std::span<const std::byte> file) {
  ValuesHead head;
  if (file.size() < sizeof head) {
    return std::nullopt;
  }
  std::memcpy(&head, file.data(), sizeof head);
  const auto dtype = static_cast<DType>(head.dtype);
  if (head.magic != values_magic || head.byte_order != byte_order ||
      head.dtype > static_cast<std::uint32_t>(DType::boolean) ||
      head.count != (file.size() - sizeof head) / size_of(dtype) ||
      (file.size() - sizeof head) % size_of(dtype) != 0) {
    return std::nullopt;
  }
  return Values{.dtype = dtype, .bytes = file.subspan(sizeof head)};
}

// Narrow floats have no text here: their bits say it all, and are what is compared.
std::string element_text(const Values& values, std::size_t index) {
  const std::string bits = bits_text(values, index);
  switch (values.dtype) {
    case DType::f32:
      return fmt::format("{} ({})", element_at<float>(values, index), bits);
    case DType::f64:
      return fmt::format("{} ({})", element_at<double>(values, index), bits);
    case DType::i32:
      return fmt::format("{} ({})", element_at<std::int32_t>(values, index), bits);
    case DType::i64:
      return fmt::format("{} ({})", element_at<std::int64_t>(values, index), bits);
    case DType::u32:
      return fmt::format("{} ({})", element_at<std::uint32_t>(values, index), bits);
    case DType::u64:
      return fmt::format("{} ({})", element_at<std::uint64_t>(values, index), bits);
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::boolean:
      return bits;
  }
  return bits;
}

// By bits, not by value: a NaN is equal to itself here, and zeros of two signs are not.
ElementDifference compare(const Values& a, const Values& b) {
  ElementDifference difference;
  if (a.dtype != b.dtype) {
    return difference;
  }
  const std::size_t bytes = size_of(a.dtype);
  const std::size_t count = std::min(a.bytes.size(), b.bytes.size()) / bytes;
  for (std::size_t index = 0; index < count; ++index) {
    if (std::memcmp(a.bytes.data() + index * bytes, b.bytes.data() + index * bytes, bytes) != 0) {
      difference.first = difference.number == 0 ? index : difference.first;
      ++difference.number;
    }
  }
  return difference;
}

}  // namespace sprat::collectives::digests
