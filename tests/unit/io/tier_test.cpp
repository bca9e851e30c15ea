// Every tier gives arrays that hold what is put into them, keeps what is stored in it bit by bit,
// stays within its limits, and says what it lacks.
#include "io/tier.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;
constexpr std::size_t tier_page = 4096;
constexpr std::chrono::seconds patience(60);

std::vector<std::string> tiers() {
  return {"memory", "file:" + testing::TempDir(), "throttled:4000000000"};
}

Bytes tier_bytes(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count + sizeof(std::uint64_t));
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    const std::uint64_t eight = random();
    std::memcpy(bytes.data() + at, &eight, sizeof eight);
  }
  bytes.resize(count);
  return bytes;
}

template <class Call>
std::string tier_error(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Memory whose next write or read waits until it may pass, fails, or is damaged.
class StrangePlace final : public TierPlace {
 public:
  struct Switches {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = true;
    bool inside = false;  // a transfer waits at the gate
    std::string fails_with;
    bool damages = false;

    void set_open(bool now) {
      const std::lock_guard lock(mutex);
      open = now;
      changed.notify_all();
    }
    void await_inside() {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, patience, [&] { return inside; }));
    }
  };
  explicit StrangePlace(Switches& switches) : switches_(switches) {}
  std::string name() const override { return "strange"; }
  std::span<std::byte> allocate(std::size_t) override { return {}; }
  void fetch(std::span<std::byte>) noexcept override {}
  void release(std::span<std::byte>) noexcept override {}
  void reserve(std::uint64_t end) override { bytes_.resize(end); }
  void write(std::uint64_t offset, std::span<const std::byte> piece) override {
    pass();
    std::ranges::copy(piece, bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void read_ahead(std::uint64_t, std::size_t) noexcept override {}
  void read(std::uint64_t offset, std::span<std::byte> piece) override {
    pass();
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), piece.size(), piece.begin());
    const std::lock_guard lock(switches_.mutex);
    piece.back() ^= switches_.damages ? std::byte{1} : std::byte{0};
  }
  void settle(std::uint64_t, std::size_t) override {}

 private:
  void pass() {
    std::unique_lock lock(switches_.mutex);
    switches_.inside = true;
    switches_.changed.notify_all();
    switches_.changed.wait(lock, [&] { return switches_.open; });
    switches_.inside = false;
    if (!switches_.fails_with.empty()) {
      throw Error(ErrorCode::unavailable, switches_.fails_with);
    }
  }
  Switches& switches_;
  Bytes bytes_;
};

TEST(Tier, there_is_a_name_here_for_each) { ASSERT_EQ(tiers().size(), all_tier_kinds().size()); }

TEST(Tier, arrays_begin_as_zeros_and_hold_what_is_put_into_them) {
  for (const std::string& name : tiers()) {
    const auto tier = open_any_tier(name);
    std::vector<std::span<std::byte>> arrays;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
      arrays.push_back(tier->allocate(bytes));
      ASSERT_EQ(arrays.back().size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrays.back().data()) % 4096, 0u);
      for (const std::byte one : arrays.back()) {
        ASSERT_EQ(one, std::byte{0});
      }
    }
    for (int round = 1; round < 4; ++round) {
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        tier->fetch(arrays[i]);
        std::ranges::fill(arrays[i], static_cast<std::byte>(round * 16 + static_cast<int>(i)));
        tier->release(arrays[i]);
      }
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        for (const std::byte one : arrays[i]) {
          ASSERT_EQ(one, static_cast<std::byte>(round * 16 + static_cast<int>(i))) << name;
        }
      }
    }
    EXPECT_EQ(tier->allocate(0).size(), 0u);
  }
}

TEST(TierTransfers, what_is_stored_comes_back_as_it_was) {
  // Sizes about a page and about a piece; slots are given up and taken again in between.
  for (const std::string& name : tiers()) {
    const auto tier = open_any_tier(name);
    std::mt19937 random(5);
    std::map<std::uint64_t, Bytes> held;
    for (unsigned round = 0; round < 60; ++round) {
      constexpr std::size_t sizes[] = {0, 1, tier_page, tier_page + 1, 1 << 20, (1 << 20) + 17};
      const Bytes content = tier_bytes(sizes[random() % std::size(sizes)], round);
      const auto ticket = tier->store(content, "x");
      ASSERT_TRUE(ticket);
      ASSERT_TRUE(tier->wait(*ticket, patience));
      held[ticket->number] = content;
      if (held.size() > 5) {
        const auto oldest = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % 5));
        Bytes back(oldest->second.size());
        ASSERT_TRUE(tier->load({oldest->first}, back));
        ASSERT_TRUE(tier->wait({oldest->first}, patience));
        EXPECT_EQ(back, oldest->second) << name << ", round " << round;
        tier->forget({oldest->first});
        held.erase(oldest);
      }
    }
    for (const auto& [number, content] : held) {
      tier->forget({number});
    }
    EXPECT_EQ(tier->traffic().held_bytes, 0u) << name;
  }
}

/// Pages that memory has of the files of tiers in a folder, which have no name any more.
std::size_t resident_pages(const std::string& folder) {
  std::size_t pages = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    const std::size_t bytes = target.starts_with(folder + "/sprat-tier")
                                  ? std::filesystem::file_size(entry.path(), gone)
                                  : 0;
    const int file = bytes > 0 ? ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
      continue;
    }
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    std::vector<unsigned char> there((bytes + tier_page - 1) / tier_page);
    EXPECT_EQ(::mincore(mapped, bytes, there.data()), 0);
    pages += static_cast<std::size_t>(std::ranges::count(there, 1));
    ::munmap(mapped, bytes);
    ::close(file);
  }
  return pages;
}

TEST(TierTransfers, slots_of_files_leave_no_pages_in_memory) {
  const TemporaryFolder folder;
  struct statfs system {};
  ASSERT_EQ(::statfs(folder.path().c_str(), &system), 0);
  if (system.f_type == TMPFS_MAGIC) {
    GTEST_SKIP() << folder.path() << " is memory itself; set TMPDIR to a folder on a disk";
  }
  const auto tier = open_tier("file:" + folder.path());
  const Bytes content = tier_bytes(std::size_t{5} << 20, 1);
  std::vector<Ticket> tickets;
  for (int slot = 0; slot < 4; ++slot) {
    tickets.push_back(tier->store(content, "x").value());
    ASSERT_TRUE(tier->wait(tickets.back(), patience));
    EXPECT_EQ(resident_pages(folder.path()), 0u) << "stored " << slot;
  }
  for (const int slot : {2, 0}) {
    Bytes back(content.size());
    ASSERT_TRUE(tier->load(tickets[static_cast<std::size_t>(slot)], back));
    ASSERT_TRUE(tier->wait(tickets[static_cast<std::size_t>(slot)], patience));
    EXPECT_EQ(back, content);
    EXPECT_EQ(resident_pages(folder.path()), 0u) << "loaded " << slot;
  }
}

TEST(TierTransfers, a_full_tier_says_not_now_and_takes_more_once_something_is_forgotten) {
  const Bytes content = tier_bytes(tier_page, 1);  // outlives tiers that still store it
  for (const std::string& name : tiers()) {
    const auto tier = open_any_tier(name, {.held_bytes = 3 * tier_page});
    std::vector<Ticket> tickets;
    for (int slot = 0; slot < 3; ++slot) {
      tickets.push_back(tier->store(content, "x").value());
    }
    EXPECT_FALSE(tier->store(content, "one too many")) << name;
    tier->forget(tickets[1]);
    EXPECT_TRUE(tier->store(content, "in the gap")) << name;
    EXPECT_EQ(tier->traffic().most_held_bytes, 3 * tier_page) << name;
    const Bytes large(4 * tier_page);
    EXPECT_THAT(tier_error(ErrorCode::invalid_argument, [&] { tier->store(large, "layer 7"); }),
                testing::AllOf(HasSubstr("\"layer 7\" takes 16384"), HasSubstr("12288")));
  }
}

TEST(TierTransfers, so_many_bytes_are_in_flight_and_no_more) {
  StrangePlace::Switches gate;
  Tier tier(std::make_unique<StrangePlace>(gate), {.in_flight_bytes = 2 * tier_page});
  const Bytes content = tier_bytes(tier_page, 2);
  gate.set_open(false);
  const Ticket first = tier.store(content, "a").value();
  const Ticket second = tier.store(content, "b").value();
  EXPECT_FALSE(tier.store(content, "c"));
  EXPECT_FALSE(tier.done(first));
  gate.set_open(true);
  ASSERT_TRUE(tier.wait(second, patience));
  EXPECT_TRUE(tier.done(first)) << "stores end in order";

  gate.set_open(false);
  Bytes one(tier_page), two(tier_page);
  const Ticket third = tier.store(content, "c").value();
  gate.await_inside();
  const Ticket huge = tier.store(content, "stores do not use up the limit of loads").value();
  EXPECT_TRUE(tier.load(first, one));
  EXPECT_TRUE(tier.load(second, two));
  gate.set_open(true);
  ASSERT_TRUE(tier.wait(huge, patience));
  EXPECT_TRUE(tier.done(second)) << "loads go before stores that wait";
  EXPECT_TRUE(tier.done(third));
}

TEST(TierTransfers, one_that_is_larger_than_the_limit_of_flight_goes_alone) {
  StrangePlace::Switches gate;
  Tier tier(std::make_unique<StrangePlace>(gate), {.in_flight_bytes = tier_page});
  const Bytes large = tier_bytes(5 * tier_page, 3);
  gate.set_open(false);
  const auto ticket = tier.store(large, "large");
  ASSERT_TRUE(ticket);
  EXPECT_FALSE(tier.store(Bytes(1), "small"));
  gate.set_open(true);
  Bytes back(large.size());
  ASSERT_TRUE(tier.wait(*ticket, patience));
  ASSERT_TRUE(tier.load(*ticket, back));
  ASSERT_TRUE(tier.wait(*ticket, patience));
  EXPECT_EQ(back, large);
}

TEST(TierTransfers, what_is_forgotten_touches_its_memory_no_more) {
  StrangePlace::Switches gate;
  Tier tier(std::make_unique<StrangePlace>(gate));
  const Bytes kept = tier_bytes(tier_page, 4);
  const Ticket stays = tier.store(kept, "stays").value();
  ASSERT_TRUE(tier.wait(stays, patience));
  gate.set_open(false);
  auto running = std::make_unique<Bytes>(tier_bytes(tier_page, 5));
  auto queued = std::make_unique<Bytes>(tier_bytes(tier_page, 6));
  const Ticket first = tier.store(*running, "running").value();
  gate.await_inside();
  const Ticket second = tier.store(*queued, "queued").value();
  tier.forget(second);
  queued.reset();  // a sanitizer tells if it is read later
  gate.set_open(true);
  tier.forget(first);
  running.reset();
  Bytes back(kept.size());
  ASSERT_TRUE(tier.load(stays, back));
  ASSERT_TRUE(tier.wait(stays, patience));
  EXPECT_EQ(back, kept);
  EXPECT_EQ(tier.traffic().held_bytes, tier_page);
}

TEST(TierTransfers, a_failure_is_told_with_key_bytes_place_and_reason) {
  StrangePlace::Switches place;
  Tier tier(std::make_unique<StrangePlace>(place));
  const Bytes content = tier_bytes(tier_page, 7);
  const Ticket good = tier.store(content, "good").value();
  ASSERT_TRUE(tier.wait(good, patience));
  place.fails_with = "No space left on device; free some space";
  const Ticket bad = tier.store(content, "layer 3, micro-batch 2").value();
  for (int asked = 0; asked < 2; ++asked) {
    EXPECT_EQ(tier_error(ErrorCode::unavailable, [&] { tier.wait(bad, patience); }),
              "cannot store \"layer 3, micro-batch 2\", 4096 bytes, in tier strange: No space left "
              "on device; free some space");
  }
  Bytes back(tier_page);
  EXPECT_THAT(tier_error(ErrorCode::invalid_argument, [&] { tier.load(bad, back); }),
              HasSubstr("after its store has failed"));
  ASSERT_TRUE(tier.load(good, back));
  EXPECT_THAT(tier_error(ErrorCode::unavailable, [&] { tier.wait(good, patience); }),
              HasSubstr("cannot load \"good\", 4096 bytes, from tier strange"));
  place.fails_with.clear();
  ASSERT_TRUE(tier.load(good, back)) << "a load may be tried again";
  ASSERT_TRUE(tier.wait(good, patience));
  EXPECT_EQ(back, content);
}

TEST(TierTransfers, bytes_that_are_not_those_that_were_stored_are_noticed) {
  StrangePlace::Switches place;
  Tier tier(std::make_unique<StrangePlace>(place));
  const Bytes content = tier_bytes((1 << 20) + 5, 8);
  const Ticket ticket = tier.store(content, "x").value();
  ASSERT_TRUE(tier.wait(ticket, patience));
  place.damages = true;
  Bytes back(content.size());
  ASSERT_TRUE(tier.load(ticket, back));
  EXPECT_THAT(tier_error(ErrorCode::unavailable, [&] { tier.wait(ticket, patience); }),
              HasSubstr("its bytes from 0 on are not those that were stored"));
}

TEST(TierTransfers, a_tier_that_ends_gives_up_what_is_under_way) {
  for (const std::string& name : tiers()) {
    const Bytes content = tier_bytes(8 << 20, 9);
    const auto tier = open_any_tier(name);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(tier->store(content, "x"));
    }
  }
}

TEST(TierTransfers, misuse_is_named) {
  Tier tier(all_tier_kinds()[1]->open("", {}));
  const Bytes content(10);
  Bytes shorter(9);
  const Ticket ticket = tier.store(content, "x").value();
  ASSERT_TRUE(tier.wait(ticket, patience));
  EXPECT_THAT(tier_error(ErrorCode::invalid_argument, [&] { tier.load(ticket, shorter); }),
              HasSubstr("has 10 bytes in tier memory, but is to be loaded into 9"));
  tier.forget(ticket);
  tier.forget(ticket);
  EXPECT_THAT(tier_error(ErrorCode::invalid_argument, [&] { tier.done(ticket); }),
              HasSubstr("holds nothing under ticket 1"));
}

TEST(TierTransfers, a_throttled_tier_is_no_faster_than_it_is_told_and_says_how_fast) {
  const auto tier = open_any_tier("throttled:100000000");
  const Bytes content(2'000'000);
  const auto begin = std::chrono::steady_clock::now();
  const Ticket ticket = tier->store(content, "layer 1").value();
  ASSERT_TRUE(tier->wait(ticket, patience));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
  EXPECT_LE(2.0 / tier->traffic().store_seconds, 100.0);
  EXPECT_THAT(tier->describe(ticket),
              testing::StartsWith("the store of \"layer 1\" (2000000 bytes) in tier throttled, "
                                  "which has stored 2000000 bytes at "));
}

/// While it lives, no file of this process grows beyond so many bytes. Nothing is expected
/// meanwhile: a report may go to a file.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(TierTransfers, a_file_that_may_not_grow_is_an_error_of_the_store_that_needed_it) {
  const TemporaryFolder folder;
  const auto tier = open_tier("file:" + folder.path());
  const Bytes content = tier_bytes(2 * tier_page, 1);
  const Ticket fits = tier->store(content, "fits").value();
  ASSERT_TRUE(tier->wait(fits, patience));
  std::string complaint;
  {
    const FileSizeLimit limit(2 * tier_page);
    const Ticket too_many = tier->store(content, "layer 5").value();
    complaint = tier_error(ErrorCode::unavailable, [&] { tier->wait(too_many, patience); });
  }
  EXPECT_THAT(complaint, testing::StartsWith("cannot store \"layer 5\", 8192 bytes, in tier file:" +
                                             folder.path() + ": cannot reserve 8192 bytes more"));
  EXPECT_THAT(complaint, HasSubstr("File too large; free some space"));
  Bytes back(content.size());
  ASSERT_TRUE(tier->load(fits, back));
  ASSERT_TRUE(tier->wait(fits, patience));
  EXPECT_EQ(back, content) << "what was stored before is whole";
  EXPECT_TRUE(entries(folder.path()).empty());
}

TEST(TierTransfers, a_limit_is_reserved_on_the_disk_when_the_tier_is_opened) {
  const TemporaryFolder folder;
  std::string complaint;
  {
    const FileSizeLimit limit(2 * tier_page);
    complaint = tier_error(ErrorCode::unavailable, [&] {
      open_tier("file:" + folder.path(), {.held_bytes = 3 * tier_page});
    });
  }
  EXPECT_THAT(complaint, HasSubstr("cannot reserve 12288 bytes"));
}

TEST(Tier, files_have_no_name_that_a_crash_could_leave) {
  const TemporaryFolder folder;
  const auto tier = open_tier("file:" + folder.path());
  tier->allocate(100);
  const Bytes content(100);
  const Ticket ticket = tier->store(content, "x").value();
  ASSERT_TRUE(tier->wait(ticket, patience));
  EXPECT_TRUE(entries(folder.path()).empty());
}

TEST(Tier, what_cannot_be_is_refused_by_name) {
  const auto message_of = [](const std::string& name, ErrorCode code) {
    return tier_error(code, [&] { open_tier(name); });
  };
  EXPECT_THAT(message_of("tape", ErrorCode::invalid_argument),
              HasSubstr("there are: file, memory;"));
  EXPECT_THAT(message_of("throttled:100", ErrorCode::invalid_argument),
              HasSubstr("there is no tier \"throttled:100\""));
  EXPECT_THAT(message_of("file", ErrorCode::invalid_argument), HasSubstr("file:/local/scratch"));
  EXPECT_THAT(message_of("memory:/here", ErrorCode::invalid_argument), HasSubstr("\"/here\""));
  EXPECT_THAT(message_of("file:/nowhere/at/all", ErrorCode::unavailable),
              HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(tier_error(ErrorCode::invalid_argument, [] { open_any_tier("throttled:fast"); }),
              HasSubstr("bytes per second"));
  EXPECT_THAT(
      tier_error(ErrorCode::unavailable,
                 [] { open_tier("file:" + testing::TempDir())->allocate(std::size_t{1} << 60); }),
      HasSubstr("cannot reserve"));
}

}  // namespace
}  // namespace sprat::io
