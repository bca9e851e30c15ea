// What who listens tells who shall connect.
#include "comm/endpoint/invitation.hpp"

#include <gtest/gtest.h>

#include "comm/endpoint/devices.hpp"

namespace sprat::comm::endpoint {
namespace {

sockets::NetAddress address() { return sockets::parse_address("fd00::7", 1234).value(); }

TEST(EndpointInvitation, comes_back_from_its_bytes) {
  for (const char* text : {"10.0.0.7", "fd00::7"}) {
    const Invitation made = invite(sockets::parse_address(text, 4321).value(), 8);
    EXPECT_EQ(decode(encode(made)), made);
  }
}

TEST(EndpointInvitation, has_a_key_of_its_own) {
  EXPECT_NE(invite(address(), 1).key, invite(address(), 1).key);
}

TEST(EndpointInvitation, bytes_that_are_none_are_refused) {
  EXPECT_FALSE(decode(InvitationBytes{}));
  for (const std::size_t at : {std::size_t{0}, std::size_t{3}}) {  // the magic number's ends
    InvitationBytes bytes = encode(invite(address(), 1));
    bytes[at] ^= std::byte{0x80};
    EXPECT_FALSE(decode(bytes)) << at;
  }
  EXPECT_FALSE(decode(encode(invite(address(), 0)))) << "no streams";
  EXPECT_FALSE(decode(encode(invite(address(), 65)))) << "more streams than there may be";
  sockets::NetAddress nowhere = address();
  nowhere.port = 0;
  EXPECT_FALSE(decode(encode(invite(nowhere, 1))));
}

TEST(EndpointInvitation, each_stream_proves_something_else) {
  const Invitation one = invite(address(), 2), other = invite(address(), 2);
  EXPECT_NE(key_of(one, {.from = 1, .to = 0, .stream = 0}),
            key_of(one, {.from = 1, .to = 0, .stream = 1}));
  EXPECT_NE(key_of(one, {.from = 1, .to = 0, .stream = 0}),
            key_of(one, {.from = 2, .to = 0, .stream = 0}));
  EXPECT_NE(key_of(one, {.from = 1, .to = 0, .stream = 0}),
            key_of(other, {.from = 1, .to = 0, .stream = 0}));
}

TEST(EndpointInvitation, a_device_lies_below_its_pci_function) {
  struct Case {
    const char* path;
    std::optional<std::string> part;
  };
  for (const Case& one :
       {Case{"/sys/devices/pci0000:00/0000:00:1f.6", "/sys/devices/pci0000:00/0000:00:1f.6"},
        Case{"/sys/devices/pci0000:00/0000:00:05.0/virtio2",
             "/sys/devices/pci0000:00/0000:00:05.0"},
        Case{"/sys/devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0",
             "/sys/devices/pci10000:e0/10000:e0:06.0/10000:e1:00.0"},
        Case{"/sys/devices/virtual/net/lo", std::nullopt},
        Case{"/sys/devices/vmbus/0000-1111-22", std::nullopt}, Case{"", std::nullopt},
        Case{"/", std::nullopt}}) {
    EXPECT_EQ(pci_part(one.path), one.part) << one.path;
  }
}

TEST(EndpointInvitation, there_is_a_device_on_every_host) {
  Config config;
  config.interface = "lo";
  const auto devices = find_devices(config);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].interface, "lo");
  EXPECT_EQ(devices[0].address.port, 0);
  EXPECT_FALSE(devices[0].pci_path);
}

}  // namespace
}  // namespace sprat::comm::endpoint
