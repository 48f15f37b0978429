// Constants of the softmax, and token pasting.

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

#define LOWEST -3.4028234663852886e38  // the most negative finite number
#define NEG_INFINITY uintBitsToFloat(0xff800000u)
#define LN2 0.6931471805599453
#define LOG2E 1.4426950408889634
