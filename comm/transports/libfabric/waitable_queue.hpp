// A completion queue that a thread can sleep on, where its provider can wake one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/transports/libfabric/handles.hpp"
#include "comm/transports/libfabric/provider.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm::libfabric {

/// Owner of the queue, and of what wakes. One thread at a time.
class WaitableQueue {
 public:
  struct Options {
    fid_fabric* fabric;
    fid_domain* domain;
    std::size_t size;
    Wakeup wakeup;
  };
  /// Opens it, without wakeup if that cannot be had. 0, or what libfabric says.
  int open(const Options& options);
  fid_cq* get() const { return queue_.get(); }
  /// That a thread can sleep on; -1: none. Stays the same once open() was called.
  const int& descriptor() const { return descriptor_; }
  NewsDescriptors::Next next() const noexcept;
  void close();
  /// Owns them no more.
  std::vector<fid*> release();

 private:
  int try_open(const Options& options);

  fid_fabric* fabric_ = nullptr;
  WaitSet wait_set_;  ///< Null unless queue_ has one; closed after it.
  CompletionQueue queue_;
  int descriptor_ = -1;
};

}  // namespace sprat::comm::libfabric
