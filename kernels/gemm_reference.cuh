// What the harness's own kernels share: how a matrix is made, and how its codes are
// read. Host twins: src/gemm/inputs.rs, src/lowp/recipe.rs, src/lowp/output.rs.
// Nothing here is shared with the kernels under test.
//
// Work goes in chunks of 16 consecutive columns, aligned to 16: no group of a recipe
// is narrower, so a chunk has one scale, and E4M3 codes of a chunk are one 16-byte
// access where rows are aligned.

#pragma once

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

constexpr int kChunk = 16;

// How to make a matrix and how it is grouped.
struct Recipe {
  Long mixedSeed;     // finalise(seed ^ stream)
  Long rows, cols;
  Long scaleCols;
  Word rowShift, colShift;  // log2 of a group's rows and columns; 31: all of them
  Word halfZero;      // every other run of 16 along k is zero
  Word outlier;       // one element a row is large
  Word fp4;           // E2M1, two a byte; else E4M3
  Word powerScale;    // UE8M0: scales rounded up to a power of two
  float largest;      // largest code
  float scaleFactor;  // stored scale = scale used for encoding * this
};

__device__ __forceinline__ Long finalise(Long x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ Long mixed(Long mixedSeed, Long index) {
  return finalise(mixedSeed + index * 0x9e3779b97f4a7c15ull);
}

__device__ __forceinline__ Long bytesOfRow(const Recipe& r) {
  return r.fp4 ? (r.cols + 1) / 2 : r.cols;
}

__device__ __forceinline__ Long scaleIndex(const Recipe& r, Long row, Long col) {
  return (row >> r.rowShift) * r.scaleCols + (col >> r.colShift);
}

// An E4M3 code moved into a float's fields is the value times 2^-120, below the
// normal floats too.
__device__ __forceinline__ float decodeE4m3(Word code) {
  return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 0x1p120f;
}

// 0 .5 1 1.5 2 3 4 6, doubled, a nibble each.
__device__ __forceinline__ float decodeE2m1(Word code) {
  const float value = 0.5f * static_cast<float>((0xc8643210u >> (4 * (code & 7u))) & 15u);
  return code & 8u ? -value : value;
}

// Groups start at any byte: alignment is the address's, not the offset's.
__device__ __forceinline__ bool isAligned(const void* at, Word to) {
  return reinterpret_cast<Long>(at) % to == 0;
}

// The codes of columns col .. col + 15 of a row as numbers, zero past the end.
__device__ __forceinline__ void loadChunk(const Recipe& r, const Byte* codes, Long row,
                                          Long col, float (&value)[kChunk]) {
  const Long at = row * bytesOfRow(r) + (r.fp4 ? col / 2 : col);
  const bool whole = col + kChunk <= r.cols;
  if (!r.fp4 && whole && isAligned(codes + at, 16)) {
    const uint4 all = *reinterpret_cast<const uint4*>(codes + at);
    const Word words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      value[i] = decodeE4m3(words[i / 4] >> (8 * (i % 4)) & 0xffu);
    }
  } else if (!r.fp4) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      value[i] = col + i < r.cols ? decodeE4m3(codes[at + i]) : 0.0f;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const Word byte = col + i < r.cols ? codes[at + i / 2] : 0u;
      value[i] = decodeE2m1(byte >> (4 * (i % 2)) & 15u);
    }
  }
}

// What C held before an accumulating kernel; 0 otherwise.
__device__ __forceinline__ double heldBefore(Long cSeed, Long i, double unit) {
  if (unit == 0.0) return 0.0;
  const Word pick = (mixed(cSeed, i) >> 40) & 3u;
  return (pick < 2 ? static_cast<double>(pick) - 2.0
                   : static_cast<double>(pick) - 1.0) * unit;
}
