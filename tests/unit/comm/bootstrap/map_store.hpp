// A store for ranks that are threads of one test.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "sprat/store.hpp"

namespace sprat::comm {

/// Shared by threads; what a framework's own does between processes.
class SharedMap {
 public:
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!patience_) {
      patience_ = patience;
    }
    changed_.notify_all();
    if (!changed_.wait_for(lock, patience, [&] { return values_.contains(key); })) {
      return std::nullopt;
    }
    return values_[key];
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }
  /// Of the first get(), once somebody has come.
  std::chrono::milliseconds patience() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return patience_.has_value(); });
    return *patience_;
  }

 private:
  std::mutex mutex_;  // guards values_, patience_
  std::optional<std::chrono::milliseconds> patience_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class MapStore final : public Store {
 public:
  explicit MapStore(SharedMap& map) : map_(map) {}
  std::string name() const override { return "the map of this test"; }
  void set(const std::string& key, const std::string& value) override { map_.set(key, value); }
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds patience) override {
    return map_.get(key, patience);
  }
  void remove(const std::string& key) override { map_.remove(key); }

 private:
  SharedMap& map_;
};

}  // namespace sprat::comm
