// Every rank contributes its number; every rank gets them all: mpirun -np 4 ./all_gather_cpp
#include <array>
#include <exception>
#include <iostream>
#include <sstream>
#include <vector>

#include "sprat/sprat.hpp"

int main() {
  try {
    auto world = sprat::Communicator::join();  // as the launcher says
    const std::array<int, 1> part = {10 * world.rank()};
    std::vector<int> whole(static_cast<std::size_t>(world.size()));
    world.all_gather(sprat::elements(part), sprat::elements(whole)).wait();

    std::ostringstream line;  // written at once, so that the ranks' lines do not mix
    line << "rank " << world.rank() << " of " << world.size() << " has";
    for (int value : whole) {
      line << ' ' << value;
    }
    std::cout << line.str() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "all_gather: " << error.what() << '\n';
    return 1;
  }
}
