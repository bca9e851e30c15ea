// Shared memory: what peers map, and what is left behind.
#include "comm/segment.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "sprat/buffer.hpp"

namespace sprat::comm {
namespace {

TEST(Segment, starts_zeroed_and_rounds_up_to_pages) {
  const Segment segment(5000);
  EXPECT_GE(segment.bytes(), 5000u);
  EXPECT_EQ(segment.bytes() % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), 0u);
  for (std::size_t i = 0; i < segment.bytes(); ++i) {
    ASSERT_EQ(segment.data()[i], std::byte{0});
  }
}

TEST(Segment, another_process_maps_it_and_sees_what_is_written) {
  const Segment segment(4096);
  const pid_t owner = getpid();
  const MemoryRef ref = segment.ref();
  std::strcpy(reinterpret_cast<char*>(segment.data()), "hello");
  const pid_t child = fork();
  if (child == 0) {
    const auto mapping = PeerMapping::open(owner, ref, PeerMapping::Access::read);
    _exit(mapping && std::strcmp(reinterpret_cast<const char*>(mapping->data()), "hello") == 0 ? 0
                                                                                               : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PeerMapping, refuses_a_descriptor_that_means_another_file_now) {
  const Segment segment(4096);
  MemoryRef ref = segment.ref();
  ref.inode += 1;
  EXPECT_EQ(PeerMapping::open(getpid(), ref, PeerMapping::Access::read), nullptr);
  ref = segment.ref();
  ref.segment_bytes += 4096;
  EXPECT_EQ(PeerMapping::open(getpid(), ref, PeerMapping::Access::read), nullptr);
}

TEST(PeerMappings, keep_one_mapping_a_segment_and_bound_their_number) {
  PeerMappings mappings(getpid());
  const Segment kept(4096);
  const std::byte* first = mappings.view(kept.ref());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(mappings.view(kept.ref(64)), first + 64);
  for (int i = 0; i < 300; ++i) {
    const Segment other(4096);
    ASSERT_NE(mappings.view(other.ref()), nullptr);
  }
  EXPECT_NE(mappings.view(kept.ref()), nullptr);
}

TEST(Memory, is_found_by_any_piece_of_it_and_by_nothing_else) {
  const Memory memory(10'000);
  const auto* data = static_cast<const std::byte*>(memory.data());
  const auto whole = find_memory(data, 10'000);
  ASSERT_TRUE(whole);
  EXPECT_EQ(find_memory(data + 100, 50)->offset, whole->offset + 100);
  EXPECT_FALSE(find_memory(data - 1, 10));
  EXPECT_FALSE(find_memory(data + 9'000, 1 << 20));
  int local = 0;
  EXPECT_FALSE(find_memory(&local, sizeof local));
}

TEST(Memory, moves_and_is_gone_afterwards) {
  Memory memory(4096);
  const void* data = memory.data();
  Memory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory.data(), nullptr);
  moved = Memory();
  EXPECT_FALSE(find_memory(data, 1));
}

}  // namespace
}  // namespace sprat::comm
