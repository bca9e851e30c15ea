// Which pieces of files are read ahead, and that they are in memory then.
#include "io/readers/warm_up.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

constexpr std::uint64_t piece = warm_up_piece_bytes;

TEST(WarmUpPieces, of_all_parts_hold_each_byte_once) {
  const std::vector<std::uint64_t> sizes{0, 1, piece, piece + 1, 5 * piece - 1};
  for (const std::uint64_t parts : {1u, 2u, 3u, 16u}) {
    std::vector<std::uint64_t> held(sizes.size());
    for (std::uint64_t part = 0; part < parts; ++part) {
      for (const WarmUpPiece& one : warm_up_pieces(sizes, {.part = part, .parts = parts})) {
        EXPECT_EQ(one.offset % piece, 0u);
        EXPECT_LE(one.offset + one.bytes, sizes[one.file]);
        EXPECT_GT(one.bytes, 0u);
        held[one.file] += one.bytes;
      }
    }
    EXPECT_EQ(held, sizes) << parts << " parts";
  }
}

TEST(WarmUpPieces, of_a_part_lie_in_the_order_of_the_files) {
  const auto pieces = warm_up_pieces({2 * piece, piece}, {.part = 0, .parts = 2});
  EXPECT_EQ(pieces, (std::vector<WarmUpPiece>{{0, 0, piece}, {1, 0, piece}}));
}

class WarmUps : public testing::Test {
 protected:
  void write(std::uint64_t bytes) {
    std::ofstream(path_) << std::string(bytes, 'x');
    const int descriptor = open(path_.c_str(), O_RDONLY);
    fsync(descriptor);
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    close(descriptor);
  }

  KnownFile known() const {
    struct stat status {};
    stat(path_.c_str(), &status);
    return {path_,
            {static_cast<std::uint64_t>(status.st_size),
             std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec}};
  }

  std::size_t pages_in_memory(std::uint64_t bytes) const {
    const int descriptor = open(path_.c_str(), O_RDONLY);
    void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    EXPECT_EQ(mincore(mapped, bytes, pages.data()), 0);
    munmap(mapped, bytes);
    return static_cast<std::size_t>(std::count_if(
        pages.begin(), pages.end(), [](unsigned char one) { return (one & 1) != 0; }));
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "data";
};

TEST_F(WarmUps, bring_files_into_the_page_cache) {
  constexpr std::uint64_t bytes = 3 * piece + 100;
  write(bytes);
  WarmUp warm_up([this](std::uint32_t) { return known(); }, warm_up_pieces({bytes}, {}));
  const auto begin = std::chrono::steady_clock::now();
  while (pages_in_memory(bytes) < (bytes + 4095) / 4096) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(WarmUps, end_where_a_file_is_another_one_or_gone) {
  write(piece);
  KnownFile other = known();
  other.stamp.bytes = 2 * piece;
  for (const KnownFile& file : {other, KnownFile{folder_ / "absent", other.stamp}}) {
    WarmUp warm_up([&](std::uint32_t) { return file; }, warm_up_pieces({file.stamp.bytes}, {}));
    while (!warm_up.ended()) {
      std::this_thread::yield();
    }
  }
}

TEST_F(WarmUps, end_early_where_their_loader_ends) {
  write(piece);
  const WarmUp warm_up([this](std::uint32_t) { return known(); },
                       std::vector<WarmUpPiece>(1 << 20, {.file = 0, .offset = 0, .bytes = piece}));
}

}  // namespace
}  // namespace sprat::io
