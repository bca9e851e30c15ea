#include "plugins/torch/native/store.hpp"

#include <vector>

namespace sprat::pytorch {

void Store::set(const std::string& key, const std::string& value) {
  store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::optional<std::string> Store::get(const std::string& key, std::chrono::milliseconds patience) {
  // A key that is there needs no exception to say so.
  if (!store_->check({key})) {
    try {
      store_->wait({key}, patience);
    } catch (const std::exception&) {
      return std::nullopt;  // each store has its own way to say "timed out"
    }
  }
  const std::vector<std::uint8_t> value = store_->get(key);
  return std::string(value.begin(), value.end());
}

void Store::remove(const std::string& key) { store_->deleteKey(key); }

}  // namespace sprat::pytorch
