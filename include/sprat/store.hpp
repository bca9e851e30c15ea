// A key-value store that a job's ranks share before they know each other.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "sprat/export.hpp"

namespace sprat {

/// What a framework has for its processes to find each other, as PyTorch's TCPStore. A job that
/// joins by it writes one key, which it removes once every rank has joined; so does a communicator
/// that grows by it. Values hold the job's
/// token: whoever reads the store may join. One thread at a time calls.
class SPRAT_API Store {
 public:
  virtual ~Store() = default;
  /// For errors: "the store at host:29500".
  virtual std::string name() const = 0;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Blocks until the key is set, at most for `patience`; nothing then.
  virtual std::optional<std::string> get(const std::string& key,
                                         std::chrono::milliseconds patience) = 0;
  virtual void remove(const std::string& key) = 0;
};

}  // namespace sprat
