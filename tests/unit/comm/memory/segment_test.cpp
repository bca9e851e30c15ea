// Shared memory: what peers map, and what is left behind.
#include "comm/memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "sprat/error.hpp"

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

TEST(Segment, that_cannot_be_had_says_what_to_raise) {
  try {
    const Segment segment(std::size_t{1} << 48, Segment::Pages::as_touched);
    FAIL() << "there is more address space than there was";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_STREQ(error.what(),
                 "cannot have 281474976710656 bytes of shared memory: Cannot allocate memory; free "
                 "memory of this host, or raise this process's limits of it (ulimit -v, and its "
                 "container's)");
  }
}

TEST(Segment, without_a_descriptor_says_which_limit_to_raise) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 3, .rlim_max = 3};
    setrlimit(RLIMIT_NOFILE, &none);
    int status = 1;
    try {
      const Segment segment(4096);
    } catch (const Error& error) {
      status = std::string(error.what())
                       .ends_with("Too many open files; raise the limit of open files (ulimit -n)")
                   ? 0
                   : 2;
    }
    _exit(status);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
  kept.data()[64] = std::byte{7};
  const PeerMemory first = mappings.view(kept.ref());
  ASSERT_NE(first.data, nullptr);
  EXPECT_EQ(first.bytes, kept.bytes());
  EXPECT_EQ(mappings.view(kept.ref(64)).data, first.data + 64);
  for (int i = 0; i < 300; ++i) {
    const Segment other(4096);
    ASSERT_NE(mappings.view(other.ref()).data, nullptr);
  }
  EXPECT_NE(mappings.view(kept.ref()).data, first.data);
  EXPECT_EQ(first.data[64], std::byte{7}) << "what is in use stays";
}

TEST(PeerMappings, give_no_more_than_there_is) {
  PeerMappings mappings(getpid());
  const Segment segment(4096);
  EXPECT_EQ(mappings.view(segment.ref(segment.bytes() - 10)).bytes, 10u);
  EXPECT_EQ(mappings.view(segment.ref(segment.bytes() + 10)).bytes, 0u);
  EXPECT_EQ(mappings.view(segment.ref(~std::size_t{0})).bytes, 0u);
}

/// Whether this process may write there.
bool is_writable(std::byte* address) {
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  const bool written = read(zeros, address, 1) == 1;
  close(zeros);
  return written;
}

TEST(PeerMapping, can_be_written_only_by_who_rings) {
  const Segment segment(std::size_t{4} << 20);
  const auto rings = PeerMapping::open(getpid(), segment.ref(), PeerMapping::Access::ring);
  const auto reads = PeerMapping::open(getpid(), segment.ref(), PeerMapping::Access::read);
  ASSERT_TRUE(rings && reads);
  EXPECT_TRUE(is_writable(rings->data()));
  EXPECT_FALSE(is_writable(reads->data()));
}

TEST(PeerMapping, refuses_a_file_that_might_shrink) {
  const int file = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  struct stat status {};
  fstat(file, &status);
  const MemoryRef ref{MemoryRef::Kind::segment, file, status.st_ino, 4096, 0};
  EXPECT_EQ(PeerMapping::open(getpid(), ref, PeerMapping::Access::read), nullptr);
  fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
  EXPECT_NE(PeerMapping::open(getpid(), ref, PeerMapping::Access::read), nullptr);
  close(file);
}

TEST(Segment, of_huge_pages_gives_them_back_although_peers_keep_their_mappings) {
  for (const auto pages :
       {Segment::Pages::as_touched, Segment::Pages::given_back, Segment::Pages::huge}) {
    auto segment = std::make_unique<Segment>(std::size_t{4} << 20, pages);
    const auto peer = PeerMapping::open(getpid(), segment->ref(), PeerMapping::Access::read);
    ASSERT_TRUE(peer);
    segment->data()[0] = std::byte{1};
    segment.reset();
    EXPECT_EQ(peer->data()[0], pages == Segment::Pages::as_touched ? std::byte{1} : std::byte{0});
  }
}

}  // namespace
}  // namespace sprat::comm
