#include "tests/system/simulation/payload.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/base/check.hpp"
#include "tests/system/simulation/random.hpp"

namespace sprat::simulation {
namespace {

constexpr std::byte stale{0xcd}, reused{0xee};

template <class T>
void put(std::byte* at, T number) {
  std::memcpy(at, &number, sizeof number);
}

void store(std::byte* at, DType dtype, float value) {
  switch (dtype) {
    case DType::u8:
      return put(at, static_cast<std::uint8_t>(value));
    case DType::i16:
      return put(at, static_cast<std::int16_t>(value));
    case DType::i32:
      return put(at, static_cast<std::int32_t>(value));
    case DType::i64:
      return put(at, static_cast<std::int64_t>(value));
    case DType::f16:
      return put(at, to_float16(value));
    case DType::bf16:
      return put(at, to_bfloat16(value));
    case DType::f32:
      return put(at, value);
    case DType::f64:
      return put(at, static_cast<double>(value));
    default:
      std::abort();  // scenarios draw no other
  }
}

/// Small enough that no operation over six ranks rounds or overflows any type.
float value_of(const Call& call, std::uint64_t salt, int member, std::size_t index) {
  Random random(salt * 1'000'003 + static_cast<std::uint64_t>(member) * 8'191 + index);
  return static_cast<float>(1 + random.below(call.op == ReduceOp::prod ? 2 : 21));
}

float combine(ReduceOp op, float a, float b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      std::abort();  // scenarios draw no other
  }
}

bool is_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

}  // namespace

Bytes::Bytes(std::size_t count, bool shared) : size_(count) {
  if (shared && count > 0) {
    shared_ = Memory(count);
  } else {
    private_.resize(count + 8);
    own_ = private_.data();
  }
}

void Bytes::fill(std::byte value) { std::fill_n(data(), size_, value); }

bool Bytes::holds_only(std::byte value) const {
  return std::all_of(data(), data() + size_, [&](std::byte byte) { return byte == value; });
}

Payload::Payload(const Call& call, std::uint64_t salt, std::vector<int> members, int rank)
    : call_(call), salt_(salt), members_(std::move(members)), rank_(rank) {
  const bool shared = (call.shared >> rank & 1) != 0;
  const std::size_t block = call.count * size_of(call.dtype), all = block * members_.size();
  std::size_t in = block, out = block;
  switch (call.what) {
    case What::all_gather:
      out = all;
      break;
    case What::all_gatherv:
      in = count_of(position()) * size_of(call.dtype);
      out = count_before(members_.size()) * size_of(call.dtype);
      break;
    case What::reduce_scatter:
      in = all;
      break;
    case What::all_to_all:
      in = out = all;
      break;
    case What::broadcast:
      call_.in_place = true;
      break;
    case What::pass:
      call_.in_place = false;
      break;
    case What::reduce:
    case What::gather:
    case What::scatter:
      call_.in_place = false;
      in = call.what == What::scatter ? (is_root() ? all : 0) : block;
      out = call.what == What::scatter  ? block
            : !is_root()                ? 0
            : call.what == What::gather ? all
                                        : block;
      break;
    case What::all_reduce:
    case What::barrier:
      break;
  }
  out_ = Bytes(call_.in_place ? std::max(in, out) : out, shared);
  if (!call_.in_place) {
    in_ = Bytes(in, shared);
  }
  out_.fill(stale);
  if ((call_.what == What::broadcast || call_.what == What::scatter) && !is_root()) {
    return;
  }
  const std::vector<std::byte> mine = contribution(rank_);
  std::copy(mine.begin(), mine.end(),
            const_cast<std::byte*>(static_cast<const std::byte*>(input().data)));
}

std::size_t Payload::position() const {
  return static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank_) -
                                  members_.begin());
}

/// Of what a member contributes, in elements; and of all members before it.
std::size_t Payload::count_of(std::size_t member) const {
  return call_.what == What::all_gatherv ? block_counts(call_, members_.size())[member]
                                         : call_.count;
}

std::size_t Payload::count_before(std::size_t member) const {
  std::size_t count = 0;
  for (std::size_t before = 0; before < member; ++before) {
    count += count_of(before);
  }
  return count;
}

bool Payload::is_root() const { return position() == static_cast<std::size_t>(call_.root); }

ConstElements Payload::input() const {
  const bool whole = call_.what == What::reduce_scatter || call_.what == What::all_to_all;
  const std::size_t count = call_.what == What::scatter
                                ? (is_root() ? call_.count * members_.size() : 0)
                            : whole ? call_.count * members_.size()
                                    : count_of(position());
  if (!call_.in_place) {
    return {in_.data(), count, call_.dtype};
  }
  const bool gathers = call_.what == What::all_gather || call_.what == What::all_gatherv;
  const std::size_t skip = gathers ? count_before(position()) * size_of(call_.dtype) : 0;
  return {out_.data() + skip, count, call_.dtype};
}

Elements Payload::output() const {
  const bool whole = call_.what == What::all_gather || call_.what == What::all_to_all ||
                     call_.what == What::gather || call_.what == What::all_gatherv;
  const bool none = (call_.what == What::gather || call_.what == What::reduce) && !is_root();
  const std::size_t count = none ? 0 : whole ? count_before(members_.size()) : call_.count;
  const std::size_t block = call_.count * size_of(call_.dtype);
  const std::size_t skip =
      call_.in_place && call_.what == What::reduce_scatter ? position() * block : 0;
  return {out_.data() + skip, count, call_.dtype};
}

std::vector<std::byte> Payload::contribution(int member) const {
  const bool whole = call_.what == What::reduce_scatter || call_.what == What::all_to_all ||
                     call_.what == What::scatter;
  const auto place = std::ranges::find(members_, member) - members_.begin();
  const std::size_t count =
      whole ? call_.count * members_.size() : count_of(static_cast<std::size_t>(place));
  const std::size_t size = size_of(call_.dtype);
  std::vector<std::byte> bytes(count * size);
  for (std::size_t index = 0; index < count; ++index) {
    store(bytes.data() + index * size, call_.dtype, value_of(call_, salt_, member, index));
  }
  return bytes;
}

std::vector<std::byte> Payload::expected() const {
  const std::size_t size = size_of(call_.dtype), block = call_.count * size;
  const std::size_t ranks = members_.size(), me = position();
  std::vector<std::byte> bytes(output().bytes());
  const auto take = [&](std::size_t to, std::size_t member, std::size_t from) {
    const std::vector<std::byte> theirs = contribution(members_[member]);
    std::copy_n(theirs.begin() + static_cast<std::ptrdiff_t>(from * block), block,
                bytes.begin() + static_cast<std::ptrdiff_t>(to * block));
  };
  if (bytes.empty()) {
    return bytes;
  }
  switch (call_.what) {
    case What::broadcast:
      take(0, static_cast<std::size_t>(call_.root), 0);
      break;
    case What::scatter:
      take(0, static_cast<std::size_t>(call_.root), me);
      break;
    case What::pass:
      take(0, (me + ranks - static_cast<std::size_t>(call_.shift)) % ranks, 0);
      break;
    case What::all_gather:
    case What::gather:
    case What::all_to_all:
      for (std::size_t member = 0; member < ranks; ++member) {
        take(member, member, call_.what == What::all_to_all ? me : 0);
      }
      break;
    case What::all_gatherv:
      for (std::size_t member = 0; member < ranks; ++member) {
        std::ranges::copy(contribution(members_[member]),
                          bytes.begin() + static_cast<std::ptrdiff_t>(count_before(member) * size));
      }
      break;
    case What::all_reduce:
    case What::reduce:
    case What::reduce_scatter: {
      const std::size_t skip = call_.what == What::reduce_scatter ? me * call_.count : 0;
      for (std::size_t index = 0; index < call_.count; ++index) {
        float value = value_of(call_, salt_, members_[0], skip + index);
        for (std::size_t member = 1; member < ranks; ++member) {
          value = combine(call_.op, value, value_of(call_, salt_, members_[member], skip + index));
        }
        std::byte* at = bytes.data() + index * size;
        if (call_.op == ReduceOp::avg && call_.dtype == DType::f64) {
          const double mean = static_cast<double>(value) / static_cast<double>(ranks);
          std::memcpy(at, &mean, sizeof mean);
          continue;
        }
        if (call_.op == ReduceOp::avg) {
          const auto whole = static_cast<int>(value) / static_cast<int>(ranks);
          value =
              is_float(call_.dtype) ? value / static_cast<float>(ranks) : static_cast<float>(whole);
        }
        store(at, call_.dtype, value);
      }
      break;
    }
    case What::barrier:
      break;
  }
  return bytes;
}

std::string Payload::complaint() const {
  const std::vector<std::byte> right = expected();
  const auto* got = static_cast<const std::byte*>(output().data);
  for (std::size_t at = 0; at < right.size(); ++at) {
    if (got[at] != right[at]) {
      return text(words(call_), ": byte ", at, " of ", right.size(), " is ",
                  std::to_integer<int>(got[at]), " instead of ", std::to_integer<int>(right[at]));
    }
  }
  return {};
}

void Payload::refill() {
  in_.fill(reused);
  out_.fill(reused);
}

bool Payload::untouched() const { return in_.holds_only(reused) && out_.holds_only(reused); }

}  // namespace sprat::simulation
