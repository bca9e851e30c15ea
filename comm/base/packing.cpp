// The bytes become pieces: literals, then a run that stood at some distance before. This is LZ77,
// greedy, with one look at the last place where the next four bytes stood.
//
// A piece is: how many literals, they themselves, how long the run is, its distance. All numbers
// are of 7 bits a byte, lowest first, with the top bit where more follow. Distance 0 repeats the
// distance before: parts of ranks have the same fields at the same distance, so most runs cost two
// bytes. The last piece has a run of 0 bytes and no distance.
#include "comm/base/packing.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace sprat::comm {
namespace {

/// Shorter runs would cost as many bytes as they save.
constexpr std::size_t least_run = 4;
/// Small jobs pack some hundred bytes, and need no table that is longer to clear than they are.
constexpr int least_table_bits = 6, most_table_bits = 16;

void put_number(Blob& out, std::size_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<std::byte>(value & 0x7f) | std::byte{0x80});
    value >>= 7;
  }
  out.push_back(static_cast<std::byte>(value));
}

class Packer {
 public:
  explicit Packer(std::span<const std::byte> bytes)
      : bytes_(bytes),
        table_bits_(std::clamp(static_cast<int>(std::bit_width(bytes.size())), least_table_bits,
                               most_table_bits)),
        places_(std::size_t{1} << table_bits_, nowhere) {}

  Blob run() {
    std::size_t at = 0;
    while (at + least_run <= bytes_.size()) {
      const std::size_t before = best_before(at);
      if (before == nowhere) {
        note(at++);
        continue;
      }
      const std::size_t length = run_at(before, at);
      piece(at, length, at - before);
      for (const std::size_t end = at + length; at < end; ++at) {
        note(at);
      }
      begin_ = at;
    }
    piece(bytes_.size(), 0, 0);
    return std::move(out_);
  }

 private:
  static constexpr std::size_t nowhere = ~std::size_t{0};

  std::size_t slot(std::size_t at) const {
    std::uint32_t word = 0;
    std::memcpy(&word, &bytes_[at], sizeof word);
    // Knuth's multiplicative hash: the upper bits depend on all four bytes.
    return (word * 2'654'435'761U) >> (32 - table_bits_);
  }
  void note(std::size_t at) {
    if (at + least_run <= bytes_.size()) {
      places_[slot(at)] = at;
    }
  }
  std::size_t run_at(std::size_t before, std::size_t at) const {
    const auto end = bytes_.end();
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(before);
    const auto here = bytes_.begin() + static_cast<std::ptrdiff_t>(at);
    return static_cast<std::size_t>(std::mismatch(here, end, from).first - here);
  }
  /// The distance of the run before costs one byte, so it is taken unless the other run is longer
  /// by more than that saves.
  std::size_t best_before(std::size_t at) const {
    const std::size_t seen = places_[slot(at)];
    const std::size_t far = seen == nowhere ? 0 : run_at(seen, at);
    const std::size_t again = distance_ == 0 || distance_ > at ? 0 : run_at(at - distance_, at);
    if (again >= least_run && again + 2 >= far) {
      return at - distance_;
    }
    return far >= least_run ? seen : nowhere;
  }
  void piece(std::size_t at, std::size_t length, std::size_t distance) {
    put_number(out_, at - begin_);
    const auto literals = bytes_.subspan(begin_, at - begin_);
    out_.insert(out_.end(), literals.begin(), literals.end());
    put_number(out_, length);
    if (length > 0) {
      put_number(out_, distance == distance_ ? 0 : distance);
      distance_ = distance;
    }
  }

  const std::span<const std::byte> bytes_;
  const int table_bits_;
  std::vector<std::size_t> places_;  ///< By hash of four bytes: where they stood last.
  Blob out_;
  std::size_t begin_ = 0;     ///< Of the literals that have not been written.
  std::size_t distance_ = 0;  ///< Of the last run.
};

/// Takes pieces off the front. Foreign bytes: every number is held against what there is.
class Unpacker {
 public:
  Unpacker(std::span<const std::byte> in, std::size_t most) : in_(in), most_(most) {}

  std::optional<Blob> run() {
    for (;;) {
      const std::size_t literals = number();
      if (!good_ || literals > in_.size() || literals > most_ - out_.size()) {
        return std::nullopt;
      }
      out_.insert(out_.end(), in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(literals));
      in_ = in_.subspan(literals);
      const std::size_t length = number();
      if (good_ && length == 0) {
        return in_.empty() ? std::optional(std::move(out_)) : std::nullopt;
      }
      const std::size_t said = number();
      distance_ = said == 0 ? distance_ : said;
      if (!good_ || distance_ == 0 || distance_ > out_.size() || length > most_ - out_.size()) {
        return std::nullopt;
      }
      // Byte by byte: a run may reach into what it makes, as that of one byte repeated does.
      for (std::size_t i = 0; i < length; ++i) {
        out_.push_back(out_[out_.size() - distance_]);
      }
    }
  }

 private:
  std::size_t number() {
    constexpr int most_shift = 28;  // of u32, which no frame's length exceeds
    std::size_t value = 0;
    for (int shift = 0; shift <= most_shift; shift += 7) {
      if (in_.empty()) {
        break;
      }
      const auto byte = std::to_integer<std::size_t>(in_.front());
      in_ = in_.subspan(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    good_ = false;
    return 0;
  }

  std::span<const std::byte> in_;
  const std::size_t most_;
  Blob out_;
  std::size_t distance_ = 0;
  bool good_ = true;
};

}  // namespace

Blob pack(std::span<const std::byte> bytes) { return Packer(bytes).run(); }

std::optional<Blob> unpack(std::span<const std::byte> packed, std::size_t most) {
  return Unpacker(packed, most).run();
}

}  // namespace sprat::comm
