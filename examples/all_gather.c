/* Every rank contributes its number; every rank gets them all: mpirun -np 4 ./all_gather_c */
#include <stdio.h>
#include <stdlib.h>

#include "sprat/sprat.h"

static void check(sprat_status status) {
  if (status != SPRAT_ok) {
    fprintf(stderr, "all_gather: %s\n", sprat_last_error());
    exit(1);
  }
}

int main(void) {
  sprat_comm* world = NULL;
  int rank = 0, size = 0;
  check(sprat_comm_join(NULL, &world));
  check(sprat_comm_rank(world, &rank));
  check(sprat_comm_size(world, &size));

  int32_t* whole = calloc((size_t)size, sizeof *whole);
  const int32_t part = 10 * rank;
  check(sprat_all_gather(world, &part, whole, 1, SPRAT_i32, NULL, NULL));

  printf("rank %d of %d has", rank, size);
  for (int r = 0; r < size; ++r) {
    printf(" %d", (int)whole[r]);
  }
  printf("\n");
  free(whole);
  check(sprat_comm_free(world));
}
