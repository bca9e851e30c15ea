// Every reader of the table brings the bytes of the file, tells errors, keeps to its depth, sleeps
// and wakes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/aligned.hpp"
#include "io/readers/probe.hpp"
#include "io/readers/reader.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : number_(::open(path.c_str(), flags)) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

class Readers : public testing::TestWithParam<const ReaderKind*> {
 protected:
  static constexpr std::size_t file_bytes = (3 << 20) + 1234;

  Readers() {
    bytes_.resize(file_bytes);
    std::mt19937_64 random(7);
    for (std::size_t at = 0; at < file_bytes; ++at) {
      bytes_[at] = static_cast<char>(random());
    }
    path_ = folder_ / "data";
    std::ofstream(path_, std::ios::binary) << bytes_;
    where_ = probe_file_system(path_);
  }
  void SetUp() override {
    if (const std::string_view refusal = GetParam()->refusal(where_); !refusal.empty()) {
      GTEST_SKIP() << GetParam()->name << " does not read here: " << refusal;
    }
  }
  std::unique_ptr<Reader> open(const ReaderOptions& options) const {
    return GetParam()->open(options);
  }
  std::string file_part(std::size_t offset, std::size_t bytes) const {
    return offset >= bytes_.size() ? "" : bytes_.substr(offset, bytes);
  }

  TemporaryFolder folder_;
  std::string bytes_, path_;
  FileSystem where_;
};

/// Reads `count` ranges through `reader`, as many at once as it takes, and compares all bytes.
template <class RangeOf>
void read_and_compare(Reader& reader, int descriptor, const std::string& file, int count,
                      RangeOf range_of) {
  struct Expected {
    std::size_t offset = 0;
    PageAlignedVector<std::byte> into;
  };
  std::map<std::uint64_t, Expected> under_way;
  int told = 0;
  const auto reap = [&] {
    for (const ReadDone& done : reader.reap(seconds(60))) {
      const Expected& read = under_way.at(done.tag);
      ASSERT_EQ(done.error, 0);
      const std::string expected =
          read.offset >= file.size() ? "" : file.substr(read.offset, read.into.size());
      ASSERT_EQ(done.bytes, expected.size());
      ASSERT_EQ(std::memcmp(read.into.data(), expected.data(), expected.size()), 0);
      ASSERT_GT(done.took.count(), 0);
      under_way.erase(done.tag);
      ++told;
    }
  };
  for (int number = 0; number < count; ++number) {
    const auto [offset, bytes] = range_of();
    const auto tag = static_cast<std::uint64_t>(number);
    Expected& read = under_way[tag];
    read.offset = offset;
    read.into.resize(bytes);
    while (!reader.submit({descriptor, offset, read.into, tag})) {
      reap();
      ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
  }
  while (told < count) {
    reap();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  EXPECT_TRUE(reader.reap(seconds(0)).empty());
}

TEST_P(Readers, bring_the_bytes_of_the_file_whatever_lies_in_the_cache) {
  const Descriptor file(path_, O_RDONLY);
  ASSERT_EQ(::fsync(file.number()), 0);
  std::mt19937_64 random(11);
  const auto reader = open({.depth = 7, .threads = 3});
  for (int round = 0; round < 4; ++round) {
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
    read_and_compare(*reader, file.number(), bytes_, 200, [&] {
      struct Range {
        std::size_t offset, bytes;
      };
      // Some begin or end beyond the file.
      return Range{random() % (file_bytes + 10'000),
                   std::size_t{1} + random() % (1u << random() % 20)};
    });
  }
}

// Some readers have others do what takes whoever starts it long.
TEST_P(Readers, bring_long_reads_beside_short_ones) {
  const Descriptor file(path_, O_RDONLY);
  ASSERT_EQ(::fsync(file.number()), 0);
  std::mt19937_64 random(17);
  const auto reader = open({.depth = 6, .threads = 3});
  for (int round = 0; round < 3; ++round) {
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
    read_and_compare(*reader, file.number(), bytes_, 30, [&] {
      struct Range {
        std::size_t offset, bytes;
      };
      const std::size_t bytes = random() % 3 == 0 ? 4096 : (std::size_t{1} << 20) + random() % 9;
      return Range{random() % file_bytes, bytes};
    });
  }
}

TEST_P(Readers, bring_whole_blocks_directly) {
  if (!where_.takes_direct) {
    GTEST_SKIP() << where_.kind << " takes no direct reads";
  }
  const Descriptor file(path_, O_RDONLY | O_DIRECT);
  std::mt19937_64 random(13);
  const auto reader = open({.depth = 5, .threads = 2, .direct = true});
  read_and_compare(*reader, file.number(), bytes_, 100, [&] {
    struct Range {
      std::size_t offset, bytes;
    };
    return Range{random() % 800 * where_.alignment, (1 + random() % 16) * where_.alignment};
  });
}

TEST_P(Readers, tell_what_the_system_says) {
  const auto reader = open({.depth = 4, .threads = 1});
  const Descriptor folder(folder_.path(), O_RDONLY | O_DIRECTORY);
  std::byte into[16];
  ASSERT_TRUE(reader->submit({-1, 0, into, 1}));
  ASSERT_TRUE(reader->submit({folder.number(), 0, into, 2}));
  std::map<std::uint64_t, int> errors;
  while (errors.size() < 2) {
    for (const ReadDone& done : reader->reap(seconds(60))) {
      errors[done.tag] = done.error;
      EXPECT_EQ(done.bytes, 0u);
    }
  }
  EXPECT_EQ(errors[1], EBADF);
  EXPECT_EQ(errors[2], EISDIR);
}

TEST_P(Readers, take_as_many_as_they_are_deep_until_some_are_reaped) {
  for (const bool direct :
       {false, true}) {  // cached reads are done at once, and count all the same
    const Descriptor file(path_, O_RDONLY);
    std::vector<std::array<std::byte, 4096>> into(4);
    const auto reader = open({.depth = 3, .threads = 1, .direct = direct});  // ends before those
    for (std::uint64_t tag = 0; tag < 3; ++tag) {
      EXPECT_TRUE(reader->submit({file.number(), 0, into[tag], tag}));
    }
    EXPECT_FALSE(reader->submit({file.number(), 0, into[3], 3}));
    EXPECT_FALSE(reader->reap(seconds(60)).empty());
    EXPECT_TRUE(reader->submit({file.number(), 0, into[3], 3}));
  }
}

TEST_P(Readers, return_when_there_is_nothing_and_time_is_up) {
  const auto reader = open({});
  const auto begin = Clock::now();
  EXPECT_TRUE(reader->reap(milliseconds(0)).empty());
  EXPECT_TRUE(reader->reap(milliseconds(30)).empty());
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
}

TEST_P(Readers, wake_from_another_thread_and_ahead) {
  const auto reader = open({});
  for (int round = 0; round < 3; ++round) {
    std::thread other([&] { reader->wake(); });
    EXPECT_TRUE(reader->reap(std::chrono::hours(1'000'000)).empty());
    other.join();
  }
  reader->wake();
  EXPECT_TRUE(reader->reap(seconds(60)).empty()) << "a wake before the reap counts";
  const auto begin = Clock::now();
  EXPECT_TRUE(reader->reap(milliseconds(10)).empty());
  EXPECT_GE(Clock::now() - begin, milliseconds(10)) << "and counts once";
}

TEST_P(Readers, end_only_when_no_read_writes_any_more) {
  const Descriptor file(path_, O_RDONLY);
  for (int round = 0; round < 20; ++round) {
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
    const std::size_t bytes = round % 2 == 0 ? 256 << 10 : 1 << 20;
    std::vector<PageAlignedVector<std::byte>> into(8, PageAlignedVector<std::byte>(bytes));
    {
      const auto reader = open({.depth = 8, .threads = 4});
      for (std::uint64_t tag = 0; tag < into.size(); ++tag) {
        ASSERT_TRUE(reader->submit({file.number(), tag * (256 << 10), into[tag], tag}));
      }
    }
    // A late write would be seen by an address sanitizer, or here.
    for (PageAlignedVector<std::byte>& one : into) {
      std::ranges::fill(one, std::byte{1});
    }
    for (const PageAlignedVector<std::byte>& one : into) {
      ASSERT_TRUE(std::ranges::all_of(one, [](std::byte byte) { return byte == std::byte{1}; }));
    }
  }
}

TEST_P(Readers, refuse_options_that_read_nothing) { EXPECT_THROW(open({.depth = 0}), Error); }

INSTANTIATE_TEST_SUITE_P(Table, Readers,
                         testing::ValuesIn(all_reader_kinds().begin(), all_reader_kinds().end()),
                         [](const auto& one) { return std::string(one.param->name); });

TEST(ReaderTable, is_asked_by_name) {
  for (const ReaderKind* kind : all_reader_kinds()) {
    EXPECT_EQ(&reader_kind_named(kind->name), kind);
    EXPECT_FALSE(kind->about.empty());
  }
  try {
    reader_kind_named("mmap");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "there is no reader \"mmap\"; there are: uring, pool");
  }
}

}  // namespace
}  // namespace sprat::io
