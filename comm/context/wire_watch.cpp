#include "comm/context/wire_watch.hpp"

namespace sprat::comm {

void WireWatch::open(MessageTransport* wire) {
  news_ = wire == nullptr ? nullptr : wire->news();
  if (news_ != nullptr) {
    bells_.allow_polling(news_->descriptors());
  }
}

// Threads begin one after the other, for they hold the token: relaxed is enough to set it.
bool WireWatch::begin() {
  if (taken() || news_->next() != NewsDescriptors::Next::sleep) {
    return false;
  }
  taken_.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace sprat::comm
