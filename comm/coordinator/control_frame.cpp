#include "comm/coordinator/control_frame.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/base/packing.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

constexpr std::size_t max_text_bytes = std::size_t{64} << 10;

/// Appends values, little endian, lengths in front of texts and blobs.
class Writer {
 public:
  explicit Writer(Blob& out) : out_(out) {}

  template <class Integer>
  Writer& integer(Integer value) {
    auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    for (std::size_t i = 0; i < sizeof bits; ++i) {
      out_.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
    }
    return *this;
  }
  Writer& bytes(std::span<const std::byte> value) {
    integer(static_cast<std::uint32_t>(value.size()));
    out_.insert(out_.end(), value.begin(), value.end());
    return *this;
  }
  Writer& text(std::string_view value) {
    return bytes(std::as_bytes(std::span(value.substr(0, max_text_bytes))));
  }

 private:
  Blob& out_;
};

/// Takes values off the front. Once something is missing, `good` stays false and values are zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <class Integer>
  void integer(Integer& value) {
    std::uint64_t bits = 0;
    const auto taken = take(sizeof value);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      bits |= std::to_integer<std::uint64_t>(taken[i]) << (8 * i);
    }
    value = static_cast<Integer>(bits);
  }
  void bytes(Blob& value) {
    const auto taken = take(length());
    value.assign(taken.begin(), taken.end());
  }
  void text(std::string& value) {
    const auto taken = take(length());
    value.assign(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  /// How many items follow, each of at least four bytes.
  std::size_t items() {
    const std::size_t count = length();
    // A count that the bytes left cannot hold is refused before memory is made for it.
    if (count > in_.size() / 4) {
      good_ = false;
    }
    return good_ ? count : 0;
  }
  bool whole() const { return good_ && in_.empty(); }
  bool good() const { return good_; }
  /// What was taken makes no sense.
  void refuse() { good_ = false; }

 private:
  std::size_t length() {
    std::uint32_t value = 0;
    integer(value);
    return value;
  }
  std::span<const std::byte> take(std::size_t count) {
    if (count > in_.size()) {
      good_ = false;
    }
    if (!good_) {
      return {};
    }
    const auto taken = in_.first(count);
    in_ = in_.subspan(count);
    return taken;
  }
  std::span<const std::byte> in_;
  bool good_ = true;
};

void write(Writer& out, const Hello& hello) {
  out.integer(hello.rank).integer(hello.size);
  out.integer(static_cast<std::uint32_t>(hello.terms.size()));
  for (const Term& term : hello.terms) {
    out.text(term.name).text(term.value);
  }
}
void read(Reader& in, Hello& hello) {
  in.integer(hello.rank);
  in.integer(hello.size);
  hello.terms.resize(in.items());
  for (Term& term : hello.terms) {
    in.text(term.name);
    in.text(term.value);
  }
}

void write(Writer& out, const Welcome& welcome) { out.integer(welcome.rank).integer(welcome.size); }
void read(Reader& in, Welcome& welcome) {
  in.integer(welcome.rank);
  in.integer(welcome.size);
}

void write(Writer& out, const Refusal& refusal) {
  out.integer(refusal.code).integer(refusal.rank).text(refusal.text);
}
void read(Reader& in, Refusal& refusal) {
  in.integer(refusal.code);
  in.integer(refusal.rank);
  in.text(refusal.text);
}

void write(Writer& out, const Part& part) {
  out.integer(part.ordinal).integer(part.patience_ms).integer(part.host);
  out.text(part.purpose).bytes(part.blob);
}
void read(Reader& in, Part& part) {
  in.integer(part.ordinal);
  in.integer(part.patience_ms);
  in.integer(part.host);
  in.text(part.purpose);
  in.bytes(part.blob);
}

void write_blobs(Writer& out, const std::vector<Blob>& blobs) {
  out.integer(static_cast<std::uint32_t>(blobs.size()));
  for (const Blob& blob : blobs) {
    out.bytes(blob);
  }
}
void read_blobs(Reader& in, std::vector<Blob>& blobs) {
  blobs.resize(in.items());
  for (Blob& blob : blobs) {
    in.bytes(blob);
  }
}

void write(Writer& out, const Parts& parts) {
  Blob blobs;
  Writer writer(blobs);
  write_blobs(writer, parts.blobs);
  out.integer(parts.ordinal).bytes(pack(blobs));
}
void read(Reader& in, Parts& parts) {
  Blob packed;
  in.integer(parts.ordinal);
  in.bytes(packed);
  const std::optional<Blob> blobs = unpack(packed, max_frame_bytes);
  // The same could be packed in other ways; one form of each frame is enough to be read.
  if (!blobs || pack(*blobs) != packed) {
    return in.refuse();
  }
  Reader inner(*blobs);
  read_blobs(inner, parts.blobs);
  if (!inner.whole()) {
    in.refuse();
  }
}

void write(Writer& out, const ControlMessage& message) {
  out.integer(static_cast<std::uint8_t>(message.kind)).integer(message.rank).integer(message.code);
  out.integer(message.comm).integer(message.sequence).text(message.text).bytes(message.payload);
}
void read(Reader& in, ControlMessage& message) {
  std::uint8_t kind = 0;
  in.integer(kind);
  message.kind = static_cast<ControlMessage::Kind>(kind);
  in.integer(message.rank);
  in.integer(message.code);
  in.integer(message.comm);
  in.integer(message.sequence);
  in.text(message.text);
  in.bytes(message.payload);
}

void write(Writer& out, const PartsPlace& place) {
  out.integer(place.ordinal).integer(place.pid).integer(place.descriptor);
  out.integer(place.inode).integer(place.bytes).integer(place.digest);
}
void read(Reader& in, PartsPlace& place) {
  in.integer(place.ordinal);
  in.integer(place.pid);
  in.integer(place.descriptor);
  in.integer(place.inode);
  in.integer(place.bytes);
  in.integer(place.digest);
}

void write(Writer& out, const PartsTaken& taken) { out.integer(taken.ordinal).integer(taken.read); }
void read(Reader& in, PartsTaken& taken) {
  in.integer(taken.ordinal);
  in.integer(taken.read);
}

void write(Writer&, const Beat&) {}
void read(Reader&, Beat&) {}

bool is_error_code(int code) { return code >= 0 && code <= static_cast<int>(ErrorCode::internal); }

// A number beyond its enumeration would be no case of any switch.
template <class Value>
bool is_sound(const Value&) {
  return true;
}
bool is_sound(const Refusal& refusal) { return is_error_code(refusal.code); }
bool is_sound(const ControlMessage& message) {
  using Kind = ControlMessage::Kind;
  const bool fails = message.kind == Kind::failed || message.kind == Kind::domain_failed;
  return message.kind <= Kind::gathered && (!fails || is_error_code(message.code));
}

template <class Value>
std::optional<Frame> decode_as(Reader& in) {
  Value value;
  read(in, value);
  // Bytes that are left over mean that the sender meant something else.
  if (!in.whole() || !is_sound(value)) {
    return std::nullopt;
  }
  return Frame(std::move(value));
}

using Decode = std::optional<Frame> (*)(Reader&);
template <class... Values>
constexpr std::array<Decode, sizeof...(Values)> decoders_of(const std::variant<Values...>*) {
  return {&decode_as<Values>...};
}
/// By the number in front of a frame, which is its place in the variant.
constexpr auto decoders = decoders_of(static_cast<const Frame*>(nullptr));

}  // namespace

Blob encode(const Frame& frame) {
  Blob out(frame_header_bytes);
  Writer writer(out);
  writer.integer(static_cast<std::uint8_t>(frame.index()));
  std::visit([&](const auto& value) { write(writer, value); }, frame);
  Blob length;
  Writer(length).integer(static_cast<std::uint32_t>(out.size() - frame_header_bytes));
  std::ranges::copy(length, out.begin());
  return out;
}

std::optional<Frame> decode(std::span<const std::byte> bytes) {
  Reader in(bytes);
  std::uint8_t kind = 0;
  in.integer(kind);
  return kind < decoders.size() ? decoders[kind](in) : std::nullopt;
}

Blob encode_unpacked(const Parts& parts) {
  Blob out;
  Writer writer(out);
  writer.integer(parts.ordinal);
  write_blobs(writer, parts.blobs);
  return out;
}

std::optional<Parts> decode_unpacked(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Parts parts;
  in.integer(parts.ordinal);
  read_blobs(in, parts.blobs);
  return in.good() ? std::optional(std::move(parts)) : std::nullopt;
}

std::size_t frame_bytes(std::span<const std::byte, frame_header_bytes> header) {
  std::uint32_t length = 0;
  Reader(header).integer(length);
  return length;
}

}  // namespace sprat::comm
