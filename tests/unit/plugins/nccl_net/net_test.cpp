// NCCL's network interface as NCCL plays it, of every version that is exported.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/unit/plugins/nccl_net/played_net.hpp"

namespace sprat::nccl_net {
namespace {

/// `what` with each version's table.
void with_every_version(const std::function<void(PlayedNet&)>& what) {
  for (const int version : net_versions()) {
    SCOPED_TRACE("ncclNetPlugin_v" + std::to_string(version));
    const auto net = play_net(version);
    ASSERT_NE(net, nullptr);
    what(*net);
  }
}

/// Sends and receives one message; what came.
std::vector<std::byte> transfer(PlayedNet& net, Pair pair, std::size_t bytes, std::size_t room,
                                unsigned seed) {
  const auto sent = pattern(bytes, seed);
  std::vector<std::byte> came(room);
  const PlayedReceive receive{came.data(), room, 7};
  void* in = receive_now(net, pair.receiver, {&receive, 1});
  void* out = send_now(net, pair.sender, sent.data(), bytes, 7);
  bool sent_all = false;
  int size = -1;
  // By turns, for a test with one thread is both ends.
  poll_until([&] {
    int done = 0;
    if (!sent_all) {
      check("test", net.test(out, &done, &size));
      sent_all = done == 1;
    }
    check("test", net.test(in, &done, &size));
    return done == 1;
  });
  if (!sent_all) {
    finish(net, out);
  }
  came.resize(static_cast<std::size_t>(size));
  return came;
}

TEST(NcclNet, exports_the_versions_of_its_list_alone) {
  const std::vector<int> listed = net_versions();
  for (int version = 1; version <= 20; ++version) {
    const bool wanted = std::find(listed.begin(), listed.end(), version) != listed.end();
    EXPECT_EQ(plugin_symbol("ncclNetPlugin_v" + std::to_string(version)) != nullptr, wanted)
        << "version " << version;
  }
  EXPECT_EQ(plugin_symbol("sprat_version"), nullptr) << "nothing else is seen from outside";
}

TEST(NcclNet, has_devices_that_take_host_memory_alone) {
  with_every_version([](PlayedNet& net) {
    ASSERT_GE(net.devices(), 1);
    for (int device = 0; device < net.devices(); ++device) {
      const auto properties = net.properties(device);
      EXPECT_FALSE(properties.name.empty());
      EXPECT_EQ(properties.pointer_support, pointer_host);
      EXPECT_GT(properties.speed, 0);
      EXPECT_EQ(properties.most_receives, 8);
    }
    EXPECT_THROW(net.properties(net.devices()), Refused);
    const Pair pair = join(net);
    std::array<std::byte, 64> memory{};
    constexpr int cuda = 2;
    EXPECT_THROW(net.reg_mr(pair.sender, memory.data(), memory.size(), cuda), Refused);
    net.dereg_mr(pair.sender, net.reg_mr(pair.sender, memory.data(), 64, pointer_host));
    EXPECT_EQ(net.iflush(pair.receiver, memory.data(), 64), nullptr);
    close(net, pair);
  });
}

TEST(NcclNet, connects_in_every_order_without_waiting) {
  with_every_version([](PlayedNet& net) {
    for (const int first : {0, 1, 5}) {  // calls of one side before the other's first
      Handle handle;
      void* listener = net.listen(handle);
      void *sender = nullptr, *receiver = nullptr;
      for (int call = 0; call < first; ++call) {
        EXPECT_EQ(net.accept(listener), nullptr) << "nobody has connected";
      }
      for (int call = 0; call < first; ++call) {
        sender = net.connect(handle);
        EXPECT_EQ(sender, nullptr) << "nobody has accepted";
      }
      poll_until([&] {
        sender = sender == nullptr ? net.connect(handle) : sender;
        return sender != nullptr || (receiver = net.accept(listener)) != nullptr;
      });
      poll_until([&] {
        sender = sender == nullptr ? net.connect(handle) : sender;
        receiver = receiver == nullptr ? net.accept(listener) : receiver;
        return sender != nullptr && receiver != nullptr;
      });
      net.close_listen(listener);
      EXPECT_EQ(transfer(net, {sender, receiver}, 1000, 1000, 1), pattern(1000, 1));
      close(net, {sender, receiver});
    }
  });
}

TEST(NcclNet, two_ends_connect_to_each_other_at_a_time) {
  with_every_version([](PlayedNet& net) {
    std::array<Handle, 2> handles;
    std::array<void*, 2> listeners{}, senders{}, receivers{};
    for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
      listeners[end] = net.listen(handles[end]);
    }
    poll_until([&] {
      bool all = true;
      for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
        senders[end] = senders[end] == nullptr ? net.connect(handles[1 - end]) : senders[end];
        receivers[end] = receivers[end] == nullptr ? net.accept(listeners[end]) : receivers[end];
        all = all && senders[end] != nullptr && receivers[end] != nullptr;
      }
      return all;
    });
    for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
      EXPECT_EQ(transfer(net, {senders[end], receivers[1 - end]}, 3000, 4000, 2), pattern(3000, 2));
    }
    for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
      net.close_listen(listeners[end]);
      net.close_send(senders[end]);
      net.close_recv(receivers[end]);
    }
  });
}

TEST(NcclNet, a_listener_serves_several_connections) {
  with_every_version([](PlayedNet& net) {
    Handle handle;
    void* listener = net.listen(handle);
    std::vector<Pair> pairs;
    for (unsigned connection = 0; connection < 3; ++connection) {
      pairs.push_back(join(net, listener, handle));
    }
    for (unsigned connection = 0; connection < 3; ++connection) {
      EXPECT_EQ(transfer(net, pairs[connection], 777, 777, connection), pattern(777, connection));
      close(net, pairs[connection]);
    }
    net.close_listen(listener);
  });
}

TEST(NcclNet, carries_messages_of_every_length) {
  with_every_version([](PlayedNet& net) {
    const Pair pair = join(net);
    unsigned seed = 0;
    for (const std::size_t bytes : {0u, 1u, 512u, 4096u, 32768u, 65537u, 1u << 20, 2u << 20}) {
      for (const std::size_t more : {std::size_t{0}, std::size_t{513}}) {
        ++seed;
        EXPECT_EQ(transfer(net, pair, bytes, bytes + more, seed), pattern(bytes, seed))
            << bytes << " bytes into " << bytes + more;
      }
    }
    close(net, pair);
  });
}

TEST(NcclNet, a_message_longer_than_its_receive_is_an_error_that_is_named) {
  with_every_version([](PlayedNet& net) {
    const Pair pair = join(net);
    for (const std::size_t bytes : {600u, 2u << 20}) {
      last_line().clear();
      try {
        transfer(net, pair, bytes, 512, 1);
        ADD_FAILURE() << bytes << " bytes fit into 512";
      } catch (const Refused& refused) {
        EXPECT_EQ(refused.result, Result::invalid_usage);
      }
    }
    close(net, pair);
  });
  const auto net = play_net(11);
  const Pair pair = join(*net);
  last_line().clear();
  EXPECT_THROW(transfer(*net, pair, 600, 512, 1), Refused);
  EXPECT_NE(last_line().find("a message of 600 bytes is longer than its receive"),
            std::string::npos)
      << last_line();
  EXPECT_EQ(transfer(*net, pair, 600, 600, 2), pattern(600, 2)) << "the next one is not harmed";
  close(*net, pair);
}

TEST(NcclNet, has_32_requests_under_way) {
  with_every_version([](PlayedNet& net) {
    const Pair pair = join(net);
    constexpr std::size_t bytes = 40'000, count = most_requests;
    std::vector<std::vector<std::byte>> out, in(count, std::vector<std::byte>(bytes));
    std::vector<void*> sends, receives;
    for (std::size_t at = 0; at < count; ++at) {
      out.push_back(pattern(bytes, static_cast<unsigned>(at)));
      const PlayedReceive receive{in[at].data(), bytes, 1};
      receives.push_back(net.irecv(pair.receiver, {&receive, 1}));
      ASSERT_NE(receives.back(), nullptr) << at;
    }
    for (std::size_t at = 0; at < count; ++at) {
      sends.push_back(net.isend(pair.sender, out[at].data(), bytes, 1));
      ASSERT_NE(sends.back(), nullptr) << at;
    }
    std::size_t left = 2 * count;
    poll_until([&] {
      for (auto* requests : {&sends, &receives}) {
        for (void*& request : *requests) {
          int done = 0, size = 0;
          if (request != nullptr) {
            check("test", net.test(request, &done, &size));
          }
          if (done == 1) {
            EXPECT_EQ(size, static_cast<int>(bytes));
            request = nullptr;
            --left;
          }
        }
      }
      return left == 0;
    });
    EXPECT_EQ(in, out);
    close(net, pair);
  });
}

TEST(NcclNet, a_request_that_nobody_tests_makes_room_only_by_being_tested) {
  const auto net = play_net(11);
  const Pair pair = join(*net);
  std::array<std::byte, 8> memory{};
  const PlayedReceive receive{memory.data(), memory.size(), 0};
  std::size_t taken = 0;
  while (net->irecv(pair.receiver, {&receive, 1}) != nullptr) {
    ASSERT_LT(++taken, 10'000u) << "memory is bounded";
  }
  EXPECT_GE(taken, static_cast<std::size_t>(most_requests));
  close(*net, pair);
}

TEST(NcclNet, grouped_receives_are_told_apart_by_tags) {
  with_every_version([](PlayedNet& net) {
    const Pair pair = join(net);
    std::mt19937 random(5);
    for (std::size_t count = 1; count <= 8; ++count) {
      std::vector<std::vector<std::byte>> out, in;
      std::vector<PlayedReceive> receives;
      std::vector<std::size_t> order(count);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      for (std::size_t at = 0; at < count; ++at) {
        const std::size_t bytes = at % 3 == 1 ? 0 : std::size_t{1} << (random() % 17);
        out.push_back(pattern(bytes, static_cast<unsigned>(at)));
        in.emplace_back(bytes + random() % 9);
      }
      for (std::size_t at = 0; at < count; ++at) {
        receives.push_back({in[at].data(), in[at].size(), static_cast<int>(100 + at)});
      }
      std::vector<void*> sends;
      // Half of the messages come before their receive is there.
      void* request = nullptr;
      for (std::size_t at = 0; at < count; ++at) {
        if (at == count / 2) {
          request = receive_now(net, pair.receiver, receives);
        }
        const std::size_t one = order[at];
        sends.push_back(send_now(net, pair.sender, out[one].data(), out[one].size(),
                                 static_cast<int>(100 + one)));
      }
      const std::vector<int> sizes = finish(net, request, count);
      for (std::size_t at = 0; at < count; ++at) {
        ASSERT_EQ(sizes[at], static_cast<int>(out[at].size())) << at << " of " << count;
        in[at].resize(out[at].size());
        EXPECT_EQ(in[at], out[at]) << at << " of " << count;
        finish(net, sends[at]);
      }
    }
    close(net, pair);
  });
}

TEST(NcclNet, a_ring_goes_round) {
  with_every_version([](PlayedNet& net) {
    constexpr std::size_t ranks = 4, bytes = 100'000;
    std::array<Pair, ranks> links;  // from rank r to the next one
    for (Pair& link : links) {
      link = join(net);
    }
    std::array<std::vector<std::byte>, ranks> held;
    for (unsigned rank = 0; rank < ranks; ++rank) {
      held[rank] = pattern(bytes, rank);
    }
    for (std::size_t step = 0; step < ranks; ++step) {
      std::array<std::vector<std::byte>, ranks> next;
      std::vector<void*> requests;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        next[rank].resize(bytes);
        const PlayedReceive receive{next[rank].data(), bytes, 0};
        requests.push_back(
            receive_now(net, links[(rank + ranks - 1) % ranks].receiver, {&receive, 1}));
        requests.push_back(send_now(net, links[rank].sender, held[rank].data(), bytes, 0));
      }
      poll_until([&] {
        std::erase_if(requests, [&](void* request) {
          int done = 0, size = 0;
          check("test", net.test(request, &done, &size));
          return done == 1;
        });
        return requests.empty();
      });
      held = next;
    }
    for (unsigned rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(held[rank], pattern(bytes, rank)) << "after a whole round";
    }
    for (const Pair& link : links) {
      close(net, link);
    }
  });
}

TEST(NcclNet, closes_with_messages_under_way) {
  with_every_version([](PlayedNet& net) {
    for (const bool sender_first : {true, false}) {
      const Pair pair = join(net);
      std::vector<std::byte> out(2 << 20), in(2 << 20);
      const PlayedReceive receive{in.data(), in.size(), 0};
      for (int at = 0; at < 8; ++at) {
        receive_now(net, pair.receiver, {&receive, 1});
        send_now(net, pair.sender, out.data(), out.size(), 0);
      }
      if (sender_first) {
        net.close_send(pair.sender);
        net.close_recv(pair.receiver);
      } else {
        net.close_recv(pair.receiver);
        net.close_send(pair.sender);
      }
    }
    Handle handle;
    void* listener = net.listen(handle);
    EXPECT_EQ(net.connect(handle), nullptr);
    net.close_listen(listener);  // in the midst of a handshake
  });
}

TEST(NcclNet, what_was_sent_before_a_close_can_be_received) {
  with_every_version([](PlayedNet& net) {
    const Pair pair = join(net);
    const auto sent = pattern(100'000, 3);
    finish(net, send_now(net, pair.sender, sent.data(), sent.size(), 4));
    net.close_send(pair.sender);
    std::vector<std::byte> came(sent.size());
    const PlayedReceive receive{came.data(), came.size(), 4};
    finish(net, receive_now(net, pair.receiver, {&receive, 1}));
    EXPECT_EQ(came, sent);
    net.close_recv(pair.receiver);
  });
}

TEST(NcclNet, a_lost_peer_is_an_error_of_both_ends) {
  with_every_version([](PlayedNet& net) {
    Handle mine, theirs;
    void* listener = net.listen(mine);
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = fork();
    if (child == 0) {  // the other process: connects, listens, sends one message, and is killed
      void* its_listener = net.listen(theirs);
      [[maybe_unused]] const auto put = write(pipe[1], theirs.data(), theirs.size());
      void *sender = nullptr, *receiver = nullptr;
      for (;;) {
        sender = sender == nullptr ? net.connect(mine) : sender;
        receiver = receiver == nullptr ? net.accept(its_listener) : receiver;
        std::this_thread::yield();
      }
    }
    ASSERT_EQ(read(pipe[0], theirs.data(), theirs.size()), static_cast<ssize_t>(theirs.size()));
    Pair pair;
    poll_until([&] {
      pair.sender = pair.sender == nullptr ? net.connect(theirs) : pair.sender;
      pair.receiver = pair.receiver == nullptr ? net.accept(listener) : pair.receiver;
      return pair.sender != nullptr && pair.receiver != nullptr;
    });
    std::vector<std::byte> memory(8 << 20);
    const PlayedReceive receive{memory.data(), memory.size(), 0};
    void* in = receive_now(net, pair.receiver, {&receive, 1});
    void* out = send_now(net, pair.sender, memory.data(), memory.size(), 0);
    int done = 0, size = 0;
    EXPECT_EQ(net.test(in, &done, &size), Result::success);
    EXPECT_EQ(net.test(out, &done, &size), Result::success);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (void* request : {in, out}) {
      Result result = Result::success;
      poll_until([&] {
        result = net.test(request, &done, &size);
        return result != Result::success || done == 1;
      });
      EXPECT_EQ(result, Result::remote_error) << (request == in ? "receive" : "send");
      EXPECT_EQ(net.test(request, &done, &size), Result::remote_error) << "it keeps telling so";
    }
    EXPECT_NE(last_line().find("the connection to the other end is lost"), std::string::npos);
    for (const int end : pipe) {
      ::close(end);
    }
    net.close_listen(listener);
    close(net, pair);
  });
}

TEST(NcclNet, a_connection_needs_the_handles_key) {
  with_every_version([](PlayedNet& net) {
    Handle handle;
    void* listener = net.listen(handle);
    Handle wrong_key = handle;
    wrong_key[60] ^= std::byte{1};
    EXPECT_THROW(poll_until([&] {
                   EXPECT_EQ(net.accept(listener), nullptr);
                   return net.connect(wrong_key) != nullptr;
                 }),
                 Refused);
    Handle of_others{};
    EXPECT_THROW(net.connect(of_others), Refused);
    EXPECT_NE(last_line().find("all ranks must load the same version of Sprat"), std::string::npos);
    const Pair pair = join(net, listener, handle);
    EXPECT_EQ(transfer(net, pair, 10, 10, 1), pattern(10, 1)) << "the listener is not harmed";
    close(net, pair);
    net.close_listen(listener);
  });
}

/// Both ends by threads of their own.
void send_and_receive_many(PlayedNet& net, unsigned seed, std::size_t messages) {
  const Pair pair = join(net);
  std::thread sender([&] { send_many(net, pair.sender, seed, messages); });
  const std::size_t wrong = receive_many(net, pair.receiver, seed, messages);
  sender.join();
  EXPECT_EQ(wrong, 0u);
  close(net, pair);
}

/// Of each version; SPRAT_NCCL_MESSAGES=1000000 plays the whole.
std::size_t messages_to_play() {
  const char* wish = std::getenv("SPRAT_NCCL_MESSAGES");
  return wish == nullptr ? 500 : std::strtoull(wish, nullptr, 10);
}

TEST(NcclNet, many_messages_come_in_order) {
  with_every_version([](PlayedNet& net) {
    send_and_receive_many(net, static_cast<unsigned>(net.version()), messages_to_play());
  });
}

TEST(NcclNet, threads_have_comms_of_their_own) {
  const auto net = play_net(11);
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] { send_and_receive_many(*net, thread, 500); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace sprat::nccl_net
