// Who owns what libfabric hands out.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <memory>

#include "comm/transports/libfabric/library.hpp"

namespace sprat::comm::libfabric {

struct CloseHandle {
  template <class Handle>
  void operator()(Handle* handle) const noexcept {
    fi_close(&handle->fid);
  }
};
struct FreeInfo {
  void operator()(fi_info* info) const noexcept { library().freeinfo(info); }
};

using Info = std::unique_ptr<fi_info, FreeInfo>;
using Fabric = std::unique_ptr<fid_fabric, CloseHandle>;
using Domain = std::unique_ptr<fid_domain, CloseHandle>;
using WaitSet = std::unique_ptr<fid_wait, CloseHandle>;
using AddressVector = std::unique_ptr<fid_av, CloseHandle>;
using CompletionQueue = std::unique_ptr<fid_cq, CloseHandle>;
using Endpoint = std::unique_ptr<fid_ep, CloseHandle>;

}  // namespace sprat::comm::libfabric
