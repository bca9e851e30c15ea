// The folder of checkpoints: what stays in it, and whether it can be saved into.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/saver.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/checkpoint/model.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::fsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// Runs `body` with a saver on two ranks that share a model.
template <class Body>
void with_savers(const SaverOptions& options, Body body) {
  on_ranks({.ranks = 2, .shards = 2}, [&](Communicator& world, HandMade& model) {
    Saver saver(world, model.held(), options);
    body(world, saver);
  });
}

TEST(CheckpointFolder, keeps_all_beside_a_save_that_nobody_vouches_for) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path(), .keep_last = 1}, [](Communicator&, Saver& saver) {
    saver.save({.step = 1});
    saver.save_beside({.step = 2});
    saver.save_beside({.step = 3});
    saver.wait();
  });
  EXPECT_THAT(entries(folder.path()),
              ElementsAre("latest", "step-00000001", "step-00000002", "step-00000003"));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000003");
}

TEST(CheckpointFolder, nobody_waits_for_old_checkpoints_to_go) {
  const TemporaryFolder folder;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false, waited = false;
  const io::StepHook hook = [&](std::string_view step, const std::string& path) {
    if (step == "remove" && path.find("step-00000001") != std::string::npos) {
      std::unique_lock lock(mutex);
      waited = changed.wait_for(lock, std::chrono::seconds(20), [&] { return open; });
    }
  };
  with_savers({.folder = folder.path(), .keep_last = 1, .hook = hook},
              [&](Communicator& world, Saver& saver) {
                saver.save({.step = 1});
                saver.wait();
                saver.save({.step = 2});
                const std::string link = folder / "latest";
                for (bool committed = false; !committed;) {
                  saver.poll();
                  world.barrier();
                  committed = fs::read_symlink(link) == "step-00000002";
                  world.barrier();
                }
                {
                  const std::lock_guard lock(mutex);
                  open = true;
                }
                changed.notify_all();
                saver.wait();
              });
  EXPECT_TRUE(waited) << "the commit waited for a disk that takes its time to remove";
  EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000002"));
}

std::string complaint_of_preparing(const SaverOptions& options) {
  std::vector<std::string> complaints(2, "prepared");
  with_savers(options, [&](Communicator& world, Saver& saver) {
    try {
      saver.prepare();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      complaints[static_cast<std::size_t>(world.rank())] = error.what();
    }
    world.barrier();  // the lock goes with the saver
  });
  EXPECT_EQ(complaints[0], complaints[1]);
  return complaints[0];
}

TEST(CheckpointFolder, is_made_and_left_empty_by_a_rehearsal) {
  const TemporaryFolder folder;
  EXPECT_EQ(complaint_of_preparing({.folder = folder / "a/saved"}), "prepared");
  EXPECT_THAT(entries(folder / "a/saved"), IsEmpty());
}

TEST(CheckpointFolder, that_any_rank_cannot_write_to_is_refused_by_a_rehearsal) {
  for (const char* file : {"trial-00001", "trial-00002"}) {
    const TemporaryFolder folder;
    const auto full = [&](std::string_view step, const std::string& path) {
      if (step == "fsync" && path.ends_with(file)) {
        throw Error(ErrorCode::unavailable, io::describe_failure("write to", path, ENOSPC));
      }
    };
    EXPECT_THAT(complaint_of_preparing({.folder = folder.path(), .hook = full}),
                HasSubstr("No space left on device; free some space"));
    EXPECT_THAT(entries(folder.path()), IsEmpty());
  }
}

TEST(CheckpointFolder, that_is_a_file_is_refused_by_a_rehearsal) {
  const TemporaryFolder folder;
  std::ofstream(folder / "saved") << "mine";
  EXPECT_THAT(complaint_of_preparing({.folder = folder / "saved"}),
              HasSubstr("cannot make folder"));
}

TEST(CheckpointFolder, is_kept_from_other_jobs_from_a_rehearsal_on) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path()}, [&](Communicator& world, Saver& saver) {
    saver.prepare();
    HandMade model({.ranks = 2, .shards = 2}, world.rank());
    Saver other(world, model.held(), {.folder = folder.path()});
    try {
      other.prepare();
      ADD_FAILURE() << "prepared";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("another job saves checkpoints into " + folder.path()));
    }
    saver.save({.step = 1});
    saver.wait();
  });
  EXPECT_THAT(entries(folder.path()), ElementsAre("latest", "step-00000001"));
}

/// Whether another job could save into it.
bool is_free(const std::string& folder) {
  try {
    const FolderLock lock(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(CheckpointFolder, a_forked_child_neither_ends_nor_keeps_its_parents_lock) {
  const TemporaryFolder folder;
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::optional<FolderLock> lock(std::in_place, folder.path());
  char byte = 'x';
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    lock.reset();
    // It lives on until its parent has seen what there is to see.
    const bool good = write(ends[1], &byte, 1) == 1 && read(ends[1], &byte, 1) == 1;
    _exit(good ? 0 : 1);
  }
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(is_free(folder.path())) << "the child has ended it";
  lock.reset();
  EXPECT_TRUE(is_free(folder.path())) << "the child keeps it";
  EXPECT_EQ(write(ends[0], &byte, 1), 1);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ends[0]);
}

TEST(CheckpointFolder, a_link_is_followed_once) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path()}, [](Communicator&, Saver& saver) {
    saver.save({.step = 1});
    saver.save({.step = 2});
    saver.wait();
  });
  for (const char* name : {"latest", "latest/"}) {
    io::point_link(folder / "latest", "step-00000001", folder / "spare", {});
    const std::string found = checkpoint_at(folder / name);
    io::point_link(folder / "latest", "step-00000002", folder / "spare", {});
    EXPECT_EQ(read_manifest(found).step, 1) << name;
    EXPECT_EQ(read_manifest(checkpoint_at(folder / name)).step, 2) << name;
  }
  fs::create_symlink(folder.path(), folder / "all");
  EXPECT_EQ(read_manifest(checkpoint_at(folder / "all")).step, 2) << "the latest of the folder";
}

TEST(CheckpointFolder, whose_latest_lost_its_manifest_gives_no_older_one) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path()}, [](Communicator&, Saver& saver) {
    saver.save({.step = 1});
    saver.save({.step = 2});
    saver.wait();
  });
  fs::remove(folder / "step-00000002/manifest.json");
  try {
    latest_in(folder.path());
    FAIL() << "found one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("latest is step-00000002, which has no manifest.json"));
    EXPECT_THAT(error.what(), HasSubstr("name one yourself, such as step-00000001"));
  }
}

TEST(CheckpointFolder, whose_latest_was_removed_gives_the_one_before_and_says_so) {
  const TemporaryFolder folder;
  with_savers({.folder = folder.path()}, [](Communicator&, Saver& saver) {
    saver.save({.step = 1});
    saver.save({.step = 2});
    saver.wait();
  });
  fs::remove_all(folder / "step-00000002");
  testing::internal::CaptureStderr();
  EXPECT_EQ(latest_in(folder.path()), folder / "step-00000001");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("latest is step-00000002, which is not there; taking step-00000001"));
}

}  // namespace
}  // namespace sprat::fsdp
