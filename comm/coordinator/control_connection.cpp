#include "comm/coordinator/control_connection.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <span>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// A peer that leaves this much unread does not go on. The bound keeps it from filling this
/// process's memory.
constexpr std::size_t max_queued_bytes = 4 * max_frame_bytes;

constexpr std::chrono::seconds beat_interval{2};
/// After so many beats without an answer (8 s) a warning says that the peer is silent.
constexpr int silence_beats = 4;
/// After so many, no more are sent: they would fill the buffers of a process that is stopped for
/// hours. The kernels' keep-alive still notices a cut link.
constexpr int most_unanswered_beats = 32;

std::string how_it_ended(const error_code& error) {
  if (error == asio::error::eof) {
    return "its connection ended";
  }
  if (error == asio::error::timed_out) {
    return "its host does not answer";
  }
  return text("its connection broke (", error.message(), ")");
}

}  // namespace

ControlConnection::ControlConnection(ControlLine line, std::size_t limit, Events events)
    : line_(std::move(line)),
      limit_(limit),
      events_(std::move(events)),
      beat_timer_(line_.get_executor()) {}

std::shared_ptr<ControlConnection> ControlConnection::start(ControlLine line, std::size_t limit,
                                                            Events events) {
  std::shared_ptr<ControlConnection> connection(
      new ControlConnection(std::move(line), limit, std::move(events)));
  connection->read_header();
  return connection;
}

/// The next read or write is begun at the end of a handler. One that failed before would leave a
/// peer that is heard no more, and neither end would know: so that is the connection's end.
template <class Step>
void ControlConnection::or_end(Step step) {
  try {
    step();
  } catch (const std::exception& failure) {
    log().error("a connection of the control channel ends: {}", failure.what());
    if (open_) {
      end(text("its connection could not be kept (", failure.what(), ")"));
    }
  }
}

void ControlConnection::read_header() {
  asio::async_read(line_, asio::buffer(header_),
                   [self = shared_from_this()](const error_code& error, std::size_t) {
                     self->or_end([&] { self->take_header(error); });
                   });
}

void ControlConnection::take_header(const error_code& error) {
  if (!open_) {
    return;
  }
  if (error) {
    return end(how_it_ended(error));
  }
  // The length is checked before memory is made for it, since it comes from outside.
  const std::size_t bytes = frame_bytes(header_);
  if (bytes > limit_) {
    return end(text("it announced a message of ", bytes, " bytes"));
  }
  read_body(bytes);
}

void ControlConnection::read_body(std::size_t bytes) {
  body_.resize(bytes);
  asio::async_read(line_, asio::buffer(body_),
                   [self = shared_from_this()](const error_code& error, std::size_t) {
                     self->or_end([&] { self->take_body(error); });
                   });
}

void ControlConnection::take_body(const error_code& error) {
  if (!open_) {
    return;
  }
  if (error) {
    return end(how_it_ended(error));
  }
  std::optional<Frame> frame = decode(body_);
  body_ = {};
  if (!frame) {
    return end("it sent what is not a message");
  }
  // Any frame shows that the process runs.
  unanswered_beats_ = 0;
  if (beats_ && std::holds_alternative<Beat>(*frame)) {
    return read_header();
  }
  const auto received = events_.received;  // a copy: the call may replace events_ by hand_over()
  received(std::move(*frame));
  if (open_) {
    read_header();
  }
}

void ControlConnection::hand_over(std::size_t limit, Events events) {
  limit_ = limit;
  events_ = std::move(events);
}

void ControlConnection::beat() {
  beats_ = true;
  beat_again();
}

void ControlConnection::beat_again() {
  beat_timer_.expires_after(beat_interval);
  beat_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && self->open_ && !self->finishing_) {
      self->or_end([&] { self->say_beat(); });
    }
  });
}

void ControlConnection::say_beat() {
  if (unanswered_beats_ == silence_beats && events_.silent) {
    events_.silent(silence_beats * beat_interval);
  }
  if (unanswered_beats_ < most_unanswered_beats) {
    ++unanswered_beats_;
    send(std::make_shared<const Blob>(encode(Beat{})));
  }
  if (open_) {
    beat_again();
  }
}

void ControlConnection::send(std::shared_ptr<const Blob> frame) {
  if (!open_ || finishing_ || queued_bytes_ > max_queued_bytes) {
    return;
  }
  queued_bytes_ += frame->size();
  queue_.push_back(std::move(frame));
  if (queued_bytes_ > max_queued_bytes) {
    // Later: who says one thing to many must not hear of one's end in the midst of them, for what
    // follows from that would be said to the rest of them before it.
    return asio::post(line_.get_executor(), [self = shared_from_this()] {
      if (self->open_) {
        self->end("it does not read what it is sent");
      }
    });
  }
  if (queue_.size() == 1) {
    write_next();
  }
}

void ControlConnection::write_next() {
  asio::async_write(line_, asio::buffer(*queue_.front()),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      // Of an error the pending read hears as well. It reports the end, after what
                      // the peer sent before it left.
                      if (self->open_ && !error) {
                        self->or_end([&] { self->go_on_writing(); });
                      }
                    });
}

void ControlConnection::go_on_writing() {
  queued_bytes_ -= queue_.front()->size();
  queue_.pop_front();
  if (!queue_.empty()) {
    return write_next();
  }
  if (finishing_) {
    finish();
  }
}

void ControlConnection::finish() {
  finishing_ = true;
  error_code ignored;
  if (open_ && queue_.empty()) {
    // Only this direction is closed: what the other end still sends is read until it closes its
    // own.
    line_.socket().shutdown(StreamSocket::shutdown_send, ignored);
  }
}

void ControlConnection::end(std::string_view how) {
  // Taken out first: the callback may release this object, and is called once.
  const auto ended = std::move(events_.ended);
  const std::string reason(how);
  close();
  if (ended) {
    ended(reason);
  }
}

void ControlConnection::close() {
  if (!open_) {
    return;
  }
  open_ = false;
  beat_timer_.cancel();
  error_code ignored;
  line_.socket().close(ignored);
}

}  // namespace sprat::comm
