#include "plugins/torch/native/store.hpp"

#include <vector>

namespace sprat::pytorch {

void Store::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> Store::get(const std::string& key, std::chrono::milliseconds patience) {
  // check() comes first, so that a key that is there is found without a wait.
  if (!store_->check({key})) {
    try {
      store_->wait({key}, patience);
    } catch (const std::exception&) {
      return std::nullopt;  // each store has another exception for a timeout, so all count as one
    }
  }
  const std::vector<std::uint8_t> value = store_->get(key);
  return std::string(value.begin(), value.end());
}

void Store::remove(const std::string& key) { store_->deleteKey(key); }

}  // namespace sprat::pytorch
