// Every device that this machine has copies what it is given.
#include "comm/base/device.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "sprat/error.hpp"

namespace sprat {
namespace {

TEST(Device, every_device_carries_bytes_there_and_back) {
  int opened = 0;
  for (const DeviceKind* kind : all_device_kinds()) {
    for (int index = 0; index < kind->count(); ++index) {
      const auto device = kind->open(index);
      for (std::size_t bytes : {std::size_t{1}, std::size_t{4095}, std::size_t{1} << 20}) {
        std::vector<std::uint8_t> there(bytes), back(bytes);
        std::iota(there.begin(), there.end(), std::uint8_t{7});
        void* memory = device->allocate(bytes);
        device->copy(memory, there.data(), bytes);
        device->copy(back.data(), memory, bytes);
        device->synchronize();
        EXPECT_EQ(there, back) << device->name() << ", " << bytes << " bytes";
        device->free(memory);
      }
      ++opened;
    }
  }
  EXPECT_GE(opened, 1);
}

TEST(Device, host_is_opened_by_name) { EXPECT_EQ(open_device("host")->name(), "host"); }

TEST(Device, unknown_names_are_refused_with_what_there_is) {
  for (const char* name : {"tpu", "host:1", "cuda:99999"}) {
    try {
      open_device(name);
      ADD_FAILURE() << name << " was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_NE(std::string(error.what()).find("1 of host"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(open_device("host:one"), Error);
}

}  // namespace
}  // namespace sprat
