// The instruction sets that kernels are compiled for: what Highway attains, less those that no
// processor of interest has as its best. Included before Highway in every file of kernels.
#pragma once

#define HWY_DISABLED_TARGETS HWY_SSSE3
