// The bytes of Lustre's HSM ioctls.
#include "io/lustre/hsm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sprat/error.hpp"
#include "tests/unit/io/lustre/lov_bytes.hpp"

namespace sprat::io {
namespace {

HsmState state_of(const char* hex) {
  const auto bytes = bytes_of_hex(hex);
  return parse_hsm_state(std::span(bytes).first<hsm_state_bytes>());
}

TEST(Hsm, state_of_a_file_that_was_imported_and_never_read) {
  const HsmState state = state_of(
      "0d000000 01000000 00000000 00000000"
      "0000000000000000 0000000000000000");
  EXPECT_TRUE(state.released());
  EXPECT_FALSE(state.lost());
  EXPECT_FALSE(state.under_way());
  EXPECT_EQ(hsm_text(state), "(0x0000000d) released exists archived, archive_id:1");
}

TEST(Hsm, state_of_a_file_on_its_way) {
  const HsmState state = state_of(
      "0d000000 01000000 02000000 0b000000"
      "0000000000000000 ffffffffffffffff");
  EXPECT_TRUE(state.under_way());
  EXPECT_EQ(state.progress, 2u);
}

TEST(Hsm, state_of_a_file_without_an_archive) {
  EXPECT_EQ(hsm_text(state_of("00000000 00000000 00000000 00000000"
                              "0000000000000000 0000000000000000")),
            "(0x00000000)");
}

TEST(Hsm, restore_request_has_golden_bytes) {
  const LustreFid fid{.sequence = 0x200000401, .object = 0x1a, .version = 0};
  EXPECT_EQ(encode_restore(std::vector{fid}),
            bytes_of_hex("0b000000 00000000 0000000000000000 01000000 00000000"
                         "0104000002000000 1a000000 00000000 0000000000000000 ffffffffffffffff"));
}

TEST(Hsm, restore_request_takes_52_files_at_most) {
  EXPECT_EQ(encode_restore(std::vector<LustreFid>(52)).size(), 24u + 52 * 32);
  EXPECT_THROW(encode_restore(std::vector<LustreFid>(53)), Error);
  EXPECT_THROW(encode_restore({}), Error);
}

TEST(Hsm, fids_come_back) {
  const auto bytes = bytes_of_hex("0104000002000000 1a000000 00000000");
  EXPECT_EQ(parse_fid(std::span(bytes).first<fid_bytes>()),
            (LustreFid{.sequence = 0x200000401, .object = 0x1a, .version = 0}));
}

}  // namespace
}  // namespace sprat::io
