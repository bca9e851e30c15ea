#include "comm/transports/libfabric/waitable_queue.hpp"

namespace sprat::comm::libfabric {

using Next = NewsDescriptors::Next;

int WaitableQueue::open(const Options& options) {
  const int status = try_open(options);
  if (status == 0 || options.wakeup == Wakeup::none) {
    return status;
  }
  Options plain = options;
  plain.wakeup = Wakeup::none;
  return try_open(plain);
}

int WaitableQueue::try_open(const Options& options) {
  close();
  descriptor_ = -1;
  fabric_ = options.fabric;
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.size = options.size;
  attributes.wait_obj = FI_WAIT_NONE;
  if (options.wakeup == Wakeup::descriptor) {
    attributes.wait_obj = FI_WAIT_FD;
  } else if (options.wakeup == Wakeup::wait_set) {
    fi_wait_attr wait_attributes{};
    wait_attributes.wait_obj = FI_WAIT_FD;
    fid_wait* set = nullptr;
    const int status = fi_wait_open(options.fabric, &wait_attributes, &set);
    if (status != 0) {
      return status;
    }
    wait_set_.reset(set);
    attributes.wait_obj = FI_WAIT_SET;
    attributes.wait_set = set;
  }
  fid_cq* queue = nullptr;
  const int status = fi_cq_open(options.domain, &attributes, &queue, nullptr);
  if (status != 0) {
    return status;
  }
  queue_.reset(queue);
  switch (options.wakeup) {
    case Wakeup::none:
      return 0;
    case Wakeup::descriptor:
      return fi_control(&queue->fid, FI_GETWAIT, &descriptor_);
    case Wakeup::wait_set:
      return fi_control(&wait_set_->fid, FI_GETWAIT, &descriptor_);
  }
  return -FI_EINVAL;
}

// Either call takes back what the descriptor shows of completions that were read meanwhile, and
// looks for new ones, so that none comes unseen before the thread sleeps.
Next WaitableQueue::next() const noexcept {
  if (wait_set_) {
    const int status = fi_wait(wait_set_.get(), 0);
    return status == -FI_ETIMEDOUT ? Next::sleep : status == 0 ? Next::drive : Next::look_later;
  }
  fid* queue = &queue_->fid;
  const int status = fi_trywait(fabric_, &queue, 1);
  return status == 0 ? Next::sleep : status == -FI_EAGAIN ? Next::drive : Next::look_later;
}

void WaitableQueue::close() {
  queue_.reset();
  wait_set_.reset();
}

std::vector<fid*> WaitableQueue::release() {
  std::vector<fid*> handles;
  if (queue_) {
    handles.push_back(&queue_.release()->fid);
  }
  if (wait_set_) {
    handles.push_back(&wait_set_.release()->fid);
  }
  return handles;
}

}  // namespace sprat::comm::libfabric
