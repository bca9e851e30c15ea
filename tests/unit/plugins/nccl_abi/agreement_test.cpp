// Which operations go over to NCCL's own library, by what ranks offer.
#include "plugins/nccl_abi/real/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl::real {
namespace {

constexpr std::uint32_t every_kind = (1u << 10) - 1;

TEST(NcclAgreement, reads_what_is_wished) {
  struct Case {
    const char* text;
    Wish wish;
  };
  for (const Case& one : {
           Case{"", {{every_kind}, false}},
           Case{"all", {{every_kind}, true}},
           Case{"none", {{0}, false}},
           Case{"all_reduce", {{Kinds::bit(Kind::all_reduce)}, true}},
           Case{"reduce_scatter,send_recv",
                {{Kinds::bit(Kind::reduce_scatter) | Kinds::bit(Kind::send) |
                  Kinds::bit(Kind::recv)},
                 true}},
       }) {
    EXPECT_EQ(read_wish(one.text), one.wish) << '"' << one.text << '"';
  }
  for (const char* wrong : {"send", "all_reduce,none", "All", " all"}) {
    EXPECT_THROW(read_wish(wrong), Refusal) << wrong;
  }
}

Offer offer(const std::string& device, std::uint64_t host = 1) {
  Offer one;
  one.host = host;
  std::ranges::copy(device, one.device.begin());
  one.version = 22809;
  one.kinds = every_kind;
  one.named = 1;
  return one;
}

TEST(NcclAgreement, is_one_for_all_ranks) {
  struct Case {
    const char* why;
    std::function<void(std::vector<Offer>&)> change;
    std::uint32_t kinds;
  };
  const std::vector<Case> cases = {
      {"", [](auto&) {}, every_kind},
      {"", [](auto& all) { all.resize(1); }, every_kind},
      {"", [](auto& all) { all[0].named = all[1].named = all[2].named = 0; }, 0},
      {"rank 1 has no CUDA device", [](auto& all) { all[1].device = {}; }, 0},
      {"rank 2 has no library of NCCL's own", [](auto& all) { all[2].version = 0; }, 0},
      {"rank 0 has NCCL 2.28.9 and rank 1 has 2.30.7", [](auto& all) { all[1].version = 23007; },
       0},
      {"SPRAT_NCCL_HAND_OVER is not the same on rank 2", [](auto& all) { all[2].kinds = 1; }, 0},
      {"SPRAT_NCCL_HAND_OVER is none",
       [](auto& all) {
         for (Offer& one : all) {
           one.kinds = 0;
           one.version = 0;
         }
       },
       0},
      {"ranks 0 and 2 are on one device, 0000:01:00.0",
       [](auto& all) { all[2].device = all[0].device; }, 0},
      {"rank 1 is on another host than rank 0", [](auto& all) { all[1].host = 2; }, 0},
      // Asked for by name, operations go over between hosts, too, where devices may be called
      // alike.
      {"",
       [](auto& all) {
         for (Offer& one : all) {
           one.kinds = 1;
           one.between_hosts = 1;
         }
         all[1] = all[0];
         all[1].host = 2;
       },
       1},
  };
  for (const Case& one : cases) {
    std::vector<Offer> all = {offer("0000:01:00.0"), offer("0000:02:00.0"), offer("0000:03:00.0")};
    one.change(all);
    const Agreement agreed = agree(all);
    EXPECT_EQ(agreed.kinds.bits, one.kinds) << one.why;
    EXPECT_EQ(agreed.why_not.substr(0, std::string(one.why).size()), one.why);
    EXPECT_EQ(agreed.why_not.empty(), std::string(one.why).empty()) << agreed.why_not;
  }
}

}  // namespace
}  // namespace sprat::nccl::real
