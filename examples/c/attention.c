/* Attention and its gradients from C, on memory of the host, compared with a double loop in float64:
 *
 *     make lib
 *     cc -O2 -Ibin -o bin/attention examples/c/attention.c -Lbin -lvkattn -lm -Wl,-rpath,"$PWD/bin"
 *     tools/run.sh bin/attention
 *
 * It prints the largest differences, and exits with 1 where one is beyond the bound or a call fails.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "vkattn.h"

enum { B = 2, HQ = 4, HK = 2, N = 33, D = 16 }; /* two query heads share each key head; causal, self-attention */
enum { QUERIES = B * HQ * N * D, KEYS = B * HK * N * D };

static float q[QUERIES], k[KEYS], v[KEYS], o[QUERIES], lse[B * HQ * N], d_o[QUERIES], dq[QUERIES], dk[KEYS], dv[KEYS];
static double want_o[QUERIES], want_dq[QUERIES], want_dk[KEYS], want_dv[KEYS];

/* check ends the program where a call has failed. */
static void check(vkattn_status status, char *error) {
  if (status != VKATTN_OK) {
    fprintf(stderr, "status %d: %s\n", (int)status, error);
    vkattn_free(error);
    exit(1);
  }
}

/* tensor is row-major memory of the host; all-zero strides say so. */
static vkattn_tensor tensor(float *data, int64_t heads, int64_t dim) {
  vkattn_tensor t = {.size = sizeof t, .dtype = VKATTN_F32, .data = data, .shape = {B, heads, N, dim}};
  t.bytes = sizeof(float) * (uint64_t)(B * heads * N * dim);
  return t;
}

/* fill makes numbers from -1 to 1, the same on every machine. */
static void fill(float *x, int n) {
  static uint32_t state = 1;
  for (int i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

static double dot(const float *a, const float *b) {
  double sum = 0;
  for (int d = 0; d < D; d++) sum += (double)a[d] * b[d];
  return sum;
}

/* naive is attention and its gradients by the formulas of vkattn.h, a row of weights at a time. */
static void naive(void) {
  const double scale = 1 / sqrt(D);
  for (int head = 0; head < B * HQ; head++) {
    const int shared = head / HQ * HK + head % HQ / (HQ / HK); /* the key head */
    const float *K = k + shared * N * D, *V = v + shared * N * D;
    for (int i = 0; i < N; i++) {
      const int row = (head * N + i) * D;
      double p[N], dp[N], sum = 0, delta = 0;
      for (int j = 0; j <= i; j++) sum += p[j] = exp(scale * dot(q + row, K + j * D));
      for (int j = 0; j <= i; j++) {
        p[j] /= sum;
        dp[j] = dot(d_o + row, V + j * D);
        delta += p[j] * dp[j];
        for (int d = 0; d < D; d++) want_o[row + d] += p[j] * V[j * D + d];
      }
      for (int j = 0; j <= i; j++) {
        const double ds = scale * p[j] * (dp[j] - delta);
        for (int d = 0; d < D; d++) {
          want_dq[row + d] += ds * K[j * D + d];
          want_dk[(shared * N + j) * D + d] += ds * q[row + d];
          want_dv[(shared * N + j) * D + d] += p[j] * d_o[row + d];
        }
      }
    }
  }
}

/* compare prints the largest difference and says whether it is within the bound; what is not a number is not. */
static int compare(const char *name, const float *got, const double *want, int n) {
  const double bound = 1e-5;
  double largest = 0;
  int good = 1;
  for (int i = 0; i < n; i++) {
    const double difference = fabs(got[i] - want[i]);
    good = good && difference <= bound;
    if (difference > largest) largest = difference;
  }
  printf("%-2s  largest difference %.2g of at most %.2g%s\n", name, largest, bound, good ? "" : "  TOO LARGE");
  return good;
}

int main(void) {
  if (vkattn_version() / 1000 != VKATTN_VERSION_MAJOR || vkattn_version() < VKATTN_VERSION) {
    fprintf(stderr, "the library is version %u, vkattn.h %u\n", vkattn_version(), VKATTN_VERSION);
    return 1;
  }
  fill(q, QUERIES), fill(k, KEYS), fill(v, KEYS), fill(d_o, QUERIES);

  char *error = NULL, *text = NULL;
  vkattn_device device;
  check(vkattn_device_open(NULL, &device, &error), error);
  check(vkattn_device_describe(device, &text, &error), error);
  printf("%s\n", text);
  vkattn_free(text);

  const vkattn_tensor tq = tensor(q, HQ, D), tk = tensor(k, HK, D), tv = tensor(v, HK, D), to = tensor(o, HQ, D);
  const vkattn_tensor tlse = tensor(lse, HQ, 1), tdo = tensor(d_o, HQ, D);
  const vkattn_tensor tdq = tensor(dq, HQ, D), tdk = tensor(dk, HK, D), tdv = tensor(dv, HK, D);
  const vkattn_options options = {.size = sizeof options, .causal = VKATTN_CAUSAL_TOP_LEFT};
  const vkattn_forward forward = {.size = sizeof forward, .q = &tq, .k = &tk, .v = &tv, .o = &to, .lse = &tlse};
  const vkattn_backward backward = {
      .size = sizeof backward, .forward = &forward, .do_ = &tdo, .dq = &tdq, .dk = &tdk, .dv = &tdv};
  check(vkattn_sdpa_forward(device, &options, &forward, &error), error);
  check(vkattn_sdpa_backward(device, &options, &backward, &error), error);
  check(vkattn_device_close(device, &error), error);

  naive();
  int good = compare("o", o, want_o, QUERIES);
  good &= compare("dq", dq, want_dq, QUERIES) & compare("dk", dk, want_dk, KEYS) & compare("dv", dv, want_dv, KEYS);
  return good ? 0 : 1;
}
