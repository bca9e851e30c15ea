// Digests of calls that ranks really make: what is kept, and which flips they show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/digests/chunks.hpp"
#include "collectives/digests/run_files.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives::digests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sprat-digests-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Config keeping(const std::string& folder, const std::string& hosts = "") {
  Config config;
  config.host = hosts;
  config.timeout = 20s;
  config.digests.folder = folder;
  config.digests.inputs = true;
  return config;
}

/// All that a buffer's digests are, as the file has them.
std::vector<std::byte> digests_of(const void* data, std::size_t bytes) {
  const std::span<const std::byte> buffer(static_cast<const std::byte*>(data), bytes);
  std::vector<std::uint64_t> digests;
  for (std::size_t chunk = 0; chunk < chunks_of(bytes); ++chunk) {
    digests.push_back(digest_of_chunk(buffer, chunk));
  }
  const auto out = std::as_bytes(std::span(digests));
  return {out.begin(), out.end()};
}
template <class T>
std::vector<std::byte> digests_of(const std::vector<T>& values) {
  return digests_of(values.data(), values.size() * sizeof(T));
}
std::vector<std::byte> copied(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<float> floats(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(rank + 1) * 0.37f + static_cast<float>(i % 977) * 0.013f;
  }
  return values;
}

/// A call's result and input, as who made it saw them.
struct Seen {
  std::vector<std::byte> input, result;
};

/// One call of each kind that has equal blocks: short and long, blocking and not.
std::vector<Seen> make_calls(Communicator& world) {
  std::vector<Seen> seen;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t count : {std::size_t{10}, std::size_t{40'000}}) {
    for (const bool blocking : {false, true, true}) {  // the second time in a row it may be eager
      const Options options{.timeout = {}, .blocking = blocking};
      const auto mine = floats(world.rank(), count), whole = floats(world.rank(), ranks * count);
      std::vector<float> part(count), all(ranks * count);
      world.all_reduce(elements(mine), elements(part), ReduceOp::sum, options).wait();
      seen.push_back({digests_of(mine), digests_of(part)});
      world.all_gather(elements(mine), elements(all), options).wait();
      seen.push_back({digests_of(mine), digests_of(all)});
      world.reduce_scatter(elements(whole), elements(part), ReduceOp::sum, options).wait();
      seen.push_back({digests_of(whole), digests_of(part)});
      world.all_to_all(elements(whole), elements(all), options).wait();
      seen.push_back({digests_of(whole), digests_of(all)});
      part = mine;
      world.broadcast(elements(part), 1, options).wait();
      seen.push_back(
          {world.rank() == 1 ? digests_of(mine) : std::vector<std::byte>(), digests_of(part)});
      world.reduce(elements(mine), elements(part), 0, ReduceOp::max, options).wait();
      seen.push_back(
          {digests_of(mine), world.rank() == 0 ? digests_of(part) : std::vector<std::byte>()});
      part = mine;
      world.all_reduce(elements(part), ReduceOp::sum, options).wait();  // in place
      seen.push_back({digests_of(mine), digests_of(part)});
    }
  }
  return seen;
}

TEST(DigestRecorder, keeps_a_digest_of_every_call_whatever_carries_it) {
  std::map<int, std::vector<std::vector<std::byte>>> first;  // results by rank
  for (const char* hosts : {"", "a,b,c", "a,a,b"}) {
    for (const std::size_t staging : {std::size_t{4} << 20, std::size_t{1} << 15}) {
      SCOPED_TRACE(hosts);
      const Folder folder;
      Config config = keeping(folder.path(), hosts);
      config.staging_bytes = staging;
      config.cross_memory = staging > 1 << 20;  // else private memory goes through windows
      std::mutex mutex;
      std::map<int, std::vector<Seen>> seen;
      run_virtual_ranks(3, config, [&](Communicator& world) {
        auto mine = make_calls(world);
        const std::lock_guard lock(mutex);
        seen[world.rank()] = std::move(mine);
      });
      const auto jobs = load_run(folder.path());
      ASSERT_EQ(jobs.size(), 1u);
      for (int rank = 0; rank < 3; ++rank) {
        const DigestFile& file = *jobs[0].ranks.at(static_cast<std::size_t>(rank));
        EXPECT_TRUE(file.ended);
        EXPECT_FALSE(file.torn_at);
        ASSERT_EQ(file.calls.size(), seen[rank].size());
        std::vector<std::vector<std::byte>> results;
        for (std::size_t i = 0; i < file.calls.size(); ++i) {
          SCOPED_TRACE(words(file.calls[i].call));
          EXPECT_EQ(file.calls[i].call.number, i);
          EXPECT_EQ(copied(file.calls[i].input), seen[rank][i].input) << rank;
          EXPECT_EQ(copied(file.calls[i].result), seen[rank][i].result) << rank;
          results.push_back(copied(file.calls[i].result));
        }
        EXPECT_EQ(first.try_emplace(rank, results).first->second, results);
      }
      EXPECT_TRUE(compare_replicas(jobs[0].files("job")).equal());
    }
  }
}

TEST(DigestRecorder, knows_messages_by_peer_tag_and_number) {
  const Folder folder;
  run_virtual_ranks(2, keeping(folder.path()), [](Communicator& world) {
    auto data = floats(7, 30'000);
    if (world.rank() == 0) {
      world.send(elements(std::as_const(data)), 1, 5).wait();
      data[0] = 1;
      world.send(elements(std::as_const(data)), 1, 5).wait();
      world.send(elements(std::as_const(data)), 1, 6).wait();
    } else {
      auto more = data;
      world.recv(elements(data), any_source, 5).wait();
      world.recv(elements(more), 0, 5).wait();
      world.recv(elements(more), 0, 6).wait();
    }
  });
  const auto jobs = load_run(folder.path());
  const DigestFile& receiver = *jobs.at(0).ranks.at(1);
  ASSERT_EQ(receiver.calls.size(), 3u);
  EXPECT_EQ(to_text({"world", CallKind::receive, receiver.calls[1].call.number, 0,
                     receiver.calls[1].call.tag}),
            "world recv 1 from 0 tag 5");
  EXPECT_EQ(receiver.calls[2].call.number, 0u);
  EXPECT_EQ(receiver.calls[2].call.tag, 6);
  const Comparison compared = compare_replicas(jobs[0].files("job"));
  EXPECT_TRUE(compared.equal());
  EXPECT_EQ(compared.calls, 3u);  // each against what was sent
}

TEST(DigestRecorder, keeps_nothing_where_nobody_asks) {
  const Folder folder;
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    world.mark_step(1);
    make_calls(world);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DigestRecorder, leaves_out_what_is_not_the_same_in_every_run) {
  const Folder folder;
  run_virtual_ranks(2, keeping(folder.path()), [](Communicator& world) {
    std::vector<float> data(10);
    const Options apart{.timeout = {}, .blocking = true, .digested = false};
    world.all_reduce(elements(data), ReduceOp::sum, apart).wait();
    auto rows = world.split(0, 0, "rows");  // whose numbers and addresses are anybody's
    world.barrier();
    world.all_reduce(elements(data), ReduceOp::sum, {.timeout = {}, .blocking = true}).wait();
    world.all_reduce(elements(data), ReduceOp::sum, apart).wait();
    rows->barrier();
  });
  const auto jobs = load_run(folder.path());
  const DigestFile& file = *jobs.at(0).ranks.at(0);
  ASSERT_EQ(file.calls.size(), 3u);
  EXPECT_EQ(words(file.calls[0].call), "barrier");
  EXPECT_EQ(words(file.calls[1].call), "all_reduce of 10 f32, sum");
  EXPECT_EQ(file.calls[1].call.number, 1u);
  ASSERT_EQ(file.groups.size(), 2u);
  EXPECT_EQ(file.groups[1].name, "rows");
  EXPECT_EQ(file.calls[2].call.group, 1u);
}

// --- planted flips ---

constexpr std::size_t long_count = 60'000;
constexpr int trained_steps = 20, planted_step = 13;

void flip(std::vector<float>& values, std::size_t index) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &values[index], sizeof bits);
  bits ^= 1u << 9;
  std::memcpy(&values[index], &bits, sizeof bits);
}

/// Where a bit flips: nowhere, in rank 1's buffer before it calls, or after, while it travels.
enum class Flip { none, buffer, travelling };

/// Steps of an all_reduce of short values, one of long ones, and a message from rank 1 to rank 0.
/// Nobody calls before rank 1 has, so that a flip after its call is one of what travels.
void train(Communicator& world, Flip collective, Flip message) {
  Communicator sync = world.duplicate("sync");
  const auto plant = [&](Flip where, Flip now, int step, std::vector<float>& values) {
    if (step == planted_step && world.rank() == 1 && where == now) {
      flip(values, 40'000);
    }
  };
  for (int step = 1; step <= trained_steps; ++step) {
    world.mark_step(step);
    std::vector<float> loss = {static_cast<float>(step)};
    world.all_reduce(elements(loss), ReduceOp::sum, {.timeout = {}, .blocking = true}).wait();
    auto in = floats(world.rank() + step, long_count);
    std::vector<float> out(long_count);
    plant(collective, Flip::buffer, step, in);
    Work work;
    if (world.rank() == 1) {
      work = world.all_reduce(elements(std::as_const(in)), elements(out));
      plant(collective, Flip::travelling, step, in);
    }
    sync.barrier();
    if (world.rank() != 1) {
      work = world.all_reduce(elements(std::as_const(in)), elements(out));
    }
    work.wait();
    plant(message, Flip::buffer, step, out);
    if (world.rank() == 1) {
      work = world.send(elements(std::as_const(out)), 0, 3);
      plant(message, Flip::travelling, step, out);
    }
    sync.barrier();
    if (world.rank() == 0) {
      work = world.recv(elements(in), 1, 3);
    }
    work.wait();
  }
}

Comparison part(Flip collective, Flip message, const Folder& a, const Folder& b) {
  run_virtual_ranks(3, keeping(a.path()),
                    [](Communicator& world) { train(world, Flip::none, Flip::none); });
  run_virtual_ranks(3, keeping(b.path()),
                    [&](Communicator& world) { train(world, collective, message); });
  const auto left = load_run(a.path()), right = load_run(b.path());
  EXPECT_TRUE(compare_replicas(left.at(0).files("A")).equal());
  const JobFiles files_a = left.at(0).files("A"), files_b = right.at(0).files("B");
  return compare_runs(files_a, files_b);
}

constexpr std::size_t chunk_elements = chunk_bytes / sizeof(float);
constexpr std::uint64_t planted_chunk = 40'000 / chunk_elements;

TEST(PlantedFlips, equal_runs_are_equal) {
  const Folder a, b;
  const Comparison compared = part(Flip::none, Flip::none, a, b);
  EXPECT_TRUE(compared.equal());
  EXPECT_THAT(compared.notes, ElementsAre());
}

TEST(PlantedFlips, a_bit_of_a_buffer_is_named_where_it_flipped) {
  const Folder a, b;
  const Comparison compared = part(Flip::buffer, Flip::none, a, b);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::input);
  EXPECT_THAT(compared.first->ranks, ElementsAre(1));
  EXPECT_EQ(compared.first->call.step, planted_step);
  EXPECT_EQ(compared.first->of_step, 2u);
  EXPECT_EQ(compared.first->range.first, planted_chunk * chunk_elements);
  EXPECT_EQ(compared.first->range.chunks, 1u);
}

TEST(PlantedFlips, a_bit_that_flips_on_the_way_is_named_where_it_arrives) {
  const Folder a, b;
  const Comparison compared = part(Flip::travelling, Flip::none, a, b);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->what, Parting::result);
  EXPECT_TRUE(compared.first->inputs_known);
  EXPECT_EQ(compared.first->call.step, planted_step);
  EXPECT_EQ(compared.first->of_step, 2u);
  EXPECT_EQ(compared.first->range.first, planted_chunk * chunk_elements);
}

TEST(PlantedFlips, a_bit_of_a_message_is_named) {
  const Folder a, b, c;
  const Comparison sent = part(Flip::none, Flip::buffer, a, b);
  ASSERT_TRUE(sent.first);
  EXPECT_EQ(sent.first->what, Parting::input);
  EXPECT_EQ(sent.first->rank, 1);
  EXPECT_EQ(sent.first->call.kind, CallKind::send);
  EXPECT_EQ(sent.first->call.step, planted_step);

  const Folder again;
  const Comparison came = part(Flip::none, Flip::travelling, c, again);
  ASSERT_TRUE(came.first);
  EXPECT_EQ(came.first->what, Parting::result);
  EXPECT_EQ(came.first->rank, 0);
  EXPECT_EQ(came.first->call.kind, CallKind::receive);
  EXPECT_EQ(came.first->call.step, planted_step);
  EXPECT_EQ(came.first->range.first, 40'000 * sizeof(float) / chunk_bytes * chunk_bytes);
  // One run tells it, too: it did not come as it was sent.
  const auto jobs = load_run(again.path());
  const Comparison alone = compare_replicas(jobs.at(0).files("job"));
  ASSERT_TRUE(alone.first);
  EXPECT_EQ(alone.first->rank, 0);
  EXPECT_EQ(alone.first->call.step, planted_step);
}

TEST(PlantedFlips, kept_values_show_the_element) {
  const Folder a, b;
  const auto number = 2 * (planted_step - 1) + 1;
  for (const auto& [folder, where] : {std::pair{&a, Flip::none}, std::pair{&b, Flip::buffer}}) {
    Config config = keeping(folder->path());
    config.digests.keep = "world " + std::to_string(number);
    run_virtual_ranks(3, config,
                      [where = where](Communicator& world) { train(world, where, Flip::none); });
  }
  const auto left = load_run(a.path()), right = load_run(b.path());
  const Comparison compared = compare_runs(left.at(0).files("A"), right.at(0).files("B"));
  ASSERT_TRUE(compared.first);
  const auto of_a = left[0].values(1, compared.first->call, Side::input);
  const auto of_b = right[0].values(1, compared.first->call, Side::input);
  ASSERT_TRUE(of_a && of_b);
  const auto values_a = parse_values(of_a->bytes()), values_b = parse_values(of_b->bytes());
  ASSERT_TRUE(values_a && values_b);
  EXPECT_EQ(compare(*values_a, *values_b).first, 40'000u);
  EXPECT_EQ(compare(*values_a, *values_b).number, 1u);
  EXPECT_TRUE(left[0].values(1, compared.first->call, Side::result));
}

// --- replicas ---

/// A sum of one's own; rank 2's core is broken from a step on, and adds a bit too much.
Reduction sum_of(const std::atomic<bool>& broken) {
  return Reduction::user(
      {.name = "my sum",
       .function = [&broken](const void* left, void* right, std::size_t count, DType) {
         const auto* a = static_cast<const std::int32_t*>(left);
         auto* b = static_cast<std::int32_t*>(right);
         for (std::size_t i = 0; i < count; ++i) {
           b[i] += a[i];
         }
         b[count - 1] += broken ? 1 : 0;
       }});
}

void train_with_a_broken_core(Communicator& world, int broken_from) {
  std::atomic<bool> broken = false;
  const Reduction sum = sum_of(broken);
  for (int step = 1; step <= trained_steps; ++step) {
    world.mark_step(step);
    broken = world.rank() == 2 && step >= broken_from;
    std::vector<std::int32_t> data(100, step);
    world.all_reduce(elements(data), sum, {.timeout = {}, .blocking = true}).wait();
  }
}

TEST(ReplicaCheck, a_broken_core_is_found_offline) {
  const Folder folder;
  run_virtual_ranks(3, keeping(folder.path()),
                    [](Communicator& world) { train_with_a_broken_core(world, planted_step); });
  const auto jobs = load_run(folder.path());
  const Comparison compared = compare_replicas(jobs.at(0).files("job"));
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->call.step, planted_step);
  EXPECT_EQ(compared.first->rank, 2);
  EXPECT_THAT(compared.first->right, ElementsAre(0, 1));
}

TEST(ReplicaCheck, a_broken_core_ends_the_job_at_the_next_comparison) {
  const Folder folder;
  Config config = keeping(folder.path());
  config.digests.check = 5;
  std::atomic<int> told = 0;
  try {
    run_virtual_ranks(3, config, [&](Communicator& world) {
      try {
        train_with_a_broken_core(world, planted_step);
      } catch (const Error& error) {
        ++told;
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_EQ(error.rank(), 2);
        EXPECT_THAT(error.what(),
                    HasSubstr("differ before step 15: rank 2 differs from ranks 0, 1"));
        EXPECT_THAT(error.what(), HasSubstr("they were alike before step 10"));
        throw;
      }
    });
    FAIL() << "nobody was told";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
  }
  EXPECT_EQ(told, 3);
}

TEST(ReplicaCheck, sound_ranks_go_on) {
  const Folder folder;
  Config config = keeping(folder.path());
  config.digests.check = 2;
  run_virtual_ranks(
      3, config, [](Communicator& world) { train_with_a_broken_core(world, trained_steps + 1); });
  const auto jobs = load_run(folder.path());
  EXPECT_EQ(jobs.at(0).ranks.at(0)->calls.size(), static_cast<std::size_t>(trained_steps));
}

TEST(DigestRecorder, a_call_to_keep_must_be_one) {
  const Folder folder;
  Config config = keeping(folder.path());
  config.digests.keep = "operation";
  EXPECT_THROW(run_virtual_ranks(1, config, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace sprat::collectives::digests
