// kernelgate: target sm_75, isa 8.0
//
// SwiGLU of the first GEMM's rows, quantised again for the second.
//
//   a = gate / (1 + exp(-gate)) * up,  scale = max(amax, 1e-4) / 448 for each row
//   and run of 128 columns,  code = E4M3 nearest to a / scale, ties to even
//
// Contract
//   h       FP32, 2 * inter a row: gate, then up
//   codes   inter bytes a row; scales ceil(inter / 128) floats a row
//   groups  the GEMM's table: rows of group g start at c / (2 * inter)
//   launch  (ceil(inter / 128), ceil(max rows / 8), groups), 256 threads
//   rows past a group's count are neither read nor written

using Word = unsigned int;
using Long = unsigned long long;

struct Group {
  Long a, b, aScale, bScale, c, rows, depth, allocated;
};

__device__ __forceinline__ Word encodeE4m3(float x) {
  const Word bits = __float_as_uint(x);
  const Word sign = (bits >> 24) & 0x80u;
  const Word magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  // Past 448 the format saturates.
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;
  if (magnitude < 0x3c800000u) {
    // Below 2^-6 the spacing stays 2^-9.
    return sign | static_cast<Word>(__float2int_rn(__uint_as_float(magnitude) * 512.0f));
  }
  const Word rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | ((rounded >> 20) - (120u << 3));
}

extern "C" __global__ void __launch_bounds__(256)
    swigluQuantise(const float* h, unsigned char* codes, float* scales,
                   const Group* groups, Word inter) {
  const Group group = groups[blockIdx.z];
  const Word lane = threadIdx.x % 32;
  const Long inGroup = static_cast<Long>(blockIdx.y) * 8 + threadIdx.x / 32;
  if (inGroup >= group.rows) return;
  const Long row = group.c / (2ull * inter) + inGroup;
  const float* gate = h + row * 2 * inter;

  float a[4];
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Word col = blockIdx.x * 128 + i * 32 + lane;
    a[i] = 0.0f;
    if (col < inter) {
      const float g = gate[col];
      a[i] = g / (1.0f + expf(-g)) * gate[inter + col];
    }
    amax = fmaxf(amax, fabsf(a[i]));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, step));
  }
  const float scale = fmaxf(amax, 1e-4f) / 448.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Word col = blockIdx.x * 128 + i * 32 + lane;
    if (col < inter) {
      codes[row * inter + col] = static_cast<unsigned char>(encodeE4m3(a[i] / scale));
    }
  }
  if (lane == 0) scales[row * gridDim.x + blockIdx.x] = scale;
}
