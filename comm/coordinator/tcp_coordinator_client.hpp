// A rank's line to the coordinator over TCP.
#pragma once

#include <memory>

#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/control_line.hpp"
#include "comm/coordinator/control_server.hpp"
#include "comm/coordinator/rendezvous_member.hpp"

namespace sprat::comm {

/// A member that has been let in over `line`. `server` is the coordinator's, beside which it
/// lives, or null.
std::unique_ptr<Member> make_member(const Hello& hello, std::shared_ptr<ControlLoop> loop,
                                    ControlLine line, std::shared_ptr<ControlServer> server,
                                    Coordinator::Quorum quorum = Coordinator::Quorum::everyone);

}  // namespace sprat::comm
