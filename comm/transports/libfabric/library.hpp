// libfabric's entry points, loaded when the first of them is wanted.
#pragma once

#include <rdma/fabric.h>

// A macro of rdma/fabric.h has the name of functions of ours, whose declarations may follow.
#undef count_of

namespace sprat::comm::libfabric {

/// What else libfabric does goes through tables of the objects that these make.
struct Library {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_freeinfo) freeinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_strerror) strerror;
  decltype(&fi_version) version;
};

/// The one that the program has already, else libfabric.so.1. Throws Error{unavailable} where there
/// is none. Any thread.
const Library& library();

}  // namespace sprat::comm::libfabric
