// A rank's line to the hub over TCP.
#pragma once

#include <memory>

#include "comm/control_frame.hpp"
#include "comm/control_server.hpp"
#include "comm/control_socket.hpp"
#include "comm/rendezvous_member.hpp"

namespace sprat::comm {

/// A member that has been let in over `socket`. `server` is the hub's, beside which it lives, or
/// null.
std::unique_ptr<Member> make_member(const Hello& hello, std::shared_ptr<ControlLoop> loop,
                                    StreamSocket socket, std::shared_ptr<ControlServer> server,
                                    Hub::Quorum quorum = Hub::Quorum::everyone);

}  // namespace sprat::comm
