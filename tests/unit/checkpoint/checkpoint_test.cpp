// Checkpoints: any arrangement of ranks to any other, bit by bit; commits; what is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/headers.hpp"
#include "checkpoint/loader.hpp"
#include "checkpoint/saver.hpp"
#include "comm/base/check.hpp"
#include "io/checked_file.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

void save_steps(const Arrangement& arrangement, SaverOptions options,
                const std::vector<std::int64_t>& steps) {
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), options);
    for (const std::int64_t step : steps) {
      model.fill(static_cast<float>(step));
      saver.save(
          {.step = step, .samples = 10 * step, .counters = {{"optimizer_steps", 1.0 * step}}});
    }
    saver.wait();
  });
}

void save_first(Saver& saver) {
  saver.save({.step = 1, .samples = 10});
  saver.wait();
}

void expect_loads(const Arrangement& arrangement, const std::string& path, std::int64_t step) {
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    model.spoil();
    const Manifest manifest = load(world, model.whole(), path, LoadWhat::everything);
    EXPECT_EQ(manifest.step, step);
    EXPECT_EQ(manifest.samples, 10 * step);
    EXPECT_EQ(model.wrong(static_cast<float>(step)), 0u)
        << arrangement.text() << ", rank " << world.rank();
  });
}

std::string complaint_of_loading(const Arrangement& arrangement, const std::string& path) {
  try {
    expect_loads(arrangement, path, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::vector<Arrangement> matrix() {
  std::vector<Arrangement> result;
  for (const int ranks : {1, 2, 4, 8}) {
    for (int shards = 1; shards <= ranks; shards *= 2) {
      result.push_back({.ranks = ranks, .shards = shards});
      if (shards > 1 && shards < ranks) {
        result.push_back({.ranks = ranks, .shards = shards, .over_all = true});
      }
    }
  }
  return result;
}

TEST(Checkpoint, any_arrangement_loads_any_other_bit_by_bit) {
  const TemporaryFolder folder;
  const std::vector<Arrangement> all = matrix();
  for (std::size_t saved = 0; saved < all.size(); ++saved) {
    const auto step = static_cast<std::int64_t>(saved);
    save_steps(all[saved], {.folder = folder.path(), .keep_last = 100}, {step});
    for (const Arrangement& loaded : part_if_sanitized(all, 4, saved)) {
      SCOPED_TRACE("saved by " + all[saved].text());
      expect_loads(loaded, folder.path(), step);
    }
  }
}

TEST(Checkpoint, world_sizes_that_are_no_powers_of_two_load_as_well) {
  const TemporaryFolder folder;
  save_steps({.ranks = 6, .shards = 3}, {.folder = folder.path()}, {3});
  for (const int ranks : {1, 3, 5, 7}) {
    expect_loads({.ranks = ranks, .shards = ranks}, folder.path(), 3);
  }
}

TEST(Checkpoint, later_changes_of_values_are_not_saved) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), {.folder = folder.path()});
    model.fill(1);
    saver.save({.step = 1, .samples = 10});
    model.spoil();
    saver.wait();
  });
  expect_loads(arrangement, folder.path(), 1);
}

TEST(Checkpoint, the_last_ones_are_kept_and_dead_saves_go) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "step-00000001.tmp-dead");
  std::ofstream(folder / "step-00000001.tmp-dead/f") << "x";
  std::ofstream(folder / "mine.txt") << "stays";
  save_steps({.ranks = 2, .shards = 2}, {.folder = folder.path()}, {1, 2, 3, 4});
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "mine.txt", "step-00000003", "step-00000004"));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000004");
  expect_loads({.ranks = 1, .shards = 1}, folder / "step-00000003", 3);
}

TEST(Checkpoint, what_others_write_beside_the_checkpoints_stays) {
  const TemporaryFolder folder;
  const std::vector<std::string> others = {"latest.safetensors.tmp-0123456789abcdef",
                                           "step-00000001-f32.safetensors.tmp-0123456789abcdef",
                                           "step-1.tmp-0123456789abcdef"};
  for (const std::string& name : others) {
    std::ofstream(folder / name) << "on its way";
  }
  fs::create_symlink("step-00000001", folder / "latest.tmp-0123456789abcdef");
  save_steps({.ranks = 2, .shards = 2}, {.folder = folder.path()}, {1});
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", others[0], "step-00000001", others[1], others[2]));
}

TEST(Checkpoint, a_step_that_is_saved_again_is_replaced_and_later_ones_stay) {
  const TemporaryFolder folder;
  const SaverOptions options{.folder = folder.path(), .keep_last = 2};
  save_steps({.ranks = 2, .shards = 2}, options, {5, 6});
  save_steps({.ranks = 4, .shards = 2}, options, {4});
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "step-00000004", "step-00000005", "step-00000006"));
  expect_loads({.ranks = 1, .shards = 1}, folder.path(), 4);
  save_steps({.ranks = 1, .shards = 1}, options, {5});
  expect_loads({.ranks = 2, .shards = 1}, folder.path(), 5);
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "step-00000004", "step-00000005", "step-00000006"));
}

/// A save died between the two renames that replace a step where names cannot be exchanged.
TEST(Checkpoint, a_step_on_its_way_out_stands_for_itself_until_it_is_replaced) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  const SaverOptions options{.folder = folder.path(), .keep_last = 2};
  save_steps(arrangement, options, {7, 4});
  fs::rename(folder / "step-00000004", folder / "step-00000004.tmp-1-replaced");
  fs::create_directories(folder / "step-00000004.tmp-1");
  expect_loads(arrangement, folder.path(), 4);  // and not 7, which is the highest
  save_steps(arrangement, options, {5});
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "step-00000004", "step-00000005", "step-00000007"));
  expect_loads(arrangement, folder / "step-00000004", 4);
}

TEST(Checkpoint, a_folder_may_be_named_with_a_slash_and_new_ones_above_it) {
  const TemporaryFolder folder;
  std::vector<std::string> synced;
  SaverOptions options{.folder = folder / "a/b/saved/"};
  options.hook = [&](std::string_view step, const std::string& path) {
    if (step == "fsync folder") {
      synced.push_back(fs::relative(path, folder.path()));
    }
  };
  save_steps({.ranks = 1, .shards = 1}, options, {3});
  synced.resize(3);
  EXPECT_THAT(synced, ElementsAre("a/b", "a", "."));
  expect_loads({.ranks = 1, .shards = 1}, folder / "a/b/saved/", 3);
}

TEST(Checkpoint, steps_of_a_commit_come_in_their_order) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::vector<std::string> steps;
  const io::StepHook hook = [&](std::string_view step, const std::string& path) {
    const std::lock_guard lock(mutex);
    const std::string name = fs::path(path).filename();
    steps.push_back(std::string(step) + " " + name.substr(0, name.find(".tmp-")));
  };
  save_steps({.ranks = 2, .shards = 2},
             {.folder = folder / "c", .asynchronous = false, .hook = hook}, {7});
  std::size_t last_file = 0, first_of_manifest = steps.size();
  for (std::size_t at = 0; at < steps.size(); ++at) {
    if (steps[at].find("shard-") != std::string::npos) {
      last_file = at;
    }
    if (steps[at] == "create manifest.json") {
      first_of_manifest = at;
    }
  }
  EXPECT_LT(last_file, first_of_manifest)
      << "every file is on the disk before the manifest is made";
  EXPECT_EQ(std::ranges::count(steps, "fsync shard-00002-model-00002-of-00002.safetensors"), 1);
  EXPECT_THAT(std::vector(steps.begin() + static_cast<long>(first_of_manifest), steps.end()),
              ElementsAre("create manifest.json", "write manifest.json", "fsync manifest.json",
                          "fsync folder step-00000007", "rename step-00000007", "fsync folder c",
                          "link latest", "rename link latest", "fsync folder c"));
}

TEST(Checkpoint, a_save_waits_for_the_one_before_and_polls_commit) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  const io::StepHook hook = [&](std::string_view step, const std::string&) {
    if (step == "create") {  // the disk is slow until it is told
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open; });
    }
  };
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), {.folder = folder.path(), .hook = hook});
    model.fill(1);
    saver.save({.step = 1, .samples = 10});
    saver.poll();
    if (world.rank() == 0) {
      EXPECT_EQ(latest_in(folder.path()), std::nullopt) << "nothing is committed yet";
      const std::lock_guard lock(mutex);
      open = true;
      changed.notify_all();
    }
    model.fill(2);
    saver.save({.step = 2, .samples = 20});  // waits for step 1
    world.barrier();
    EXPECT_TRUE(fs::exists(folder / "step-00000001/manifest.json"));
    saver.wait();
    saver.wait();  // nothing to wait for
    saver.poll();
  });
  expect_loads(arrangement, folder / "step-00000001", 1);
  expect_loads(arrangement, folder.path(), 2);
}

/// Fails the `nth` call of a step on files whose path holds `part`, as a full disk would.
io::StepHook failing(const std::string& step, const std::string& part) {
  return [=](std::string_view now, const std::string& path) {
    if (now == step && path.find(part) != std::string::npos) {
      throw Error(ErrorCode::unavailable, io::describe_failure("write to", path, ENOSPC));
    }
  };
}

TEST(Checkpoint, a_save_that_fails_anywhere_leaves_the_last_one_and_nothing_else) {
  struct Place {
    const char *step, *part;
    bool says_rank;
  };
  const Place places[] = {
      {"make folder", "tmp-", true},    {"create", "shard-00002", true},
      {"write", "shard-00002", true},   {"fsync", "shard-00001-model-00002", true},
      {"create", "manifest", true},     {"write", "manifest", true},
      {"fsync", "manifest", true},      {"fsync folder", "tmp-", true},
      {"rename", "step-00000002", true}};
  struct Way {
    Arrangement arrangement;
    bool asynchronous;
  };
  const Way ways[] = {{{.ranks = 2, .shards = 2}, true},
                      {{.ranks = 2, .shards = 2}, false},
                      {{.ranks = 4, .shards = 2, .stages = 2, .stages_apart = true}, true}};
  for (const Place& place : places) {
    for (const auto& [arrangement, asynchronous] : ways) {
      SCOPED_TRACE(std::string(place.step) + " " + place.part + ", " + arrangement.text());
      const TemporaryFolder folder;
      save_steps(arrangement, {.folder = folder.path()}, {1});
      std::atomic<int> complaints = 0;
      on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
        Saver saver(world, model.whole(),
                    {.folder = folder.path(),
                     .asynchronous = asynchronous,
                     .hook = failing(place.step, place.part)});
        try {
          model.fill(2);
          saver.save({.step = 2, .samples = 20});
          saver.wait();
          ADD_FAILURE() << "saved";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("No space left on device; free some space"));
          EXPECT_THAT(error.what(), HasSubstr("rank "));
          EXPECT_THAT(error.what(), HasSubstr(folder.path()));
          ++complaints;
        }
        world.barrier();
        EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000001"));
      });
      EXPECT_EQ(complaints, arrangement.ranks) << "every rank is told";
      expect_loads(arrangement, folder.path(), 1);
    }
  }
}

// The checkpoint has its name by then, in the place of another one perhaps.
TEST(Checkpoint, a_save_that_fails_behind_its_rename_is_taken_back) {
  struct Place {
    const char *step, *part;
    int from;  // the first call that fails
  };
  const Place places[] = {{"fsync folder", "", 1},
                          {"link", "/latest", 1},
                          {"rename link", "/latest", 1},
                          {"fsync folder", "", 2}};
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  for (const Place& place : places) {
    for (const std::int64_t step : {1, 2}) {
      SCOPED_TRACE(text(place.step, " ", place.from, ", step ", step));
      const TemporaryFolder folder;
      save_steps(arrangement, {.folder = folder.path()}, {1});
      std::atomic<int> calls = 0, complaints = 0;
      const io::StepHook hook = [&](std::string_view now, const std::string& path) {
        const std::string part = folder.path() + place.part;
        const bool meant = *place.part == 0 ? path == part : path.starts_with(part);
        if (now == place.step && meant && ++calls >= place.from) {
          throw Error(ErrorCode::unavailable, io::describe_failure("write to", path, EIO));
        }
      };
      on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
        Saver saver(world, model.whole(), {.folder = folder.path(), .hook = hook});
        model.fill(2);
        try {
          saver.save({.step = step, .samples = 20});
          saver.wait();
          ADD_FAILURE() << "saved";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("Input/output error"));
          ++complaints;
        }
        world.barrier();
        EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000001"));
      });
      EXPECT_EQ(complaints, arrangement.ranks);
      expect_loads(arrangement, folder.path(), 1);
    }
  }
}

TEST(Checkpoint, a_first_save_that_fails_behind_its_rename_leaves_nothing) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  std::atomic<int> calls = 0;
  const io::StepHook hook = [&](std::string_view now, const std::string& path) {
    if (now == "fsync folder" && path == folder.path() && ++calls == 2) {
      throw Error(ErrorCode::unavailable, io::describe_failure("write to", path, EIO));
    }
  };
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), {.folder = folder.path(), .hook = hook});
    model.fill(1);
    EXPECT_THROW(save_first(saver), Error);
    world.barrier();
    EXPECT_THAT(entries(folder.path()), ElementsAre());
    save_first(saver);
  });
  expect_loads(arrangement, folder.path(), 1);
}

TEST(Checkpoint, a_save_succeeds_whatever_old_ones_cannot_be_removed) {
  const TemporaryFolder folder;
  const Arrangement arrangement{.ranks = 2, .shards = 2};
  SaverOptions options{.folder = folder.path(), .keep_last = 1};
  save_steps(arrangement, options, {1});
  options.hook = failing("rename", "tmp-old");
  save_steps(arrangement, options, {2});
  EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000001", "step-00000002"));
  expect_loads(arrangement, folder.path(), 2);
}

TEST(Checkpoint, saving_goes_on_after_a_failure) {
  const TemporaryFolder folder;
  std::atomic<bool> full = true;
  const io::StepHook hook = [&](std::string_view step, const std::string& path) {
    if (full && step == "write") {
      throw Error(ErrorCode::unavailable, io::describe_failure("write to", path, ENOSPC));
    }
  };
  const Arrangement arrangement{.ranks = 2, .shards = 1};
  on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), {.folder = folder.path(), .hook = hook});
    model.fill(1);
    EXPECT_THROW(save_first(saver), Error);
    world.barrier();
    full = false;
    world.barrier();
    save_first(saver);
  });
  expect_loads(arrangement, folder.path(), 1);
}

TEST(Checkpoint, a_rank_that_leaves_during_a_save_harms_nothing) {
  for (const Arrangement& arrangement :
       {Arrangement{.ranks = 2, .shards = 2}, Arrangement{.ranks = 4, .shards = 2, .stages = 2}}) {
    const TemporaryFolder folder;
    save_steps(arrangement, {.folder = folder.path()}, {1});
    for (const bool before_wait : {true, false}) {
      EXPECT_THROW(on_ranks(arrangement,
                            [&](Communicator& world, HandMade& model) {
                              Saver saver(world, model.whole(), {.folder = folder.path()});
                              model.fill(2);
                              if (before_wait || world.rank() == 0) {
                                saver.save({.step = 2, .samples = 20});
                              }
                              require(world.rank() == 0, "all but rank 0 leave");
                              saver.wait();
                            }),
                   Error);
      expect_loads(arrangement, folder.path(), 1);
    }
  }
}

TEST(Checkpoint, another_job_may_not_save_into_the_folder) {
  const TemporaryFolder folder;
  on_ranks({.ranks = 1, .shards = 1}, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.whole(), {.folder = folder.path(), .asynchronous = false});
    saver.save({.step = 1});
    Saver other(world, model.whole(), {.folder = folder.path(), .asynchronous = false});
    try {
      other.save({.step = 2});
      ADD_FAILURE() << "saved";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("another job saves checkpoints into " + folder.path()));
    }
  });
  EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000001"));
}

TEST(Checkpoint, what_is_damaged_or_missing_is_named) {
  const TemporaryFolder folder;
  const Arrangement two{.ranks = 2, .shards = 2};
  save_steps(two, {.folder = folder.path()}, {1});
  const std::string checkpoint = folder / "step-00000001";
  for (const std::string& name : entries(checkpoint)) {
    SCOPED_TRACE(name);
    const std::string path = checkpoint + "/" + name;
    const std::string whole = io::read_whole(path, 1 << 30);
    const auto put = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    };
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{8}, whole.size() / 2, whole.size() - 1}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      put(damaged);
      EXPECT_THAT(complaint_of_loading(two, folder.path()), HasSubstr(path)) << "bit at " << at;
    }
    for (const std::size_t length : {std::size_t{0}, std::size_t{7}, whole.size() - 1}) {
      put(whole.substr(0, length));
      EXPECT_THAT(complaint_of_loading(two, folder.path()), HasSubstr(path)) << length << " bytes";
    }
    put(whole + "x");
    EXPECT_THAT(complaint_of_loading(two, folder.path()), HasSubstr(path));
    fs::remove(path);
    EXPECT_THAT(complaint_of_loading(two, checkpoint), HasSubstr(checkpoint));
    put(whole);
  }
  expect_loads(two, folder.path(), 1);
  EXPECT_THAT(complaint_of_loading(two, folder / "none"), HasSubstr("no checkpoint at"));
}

TEST(Checkpoint, all_ranks_load_what_rank_0_finds) {
  const TemporaryFolder folder;
  const Arrangement two{.ranks = 2, .shards = 2};
  save_steps(two, {.folder = folder / "saved"}, {1, 2});
  // The same folder at another place, as a host sees it whose link is behind.
  fs::create_directories(folder / "late");
  for (const std::string step : {"step-00000001", "step-00000002"}) {
    fs::create_symlink("../saved/" + step, folder / ("late/" + step));
  }
  fs::create_symlink("step-00000001", folder / "late/latest");
  on_ranks(two, [&](Communicator& world, HandMade& model) {
    model.spoil();
    const std::string path = folder / (world.rank() == 0 ? "saved" : "late");
    EXPECT_EQ(load(world, model.whole(), path, LoadWhat::everything).step, 2);
    EXPECT_EQ(model.wrong(2), 0u) << "rank " << world.rank();
    model.spoil();
    const std::string link = folder / (world.rank() == 0 ? "saved/latest" : "late/latest");
    EXPECT_EQ(load(world, model.whole(), link, LoadWhat::everything).step, 2);
    EXPECT_EQ(model.wrong(2), 0u) << "rank " << world.rank();
  });
}

TEST(Checkpoint, files_alone_can_be_read_without_the_manifest) {
  const TemporaryFolder folder;
  save_steps({.ranks = 4, .shards = 4}, {.folder = folder.path()}, {1});
  const std::string checkpoint = folder / "step-00000001";
  std::vector<std::string> paths;
  for (const std::string& name : entries(checkpoint)) {
    if (name.ends_with(".safetensors")) {
      paths.push_back(checkpoint + "/" + name);
    }
  }
  const Contents from_headers = read_safetensors(paths);
  const Contents from_manifest = read_manifest(checkpoint).contents;
  EXPECT_EQ(from_headers.tensors, from_manifest.tensors);
}

}  // namespace
}  // namespace sprat::fsdp
