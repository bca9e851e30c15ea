// PyTorch's store as Sprat's.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "sprat/store.hpp"

namespace sprat::pytorch {

class Store final : public sprat::Store {
 public:
  explicit Store(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  std::string name() const override { return "PyTorch's store"; }
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds patience) override;
  void remove(const std::string& key) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace sprat::pytorch
