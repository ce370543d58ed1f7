/* Runs a built program on a file: `model FILE RESULTS` reads the elements of all inputs, one array after the other, and writes those of
 * all results in the same way. The sizes are those of model.h, so it serves any program. */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static void fail(const char *what) {
  fprintf(stderr, "model: %s\n", what);
  exit(1);
}

static void *memory(size_t bytes) {
  /* aligned_alloc wants whole units of the alignment. */
  size_t unit = MODEL_WORKSPACE_ALIGNMENT;
  void *found = aligned_alloc(unit, (bytes + unit - 1) / unit * unit + unit);
  if (found == NULL) fail("out of memory");
  return found;
}

int main(int argc, char **argv) {
  const void *in[MODEL_INPUTS + 1];
  void *out[MODEL_RESULTS + 1];
  FILE *file;
  int k, status;

  if (argc != 3) fail("usage: model FILE RESULTS");
  if ((file = fopen(argv[1], "rb")) == NULL) fail("cannot read the inputs");
  for (k = 0; k < MODEL_INPUTS; k++) {
    void *array = memory(model_inputs[k].bytes);
    if (fread(array, 1, model_inputs[k].bytes, file) != model_inputs[k].bytes) fail("the file of inputs is too short");
    in[k] = array;
  }
  fclose(file);
  for (k = 0; k < MODEL_RESULTS; k++) out[k] = memory(model_results[k].bytes);

  status = model_run(in, out, memory(MODEL_WORKSPACE_BYTES));
  if (status != 0) fail(status == MODEL_BAD_WORKSPACE ? "bad workspace" : "bad pointer");

  if ((file = fopen(argv[2], "wb")) == NULL) fail("cannot write the results");
  for (k = 0; k < MODEL_RESULTS; k++) {
    if (fwrite(out[k], 1, model_results[k].bytes, file) != model_results[k].bytes) fail("cannot write the results");
    printf("%s: %s, %zu elements\n", model_results[k].name, model_results[k].dtype, model_results[k].count);
  }
  return fclose(file) == 0 ? 0 : 1;
}
