#include "plugins/nccl_net/net.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/endpoint/attempt.hpp"
#include "comm/endpoint/devices.hpp"
#include "comm/endpoint/invitation.hpp"
#include "comm/endpoint/listener.hpp"
#include "plugins/nccl_net/guard.hpp"
#include "plugins/nccl_net/net_comm.hpp"

namespace sprat::nccl_net::net {
namespace {

using comm::endpoint::Attempt;
using comm::endpoint::Device;
using comm::endpoint::Invitation;
using comm::endpoint::InvitationBytes;
using comm::endpoint::Listener;

/// As NCCL's own sockets say where /sys does not know the speed.
constexpr int usual_speed = 10'000;

/// What all communicators of a process share, looked for once: interfaces do not change below a
/// running job.
struct Host {
  Config config = Config::from_environment();
  std::vector<Device> devices = comm::endpoint::find_devices(config);
};

/// The interface has no object to keep it in: devices() and getProperties() take no context. Never
/// destroyed: NCCL's threads go on while a program ends, and it keeps the names of devices.
const Host& host() {
  static const Host& found = *new Host;
  return found;
}

const Device& device_at(int device) {
  const auto& devices = host().devices;
  require(device >= 0 && static_cast<std::size_t>(device) < devices.size(), "there is no device ",
          device, " of ", devices.size());
  return devices[static_cast<std::size_t>(device)];
}

/// One communicator's, from version 11 on; before that there is one for all.
class Context {
 public:
  std::unique_ptr<comm::endpoint::Connection> connect(const Device& device, void* handle);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<Attempt>> attempts_;  ///< By the number in the handle.
};

Context& context_at(void* context) {
  static Context& of_old_versions = *new Context;  // never destroyed, as host()
  return context == nullptr ? of_old_versions : *static_cast<Context*>(context);
}

/// Behind the invitation the handle has room for what connect() needs to find its attempt again.
constexpr std::size_t number_at = comm::endpoint::invitation_bytes;
static_assert(number_at + sizeof(std::uint64_t) <= handle_bytes);

/// A number rather than a pointer: it comes from outside, and an unknown one must do no harm.
std::uint64_t number_in(const void* handle) {
  std::uint64_t number = 0;
  std::memcpy(&number, static_cast<const std::byte*>(handle) + number_at, sizeof number);
  return number;
}

void put_number(void* handle, std::uint64_t number) {
  std::memcpy(static_cast<std::byte*>(handle) + number_at, &number, sizeof number);
}

std::unique_ptr<comm::endpoint::Connection> Context::connect(const Device& device, void* handle) {
  static std::atomic<std::uint64_t> last_number{0};  // unique among contexts, for handles tell none
  const std::lock_guard lock(mutex_);
  auto found = attempts_.find(number_in(handle));
  if (found == attempts_.end()) {
    const Invitation invitation = invitation_in(handle);
    const std::uint64_t number = 1 + last_number.fetch_add(1, std::memory_order_relaxed);
    found = attempts_.emplace(number, std::make_unique<Attempt>(device, invitation)).first;
    put_number(handle, number);
  }
  std::unique_ptr<comm::endpoint::Connection> connection;
  try {
    connection = found->second->poll();
  } catch (...) {
    attempts_.erase(found);
    put_number(handle, 0);
    throw;
  }
  if (connection) {
    attempts_.erase(found);
    put_number(handle, 0);  // another connection may be made by the same handle
  }
  return connection;
}

/// NCCL accepts from one thread at a time, and nothing says that it always will.
struct SharedListener {
  SharedListener(const Device& device, PortRange ports) : listener(device, ports) {}
  std::mutex mutex;
  Listener listener;  ///< Guarded by the mutex.
};

NetComm& comm_at(void* comm) { return *static_cast<NetComm*>(comm); }

/// What NCCL holds belongs to it until it closes it.
template <class Object>
void hand_out(std::unique_ptr<Object> object, void** place) {
  *place = object.release();
}
template <class Object>
void take_back(void* object) {
  const std::unique_ptr<Object> owner(static_cast<Object*>(object));
}

}  // namespace

Result init(void** context, Logger logger) {
  set_logger(logger);
  return guard("init", [&] {
    const auto& devices = host().devices;
    for (const Device& device : devices) {
      log_line(LogLevel::info, log_init | log_net,
               text("device ", device.interface, " at ", describe(device.address), ", ",
                    device.speed_mbit_s, " Mbit/s, ", device.streams, " streams a connection"));
    }
    if (context != nullptr) {
      hand_out(std::make_unique<Context>(), context);
    }
    return Result::success;
  });
}

Result devices(int* count) {
  return guard("devices", [&] {
    *count = static_cast<int>(host().devices.size());
    return Result::success;
  });
}

Result properties(int device, Properties* properties) {
  return guard("getProperties", [&] {
    const Device& one = device_at(device);
    *properties = {.name = one.interface.c_str(),
                   .pci_path = one.pci_path ? one.pci_path->c_str() : nullptr,
                   .guid = static_cast<std::uint64_t>(device),
                   .speed = one.speed_mbit_s > 0 ? one.speed_mbit_s : usual_speed};
    return Result::success;
  });
}

Result listen(void* /*context*/, int device, void* handle, void** listener) {
  *listener = nullptr;
  return guard("listen", [&] {
    auto made = std::make_unique<SharedListener>(device_at(device), host().config.ports);
    const InvitationBytes bytes = encode(made->listener.invitation());
    std::memset(handle, 0, handle_bytes);
    std::memcpy(handle, bytes.data(), bytes.size());
    hand_out(std::move(made), listener);
    return Result::success;
  });
}

Result connect(void* context, int device, void* handle, void** sender) {
  *sender = nullptr;
  return guard("connect", [&] {
    if (auto connection = context_at(context).connect(device_at(device), handle)) {
      hand_out(std::make_unique<NetComm>(std::move(connection)), sender);
    }
    return Result::success;
  });
}

Result accept(void* listener, void** receiver) {
  *receiver = nullptr;
  return guard("accept", [&] {
    auto& shared = *static_cast<SharedListener*>(listener);
    const std::lock_guard lock(shared.mutex);
    if (auto connection = shared.listener.accept()) {
      hand_out(std::make_unique<NetComm>(std::move(connection)), receiver);
    }
    return Result::success;
  });
}

/// The kernel copies from any memory of the process, so there is nothing to register.
Result reg_mr(int type, void** registration) {
  *registration = nullptr;
  return guard("regMr", [&] {
    require(type == pointer_host, "memory of type ", type,
            " is none of the host's, and only that is offered to NCCL");
    return Result::success;
  });
}

Result isend(void* sender, const void* data, std::size_t bytes, int tag, void** request) {
  return guard("isend", [&] {
    *request = comm_at(sender).send({static_cast<const std::byte*>(data), bytes}, tag);
    return Result::success;
  });
}

Result irecv(void* receiver, int count, void** data, const std::size_t* bytes, const int* tags,
             void** request) {
  return guard("irecv", [&] {
    require(count >= 1 && count <= most_receives, "irecv of ", count, " messages; it may be 1 to ",
            most_receives);
    std::array<NetReceive, most_receives> receives;
    const auto messages = static_cast<std::size_t>(count);
    for (std::size_t at = 0; at < messages; ++at) {
      receives[at] = {.data = data[at], .bytes = bytes[at], .tag = tags[at]};
    }
    *request = comm_at(receiver).receive({receives.data(), messages});
    return Result::success;
  });
}

Result test(void* request, int* done, int* bytes) {
  return guard("test", [&] {
    auto& one = *static_cast<NetRequest*>(request);
    return one.comm->test(one, done, bytes);
  });
}

Result close_comm(void* comm) {
  return guard("close", [&] {
    take_back<NetComm>(comm);
    return Result::success;
  });
}

Result close_listen(void* listener) {
  return guard("closeListen", [&] {
    take_back<SharedListener>(listener);
    return Result::success;
  });
}

Result finalize(void* context) {
  return guard("finalize", [&] {
    take_back<Context>(context);
    return Result::success;
  });
}

const comm::endpoint::Device& first_device() { return device_at(0); }

comm::endpoint::Listener& listener_at(void* listener) {
  return static_cast<SharedListener*>(listener)->listener;
}

comm::endpoint::Invitation invitation_in(const void* handle) {
  InvitationBytes bytes;
  std::memcpy(bytes.data(), handle, bytes.size());
  const auto invitation = comm::endpoint::decode(bytes);
  require(invitation.has_value(),
          "the handle to connect to is none of this plugin's; all ranks must load the same "
          "version of Sprat by NCCL_NET_PLUGIN");
  return *invitation;
}

}  // namespace sprat::nccl_net::net
