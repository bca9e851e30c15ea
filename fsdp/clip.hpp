// How much of a gradient is applied where its norm is limited.
#pragma once

namespace sprat::fsdp {

/// What a gradient of this norm is multiplied by so that it does not exceed `limit`; 0: no limit.
double clip_factor(double norm, float limit);

}  // namespace sprat::fsdp
