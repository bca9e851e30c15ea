// Loaders with caches give the same bytes, wherever these come from. Files here lie in the page
// cache, which is faster than all else, so only one request in 64 looks whether a cache has become
// faster; near_reads_test has a file system that is slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/reduction_observer.hpp"
#include "sprat/data.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

/// Token i of each file is i times the file's number, so that other bytes are other tokens.
void write_shards(const std::string& folder, int files, std::size_t tokens) {
  for (int file = 0; file < files; ++file) {
    std::vector<std::uint16_t> shard(tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
      shard[i] = static_cast<std::uint16_t>(i * static_cast<std::size_t>(2 * file + 1));
    }
    std::ofstream out(folder + "/shard" + std::to_string(file) + ".bin", std::ios::binary);
    out.write(reinterpret_cast<const char*>(shard.data()),
              static_cast<std::streamsize>(2 * tokens));
  }
}

LoaderOptions shards(const std::string& folder) {
  return {.sources = {{.paths = {folder + "/*.bin"}, .format = "tokens", .token_type = "u16"}},
          .seed = 5,
          .length = 2047,
          .batch = 16};
}

/// The samples of some batches, one behind the other.
std::string read_batches(Loader& loader, std::uint64_t batches) {
  std::string read;
  for (std::uint64_t i = 0; i < batches; ++i) {
    const auto batch = loader.next();
    EXPECT_TRUE(batch);
    read.append(reinterpret_cast<const char*>(batch->elements().data()), batch->elements().size());
  }
  return read;
}

nlohmann::json bytes_of(Loader& loader) {
  return nlohmann::json::parse(loader.report().json).at("bytes");
}

class CachedLoader : public testing::TestWithParam<const char*> {};

TEST_P(CachedLoader, gives_the_bytes_of_one_without) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data");
  write_shards(folder / "data", 3, 2 * mebi);  // 12 MiB
  LoaderOptions options = shards(folder / "data");
  options.reader = GetParam();
  options.memory_bytes = 64 * mebi;
  Loader plain(options);
  options.cache = {.folder = folder / "cache", .bytes = 20 * mebi};
  Loader cached(options);
  const std::uint64_t epoch = plain.samples_per_epoch() / options.batch;
  for (int pass = 0; pass < 3; ++pass) {
    ASSERT_EQ(read_batches(cached, epoch), read_batches(plain, epoch)) << "pass " << pass;
  }
  EXPECT_GT(bytes_of(cached).at("host_cache"), 0);
}

INSTANTIATE_TEST_SUITE_P(Readers, CachedLoader, testing::Values("pool", "auto"));

TEST(CachedLoaders, of_the_next_run_find_what_the_last_one_kept) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data");
  write_shards(folder / "data", 1, mebi);
  LoaderOptions options = shards(folder / "data");
  options.cache = {.folder = folder / "cache", .bytes = 4 * mebi};
  std::string first;
  {
    Loader loader(options);
    const std::uint64_t epoch = loader.samples_per_epoch() / options.batch;
    first = read_batches(loader, epoch);
    read_batches(loader, 2 * epoch);  // what is on its way to the disk arrives meanwhile
  }
  Loader loader(options);
  read_batches(loader, 2);  // while the folder is being opened, the file is read
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  Loader again(options);
  EXPECT_EQ(read_batches(again, loader.samples_per_epoch() / options.batch), first);
  read_batches(again, 3 * loader.samples_per_epoch() / options.batch);
  EXPECT_GT(bytes_of(again).at("host_cache"), 0);
}

TEST(CachedLoaders, read_the_file_where_a_cache_was_cleared_or_has_no_room) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data");
  write_shards(folder / "data", 2, mebi);
  LoaderOptions options = shards(folder / "data");
  Loader plain(options);
  options.cache = {.folder = folder / "data/shard0.bin", .bytes = 4 * mebi};  // no folder
  Loader cached(options);
  EXPECT_EQ(read_batches(cached, 70), read_batches(plain, 70));
  EXPECT_EQ(bytes_of(cached).at("host_cache"), 0);
}

TEST(CachedLoaders, are_refused_without_a_folder_or_a_size) {
  const TemporaryFolder folder;
  write_shards(folder.path(), 1, mebi);
  LoaderOptions options = shards(folder.path());
  for (const LoaderCache& cache : {LoaderCache{.folder = folder / "cache", .bytes = 0},
                                   LoaderCache{.folder = "", .bytes = mebi},
                                   LoaderCache{.folder = folder / "cache", .bytes = 1000}}) {
    options.cache = cache;
    EXPECT_THROW(Loader{options}, Error) << cache.folder << " " << cache.bytes;
  }
}

/// What an all_gather does, between threads.
class Gathering {
 public:
  explicit Gathering(std::size_t count) : texts_(count), meeting_(static_cast<long>(count)) {}
  std::vector<std::string> gather(std::size_t place, const std::string& text) {
    texts_[place] = text;
    meeting_.arrive_and_wait();
    return texts_;
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> meeting_;
};

TEST(CachedLoaders, of_two_hosts_read_from_each_other) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "data");
  write_shards(folder / "data", 4, 4 * mebi);  // 32 MiB
  Gathering gathering(2);
  std::vector<std::string> told(2);
  std::barrier<> together(2);
  const auto host = [&](std::size_t number) {
    LoaderOptions options = shards(folder / "data");
    options.rank = static_cast<int>(number);
    options.ranks = 2;
    Loader plain(options);
    options.cache = {.folder = folder / ("cache" + std::to_string(number)),
                     .bytes = 20 * mebi,
                     .peers = std::make_shared<DataPeers>(
                         DataPeersOptions{.host = "host" + std::to_string(number),
                                          .address = "127.0.0.1",
                                          .gather = [&, number](const std::string& text) {
                                            return gathering.gather(number, text);
                                          }})};
    Loader cached(options);
    const std::uint64_t epoch = plain.samples_per_epoch() / options.batch;
    for (int pass = 0; pass < 4; ++pass) {
      EXPECT_EQ(read_batches(cached, epoch), read_batches(plain, epoch)) << "pass " << pass;
      together.arrive_and_wait();
    }
    told[number] = bytes_of(cached).dump();
    together.arrive_and_wait();  // a host that is gone serves nobody
  };
  std::thread other([&] { host(1); });
  host(0);
  other.join();
  for (const std::string& text : told) {
    const nlohmann::json bytes = nlohmann::json::parse(text);
    EXPECT_GT(bytes.at("peers"), 0) << text;
    EXPECT_GT(bytes.at("host_cache"), 0) << text;
  }
}

TEST(CachedLoaders, of_one_process_have_peers_of_their_own) {
  const TemporaryFolder folder;
  write_shards(folder.path(), 1, mebi);
  LoaderOptions options = shards(folder.path());
  Gathering gathering(1);
  options.cache = {.folder = folder / "cache",
                   .bytes = 4 * mebi,
                   .peers = std::make_shared<DataPeers>(DataPeersOptions{
                       .host = "alone", .address = "127.0.0.1", .gather = [&](const auto& text) {
                         return gathering.gather(0, text);
                       }})};
  {
    Loader loader(options);
    EXPECT_THROW(Loader{options}, Error);
  }
  Loader again(options);  // once the first is gone
}

TEST(LoaderCores, are_told_with_the_reductions_beside) {
  const TemporaryFolder folder;
  write_shards(folder.path(), 1, mebi);
  LoaderOptions options = shards(folder.path());
  options.decode = {{.name = "burns", .run = [](DecodedRecord&) {
                       const auto end =
                           std::chrono::steady_clock::now() + std::chrono::microseconds(200);
                       while (std::chrono::steady_clock::now() < end) {
                       }
                     }}};
  Loader loader(options);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < end) {
    ReductionObservers::tell(std::chrono::microseconds(100), mebi);
    loader.next();
  }
  const nlohmann::json cores = nlohmann::json::parse(loader.report().json).at("cores");
  EXPECT_GT(cores.at("budget"), 0);
  EXPECT_GT(cores.at("decode_seconds"), 0.01) << cores;
  EXPECT_GT(cores.at("reduced_bytes"), mebi) << cores;
}

}  // namespace
}  // namespace sprat
