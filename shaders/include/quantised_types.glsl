// Types of quantised numbers, by the values of K_TYPE, V_TYPE, KEY_TYPE and VALUE_TYPE; 0 is the storage type of Q. Blocks are ggml's
// (ggml-quants.c, ggml-common.h), of 32 numbers, and lie at any multiple of 2 bytes:
//
//   1  q8_0    34 bytes: fp16 d, 32 signed bytes q, for d q
//   2  q4_0    18: d, 16 bytes, for d (q - 8): number j is the lower half of byte j, number j + 16 the upper one
//   4  q4_1    20: d, fp16 m, 16 bytes, for d q + m
//   5  q5_0    22: d, a word, 16 bytes, for d (q - 16): bit j of the word is the fifth of number j
//   6  q5_1    24: d, m, a word, 16 bytes, for d q + m
//   7  iq4_nl  18: d, 16 bytes, for d t[q]
//
// and floats of a byte, which tensors of scales belong to (Micikevicius et al., "FP8 Formats for Deep Learning", 2022, table 1):
//
//   3  e4m3    no infinities          8  e5m2    the upper byte of an fp16

#define NATIVE 0u
#define Q8_0 1u
#define Q4_0 2u
#define E4M3 3u
#define Q4_1 4u
#define Q5_0 5u
#define Q5_1 6u
#define IQ4_NL 7u
#define E5M2 8u
#define IS_FLOAT8(type) ((type) == E4M3 || (type) == E5M2)
#define IS_BLOCKS(type) ((type) != NATIVE && !IS_FLOAT8(type))
#define HAS_LEAST(type) ((type) == Q4_1 || (type) == Q5_1)
#define HAS_FIFTHS(type) ((type) == Q5_0 || (type) == Q5_1)
// What a whole number is more than it should be as the lowest bits of a half of 1024; bytes with a sign have that turned.
#define MORE_OF(type) ((type) == IQ4_NL ? 0.0 : (type) == Q8_0 ? 1152.0 : (type) == Q4_0 ? 1032.0 : (type) == Q5_0 ? 1040.0 : 1024.0)
// Steps of 2 bytes of a block, and those before its numbers, of which a word of fifth bits is the last two.
#define STEPS_OF(type) ((type) == Q8_0 ? 17u : (type) == Q4_1 ? 10u : (type) == Q5_0 ? 11u : (type) == Q5_1 ? 12u : 9u)
#define HEAD_OF(type) ((type) == Q4_1 ? 2u : (type) == Q5_0 ? 3u : (type) == Q5_1 ? 4u : 1u)

// The table t of iq4_nl, -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, as signed bytes in four words: an array that is indexed
// may be put into memory.
#define IQ4_A 0xbfad9881u
#define IQ4_B 0xf6eaddcfu
#define IQ4_C 0x26190d01u
#define IQ4_D 0x71594535u
