// A request has one source: caches keep blocks together that one request reads, so to cut a request
// by source would win little, and each piece would need an end of its own.
#include "io/loader/near_reads.hpp"

#include <algorithm>
#include <cstring>
#include <semaphore>

#include "comm/base/check.hpp"

namespace sprat::io {

NearReads::NearReads(NearReadsOptions options) : options_(std::move(options)) {
  if (has_caches()) {
    options_.caches->set_notice(options_.notice);
  }
}

void NearReads::settle() {
  if (!has_caches()) {
    return;
  }
  std::counting_semaphore<> notices(0);
  options_.caches->set_notice([&notices] { notices.release(); });
  // What ended before that gave its notice to somebody else. A disk answers, and other hosts have a
  // deadline: this ends.
  for (reap(); !under_way_.empty(); reap()) {
    notices.acquire();
  }
  options_.caches->set_notice({});
}

/// Direct reads may reach behind the end of a file; caches know files alone.
Extent NearReads::within_file(Extent extent) const {
  const std::uint64_t file_bytes = options_.caches->file_bytes(extent.file);
  extent.bytes = std::min(extent.bytes, file_bytes - std::min(file_bytes, extent.offset));
  return extent;
}

BlockSource NearReads::only_source(const Extent& extent) const {
  if (extent.bytes == 0) {
    return BlockSource::file_system;
  }
  const std::vector<CachePiece> pieces = options_.caches->lookup(extent);
  return pieces.size() == 1 ? pieces.front().source : BlockSource::file_system;
}

void NearReads::place(std::vector<Request>& requests) const {
  if (!has_caches()) {
    return;
  }
  for (Request& request : requests) {
    const BlockSource source = only_source(within_file(request.extent));
    if (source != BlockSource::file_system) {
      request.target = source == BlockSource::peer ? peers_target : host_cache_target;
    }
  }
}

bool NearReads::start(const ReadStart& read, std::span<std::byte> into) {
  if (!has_caches()) {
    return false;
  }
  // Looked up again: others may have filled the cache since the request was planned.
  const Extent extent = within_file(read.extent);
  const BlockSource source = only_source(extent);
  if (source == BlockSource::file_system) {
    return false;
  }
  const CachePiece piece{.extent = extent, .source = source, .fills = std::nullopt};
  // Known before it can end.
  under_way_.emplace(read.id, extent.bytes);
  if (!options_.caches->start(piece, into.first(extent.bytes), read.id)) {
    under_way_.erase(read.id);
    return false;
  }
  return true;
}

std::vector<NearReads::Brought> NearReads::reap() {
  std::vector<Brought> brought;
  if (under_way_.empty()) {
    return brought;
  }
  for (const CacheDone& done : options_.caches->reap()) {
    const auto bytes = under_way_.extract(done.tag);
    need(!bytes.empty(), "a cache tells of request ", done.tag, ", which nobody asked it for");
    brought.push_back(
        {.request = done.tag, .source = done.source, .bytes = done.there ? bytes.mapped() : 0});
  }
  return brought;
}

std::set<std::pair<std::uint32_t, std::uint64_t>> NearReads::blocks_of(const Extent& extent) const {
  std::set<std::pair<std::uint32_t, std::uint64_t>> blocks;
  for (std::uint64_t block = extent.offset / cache_block_bytes;
       block * cache_block_bytes < extent.offset + extent.bytes; ++block) {
    blocks.emplace(extent.file, block);
  }
  return blocks;
}

std::optional<NearReads::Fill> NearReads::fill(const ReadStart& read, std::span<std::byte> wanted) {
  const bool afresh = read.into == 0 && !by_themselves_.contains(read.id);
  if (!has_caches() || !afresh) {
    return std::nullopt;
  }
  const Extent extent = within_file(read.extent);
  const std::optional<Extent> whole =
      extent.bytes > 0 ? options_.caches->from_file(extent).fills : std::nullopt;
  // A request that reads whole blocks anyway is offered as it is.
  if (!whole || *whole == extent) {
    return std::nullopt;
  }
  const std::uint64_t room =
      (whole->bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
  const auto blocks = blocks_of(*whole);
  const bool filled_already =
      std::ranges::any_of(blocks, [this](const auto& block) { return filling_.contains(block); });
  // A disk that does not keep up would have the same blocks read for nothing, again and again.
  const std::uint64_t filling = filling_bytes_ + room;
  if (filled_already || filling > options_.fill_bytes || !options_.caches->has_room(filling)) {
    return std::nullopt;
  }
  PooledMemory memory = options_.pool->take(room);
  const std::span<std::byte> into = *memory;
  filling_.insert(blocks.begin(), blocks.end());
  filling_bytes_ += room;
  fills_[read.id] = {.extent = *whole,
                     .memory = std::move(memory),
                     .wanted = wanted.first(extent.bytes),
                     .at = extent.offset - whole->offset};
  return Fill{.extent = *whole, .into = into.first(room)};
}

std::uint64_t NearReads::filled(std::uint64_t request, std::uint64_t bytes) {
  const auto node = fills_.extract(request);
  const FillUnderWay& fill = node.mapped();
  for (const auto& block : blocks_of(fill.extent)) {
    filling_.erase(block);
  }
  filling_bytes_ -=
      (fill.extent.bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
  if (bytes < fill.extent.bytes) {
    // What lies beside the wanted bytes may be what cannot be read.
    by_themselves_.insert(request);
    return 0;
  }
  std::memcpy(fill.wanted.data(), fill.memory->data() + fill.at, fill.wanted.size());
  offer(fill.extent, *fill.memory, fill.memory);
  return fill.wanted.size();
}

void NearReads::offer(const Extent& extent, std::span<const std::byte> bytes,
                      std::shared_ptr<const void> owner) {
  if (!has_caches()) {
    return;
  }
  const Extent inside = within_file(extent);
  options_.caches->offer(inside, bytes.first(inside.bytes), std::move(owner));
}

void NearReads::read_from_file(std::uint64_t bytes, std::chrono::nanoseconds took,
                               std::size_t under_way) {
  if (has_caches() && bytes > 0) {
    options_.caches->read_from_file_system(bytes, took, under_way);
  }
}

}  // namespace sprat::io
