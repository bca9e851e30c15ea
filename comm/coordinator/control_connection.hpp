// One connection of the control channel, frame by frame.
#pragma once

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>

#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/control_line.hpp"

namespace sprat::comm {

/// On its io_context's thread only. Shared: what is under way in the system keeps it.
class ControlConnection final : public std::enable_shared_from_this<ControlConnection> {
 public:
  struct Events {
    std::function<void(Frame)> received;
    /// The other end has closed, or spoken nonsense, or does not listen, or what came could not be
    /// taken (`received` threw, say); `how` is for people. Once, and nothing comes afterwards.
    std::function<void(std::string_view how)> ended;
    /// Its host answers, it does not: stopped, starved, or in a debugger. Once a silence; may be
    /// null.
    std::function<void(std::chrono::seconds silence)> silent = {};
  };

  /// Reads frames of at most `limit` bytes from now on.
  static std::shared_ptr<ControlConnection> start(ControlLine line, std::size_t limit,
                                                  Events events);
  /// From now on longer frames may come, and events go elsewhere.
  void hand_over(std::size_t limit, Events events);
  /// From now on says Beat every two seconds and listens for the other end's. Once only. A link
  /// that is cut is noticed within eight seconds, since what was said is not acknowledged; a
  /// process that is stopped is not taken for lost, since its kernel acknowledges.
  void beat();
  /// Sends an encoded frame after those before it. Shared, since one goes to many.
  void send(std::shared_ptr<const Blob> frame);
  /// Sends no more: the other end sees the end once it has read what was sent.
  void finish();
  /// Ends it at once; no event comes afterwards.
  void close();

 private:
  ControlConnection(ControlLine line, std::size_t limit, Events events);
  template <class Step>
  void or_end(Step step);
  void read_header();
  void take_header(const boost::system::error_code& error);
  void read_body(std::size_t bytes);
  void take_body(const boost::system::error_code& error);
  void write_next();
  void go_on_writing();
  void beat_again();
  void say_beat();
  void end(std::string_view how);

  ControlLine line_;
  std::size_t limit_;
  Events events_;
  bool open_ = true;
  bool finishing_ = false;
  std::array<std::byte, frame_header_bytes> header_{};
  Blob body_;
  std::deque<std::shared_ptr<const Blob>> queue_;  ///< The front one is being written.
  std::size_t queued_bytes_ = 0;
  boost::asio::steady_timer beat_timer_;
  bool beats_ = false;
  int unanswered_beats_ = 0;
};

}  // namespace sprat::comm
