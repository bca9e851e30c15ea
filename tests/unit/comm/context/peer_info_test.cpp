// What ranks tell each other as they join: it comes back as it was told, or is refused by name.
#include "comm/context/peer_info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

PeerInfo some_info() {
  return {.label = "boot/host",
          .machine = "boot/pid=1",
          .name = "host",
          .cores = {0, 2, 5},
          .memory = {.pid = 42,
                     .segment = {MemoryRef::Kind::segment, 7, 1234, std::uint64_t{1} << 28, 0},
                     .address = 0x7f0000001000,
                     .nonce = ~std::uint64_t{0}},
          .context = 0x7f0000002000};
}

Blob cbor(const json& value) {
  const auto bytes = json::to_cbor(value);
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

json parsed(const Blob& blob) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(blob.data());
  return json::from_cbor(first, first + blob.size());
}

TEST(PeerInfo, comes_back_as_it_was_told) {
  PeerInfo info = some_info();
  EXPECT_EQ(decode_peer_info(encode(info), 0), info);
  info.survival = {{{"10.0.0.1", 29500}, {"fd00::2", 65535}}, "a secret"};
  EXPECT_EQ(decode_peer_info(encode(info), 0), info);
  info.trace = "t.json";
  EXPECT_EQ(decode_peer_info(encode(info), 0), info);

  const Reach reach{.label = "boot/host", .mapped = {0, 1, 3}, .readable = {1}};
  EXPECT_EQ(decode_reach(encode(reach), 0, 4), reach);

  const TransportAddresses addresses{
      .local = {std::byte{1}, std::byte{0}}, .wire = {}, .wire_kind = "x"};
  EXPECT_EQ(decode_transport_addresses(encode(addresses), 0), addresses);
}

TEST(PeerInfo, damage_is_refused_with_the_rank_and_the_field) {
  struct Case {
    const char* field;
    std::function<void(json&)> damage;
  };
  const std::vector<Case> cases = {
      {"label", [](json& value) { value.erase("label"); }},
      {"machine", [](json& value) { value["machine"] = 3; }},
      {"name",
       [](json& value) {
         value["name"] = json::binary({1, 2});
       }},
      {"cores", [](json& value) { value["cores"] = 4; }},
      {"cores", [](json& value) { value["cores"] = {-1}; }},
      {"cores", [](json& value) { value["cores"] = {"0"}; }},
      {"pid", [](json& value) { value["pid"] = 0; }},
      {"pid", [](json& value) { value["pid"] = -1; }},
      {"pid", [](json& value) { value["pid"] = std::uint64_t{1} << 32; }},
      {"fd", [](json& value) { value["fd"] = 1.5; }},
      {"inode", [](json& value) { value["inode"] = nullptr; }},
      {"bytes", [](json& value) { value["bytes"] = 8; }},
      {"nonce", [](json& value) { value["nonce"] = 0; }},
      {"doors", [](json& value) { value["doors"] = json::array({json::array({"host"})}); }},
      {"doors",
       [](json& value) {
         value["doors"] = json::array({json::array({1, "host"})});
       }},
      {"secret", [](json& value) { value["doors"] = json::array(); }},
      {"all of it", [](json& value) { value = json::array(); }},
  };
  for (const Case& one : cases) {
    json value = parsed(encode(some_info()));
    one.damage(value);
    try {
      decode_peer_info(cbor(value), 3);
      ADD_FAILURE() << value.dump();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_EQ(error.rank(), 3);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("what rank 3 says of itself is damaged"), HasSubstr(one.field)));
    }
  }
}

TEST(PeerInfo, names_no_rank_outside_the_job) {
  EXPECT_THROW(decode_reach(encode(Reach{.label = "a", .mapped = {4}}), 0, 4), Error);
  EXPECT_THROW(decode_reach(encode(Reach{.label = "a", .readable = {4}}), 0, 4), Error);
}

/// Whatever bytes come, nothing but an Error leaves.
TEST(PeerInfo, survives_every_cut_and_every_flipped_bit) {
  PeerInfo info = some_info();
  info.survival = {{{"10.0.0.1", 29500}}, "a secret"};
  const std::vector<Blob> told = {encode(info), encode(Reach{"a", {0, 1}, {1}}),
                                  encode(TransportAddresses{{std::byte{1}}, {std::byte{2}}, "x"})};
  const auto decode_all = [](const Blob& blob) {
    const std::vector<std::function<void()>> decoders = {
        [&] { decode_peer_info(blob, 1); },
        [&] { decode_reach(blob, 1, 2); },
        [&] { decode_transport_addresses(blob, 1); },
    };
    int refused = 0;
    for (const auto& decode : decoders) {
      try {
        decode();
      } catch (const Error&) {
        ++refused;
      }
    }
    return refused;
  };
  for (const Blob& whole : told) {
    EXPECT_EQ(decode_all(whole), 2);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_EQ(decode_all({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}), 3)
          << length;
    }
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      Blob damaged = whole;
      damaged[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_GE(decode_all(damaged), 2) << bit;
    }
  }
}

}  // namespace
}  // namespace sprat::comm
