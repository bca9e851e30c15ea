#include "device/words.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace sprat::device {
namespace {

/// The one thing here that outlives all lanes; the reason is WordPage's.
struct KeptPages {
  std::mutex mutex;
  std::vector<std::unique_ptr<WordPage>> pages;
};

KeptPages& kept_pages() {
  // Never destroyed: as the process ends, streams that still run may look at a word.
  static auto* const kept = new KeptPages;
  return *kept;
}

}  // namespace

std::unique_ptr<WordPage> WordPage::take(const std::shared_ptr<Device>& device) {
  KeptPages& kept = kept_pages();
  {
    const std::lock_guard lock(kept.mutex);
    const auto found = std::ranges::find(kept.pages, device, &WordPage::device_);
    if (found != kept.pages.end()) {
      std::unique_ptr<WordPage> page = std::move(*found);
      kept.pages.erase(found);
      return page;
    }
  }
  return std::make_unique<WordPage>(device);
}

void WordPage::give(std::unique_ptr<WordPage> page) {
  KeptPages& kept = kept_pages();
  const std::lock_guard lock(kept.mutex);
  kept.pages.push_back(std::move(page));
}

}  // namespace sprat::device
