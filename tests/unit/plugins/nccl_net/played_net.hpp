// libnccl-net-sprat.so as NCCL holds it: opened by dlopen, its tables found by name, and each
// version's calls behind one interface, so that tests play all of them from one table.
#pragma once

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plugins/nccl_net/abi/net_v10.hpp"
#include "plugins/nccl_net/abi/net_v11.hpp"
#include "plugins/nccl_net/abi/net_v12.hpp"
#include "plugins/nccl_net/abi/net_v6.hpp"
#include "plugins/nccl_net/abi/net_v7.hpp"
#include "plugins/nccl_net/abi/net_v8.hpp"
#include "plugins/nccl_net/abi/net_v9.hpp"

namespace sprat::nccl_net {

using Handle = std::array<std::byte, handle_bytes>;

/// A message of a grouped receive.
struct PlayedReceive {
  void* data;
  std::size_t bytes;
  int tag;
};

/// Throws what a call answers if that is not success, so that tests read like NCCL's own calls.
struct Refused : std::runtime_error {
  Refused(const std::string& call, Result answer)
      : std::runtime_error(call + " answers " + std::to_string(static_cast<int>(answer))),
        result(answer) {}
  Result result;
};

inline void check(const char* call, Result result) {
  if (result != Result::success) {
    throw Refused(call, result);
  }
}

/// One version's table. A communicator's context is made by the constructor.
class PlayedNet {
 public:
  virtual ~PlayedNet() = default;
  virtual int version() const = 0;
  virtual int devices() = 0;
  struct Properties {
    std::string name;
    int pointer_support, speed, most_receives;
  };
  virtual Properties properties(int device) = 0;
  virtual void* listen(Handle& handle) = 0;
  virtual void* connect(Handle& handle) = 0;
  virtual void* accept(void* listener) = 0;
  virtual void* reg_mr(void* comm, void* data, std::size_t bytes, int type) = 0;
  virtual void dereg_mr(void* comm, void* registration) = 0;
  virtual void* isend(void* comm, const void* data, std::size_t bytes, int tag) = 0;
  virtual void* irecv(void* comm, std::span<const PlayedReceive> receives) = 0;
  virtual void* iflush(void* comm, void* data, int bytes) = 0;
  virtual Result test(void* request, int* done, int* bytes) = 0;
  virtual void close_send(void* comm) = 0;
  virtual void close_recv(void* comm) = 0;
  virtual void close_listen(void* listener) = 0;
};

/// The last line that the plugin gave to NCCL's log. Of tests with one thread that complains.
std::string& last_line();
void keep_line(LogLevel level, unsigned long flags, const char* file, int line, const char* format,
               ...);

template <class Table, int number, class Size>
class Played final : public PlayedNet {
 public:
  explicit Played(Table& table) : table_(table) {
    if constexpr (has_context) {
      std::remove_pointer_t<decltype(config_of(table.init))> config{-1};
      check("init", table.init(&context_, 0, &config, &keep_line, nullptr));
    } else if constexpr (number == 10) {
      check("init", table.init(&keep_line, nullptr));
    } else {
      check("init", table.init(&keep_line));
    }
  }
  ~Played() override {
    if constexpr (has_context) {
      table_.finalize(context_);
    }
  }
  int version() const override { return number; }
  int devices() override {
    int count = 0;
    check("devices", table_.devices(&count));
    return count;
  }
  Properties properties(int device) override {
    std::remove_pointer_t<decltype(properties_of(table_.get_properties))> properties;
    check("getProperties", table_.get_properties(device, &properties));
    return {properties.name, properties.pointer_support, properties.speed,
            properties.most_receives};
  }
  void* listen(Handle& handle) override {
    void* listener = nullptr;
    if constexpr (has_context) {
      check("listen", table_.listen(context_, 0, &handle, &listener));
    } else {
      check("listen", table_.listen(0, &handle, &listener));
    }
    return listener;
  }
  void* connect(Handle& handle) override {
    void* comm = nullptr;
    if constexpr (has_context) {
      check("connect", table_.connect(context_, 0, &handle, &comm, nullptr));
    } else if constexpr (number == 10) {
      NetConfigV10 config{-1};
      check("connect", table_.connect(0, &config, &handle, &comm, nullptr));
    } else if constexpr (number >= 7) {
      check("connect", table_.connect(0, &handle, &comm, nullptr));
    } else {
      check("connect", table_.connect(0, &handle, &comm));
    }
    return comm;
  }
  void* accept(void* listener) override {
    void* comm = nullptr;
    if constexpr (number >= 7) {
      check("accept", table_.accept(listener, &comm, nullptr));
    } else {
      check("accept", table_.accept(listener, &comm));
    }
    return comm;
  }
  void* reg_mr(void* comm, void* data, std::size_t bytes, int type) override {
    using RegisteredSize = decltype(registered_size(table_.reg_mr));
    void* registration = nullptr;
    check("regMr",
          table_.reg_mr(comm, data, static_cast<RegisteredSize>(bytes), type, &registration));
    return registration;
  }
  void dereg_mr(void* comm, void* registration) override {
    check("deregMr", table_.dereg_mr(comm, registration));
  }
  void* isend(void* comm, const void* data, std::size_t bytes, int tag) override {
    void* request = nullptr;
    auto* place = const_cast<void*>(data);
    if constexpr (number >= 10) {
      check("isend",
            table_.isend(comm, place, static_cast<Size>(bytes), tag, nullptr, nullptr, &request));
    } else {
      check("isend", table_.isend(comm, place, static_cast<Size>(bytes), tag, nullptr, &request));
    }
    return request;
  }
  void* irecv(void* comm, std::span<const PlayedReceive> receives) override {
    std::vector<void*> data, registrations(receives.size());
    std::vector<Size> bytes;
    std::vector<int> tags;
    for (const PlayedReceive& one : receives) {
      data.push_back(one.data);
      bytes.push_back(static_cast<Size>(one.bytes));
      tags.push_back(one.tag);
    }
    void* request = nullptr;
    const int count = static_cast<int>(receives.size());
    if constexpr (number >= 10) {
      check("irecv", table_.irecv(comm, count, data.data(), bytes.data(), tags.data(),
                                  registrations.data(), nullptr, &request));
    } else {
      check("irecv", table_.irecv(comm, count, data.data(), bytes.data(), tags.data(),
                                  registrations.data(), &request));
    }
    return request;
  }
  void* iflush(void* comm, void* data, int bytes) override {
    void *request = this, *registration = nullptr;
    check("iflush", table_.iflush(comm, 1, &data, &bytes, &registration, &request));
    return request;
  }
  Result test(void* request, int* done, int* bytes) override {
    return table_.test(request, done, bytes);
  }
  void close_send(void* comm) override { check("closeSend", table_.close_send(comm)); }
  void close_recv(void* comm) override { check("closeRecv", table_.close_recv(comm)); }
  void close_listen(void* listener) override {
    check("closeListen", table_.close_listen(listener));
  }

 private:
  static constexpr bool has_context = number >= 11;
  template <class Config>
  static Config config_of(Result (*)(void**, std::uint64_t, Config, Logger, ProfilerCallback));
  template <class Properties>
  static Properties properties_of(Result (*)(int, Properties));
  template <class RegisteredSize>
  static RegisteredSize registered_size(Result (*)(void*, void*, RegisteredSize, int, void**));

  Table& table_;
  void* context_ = nullptr;
};

/// The library, which stays open as NCCL keeps it. Null if there is no such symbol.
void* plugin_symbol(const std::string& name);

/// Of a version, as a communicator of NCCL's makes it.
std::unique_ptr<PlayedNet> play_net(int version);

/// All versions of the plugin's list, newest first.
std::vector<int> net_versions();

/// A connection: what one end sends the other receives. Closed by whoever made it.
struct Pair {
  void* sender = nullptr;
  void* receiver = nullptr;
};

/// Calls again and again until it is so; throws after a while, so that a defect fails and does not
/// hang.
void poll_until(const std::function<bool()>& is_so);

Pair join(PlayedNet& net, void* listener, Handle handle);
Pair join(PlayedNet& net);
void close(PlayedNet& net, Pair pair);

/// Tests a request until it is done; what came, of each message. Throws Refused.
std::vector<int> finish(PlayedNet& net, void* request, std::size_t messages = 1);
/// isend and irecv may answer that they cannot now.
void* send_now(PlayedNet& net, void* comm, const void* data, std::size_t bytes, int tag);
void* receive_now(PlayedNet& net, void* comm, std::span<const PlayedReceive> receives);

/// Bytes that tell where they belong.
std::vector<std::byte> pattern(std::size_t bytes, unsigned seed);

/// Sends messages whose lengths and bytes follow from the seed and their number, with up to
/// most_requests under way.
void send_many(PlayedNet& net, void* sender, unsigned seed, std::size_t messages);
/// Receives what send_many() sends; how many came with another length or other bytes.
std::size_t receive_many(PlayedNet& net, void* receiver, unsigned seed, std::size_t messages);

}  // namespace sprat::nccl_net
