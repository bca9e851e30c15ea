// Which reader is chosen, whether directly, and the sentence about it.
#include "io/readers/choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "io/readers/probe.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

const FileSystem local_disk{
    .kind = "ext", .takes_direct = true, .alignment = 4096, .tries_reads = true};
const FileSystem lustre_there{.kind = "lustre", .takes_direct = true, .alignment = 4096};
const ReadingShape large{
    .epoch_bytes = 120'000'000'000, .free_memory_bytes = 19'000'000'000, .record_bytes = 4 << 20};

TEST(ReaderChoice, says_what_was_chosen_and_why) {
  const ReaderChoice choice = choose_reader(local_disk, large, {});
  EXPECT_EQ(choice.kind->name, "uring");
  EXPECT_TRUE(choice.direct);
  EXPECT_EQ(choice.sentence,
            "reads from ext by uring (the preferred one), directly (an epoch's 120 GB are more "
            "than 70 % of 19 GB of free memory, so nothing would be there when it is read again)");
}

TEST(ReaderChoice, takes_the_pool_where_io_uring_is_no_quicker_or_denied) {
  const ReaderChoice far = choose_reader(lustre_there, large, {});
  EXPECT_EQ(far.kind->name, "pool");
  EXPECT_THAT(far.sentence, HasSubstr("by pool (not uring: io_uring gives each read"));
  FileSystem denied = local_disk;
  denied.uring_error = EPERM;
  const ReaderChoice inside = choose_reader(denied, large, {});
  EXPECT_EQ(inside.kind->name, "pool");
  EXPECT_THAT(inside.sentence, HasSubstr("io_uring is denied here (EPERM): by a container's"));
}

TEST(ReaderChoice, keeps_to_the_page_cache_what_fits_or_is_short_and_scattered_on_servers) {
  ReadingShape shape = large;
  shape.free_memory_bytes = 200'000'000'000;
  EXPECT_FALSE(choose_reader(local_disk, shape, {}).direct);
  shape = large;
  shape.scattered = true;
  EXPECT_TRUE(choose_reader(lustre_there, shape, {}).direct) << "long reads do without it";
  shape.record_bytes = 4096;
  EXPECT_FALSE(choose_reader(lustre_there, shape, {}).direct);
  EXPECT_TRUE(choose_reader(local_disk, shape, {}).direct);
  FileSystem memory = local_disk;
  memory.takes_direct = false;
  memory.kind = "tmpfs";
  const ReaderChoice choice = choose_reader(memory, large, {});
  EXPECT_FALSE(choice.direct);
  EXPECT_THAT(choice.sentence, HasSubstr("through the page cache (tmpfs takes no direct reads)"));
}

TEST(ReaderChoice, reads_files_ahead_in_sequence_where_a_scattered_order_of_a_local_disk_fits) {
  ReadingShape fits = large;
  fits.data_bytes = large.epoch_bytes;
  fits.free_memory_bytes = 200'000'000'000;
  fits.record_bytes = 4096;
  fits.scattered = true;
  const ReaderChoice choice = choose_reader(local_disk, fits, {});
  EXPECT_TRUE(choice.warms_up);
  EXPECT_THAT(choice.sentence, testing::EndsWith(", whole files ahead in sequence"));
  const auto with = [&](auto change) {
    ReadingShape shape = fits;
    change(shape);
    return choose_reader(local_disk, shape, {}).warms_up;
  };
  EXPECT_FALSE(with([](ReadingShape& shape) { shape.scattered = false; }));
  EXPECT_FALSE(with([](ReadingShape& shape) { shape.record_bytes = 4 << 20; }));
  EXPECT_FALSE(with([](ReadingShape& shape) { shape.data_bytes *= 2; })) << "other hosts' part";
  EXPECT_FALSE(choose_reader(lustre_there, fits, {}).warms_up);
  EXPECT_FALSE(choose_reader({.kind = "tmpfs", .tries_reads = true}, fits, {}).warms_up);
}

TEST(ReaderChoice, may_read_past_the_cache_what_is_long_and_known_not_to_lie_in_it) {
  FileSystem where = local_disk;
  where.tells_cached = true;
  ReadingShape shape = large;
  shape.free_memory_bytes = 200'000'000'000;
  const auto may = [&] { return choose_reader(where, shape, {}).may_bypass; };
  EXPECT_TRUE(may());
  EXPECT_THAT(choose_reader(where, shape, {}).sentence,
              testing::EndsWith(", and what it has not past it where that is quicker"));
  EXPECT_FALSE(choose_reader(where, shape, {.direct = DirectReads::never}).may_bypass);
  EXPECT_FALSE(choose_reader(where, large, {}).may_bypass) << "all of it goes past it already";
  shape.record_bytes = 110 << 10;
  EXPECT_FALSE(may());
  shape.record_bytes = large.record_bytes;
  where.tells_cached = false;
  EXPECT_FALSE(may());
  where.tells_cached = true;
  where.tries_reads = false;
  EXPECT_FALSE(may()) << "a server";
}

TEST(ReaderChoice, follows_wishes_or_says_why_not) {
  EXPECT_FALSE(choose_reader(local_disk, large, {.direct = DirectReads::never}).direct);
  const ReaderChoice pool = choose_reader(local_disk, large, {.reader = "pool"});
  EXPECT_EQ(pool.kind->name, "pool");
  EXPECT_THAT(pool.sentence, HasSubstr("by pool (as is wished)"));
  const auto refused = [](const FileSystem& where, const ReaderWish& wish) -> std::string {
    try {
      choose_reader(where, large, wish);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(lustre_there, {.reader = "uring"}),
              HasSubstr("the reader \"uring\" does not read here: io_uring gives each read"));
  EXPECT_THAT(refused({.kind = "tmpfs"}, {.direct = DirectReads::always}),
              HasSubstr("the file system here, tmpfs, takes no direct reads"));
  EXPECT_THAT(refused(local_disk, {.reader = "mmap"}), HasSubstr("there are: uring, pool"));
}

TEST(FileSystemProbe, finds_out_what_this_machine_takes) {
  const TemporaryFolder folder;
  std::ofstream(folder / "data") << std::string(10'000, 'x');
  const FileSystem where = probe_file_system(folder / "data");
  EXPECT_FALSE(where.kind.empty());
  if (where.takes_direct) {
    EXPECT_GE(where.alignment, 4096u);
  } else {
    EXPECT_EQ(where.alignment, 1u);
  }
  EXPECT_EQ(file_system_kind(0x0BD00BD0), "lustre");
  EXPECT_EQ(file_system_kind(1), "other");
}

TEST(FileSystemProbe, finds_the_same_without_a_read_but_for_what_reads_tell) {
  const TemporaryFolder folder;
  std::ofstream(folder / "data") << std::string(10'000, 'x');
  const FileSystem read = probe_file_system(folder / "data");
  const FileSystem looked = probe_without_reading(folder / "data");
  EXPECT_EQ(looked.kind, read.kind);
  EXPECT_EQ(looked.uring_error, read.uring_error);
  EXPECT_FALSE(looked.tries_reads);
  // A file system may take the flag and refuse the reads, never the other way round.
  EXPECT_GE(looked.takes_direct, read.takes_direct);
  EXPECT_GE(looked.alignment, read.alignment);
}

TEST(FileSystemProbe, names_what_it_cannot_read) {
  const TemporaryFolder folder;
  const auto what = [](const std::string& path) -> std::string {
    try {
      probe_file_system(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(what(folder / "absent"), HasSubstr("absent: No such file"));
  EXPECT_THAT(what(folder.path()), HasSubstr("is no file of data"));
}

}  // namespace
}  // namespace sprat::io
