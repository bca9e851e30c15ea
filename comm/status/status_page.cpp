#include "comm/status/status_page.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::comm::status {

Writer::Writer(const About& about) : memory_(sizeof(Page), Segment::Pages::as_touched, memfd_name) {
  Page& shown = page();  // zeroed memory is an empty page
  shown.layout_version = layout_version;
  shown.layout_bytes = sizeof(Page);
  shown.about = about;
  // Release: a reader that sees the magic number sees the fields above, which never change again.
  shown.magic.store(magic, std::memory_order_release);
}

Communicator* Writer::open(std::uint64_t id, std::string_view name, int rank,
                           std::span<const int> world_ranks) noexcept {
  const std::span places(page().communicators);
  const auto place = std::ranges::find_if(
      places, [](const Communicator& taken) { return taken.membership.own().in_use == 0; });
  if (place == places.end()) {
    page().unlisted.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const auto index = static_cast<std::uint64_t>(place - places.begin());
  // Relaxed: only this thread writes it, and a reader that sees an old value merely misses what has
  // just been opened. Entries themselves are guarded by their version.
  page().used.store(std::max(page().used.load(std::memory_order_relaxed), index + 1),
                    std::memory_order_relaxed);
  Communicator& communicator = *place;
  communicator.membership.change([&](Membership& membership) {
    membership.id = id;
    membership.in_use = 1;
    membership.rank = rank;
    membership.size = static_cast<std::int32_t>(world_ranks.size());
    membership.listed =
        static_cast<std::int32_t>(std::min(world_ranks.size(), Membership::most_listed));
    put(membership.name, name);
    std::copy_n(world_ranks.begin(), membership.listed, membership.world_ranks);
  });
  return &communicator;
}

void Writer::close(Communicator* communicator) noexcept {
  if (communicator == nullptr) {
    return;
  }
  // The membership goes first, since readers skip a communicator that is not in use.
  communicator->membership.change([](Membership& membership) { membership = {}; });
  for (auto& operation : communicator->operations) {
    operation.change([](Operation& one) { one = {}; });
  }
  for (auto& message : communicator->messages) {
    message.change([](Message& one) { one = {}; });
  }
  communicator->posted.store(0, std::memory_order_relaxed);
  communicator->ended.store(0, std::memory_order_relaxed);
}

void Writer::fail(std::string_view text) noexcept {
  page().failure.change([&](Failure& failure) {
    failure.failed = 1;
    put(failure.text, text);
  });
}

// Maps the page a second time and reads it as another process would. The writer stores plainly
// while this reads; the version of each entry tells what was torn.
Reader Writer::read() const {
  auto page = Reader::map(memory_.ref().fd);
  need(page.has_value(), "cannot map this rank's status page");
  return std::move(*page);
}

}  // namespace sprat::comm::status
