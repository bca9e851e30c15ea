#include "device/device_queue.hpp"

#include <atomic>
#include <utility>

namespace sprat::device {
namespace {

/// The first words of a page; operations have the others.
constexpr std::size_t own_words = 3;

}  // namespace

DeviceQueue::DeviceQueue(std::shared_ptr<Device> device, std::size_t slab_bytes)
    : device_(std::move(device)), slab_(*device_, slab_bytes) {
  in_ = device_->make_stream();
  out_ = device_->make_stream();
  // Last: should we end here, no page ends with us that streams may wait for.
  words_ = WordPage::take(device_);
  counts_ = {words_->word(0), words_->word(1), words_->word(2)};
  // Words count on from lane to lane. No flight is under way, so all three say the same, unless the
  // lane before broke down; none of its streams is there any more.
  queued_ = std::atomic_ref(*counts_.landed).load();
  std::atomic_ref(*counts_.arrived).store(queued_);
  std::atomic_ref(*counts_.retired).store(queued_);
}

void DeviceQueue::close() noexcept {
  for (const DeviceStream stream : {in_, out_}) {
    try {
      device_->synchronize(stream);  // the last word is written
    } catch (const Error&) {
      // Told to the operations already.
    }
    device_->destroy_stream(stream);
  }
  WordPage::give(std::move(words_));
}

std::uint32_t* DeviceQueue::word(std::size_t index) const noexcept {
  return words_->word(own_words + index);
}

void DeviceQueue::follow(Operation& operation, DeviceStream stream) {
  device_->record(operation.came, stream);
  device_->wait(in_, operation.came);
}

/// Every wait here is for something that was queued before, or that the host does without the
/// device: so streams cannot come to wait for each other in a circle.
///
/// No function of the host is queued: while a caller holds the driver's lock it might not be
/// called, and what is behind it in the stream would not be done.
void DeviceQueue::queue(Flight& flight, bool is_last) {
  Operation& operation = *flight.operation;
  const ChunkMemory layout = operation.chunks.memory(flight.chunk);
  const std::uint32_t retired = std::atomic_ref(*counts_.retired).load(std::memory_order_acquire);
  flight.number = queued_;
  const Slab::Place place = slab_.take(layout.bytes, flight.number, retired);
  flight.memory = place.memory;
  if (place.free_behind) {
    device_->wait_word(in_, counts_.retired, *place.free_behind);
  }
  for (const Operand& input : operation.inputs) {
    if (!input.of_host) {
      for_each_block(input, flight.memory + layout.in, flight.chunk,
                     [this](std::byte* from, std::byte* to, std::size_t bytes) {
                       device_->copy(in_, to, from, bytes);
                     });
    }
  }
  ++queued_;
  device_->write_word(in_, counts_.arrived, queued_);
  device_->wait_word(out_, counts_.landed, queued_);
  for (const Operand& output : operation.outputs) {
    if (!output.of_host) {
      for_each_block(output, flight.memory + layout.out, flight.chunk,
                     [this](std::byte* to, std::byte* from, std::size_t bytes) {
                       device_->copy(out_, to, from, bytes);
                     });
    }
  }
  if (is_last) {
    device_->write_word(out_, operation.word, operation.value);
  }
  device_->write_word(out_, counts_.retired, queued_);
}

void DeviceQueue::look() const {
  device_->idle(in_);
  device_->idle(out_);
}

}  // namespace sprat::device
