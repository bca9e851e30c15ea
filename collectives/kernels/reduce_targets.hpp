// The instruction sets that kernels are compiled for: what Highway attains, less those that no
// processor of interest has as its best. Included before Highway in every file of kernels.
#pragma once

#if defined(__SANITIZE_THREAD__)
// Minutes of compiling less: what threads share does not depend on the set.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#elif defined(__SANITIZE_ADDRESS__)
// One narrow and two wide sets here; the release has all.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
