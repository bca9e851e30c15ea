// Whom a job believes, by whether its token is a secret.
#pragma once

#include <cstdint>

namespace sprat::comm {

/// What a connection must be, beyond having proved the token.
enum class Trust : std::uint8_t {
  proof,      ///< Nothing: the token is a secret.
  this_user,  ///< This user's, on this host: the token is made of what everybody knows.
  launcher,   ///< This user's, or from another host: a launcher that gives no secret spreads ranks.
};

}  // namespace sprat::comm
