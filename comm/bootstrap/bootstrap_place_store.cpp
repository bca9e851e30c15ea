// Ranks that share a key-value store: rank 0 writes there how to reach it.
#include <algorithm>
#include <chrono>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/encryption/token_proof.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

class StorePlace final : public BootstrapPlace {
 public:
  StorePlace(const Config& config, const Launch& launch, Store& store, std::string_view key)
      : config_(config),
        store_(store),
        key_(key),
        size_(launch.size),
        token_(!config.token.empty() ? config.token
               : launch.rank == 0    ? random_token()
                                     : "") {}
  ~StorePlace() override {
    // A later job that meets in the same store must not find this one's address.
    if (!published_) {
      return;
    }
    try {
      store_.remove(key_);
    } catch (const std::exception& error) {
      log().warn("{} keeps the address of a job that has joined: {}", store_.name(), error.what());
    }
  }

  std::string name() const override { return store_.name(); }
  int size() const override { return size_; }
  Server server() const override { return {}; }
  std::vector<int> ports() const override { return free_ports(config_); }
  std::string token() const override { return token_; }
  Trust trust() const override { return Trust::proof; }

  void publish(int port) override {
    store_.set(key_, write_contact({addresses_of_this_host(config_, port),
                                    config_.token.empty() ? token_ : std::string()}));
    published_ = true;
  }

  Found look_up(Clock::time_point deadline) override {
    // Waits in one call, since some frameworks' stores log every wait that ends with nothing.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto value = store_.get(key_, std::max(left, 1ms));
    if (!value) {
      return {std::nullopt, "rank 0 has not come"};
    }
    std::optional<Contact> contact = read_contact(*value);
    if (contact && !config_.token.empty()) {
      contact->token = config_.token;
    }
    return {std::move(contact), "what rank 0 published is not an address"};
  }

 private:
  const Config config_;
  Store& store_;
  const std::string key_;
  const int size_;
  const std::string token_;
  bool published_ = false;
};

}  // namespace

std::unique_ptr<BootstrapPlace> bootstrap_at_store(const Config& config, const Launch& launch,
                                                   Store& store, std::string_view key) {
  return std::make_unique<StorePlace>(config, launch, store, key);
}

}  // namespace sprat::comm
