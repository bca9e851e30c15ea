// Where ranks listen, in few bytes.
#include "comm/survival/address_book.hpp"

#include <gtest/gtest.h>

namespace sprat::comm {
namespace {

TEST(AddressBook, gives_back_what_it_was_given) {
  const std::vector<std::vector<SocketAddress>> all = {{{"10.0.0.1", 1}, {"fd00::1", 1}},
                                                       {{"10.0.0.1", 2}},
                                                       {},
                                                       {{"host7", 65'535}, {"10.0.0.1", 3}}};
  const AddressBook book(all);
  ASSERT_EQ(book.size(), 4);
  for (int rank = 0; rank < book.size(); ++rank) {
    EXPECT_EQ(book.of(rank), all[static_cast<std::size_t>(rank)]) << rank;
  }
  EXPECT_EQ(AddressBook().size(), 0);
}

}  // namespace
}  // namespace sprat::comm
