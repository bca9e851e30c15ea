// A list that is nearly always empty: a reduction then looks at one number.
#include "comm/base/reduction_observer.hpp"

#include <mutex>
#include <vector>

namespace sprat {
namespace {

struct ObserverList {
  std::mutex mutex;  // guards the list
  std::vector<std::weak_ptr<ReductionObserver>> list;
};

/// Never destroyed: threads of a communicator may end later than static objects.
ObserverList& observer_list() {
  static auto* const list = new ObserverList;
  return *list;
}

}  // namespace

std::atomic<int> ReductionObservers::count_{0};

void ReductionObservers::add(const std::shared_ptr<ReductionObserver>& observer) {
  ObserverList& observers = observer_list();
  const std::lock_guard lock(observers.mutex);
  observers.list.emplace_back(observer);
  count_.store(static_cast<int>(observers.list.size()), std::memory_order_relaxed);
}

void ReductionObservers::tell(std::chrono::nanoseconds took, std::size_t bytes) noexcept {
  ObserverList& observers = observer_list();
  const std::lock_guard lock(observers.mutex);
  std::erase_if(observers.list, [&](const std::weak_ptr<ReductionObserver>& one) {
    // The last reference may be this one: an observer's destructor is not to add or tell.
    const std::shared_ptr<ReductionObserver> observer = one.lock();
    if (observer) {
      observer->note_reduction(took, bytes);
    }
    return observer == nullptr;
  });
  count_.store(static_cast<int>(observers.list.size()), std::memory_order_relaxed);
}

}  // namespace sprat
