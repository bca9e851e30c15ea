#include "io/lustre/layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::io {
namespace {

// The structures as clients of Lustre hand them out: packed, in the host's order of bytes unless
// the magic says otherwise. Names and sizes follow lustre_user.h.
struct [[gnu::packed]] LovHeader {
  std::uint32_t magic, pattern;
  std::uint64_t object_id, object_sequence;
  std::uint32_t stripe_size;
  std::uint16_t stripe_count;
  std::uint16_t stripe_offset;  // 0xffff in every reply: the first OST is that of object 0
};
static_assert(sizeof(LovHeader) == 32);

struct [[gnu::packed]] LovObject {
  std::uint64_t object_id, object_sequence;
  std::uint32_t generation, ost;
};
static_assert(sizeof(LovObject) == 24);

struct [[gnu::packed]] LovComposite {
  std::uint32_t magic, size, generation;
  std::uint16_t flags, entries, mirrors_beside_one;
  std::uint8_t parities, padding[5];
  std::uint64_t more_padding;
};
static_assert(sizeof(LovComposite) == 32);

struct [[gnu::packed]] LovEntry {
  std::uint32_t id, flags;
  std::uint64_t begin, end;
  std::uint32_t blob_offset, blob_size, generation;
  std::uint64_t time_and_id;
  std::uint8_t erasure_and_compression[4];
};
static_assert(sizeof(LovEntry) == 48);

struct [[gnu::packed]] LovForeign {
  std::uint32_t magic, length, type, flags;
};
static_assert(sizeof(LovForeign) == 16);

constexpr std::size_t pool_name_bytes = 16;
constexpr std::uint32_t magic_v1 = 0x0BD10BD0, magic_v3 = 0x0BD30BD0, magic_specific = 0x0BD50BD0,
                        magic_composite = 0x0BD60BD0, magic_foreign = 0x0BD70BD0,
                        magic_extending = 0x0BD80BD0;
constexpr std::uint32_t known_magics[] = {magic_v1,        magic_v3,      magic_specific,
                                          magic_composite, magic_foreign, magic_extending};
constexpr std::uint64_t stripe_unit = 64 * 1024, extension_unit = 1024;
constexpr std::uint32_t known_patterns = pattern_raid0 | pattern_raid1 | pattern_parity |
                                         pattern_mdt | pattern_overstriping | pattern_foreign |
                                         pattern_compressed | pattern_hole | pattern_released;

template <class Number>
Number swapped_bytes(Number value) {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(Number)>>(value);
  std::ranges::reverse(bytes);
  return std::bit_cast<Number>(bytes);
}

/// A view of bytes whose numbers may be the other way round.
class LovFields {
 public:
  /// `at`: where `bytes` begin in the attribute, for messages.
  LovFields(std::span<const std::byte> bytes, std::size_t at) : bytes_(bytes), at_(at) {
    need(bytes.size() >= sizeof magic_, "lustre.lov has ", bytes.size(), " bytes at byte ", at,
         ", too few for a magic");
    std::memcpy(&magic_, bytes.data(), sizeof magic_);
    if (std::ranges::find(known_magics, swapped_bytes(magic_)) != std::end(known_magics)) {
      swap_ = true;
      magic_ = swapped_bytes(magic_);
    }
  }

  std::uint32_t magic() const { return magic_; }
  std::size_t size() const { return bytes_.size(); }
  std::size_t at() const { return at_; }

  template <class Struct>
  Struct take(std::size_t offset) const {
    need(offset <= bytes_.size() && sizeof(Struct) <= bytes_.size() - offset, "lustre.lov wants ",
         sizeof(Struct), " bytes at byte ", at_ + offset, " and ends at byte ",
         at_ + bytes_.size());
    Struct value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  template <class Number>
  Number number(Number raw) const {
    return swap_ ? swapped_bytes(raw) : raw;
  }
  std::span<const std::byte> part(std::size_t offset, std::size_t bytes) const {
    need(offset <= bytes_.size() && bytes <= bytes_.size() - offset, "lustre.lov has a part of ",
         bytes, " bytes at byte ", at_ + offset, " and ends at byte ", at_ + bytes_.size());
    return bytes_.subspan(offset, bytes);
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint32_t magic_ = 0;
  bool swap_ = false;
};

std::string pool_of(const LovFields& fields) {
  const auto name = fields.part(sizeof(LovHeader), pool_name_bytes);
  std::string pool(reinterpret_cast<const char*>(name.data()), name.size());
  pool.resize(std::min(pool.find('\0'), pool.size()));
  return pool;
}

/// A plain layout, or the blob of a component: header, perhaps a pool's name, objects.
void read_striping(const LovFields& fields, LustreComponent& component) {
  // Version 1 ends where others have the name of a pool.
  const auto header = fields.take<LovHeader>(0);
  const bool named = fields.magic() != magic_v1;
  const std::size_t base = sizeof(LovHeader) + (named ? pool_name_bytes : 0);
  component.pattern = fields.number(header.pattern);
  component.stripe_count = fields.number(header.stripe_count);
  const std::uint64_t unit = (component.flags & component_extension) != 0 ? extension_unit : 1;
  component.stripe_bytes = fields.number(header.stripe_size) * unit;
  component.pool = named ? pool_of(fields) : "";
  need((component.pattern & ~known_patterns) == 0, "lustre.lov has pattern ", component.pattern,
       " at byte ", fields.at(), ", which nothing here knows");
  const auto objects = fields.part(base, fields.size() - std::min(base, fields.size()));
  need(objects.size() % sizeof(LovObject) == 0, "lustre.lov has ", objects.size(),
       " bytes of objects at byte ", fields.at() + base, ", no multiple of ", sizeof(LovObject));
  // The number of objects counts, not stripe_count: a component that nobody wrote to, and a file
  // that was released, have a count and no objects.
  for (std::size_t at = base; at < fields.size(); at += sizeof(LovObject)) {
    const std::uint32_t ost = fields.number(fields.take<LovObject>(at).ost);
    need(ost <= std::numeric_limits<Target>::max(), "lustre.lov names OST ", ost, " at byte ",
         fields.at() + at);
    component.osts.push_back(static_cast<Target>(ost));
  }
  need(component.osts.empty() ||
           (component.stripe_bytes > 0 && component.stripe_bytes % stripe_unit == 0),
       "lustre.lov has stripes of ", component.stripe_bytes, " bytes at byte ", fields.at(),
       ", no multiple of ", stripe_unit);
}

LustreLayout read_plain(const LovFields& fields) {
  LustreComponent whole{.end = std::numeric_limits<std::uint64_t>::max(), .flags = component_ready};
  read_striping(fields, whole);
  // In a plain layout the count is the truth, unless the file was released.
  const bool released = (whole.pattern & pattern_released) != 0;
  const bool on_mdt = (whole.pattern & pattern_mdt) != 0;
  need(released || on_mdt || whole.osts.size() == whole.stripe_count, "lustre.lov counts ",
       whole.stripe_count, " stripes and has ", whole.osts.size(), " objects");
  LustreLayout layout;
  layout.released = released;
  layout.components.push_back(std::move(whole));
  return layout;
}

LustreComponent read_entry(const LovFields& fields, std::size_t index) {
  const auto entry = fields.take<LovEntry>(sizeof(LovComposite) + index * sizeof(LovEntry));
  LustreComponent component;
  component.begin = fields.number(entry.begin);
  component.end = fields.number(entry.end);
  component.id = fields.number(entry.id);
  component.mirror = (component.id & 0x7fff0000) >> 16;
  component.flags = fields.number(entry.flags);
  need(component.begin <= component.end, "component ", component.id, " of lustre.lov begins at ",
       component.begin, " and ends before, at ", component.end);
  // Offsets count from the composite's first byte, and part() holds them to its end.
  const std::size_t at = fields.number(entry.blob_offset);
  const LovFields blob(fields.part(at, fields.number(entry.blob_size)), fields.at() + at);
  if (blob.magic() == magic_foreign) {
    component.pattern = pattern_foreign;
    return component;
  }
  need(blob.magic() == magic_v1 || blob.magic() == magic_v3 || blob.magic() == magic_specific,
       "component ", component.id, " of lustre.lov has magic ", blob.magic());
  read_striping(blob, component);
  return component;
}

LustreLayout read_composite(std::span<const std::byte> attribute) {
  const LovFields outer(attribute, 0);
  const auto header = outer.take<LovComposite>(0);
  // What lies behind the size that is given belongs to nobody: blobs must not reach into it.
  const LovFields fields(outer.part(0, outer.number(header.size)), 0);
  const std::size_t entries = fields.number(header.entries);
  need(sizeof(LovComposite) + entries * sizeof(LovEntry) <= fields.size(), "lustre.lov has ",
       entries, " components in ", fields.size(), " bytes");
  LustreLayout layout;
  layout.composite = true;
  layout.mirrors = std::uint32_t{1} + fields.number(header.mirrors_beside_one);
  for (std::size_t index = 0; index < entries; ++index) {
    layout.components.push_back(read_entry(fields, index));
    layout.released = layout.released || (layout.components.back().pattern & pattern_released) != 0;
  }
  return layout;
}

/// Whether reads may come from it.
bool readable(const LustreComponent& component) {
  constexpr std::uint32_t never =
      component_stale | component_offline | component_extension | component_parity;
  constexpr std::uint32_t unknown = pattern_raid1 | pattern_parity | pattern_foreign;
  const bool has_data = (component.pattern & pattern_mdt) != 0 ||
                        ((component.pattern & pattern_raid0) != 0 && !component.osts.empty());
  return (component.flags & never) == 0 && (component.flags & component_ready) != 0 &&
         (component.pattern & unknown) == 0 && has_data;
}

/// Whether reads come from `one` rather than from `other`, where both have the bytes.
// Lustre's own order, so that reads go where the client would send them.
bool preferred(const LustreComponent& one, const LustreComponent& other) {
  const bool prefers = (one.flags & component_prefer_read) != 0;
  const bool other_prefers = (other.flags & component_prefer_read) != 0;
  return prefers != other_prefers ? prefers : one.mirror < other.mirror;
}

StripedRange range_of(const LustreComponent* component, std::uint64_t begin, std::uint64_t end,
                      Target unknown) {
  StripedRange range{.begin = begin, .end = end, .stripe_bytes = 0, .targets = {unknown}};
  if (component == nullptr) {
    return range;
  }
  if ((component->pattern & pattern_mdt) != 0) {
    range.targets = {metadata_target};
    return range;
  }
  // One target has no stripes to cut reads at.
  range.stripe_bytes = component->osts.size() > 1 ? component->stripe_bytes : 0;
  range.targets = component->osts;
  return range;
}

}  // namespace

LustreLayout parse_lustre_layout(std::span<const std::byte> attribute) {
  const LovFields fields(attribute, 0);
  switch (fields.magic()) {
    case magic_v1:
    case magic_v3:
    case magic_specific:
      return read_plain(fields);
    case magic_composite:
    case magic_extending:
      return read_composite(attribute);
    case magic_foreign: {
      // The value is another system's, but a length that the attribute lacks shows damage.
      fields.part(sizeof(LovForeign), fields.number(fields.take<LovForeign>(0).length));
      LustreLayout layout;
      layout.foreign = true;
      return layout;
    }
    default:
      throw Error(ErrorCode::unavailable,
                  text("lustre.lov has magic ", fields.magic(), ", which nothing here knows"));
  }
}

FileLayout file_layout(const LustreLayout& layout, std::uint64_t file_bytes, Target unknown) {
  if (layout.released || layout.foreign) {
    return unknown_layout(file_bytes, unknown);
  }
  // Between two neighbouring edges of components each offset has the same candidates.
  std::vector<std::uint64_t> edges = {0, file_bytes};
  for (const LustreComponent& component : layout.components) {
    edges.push_back(std::min(component.begin, file_bytes));
    edges.push_back(std::min(component.end, file_bytes));
  }
  std::ranges::sort(edges);
  FileLayout ranges;
  const LustreComponent* before = nullptr;
  for (std::size_t edge = 0; edge + 1 < edges.size(); ++edge) {
    const std::uint64_t begin = edges[edge], end = edges[edge + 1];
    if (begin == end) {
      continue;
    }
    const LustreComponent* best = nullptr;
    for (const LustreComponent& component : layout.components) {
      const bool covers = component.begin <= begin && end <= component.end;
      if (covers && readable(component) && (best == nullptr || preferred(component, *best))) {
        best = &component;
      }
    }
    if (!ranges.empty() && best == before) {
      ranges.back().end = end;
    } else {
      ranges.push_back(range_of(best, begin, end, unknown));
    }
    before = best;
  }
  return ranges;
}

FileLayout unknown_layout(std::uint64_t file_bytes, Target unknown) {
  if (file_bytes == 0) {
    return {};
  }
  return {range_of(nullptr, 0, file_bytes, unknown)};
}

}  // namespace sprat::io
