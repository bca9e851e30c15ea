// A provider of libfabric's that does not answer questions about what has come.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <chrono>
#include <memory>

#include "comm/transports/libfabric/libfabric.hpp"
#include "tests/unit/bytes.hpp"

namespace {

/// While true, endpoints that are opened take questions and never answer them.
bool silent = false;

fi_ops_fabric fabric_ops;
fi_ops_domain domain_ops;
fi_ops_tagged tagged_ops;
decltype(fi_ops_fabric::domain) open_domain;
decltype(fi_ops_domain::endpoint) open_endpoint;
decltype(fi_ops_tagged::recvmsg) receive;

ssize_t receive_or_ignore(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
  return (flags & FI_PEEK) != 0 ? 0 : receive(ep, message, flags);
}

int open_silent_endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
  const int status = open_endpoint(domain, info, ep, context);
  if (status == 0) {
    tagged_ops = *(*ep)->tagged;
    receive = std::exchange(tagged_ops.recvmsg, receive_or_ignore);
    (*ep)->tagged = &tagged_ops;
  }
  return status;
}

int open_silent_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  const int status = open_domain(fabric, info, domain, context);
  if (status == 0) {
    domain_ops = *(*domain)->ops;
    open_endpoint = std::exchange(domain_ops.endpoint, open_silent_endpoint);
    (*domain)->ops = &domain_ops;
  }
  return status;
}

}  // namespace

/// In the place of libfabric's own, which it calls: what the program has comes first.
extern "C" int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static const auto original = reinterpret_cast<decltype(&fi_fabric)>(
      dlsym(dlopen("libfabric.so.1", RTLD_NOW), "fi_fabric"));
  const int status = original(attributes, fabric, context);
  if (status == 0 && silent) {
    fabric_ops = *(*fabric)->ops;
    open_domain = std::exchange(fabric_ops.domain, open_silent_domain);
    (*fabric)->ops = &fabric_ops;
  }
  return status;
}

namespace sprat::comm {
namespace {

using State = MessageRequest::State;

TEST(SlowProvider, that_does_not_say_what_has_come_costs_nothing_else) {
  Config config;
  config.interface = "lo";
  config.provider = "tcp";
  silent = true;
  const std::unique_ptr<MessageTransport> asks = open_libfabric(config, 0, 2);
  silent = false;
  const std::unique_ptr<MessageTransport> other = open_libfabric(config, 1, 2);
  const std::array addresses = {asks->address(), other->address()};
  asks->connect(addresses);
  other->connect(addresses);

  const auto begin = std::chrono::steady_clock::now();
  for (int question = 0; question < 20; ++question) {
    EXPECT_FALSE(asks->probe(1, 7));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));

  std::array<std::byte, 8> sent{std::byte{1}}, got{};
  MessageRequest send, recv;
  asks->recv(recv, 1, 7, got);
  other->send(send, 0, 7, sent);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (recv.state == State::posted && std::chrono::steady_clock::now() < deadline) {
    asks->progress();
    other->progress();
  }
  EXPECT_EQ(recv.state, State::done) << recv.error;
  EXPECT_TRUE(same_bytes(got, sent));
}

}  // namespace
}  // namespace sprat::comm
