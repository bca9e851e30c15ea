// Files of digests: what is written comes back, whatever tears or flips is noticed.
#include "collectives/digests/digest_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "sprat/error.hpp"
#include "tests/unit/collectives/digests/written_file.hpp"

namespace sprat::collectives::digests {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint64_t> numbers(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> out(bytes.size() / sizeof(std::uint64_t));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

WrittenFile example() {
  WrittenFile file(1, 2, true);
  file.step = 3;
  file.all_reduce({11, 12}, {21, 22});
  file.group("rows", {1, 0});
  file.message(CallKind::send, 0, 0, 5);
  file.gap(2);
  file.message(CallKind::receive, 0, 0, 6);
  file.end();
  return file;
}

TEST(DigestFile, comes_back) {
  WrittenFile written = example();
  const DigestFile& file = *written.parsed();
  EXPECT_EQ(file.about.rank, 1);
  EXPECT_EQ(file.about.size, 2);
  EXPECT_TRUE(file.about.inputs);
  EXPECT_EQ(file.about.job, "sprat-1-2");
  EXPECT_EQ(file.about.host, "here");
  ASSERT_EQ(file.groups.size(), 2u);
  EXPECT_EQ(file.groups[1].name, "rows");
  EXPECT_EQ(file.groups[1].rank, 0);
  EXPECT_EQ(file.groups[1].world_ranks, (std::vector<std::int32_t>{1, 0}));
  ASSERT_EQ(file.calls.size(), 3u);
  EXPECT_EQ(file.calls[0].call.step, 3);
  EXPECT_EQ(numbers(file.calls[0].input), (std::vector<std::uint64_t>{21, 22}));
  EXPECT_EQ(numbers(file.calls[0].result), (std::vector<std::uint64_t>{11, 12}));
  EXPECT_EQ(words(file.calls[0].call), "all_reduce of 32768 f32, sum");
  EXPECT_EQ(words(file.calls[1].call), "send of 100 bytes to rank 0 with tag 7");
  EXPECT_EQ(words(file.calls[2].call), "recv of 100 bytes from rank 0 with tag 7");
  EXPECT_EQ(file.lost, 2u);
  EXPECT_TRUE(file.ended);
  EXPECT_FALSE(file.failed);
  EXPECT_FALSE(file.torn_at);
}

// As kill -9 leaves it: cut at every byte.
TEST(DigestFile, is_read_up_to_where_it_tears) {
  const WrittenFile written = example();
  const std::vector<std::byte>& whole = written.bytes();
  std::size_t most = 0;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::span<const std::byte> cut(whole.data(), bytes);
    if (bytes < 200) {  // the head itself
      EXPECT_THROW(parse("file", cut), Error);
      continue;
    }
    const DigestFile file = parse("file", cut);
    EXPECT_FALSE(file.ended);
    EXPECT_LE(file.calls.size(), 3u);
    EXPECT_GE(file.calls.size(), most);
    most = file.calls.size();
    if (file.torn_at) {
      EXPECT_LT(*file.torn_at, bytes);
      EXPECT_FALSE(parse("file", cut.first(*file.torn_at)).torn_at);
    }
  }
  EXPECT_EQ(most, 3u);
}

TEST(DigestFile, every_flipped_byte_is_noticed) {
  const WrittenFile written = example();
  std::vector<std::byte> bytes = written.bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{0x20};
    if (at < 200) {
      EXPECT_THROW(parse("file", bytes), Error) << at;
    } else {
      EXPECT_TRUE(parse("file", bytes).torn_at) << at;
    }
    bytes[at] ^= std::byte{0x20};
  }
}

TEST(DigestFile, says_what_it_is_not) {
  const auto complaint = [](std::vector<std::byte> bytes) -> std::string {
    try {
      parse("a/b", bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::vector<std::byte> other = example().bytes();
  EXPECT_THAT(complaint({}), HasSubstr("a/b has 0 bytes"));
  other[8] = std::byte{1};
  EXPECT_THAT(complaint(other), HasSubstr("byte order"));
  other = example().bytes();
  other[12] = std::byte{9};
  EXPECT_THAT(complaint(other), HasSubstr("is of version 9"));
  other[0] = std::byte{'x'};
  EXPECT_THAT(complaint(other), HasSubstr("no file of digests"));
}

// Every number that a reader would use as a size, an index or an enumerator.
TEST(DigestFile, believes_no_number) {
  const auto refused = [](const auto& change) {
    WrittenFile file(0, 2);
    Call call;
    call.result_count = 4;
    call.signature.count = 4;
    call.result_kept = 1;
    change(call);
    const std::vector<std::uint64_t> digests = {1};
    const CallRecord record = record_of(call, digests);
    std::vector<std::byte> bytes = file.bytes();
    for (const auto part :
         {std::as_bytes(std::span(&record, 1)), std::as_bytes(std::span(digests))}) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return parse("file", bytes).torn_at.has_value();
  };
  EXPECT_FALSE(refused([](Call&) {}));
  EXPECT_TRUE(refused([](Call& call) { call.group = 1; }));
  EXPECT_TRUE(refused([](Call& call) { call.partner = 2; }));
  EXPECT_TRUE(refused([](Call& call) { call.partner = -1; }));
  EXPECT_TRUE(refused([](Call& call) { call.kind = static_cast<CallKind>(3); }));
  EXPECT_TRUE(refused([](Call& call) { call.result_kept = 2; }));
  EXPECT_TRUE(refused([](Call& call) { call.result_kept = 0; }));
  EXPECT_TRUE(refused([](Call& call) { call.input_kept = 1, call.input_count = 1; }));
  EXPECT_TRUE(refused([](Call& call) { call.result_count = std::uint64_t{1} << 62; }));
  EXPECT_TRUE(refused([](Call& call) { call.signature.input = static_cast<DType>(99); }));
  EXPECT_TRUE(refused([](Call& call) { call.signature.op = static_cast<ReduceOp>(99); }));
  EXPECT_TRUE(refused([](Call& call) { call.signature.collective = static_cast<Collective>(99); }));
  EXPECT_TRUE(refused([](Call& call) { call.step = -2; }));
}

}  // namespace
}  // namespace sprat::collectives::digests
