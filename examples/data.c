/* Counts what is in some files, a batch at a time: data_c "data/shard-00.tar" [batch] */
#include <stdio.h>
#include <stdlib.h>

#include "sprat/sprat.h"

static void check(sprat_status status) {
  if (status != SPRAT_ok) {
    fprintf(stderr, "data: %s\n", sprat_last_error());
    exit(1);
  }
}

int main(int count, char** words) {
  if (count < 2) {
    fprintf(stderr, "data_c PATHS [BATCH]\n");
    return 2;
  }
  char options[4096];
  snprintf(options, sizeof options,
           "{\"sources\": [{\"paths\": [\"%s\"]}], \"batch\": %d, \"order\": {\"epochs\": 1, "
           "\"shuffle\": \"chunks\"}}",
           words[1], count > 2 ? atoi(words[2]) : 32);
  sprat_loader* loader = NULL;
  check(sprat_loader_open(options, NULL, 0, &loader));

  size_t samples = 0, bytes = 0;
  sprat_batch* batch = NULL;
  for (check(sprat_loader_next(loader, &batch)); batch != NULL;
       check(sprat_loader_next(loader, &batch))) {
    sprat_batch_info info;
    check(sprat_batch_describe(batch, &info));
    for (size_t i = 0; i < info.samples; ++i) {
      sprat_sample_info sample;
      check(sprat_batch_sample(batch, i, &sample));
      for (size_t f = 0; f < sample.fields; ++f) {
        sprat_field field;
        check(sprat_batch_field(batch, i, f, &field));
        bytes += field.bytes;
      }
    }
    samples += info.samples;
    check(sprat_batch_free(batch));
  }
  printf("%zu samples, %zu bytes\n", samples, bytes);
  check(sprat_loader_free(loader));
}
