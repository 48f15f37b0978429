/* What a C program may do wrong, at each function: the status and the text that it gets. And that the library then goes on. */
#include <stdio.h>
#include <string.h>

#include "vkattn.h"

static int failures;

/* expect wants a status, and in the text words that name what is wrong. It frees the text. */
static void expect(int line, vkattn_status want, const char *words, vkattn_status got, char **error) {
  const char *text = *error ? *error : "";
  if (got != want || (want == VKATTN_OK) != (*error == NULL) || !strstr(text, words)) {
    printf("line %d: status %d, want %d with \"%s\": %s\n", line, (int)got, (int)want, words, text);
    failures++;
  }
  vkattn_free(*error);
  *error = NULL;
}
#define EXPECT(want, words, call) expect(__LINE__, want, words, call, &error)

int main(void) {
  char *error = NULL, *text = NULL;
  vkattn_device device = 7;
  vkattn_cache cache = 7;
  uint64_t n = 7, length = 0, other = 0;

  vkattn_open_options open = {.size = 4};
  EXPECT(VKATTN_BAD_ARGUMENT, "device is null", vkattn_device_open(NULL, NULL, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "options.size is 4", vkattn_device_open(&open, &device, &error));
  if (device != 0) printf("a device that was not opened is %u\n", (unsigned)device), failures++;
  open.size = sizeof open, open.name = "no device has this name";
  EXPECT(VKATTN_NO_DEVICE, "no device has this name", vkattn_device_open(&open, &device, &error));
  EXPECT(VKATTN_OK, "", vkattn_device_open(NULL, &device, &error));
  if (vkattn_device_open(&open, &device, NULL) != VKATTN_NO_DEVICE) printf("without a text\n"), failures++;
  EXPECT(VKATTN_OK, "", vkattn_device_open(NULL, &device, &error));

  vkattn_device attached;
  const char *names[] = {"shaderFloat16", NULL};
  vkattn_external external = {.size = sizeof external};
  EXPECT(VKATTN_BAD_ARGUMENT, "external is null", vkattn_device_attach(NULL, &attached, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "Instance is 0", vkattn_device_attach(&external, &attached, &error));
  external.feature_count = 1;
  EXPECT(VKATTN_BAD_ARGUMENT, "external.features is null", vkattn_device_attach(&external, &attached, &error));
  external.features = names, external.feature_count = 2;
  EXPECT(VKATTN_BAD_ARGUMENT, "each of external.features is null", vkattn_device_attach(&external, &attached, &error));
  external.feature_count = UINT32_MAX;
  EXPECT(VKATTN_BAD_ARGUMENT, "external.features is 4294967295", vkattn_device_attach(&external, &attached, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "text is null", vkattn_device_describe(device, NULL, &error));
  EXPECT(VKATTN_CLOSED, "no device", vkattn_device_describe(device + 100, &text, &error));

  static float data[3][64];
  vkattn_tensor q = {.size = sizeof q, .data = data[0], .bytes = sizeof data[0], .shape = {1, 2, 4, 8}}, k = q, o = q;
  k.data = data[1], o.data = data[2];
  vkattn_options options = {.size = sizeof options};
  vkattn_forward f = {.size = sizeof f, .q = &q, .k = &k, .v = &k, .o = &o};
  EXPECT(VKATTN_OK, "", vkattn_sdpa_forward(device, &options, &f, &error));
  EXPECT(VKATTN_CLOSED, "no device", vkattn_sdpa_forward(0, &options, &f, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "pass is null", vkattn_sdpa_forward(device, NULL, NULL, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "pass is null", vkattn_sdpa_backward(device, NULL, NULL, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "pass is null", vkattn_sdpa_jvp(device, NULL, NULL, &error));
  const vkattn_backward b = {.size = sizeof b};
  EXPECT(VKATTN_BAD_ARGUMENT, "pass.forward is null", vkattn_sdpa_backward(device, NULL, &b, &error));
  const vkattn_jvp j = {.size = sizeof j, .forward = &f};
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.lse is null", vkattn_sdpa_jvp(device, NULL, &j, &error));
  options.size = 0;
  EXPECT(VKATTN_BAD_ARGUMENT, "options.size is 0", vkattn_sdpa_forward(device, &options, &f, &error));
  q.size = 8;
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.q.size is 8", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.size = sizeof q, q.bytes--;
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.q.offset is 0", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.bytes++, q.strides[3] = 2;
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.q.strides is [0 0 0 2]", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.strides[3] = 0, q.buffer = 1;
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.q.data", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.data = NULL;
  EXPECT(VKATTN_BAD_ARGUMENT, "forward.q.buffer is 1", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.buffer = 0, q.data = (void *)64; /* which no program has */
  EXPECT(VKATTN_PANICKED, "vkattn_sdpa_forward: vkattn: panic", vkattn_sdpa_forward(device, NULL, &f, &error));
  q.data = data[0], f.q = (const vkattn_tensor *)64;
  EXPECT(VKATTN_PANICKED, "vkattn_sdpa_forward: vkattn: panic", vkattn_sdpa_forward(device, NULL, &f, &error));
  f.q = &q;
  EXPECT(VKATTN_OK, "", vkattn_sdpa_forward(device, NULL, &f, &error));

  vkattn_cache_options c = {.size = sizeof c, .layers = 1, .heads = 2, .key_heads = 2, .head_dim = 8, .page = 4, .pages = 2,
                            .max_sequences = 3, .rows = 1, .tokens = 4};
  EXPECT(VKATTN_BAD_ARGUMENT, "cache is null", vkattn_cache_create(device, &c, NULL, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "options is null", vkattn_cache_create(device, NULL, &cache, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_create(device, &c, &cache, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "sequence is null", vkattn_cache_add(cache, NULL, &error));
  EXPECT(VKATTN_CLOSED, "no cache", vkattn_cache_add(device, &n, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_add(cache, &n, &error));
  vkattn_request request = {.sequence = n, .tokens = 4};
  EXPECT(VKATTN_BAD_ARGUMENT, "requests is null", vkattn_cache_step(cache, NULL, 1, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "requests is 4294967295", vkattn_cache_step(cache, &request, UINT32_MAX, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "needs a step first", vkattn_cache_attend(cache, 0, NULL, &f, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_step(cache, &request, 1, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "layer is 1", vkattn_cache_attend(cache, 1, NULL, &f, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_attend(cache, 0, NULL, &f, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_step(cache, &request, 1, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "a length of 8 and 8 at most", vkattn_cache_step(cache, &request, 1, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_add(cache, &other, &error));
  request.sequence = other;
  EXPECT(VKATTN_OUT_OF_PAGES, "1 needed, 0 free", vkattn_cache_step(cache, &request, 1, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_length(cache, n, &length, &error));
  if (length != 8) printf("the sequence has %u tokens, not 8\n", (unsigned)length), failures++;
  EXPECT(VKATTN_OK, "", vkattn_cache_fork(cache, n, &other, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_truncate(cache, other, 3, &error));
  EXPECT(VKATTN_BAD_ARGUMENT, "length", vkattn_cache_truncate(cache, other, UINT64_MAX, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_free(cache, n, &error));
  EXPECT(VKATTN_UNKNOWN_SEQUENCE, "unknown sequence", vkattn_cache_free(cache, n, &error));
  EXPECT(VKATTN_UNKNOWN_SEQUENCE, "unknown sequence", vkattn_cache_fork(cache, n, &other, &error));
  EXPECT(VKATTN_UNKNOWN_SEQUENCE, "unknown sequence", vkattn_cache_length(cache, n, &length, &error));
  EXPECT(VKATTN_OK, "", vkattn_cache_close(cache, &error));
  EXPECT(VKATTN_CLOSED, "no cache", vkattn_cache_close(cache, &error));
  EXPECT(VKATTN_OK, "", vkattn_device_close(device, &error));
  EXPECT(VKATTN_CLOSED, "no device", vkattn_device_close(device, &error));
  EXPECT(VKATTN_CLOSED, "no device", vkattn_sdpa_forward(device, NULL, &f, &error));
  vkattn_free(NULL);
  printf("%d failures\n", failures);
  return failures != 0;
}
