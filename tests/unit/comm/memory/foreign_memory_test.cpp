// Reading other processes' private memory, and what it says of memory that is not there.
#include "comm/memory/foreign_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <vector>

namespace sprat::comm {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// A child that has `pages` to itself until it is told to end.
class Child {
 public:
  explicit Child(std::byte* pages) {
    int ready[2], end[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(end), 0);
    pid_ = fork();
    if (pid_ == 0) {
      pages[5000] = std::byte{42};  // a copy of its own from now on
      char word = 1;
      close(end[1]);
      (void)!write(ready[1], &word, 1);
      (void)!read(end[0], &word, 1);
      _exit(0);
    }
    char word = 0;
    EXPECT_EQ(read(ready[0], &word, 1), 1);
    close(ready[0]);
    close(ready[1]);
    close(end[0]);
    end_ = end[1];
  }
  void end() {
    close(end_);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int end_ = -1;
};

TEST(ForeignMemory, is_that_of_the_process_it_was_asked_of) {
  const std::size_t bytes = 3 * 4096;
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::fill_n(pages, bytes, std::byte{7});
  Child child(pages);
  pages[5000] = std::byte{1};
  std::vector<std::byte> copy(bytes);
  ASSERT_TRUE(read_foreign(child.pid(), address_of(pages), copy.data(), bytes));
  EXPECT_EQ(copy[5000], std::byte{42});
  EXPECT_EQ(copy[4999], std::byte{7});

  munmap(pages + 4096, 4096);  // here, not there
  EXPECT_TRUE(read_foreign(child.pid(), address_of(pages), copy.data(), bytes));
  EXPECT_FALSE(read_foreign(getpid(), address_of(pages), copy.data(), bytes));
  child.end();
  EXPECT_FALSE(read_foreign(child.pid(), address_of(pages), copy.data(), bytes));
  munmap(pages, bytes);
}

}  // namespace
}  // namespace sprat::comm
