// What the mma.sync kernels share: the group table, asynchronous copies into shared
// memory, ldmatrix, and the store of one element of C.
//
// Contract of all of them: as gemm_simt.cuh, with two restrictions: both operands
// E4M3, and depth a multiple of 16 (cp.async copies 16 aligned bytes).

#pragma once

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

struct Group {
  Long a, b, aScale, bScale, c, rows, depth, allocated;
};

__device__ __forceinline__ void copyAsync(Byte* to, const Byte* from, bool real) {
  const Word address = static_cast<Word>(__cvta_generic_to_shared(to));
  // Size 0 reads nothing and fills the 16 bytes with zero codes.
  const int bytes = real ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(address), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copyWhole(Byte* to, const Byte* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :: "r"(static_cast<Word>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}

__device__ __forceinline__ void loadFour(Word& x, Word& y, Word& z, Word& w,
                                         const Byte* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
               : "r"(static_cast<Word>(__cvta_generic_to_shared(from)))
               : "memory");
}

__device__ __forceinline__ void storeOutput(void* c, Long at, Word type,
                                            bool accumulate, float value) {
  if (type == 0) {
    float* to = static_cast<float*>(c) + at;
    *to = accumulate ? value + *to : value;
    return;
  }
  unsigned short* to = static_cast<unsigned short*>(c) + at;
  if (type == 1) {
    float held = 0.0f;
    if (accumulate) asm("cvt.f32.f16 %0, %1;" : "=f"(held) : "h"(*to));
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value + held));
    *to = bits;
  } else {
    const float held =
        accumulate ? __uint_as_float(static_cast<Word>(*to) << 16) : 0.0f;
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value + held));
    *to = bits;
  }
}
