// How processes keep out of each other's way, without waiting for anybody:
//
// - the lock file is held shared by all who use the folder, and alone by who makes the files anew;
// - who is about to take a slot holds its bucket in the index, so two do not store one block twice;
// - who writes a block holds its slot's bytes. The kernel lets go of that when a process ends, so a
//   slot that is marked as being written, and held by nobody, is one whose writer has died;
// - who reads holds nothing: it looks at the slot's record before and after. A writer changes the
//   record before it touches the bytes, so bytes between two equal records are the block's.
#include "io/caches/block_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/memory_room.hpp"
#include "io/durable.hpp"

namespace sprat::io {
namespace {

constexpr const char* lock_name = "sprat-cache.lock";
constexpr const char* index_name = "sprat-cache.index";
constexpr const char* blocks_name = "sprat-cache.blocks";

[[noreturn]] void refuse_folder(std::string_view what, const std::string& folder, int error) {
  throw Error(ErrorCode::unavailable, describe_failure(what, folder, error));
}

std::string store_path(const std::string& folder, const char* name) { return folder + "/" + name; }

/// A regular file, or -1 if it is not there and may not be made.
OwnedDescriptor open_regular(const std::string& path, int flags) {
  // O_NONBLOCK: should the name be a pipe's, opening it would wait for its other end.
  OwnedDescriptor file(
      ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (file.number() < 0) {
    if (errno == ENOENT && (flags & O_CREAT) == 0) {
      return file;
    }
    refuse_folder("open", path, errno);
  }
  struct stat status {};
  need(::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode), "cannot use ", path,
       " as a cache: it is no file; choose a folder of its own for the cache");
  return file;
}

struct stat status_of(int descriptor, const std::string& folder) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    refuse_folder("look at a file in", folder, errno);
  }
  return status;
}

/// Whether `path` still names the file: somebody may have cleared the folder since it was opened.
bool names(const std::string& path, int descriptor, const std::string& folder) {
  struct stat named {};
  const struct stat open = status_of(descriptor, folder);
  return ::stat(path.c_str(), &named) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

/// False if another process holds it.
bool take_folder(int lock, int how, const std::string& folder) {
  while (::flock(lock, how | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return false;
    }
    if (errno != EINTR) {
      refuse_folder("lock", folder, errno);
    }
  }
  return true;
}

/// A range of bytes of a file, kept from others while it lives.
class RangeLock {
 public:
  static std::optional<RangeLock> try_take(int descriptor, std::uint64_t begin,
                                           std::uint64_t bytes) {
    // A lock of the open file, not of the process: ranks may be threads.
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(begin);
    range.l_len = static_cast<off_t>(bytes);
    if (::fcntl(descriptor, F_OFD_SETLK, &range) != 0) {
      return std::nullopt;
    }
    return RangeLock(descriptor, range);
  }
  ~RangeLock() {
    if (descriptor_ >= 0) {
      range_.l_type = F_UNLCK;
      ::fcntl(descriptor_, F_OFD_SETLK, &range_);
    }
  }
  RangeLock(RangeLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), range_(other.range_) {}
  RangeLock& operator=(RangeLock&&) = delete;

 private:
  RangeLock(int descriptor, struct flock range) : descriptor_(descriptor), range_(range) {}
  int descriptor_;
  struct flock range_;
};

/// How many of the bytes are in the file.
std::size_t read_at(int descriptor, std::uint64_t offset, std::span<std::byte> into,
                    const std::string& folder) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(descriptor, into.data() + done, into.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      refuse_folder("read from a file in", folder, errno);
    }
    if (got == 0) {
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> from,
              const std::string& folder) {
  const SizeLimitFails limit;
  while (!from.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptor, from.data(), from.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      refuse_folder("write to a file in", folder, wrote == 0 ? ENOSPC : errno);
    }
    from = from.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
}

void set_length(int descriptor, std::uint64_t bytes, const std::string& folder) {
  const SizeLimitFails limit;
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    refuse_folder("set the length of a file in", folder, errno);
  }
}

/// So that a disk that is too small is found out now, and the cache never runs out of it later.
void make_room(int descriptor, std::uint64_t bytes, const std::string& folder) {
  const SizeLimitFails limit;
  while (::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EOPNOTSUPP) {  // then a full disk is noticed when a block is written
      set_length(descriptor, bytes, folder);
      return;
    }
    if (errno != EINTR) {
      refuse_folder(text("make room for ", bytes, " bytes in"), folder, errno);
    }
  }
}

std::uint64_t checksum_of_block(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

std::uint64_t offset_of_record(std::uint64_t slot) {
  return slot_header_bytes + slot * slot_record_bytes;
}

/// What becomes of a record when the folder is opened by somebody who wants its block, or not.
SlotRecord swept(SlotRecord record, bool ours, bool alone) {
  if (record.readable() && ours) {
    record.state = SlotState::whole;
  } else if (record.readable() && alone) {
    // Others may still want it: a dataset that is opened beside this one, or the next run's.
    record.state = SlotState::spare;
  } else if (record.state == SlotState::writing && alone) {
    record.state = SlotState::empty;  // whoever wrote it is no more
  }
  return record;
}

}  // namespace

BlockStore::BlockStore(std::string folder, OwnedDescriptor lock, OwnedDescriptor index,
                       OwnedDescriptor blocks)
    : folder_(std::move(folder)),
      lock_(std::move(lock)),
      index_(std::move(index)),
      blocks_(std::move(blocks)) {}

std::unique_ptr<BlockStore> BlockStore::try_open(const BlockStoreOptions& options) {
  const SlotTableShape wanted = slot_table_shape(options.capacity_bytes);
  require(wanted.slots() > 0, "a cache of ", options.capacity_bytes, " bytes in ", options.folder,
          " holds no block of ", cache_block_bytes, " bytes; allow it more, or use none");
  make_folder(options.folder, {});
  const std::string lock_path = store_path(options.folder, lock_name);
  OwnedDescriptor lock = open_regular(lock_path, O_RDWR | O_CREAT);
  const bool alone = take_folder(lock.number(), LOCK_EX, options.folder);
  if (!alone && !take_folder(lock.number(), LOCK_SH, options.folder)) {
    return nullptr;
  }
  if (!names(lock_path, lock.number(), options.folder)) {
    return nullptr;
  }
  const int flags = alone ? O_RDWR | O_CREAT : O_RDWR;
  OwnedDescriptor index = open_regular(store_path(options.folder, index_name), flags);
  OwnedDescriptor blocks = open_regular(store_path(options.folder, blocks_name), flags);
  if (index.number() < 0 || blocks.number() < 0) {
    return nullptr;
  }
  const int lock_number = lock.number();
  std::unique_ptr<BlockStore> store(
      new BlockStore(options.folder, std::move(lock), std::move(index), std::move(blocks)));
  if (alone) {
    store->shape_ = wanted;
    if (!store->has_header()) {
      store->begin_anew();
    }
  } else {
    std::array<std::byte, slot_header_bytes> header{};
    read_at(store->index_.number(), 0, header, options.folder);
    store->shape_ = decode_slot_header(header).value_or(SlotTableShape{});
    if (store->shape_.slots() == 0 || !store->has_header()) {
      return nullptr;
    }
  }
  store->sweep(options.wants, alone);
  // From alone to shared the kernel lets go of the lock for a moment, in which others may have made
  // the files anew.
  if (alone && (!take_folder(lock_number, LOCK_SH, options.folder) || !store->has_header() ||
                !store->still_there())) {
    return nullptr;
  }
  store->verified_ = std::vector<std::atomic<std::uint64_t>>(store->shape_.slots());
  return store;
}

/// Of this shape, and the files are as long as it says.
bool BlockStore::has_header() const {
  std::array<std::byte, slot_header_bytes> header{};
  read_at(index_.number(), 0, header, folder_);
  const auto bytes = [&](const OwnedDescriptor& file) {
    return static_cast<std::uint64_t>(status_of(file.number(), folder_).st_size);
  };
  return decode_slot_header(header) == shape_ && bytes(index_) == shape_.index_bytes() &&
         bytes(blocks_) == shape_.data_bytes();
}

void BlockStore::begin_anew() {
  try {
    set_length(index_.number(), 0, folder_);
    set_length(blocks_.number(), 0, folder_);
    make_room(blocks_.number(), shape_.data_bytes(), folder_);
    make_room(index_.number(), shape_.index_bytes(), folder_);
    // Last: without a header the next one begins anew.
    write_at(index_.number(), 0, encode_slot_header(shape_), folder_);
  } catch (const Error&) {
    // A disk that was too small gets back what was taken of it.
    static_cast<void>(::ftruncate(index_.number(), 0) + ::ftruncate(blocks_.number(), 0));
    throw;
  }
}

void BlockStore::sweep(const std::function<bool(const BlockKey&)>& wants, bool alone) {
  BucketBytes bytes;
  for (std::uint64_t bucket = 0; bucket < shape_.buckets; ++bucket) {
    const auto lock =
        RangeLock::try_take(index_.number(), offset_of_record(bucket * shape_.bucket_slots),
                            shape_.bucket_slots * slot_record_bytes);
    if (!lock) {
      continue;  // what stays spare is served all the same, until its slot is taken
    }
    const auto records = read_bucket(bucket, bytes);
    for (std::uint64_t place = 0; place < shape_.bucket_slots; ++place) {
      const SlotRecord record = decode_slot(records.subspan(place * slot_record_bytes));
      const SlotRecord after =
          swept(record, record.readable() && wants && wants(record.key), alone);
      if (after != record) {
        write_record(bucket * shape_.bucket_slots + place, after);
      }
    }
  }
}

std::span<const std::byte> BlockStore::read_bucket(std::uint64_t bucket, BucketBytes& bytes) const {
  const auto into = std::span(bytes).first(shape_.bucket_slots * slot_record_bytes);
  const std::size_t got =
      read_at(index_.number(), offset_of_record(bucket * shape_.bucket_slots), into, folder_);
  return into.first(got);
}

SlotRecord BlockStore::read_record(std::uint64_t slot) const {
  SlotRecordBytes bytes{};
  read_at(index_.number(), offset_of_record(slot), bytes, folder_);
  return decode_slot(bytes);
}

void BlockStore::write_record(std::uint64_t slot, const SlotRecord& record) {
  write_at(index_.number(), offset_of_record(slot), encode_slot(record), folder_);
}

/// At most one place.
std::vector<BlockStore::Place> BlockStore::find(const BlockKey& key) const {
  BucketBytes bytes;
  const std::uint64_t bucket = bucket_of(key, shape_);
  const auto found = find_slot(read_bucket(bucket, bytes), key);
  if (!found) {
    return {};
  }
  return {{.bucket = bucket,
           .slot = bucket * shape_.bucket_slots + found->place,
           .record = found->record}};
}

bool BlockStore::holds(const BlockKey& key) const { return !find(key).empty(); }

FetchOutcome BlockStore::fetch(const BlockKey& key, std::size_t offset, std::span<std::byte> into) {
  const auto places = find(key);
  if (places.empty() || offset + into.size() > places.front().record.bytes) {
    return FetchOutcome::absent;
  }
  const Place& place = places.front();
  FetchOutcome outcome = FetchOutcome::fetched;
  if (into.size() == place.record.bytes) {
    outcome = fetch_whole(place, into);
  } else if (!verified(place)) {
    std::vector<std::byte> whole(place.record.bytes);
    outcome = fetch_whole(place, whole);
    std::memcpy(into.data(), whole.data() + offset, into.size());
  } else {
    const std::size_t got =
        read_at(blocks_.number(), place.slot * cache_block_bytes + offset, into, folder_);
    outcome = got == into.size() ? FetchOutcome::fetched : FetchOutcome::damaged;
  }
  // Another process may have given the slot to another block meanwhile; then this one is gone, and
  // not damaged. Its state alone may change while the bytes stay.
  const SlotRecord now = read_record(place.slot);
  if (!now.readable() || now.generation != place.record.generation || now.key != key) {
    return FetchOutcome::absent;
  }
  return outcome;
}

bool BlockStore::verified(const Place& place) {
  // A block whose checksum is 0 is read whole each time.
  return place.record.checksum != 0 && verified_[place.slot].load(std::memory_order_relaxed) ==
                                           (place.record.checksum ^ place.record.generation);
}

FetchOutcome BlockStore::fetch_whole(const Place& place, std::span<std::byte> into) {
  const std::size_t got = read_at(blocks_.number(), place.slot * cache_block_bytes, into, folder_);
  if (got != into.size() || checksum_of_block(into) != place.record.checksum) {
    return FetchOutcome::damaged;
  }
  verified_[place.slot].store(place.record.checksum ^ place.record.generation,
                              std::memory_order_relaxed);
  return FetchOutcome::fetched;
}

StoreOutcome BlockStore::store(const BlockKey& key, std::span<const std::byte> block) {
  require(!block.empty() && block.size() <= cache_block_bytes, "a block of ", block.size(),
          " bytes was to be stored in ", folder_, "; blocks have 1 to ", cache_block_bytes);
  const std::uint64_t bucket = bucket_of(key, shape_), first = bucket * shape_.bucket_slots;
  auto bucket_lock = RangeLock::try_take(index_.number(), offset_of_record(first),
                                         shape_.bucket_slots * slot_record_bytes);
  if (!bucket_lock) {
    return StoreOutcome::busy;
  }
  BucketBytes bytes;
  const auto records = read_bucket(bucket, bytes);
  if (find_slot(records, key)) {
    return StoreOutcome::was_there;
  }
  // Slots in which somebody was writing are looked at in turn; more than a few live writers in one
  // bucket are not to be expected.
  constexpr std::size_t most_looked_at = 16;
  for (const FoundSlot& candidate : slots_for(records, key, most_looked_at)) {
    const std::uint64_t slot = first + candidate.place;
    auto slot_lock =
        RangeLock::try_take(blocks_.number(), slot * cache_block_bytes, cache_block_bytes);
    if (!slot_lock) {
      if (candidate.record.key == key && candidate.record.state == SlotState::writing) {
        return StoreOutcome::busy;
      }
      continue;
    }
    SlotRecord record{.key = key,
                      .bytes = static_cast<std::uint32_t>(block.size()),
                      .state = SlotState::writing,
                      .checksum = checksum_of_block(block),
                      .generation = candidate.record.generation + 1};
    write_record(slot, record);
    bucket_lock.reset();  // others may look for slots while the bytes are written
    write_at(blocks_.number(), slot * cache_block_bytes, block, folder_);
    record.state = SlotState::whole;
    write_record(slot, record);
    return StoreOutcome::stored;
  }
  return StoreOutcome::no_room;
}

bool BlockStore::drop(const BlockKey& key) {
  const std::uint64_t first = bucket_of(key, shape_) * shape_.bucket_slots;
  const auto lock = RangeLock::try_take(index_.number(), offset_of_record(first),
                                        shape_.bucket_slots * slot_record_bytes);
  if (!lock) {
    return false;
  }
  for (const Place& place : find(key)) {
    write_record(place.slot, {.generation = place.record.generation + 1});
  }
  return true;
}

bool BlockStore::still_there() const {
  return status_of(index_.number(), folder_).st_nlink > 0 &&
         status_of(blocks_.number(), folder_).st_nlink > 0;
}

namespace {

/// The files as they are, for people who look at them.
struct LookedAt {
  SlotTableShape shape;
  OwnedDescriptor index, blocks;
  std::vector<SlotRecord> records;
};

LookedAt look_at_files(const std::string& folder) {
  LookedAt seen{.shape = {},
                .index = open_regular(store_path(folder, index_name), O_RDONLY),
                .blocks = open_regular(store_path(folder, blocks_name), O_RDONLY),
                .records = {}};
  std::array<std::byte, slot_header_bytes> header{};
  if (seen.index.number() >= 0 && seen.blocks.number() >= 0) {
    read_at(seen.index.number(), 0, header, folder);
  }
  const auto shape = decode_slot_header(header);
  need(shape.has_value(), "there is no cache in ", folder,
       "; a loader makes one in the folder that its option cache.folder names");
  seen.shape = *shape;
  const auto there = static_cast<std::uint64_t>(status_of(seen.index.number(), folder).st_size);
  need(there == shape->index_bytes(), "the cache in ", folder, " is damaged: its index has ", there,
       " bytes, and says that it has ", shape->index_bytes(),
       "; clear it (sprat io cache --clear)");
  comm::need_memory(shape->slots() * (slot_record_bytes + sizeof(SlotRecord)),
                    ("the index of the cache in " + folder).c_str());
  std::vector<std::byte> bytes(shape->slots() * slot_record_bytes);
  read_at(seen.index.number(), slot_header_bytes, bytes, folder);
  for (std::uint64_t slot = 0; slot < shape->slots(); ++slot) {
    seen.records.push_back(decode_slot(
        std::span<const std::byte>(bytes).subspan(slot * slot_record_bytes, slot_record_bytes)));
  }
  return seen;
}

}  // namespace

BlockStoreInfo describe_block_store(const std::string& folder) {
  const LookedAt seen = look_at_files(folder);
  BlockStoreInfo info{.shape = seen.shape};
  std::vector<FileKey> files;
  for (const SlotRecord& record : seen.records) {
    const bool spare = record.state == SlotState::spare;
    info.unfinished += record.state == SlotState::writing ? 1 : 0;
    if (record.readable()) {
      (spare ? info.spare_blocks : info.blocks) += 1;
      (spare ? info.spare_bytes : info.bytes) += record.bytes;
      files.push_back(record.key.file);
    }
  }
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  info.files = files.size();
  const OwnedDescriptor lock = open_regular(store_path(folder, lock_name), O_RDONLY);
  info.in_use = lock.number() >= 0 && !take_folder(lock.number(), LOCK_EX, folder);
  return info;
}

std::vector<std::uint64_t> damaged_slots(const std::string& folder) {
  const LookedAt seen = look_at_files(folder);
  std::vector<std::uint64_t> damaged;
  std::vector<std::byte> block(cache_block_bytes);
  for (std::uint64_t slot = 0; slot < seen.records.size(); ++slot) {
    const SlotRecord& record = seen.records[slot];
    if (record.readable()) {
      const auto into = std::span(block).first(record.bytes);
      const std::size_t got = read_at(seen.blocks.number(), slot * cache_block_bytes, into, folder);
      if (got != into.size() || checksum_of_block(into) != record.checksum) {
        damaged.push_back(slot);
      }
    }
  }
  return damaged;
}

std::uint64_t clear_block_store(const std::string& folder) {
  const std::string lock_path = store_path(folder, lock_name);
  const OwnedDescriptor lock = open_regular(lock_path, O_RDWR);
  need(lock.number() >= 0, "there is no cache in ", folder, ", so nothing to clear");
  need(take_folder(lock.number(), LOCK_EX, folder), "the cache in ", folder,
       " is in use: end the loaders that read through it, then clear it");
  std::uint64_t bytes = 0;
  // The lock goes last: who opens the folder meanwhile waits for it, and then finds another one.
  for (const char* name : {index_name, blocks_name, lock_name}) {
    const std::string path = store_path(folder, name);
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) {
      bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
      if (::unlink(path.c_str()) != 0) {
        refuse_folder("remove", path, errno);
      }
    }
  }
  std::error_code others_are_in_it;
  std::filesystem::remove(folder, others_are_in_it);
  return bytes;
}

}  // namespace sprat::io
