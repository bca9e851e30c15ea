// Parts in memory that other ranks of a host read: what is not what was put there is not read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "comm/coordinator/rendezvous_member.hpp"

namespace sprat::comm {
namespace {

const Parts parts{4, {Blob(100'000, std::byte{1}), Blob(), Blob(7, std::byte{2})}};

TEST(PartsShelf, gives_back_what_was_put_there) {
  PartsShelf shelf;
  EXPECT_FALSE(shelf.put(parts));  // nobody has asked for it
  shelf.expect();
  const auto place = shelf.put(parts);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->ordinal, parts.ordinal);
  const auto read = PartsShelf::read(*place);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ordinal, parts.ordinal);
  EXPECT_EQ(read->blobs, parts.blobs);
  shelf.clear();
  EXPECT_FALSE(PartsShelf::read(*place));
}

TEST(PartsShelf, is_not_read_by_words_that_do_not_fit_it) {
  PartsShelf shelf;
  shelf.expect();
  const PartsPlace place = shelf.put(parts).value();
  const std::vector<std::function<void(PartsPlace&)>> lies = {
      [](PartsPlace& lie) { ++lie.ordinal; },
      [](PartsPlace& lie) { lie.pid = 1; },
      [](PartsPlace& lie) { lie.descriptor = 0; },
      [](PartsPlace& lie) { ++lie.inode; },
      [](PartsPlace& lie) { lie.bytes -= 4096; },
      [](PartsPlace& lie) { lie.bytes = 0; },
      [](PartsPlace& lie) { lie.bytes = std::uint64_t{1} << 62; },
      [](PartsPlace& lie) { ++lie.digest; },
  };
  for (std::size_t at = 0; at < lies.size(); ++at) {
    PartsPlace lie = place;
    lies[at](lie);
    EXPECT_FALSE(PartsShelf::read(lie)) << at;
  }
  EXPECT_TRUE(PartsShelf::read(place));
}

// Whoever may look into this process's memory can write to it.
TEST(PartsShelf, is_not_read_once_a_byte_has_changed) {
  PartsShelf shelf;
  shelf.expect();
  const PartsPlace place = shelf.put(parts).value();
  const MemoryRef ref{.kind = MemoryRef::Kind::segment,
                      .fd = place.descriptor,
                      .inode = place.inode,
                      .segment_bytes = place.bytes};
  const auto memory = PeerMapping::open(getpid(), ref, PeerMapping::Access::ring);
  ASSERT_NE(memory, nullptr);
  for (const std::size_t at : {std::size_t{0}, std::size_t{50'000}, memory->bytes() - 1}) {
    memory->data()[at] ^= std::byte{1};
    EXPECT_FALSE(PartsShelf::read(place)) << at;
    memory->data()[at] ^= std::byte{1};
  }
  EXPECT_TRUE(PartsShelf::read(place));
}

}  // namespace
}  // namespace sprat::comm
