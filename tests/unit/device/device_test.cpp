// The table of devices, and the verbs of its cuda row on the driver's stand-in.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <thread>

#include "sprat/error.hpp"
#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/unit/device/fake_device.hpp"

namespace sprat::device {
namespace {

std::vector<std::byte> bytes_from(unsigned first, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(first + i);
  }
  return bytes;
}

TEST(DeviceRow, devices_are_opened_by_name) {
  EXPECT_EQ(fake_device(1)->name(), "cuda:1 (stand-in)");
  EXPECT_EQ(open_device("cuda").get(), open_device("cuda:0").get());
  EXPECT_EQ(open_device("cuda:1")->index(), 1);
}

TEST(DeviceRow, unknown_names_are_refused_with_what_there_is) {
  fake_device();
  for (const char* name : {"tpu", "cuda:2", "host"}) {
    try {
      open_device(name);
      ADD_FAILURE() << name << " was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_NE(std::string(error.what()).find("2 of cuda"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(open_device("cuda:one"), Error);
  EXPECT_THROW(open_device("cuda:-1"), Error);
}

TEST(DeviceRow, every_device_carries_bytes_there_and_back_in_stream_order) {
  for (int index = 0; index < 2; ++index) {
    const auto device = fake_device(index);
    TestStream stream(*device);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4095}, std::size_t{1} << 20}) {
      const auto there = bytes_from(7, bytes);
      EXPECT_EQ(DeviceBytes(*device, stream, there).values(stream), there);
    }
  }
}

TEST(DeviceRow, memory_is_known_by_whose_it_is) {
  const auto device = fake_device(1);
  const DeviceBytes memory(*device, 64);
  std::uint64_t host = 0;
  EXPECT_EQ(device->memory_of(memory.data()).kind, MemoryKind::device);
  EXPECT_EQ(fake_device(0)->memory_of(memory.data()).index, 1);
  EXPECT_EQ(device->memory_of(&host).kind, MemoryKind::host);
}

TEST(DeviceRow, streams_wait_for_words_and_events) {
  const auto device = fake_device();
  TestStream first(*device), second(*device);
  Gate gate(*device);
  std::atomic<int> order = 0;
  int at = 0;
  struct Note {
    std::atomic<int>& order;
    int& at;
  } note{order, at};
  gate.hold(first);
  device->notify(
      first, [](void* of) { static_cast<Note*>(of)->at = ++static_cast<Note*>(of)->order; }, &note);
  const DeviceEvent event = device->make_event();
  device->record(event, first);
  device->wait(second, event);
  EXPECT_FALSE(device->reached(event));
  EXPECT_FALSE(device->idle(second));
  EXPECT_EQ(order, 0);
  gate.open();
  second.synchronize();
  EXPECT_EQ(at, 1);
  EXPECT_TRUE(device->reached(event));
  device->destroy_event(event);
}

TEST(DeviceRow, words_are_waited_for_around_the_end_of_their_numbers) {
  const auto device = fake_device();
  TestStream stream(*device);
  Memory memory(4096);
  device->pin(memory.data(), memory.bytes());
  auto* const word = static_cast<std::uint32_t*>(memory.data());
  *word = 0xffff'fff0u;
  device->write_word(stream, word, 0xffff'ffffu);
  device->wait_word(stream, word, 0xffff'fffeu);
  device->write_word(stream, word, 3);
  device->wait_word(stream, word, 0xffff'ffffu);
  stream.synchronize();
  EXPECT_EQ(*word, 3u);
  device->unpin(memory.data());
}

TEST(DeviceRow, a_call_leaves_the_threads_device_as_it_was) {
  const auto first = fake_device(0), second = fake_device(1);
  const DeviceKind& cuda = *all_device_kinds().front();
  // A thread of its own, which has no device.
  std::thread([&] {
    EXPECT_EQ(cuda.current(), -1);
    second->free(second->allocate(16));
    EXPECT_EQ(cuda.current(), -1);
  }).join();
}

TEST(DeviceRow, errors_have_the_devices_words) {
  const auto device = fake_device();
  TestStream stream(*device);
  const DeviceBytes memory(*device, 8);
  fake_cuda_refuse_copy(1);
  try {
    device->copy(stream, memory.data(), memory.data() + 4, 4);
    ADD_FAILURE() << "a fault was swallowed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cuda:0 (stand-in): cuMemcpyAsync: invalid argument (1)");
  }
  fake_cuda_mend();
}

}  // namespace
}  // namespace sprat::device
