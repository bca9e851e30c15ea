// Processes that share blocks join before there is any loader, since all have to do it together.
#include "io/loader/data_peers.hpp"

#include "comm/base/check.hpp"
#include "io/caches/join_peers.hpp"
#include "sprat/config.hpp"

namespace sprat {

DataPeers::DataPeers(const DataPeersOptions& options) {
  require(!options.host.empty() && options.gather != nullptr,
          "processes that share blocks need the name of their host, and a way to gather what each "
          "says");
  require(!Config::from_environment().encrypt,
          "SPRAT_ENCRYPT=1, and blocks of data that hosts share are not encrypted: do without "
          "DataPeers, or unset it where only the job's hosts reach the network");
  impl_ = std::make_shared<Impl>(
      io::join_peers({.name = options.host, .address = options.address, .gather = options.gather}));
}

std::shared_ptr<io::BlockPeers> DataPeers::Impl::lend() {
  require(!lent_.exchange(true),
          "these DataPeers serve another loader, which still lives; make others for this one, by "
          "all processes together");
  return {peers_.get(), [impl = shared_from_this()](io::BlockPeers*) { impl->lent_ = false; }};
}

}  // namespace sprat
