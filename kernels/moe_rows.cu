// kernelgate: target sm_75, isa 8.0
//
// Rows of a mixture-of-experts layer: moved by a map, and combined by weight.

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

constexpr Word kNoRow = 0xffffffffu;

template <typename Unit>
__device__ __forceinline__ void moveRow(const Byte* in, Byte* out, Word bytes,
                                        bool zero) {
  const Unit* source = reinterpret_cast<const Unit*>(in);
  Unit* target = reinterpret_cast<Unit*>(out);
  for (Word i = threadIdx.x; i < bytes / sizeof(Unit); i += blockDim.x) {
    target[i] = zero ? Unit{} : source[i];
  }
}

// out[to[i]] = in[from[i]], rows of `rowBytes`; from = kNoRow writes zeros.
//   launch (rows, 1, 1), any block
//   rows of `in` that no entry names are not read, of `out` not written
extern "C" __global__ void moveRows(const Byte* in, Byte* out, const Word* from,
                                    const Word* to, Word rowBytes) {
  const Word source = from[blockIdx.x];
  const bool zero = source == kNoRow;
  const Byte* read = in + static_cast<Long>(zero ? 0u : source) * rowBytes;
  Byte* write = out + static_cast<Long>(to[blockIdx.x]) * rowBytes;
  const Long aligned = reinterpret_cast<Long>(read) | reinterpret_cast<Long>(write) | rowBytes;
  if ((aligned & 15u) == 0) {
    moveRow<uint4>(read, write, rowBytes, zero);
  } else if ((aligned & 3u) == 0) {
    moveRow<Word>(read, write, rowBytes, zero);
  } else {
    moveRow<Byte>(read, write, rowBytes, zero);
  }
}

// out[t, h] = sum over the slots k of token t, in slot order, of
//             weight[t, k] * rows[position[t, k], h], one fused multiply-add each
//   rows      BF16, hidden a row; position kNoRow is a dropped copy: nothing added
//   launch    (tokens, 1, 1), any block
extern "C" __global__ void combineRows(const unsigned short* rows,
                                       const float* weight, const Word* position,
                                       float* out, Word topK, Word hidden) {
  const Long token = blockIdx.x;
  for (Word h = threadIdx.x; h < hidden; h += blockDim.x) {
    float sum = 0.0f;
    for (Word k = 0; k < topK; ++k) {
      const Word at = position[token * topK + k];
      if (at == kNoRow) continue;
      const Word bits = rows[static_cast<Long>(at) * hidden + h];
      sum = fmaf(weight[token * topK + k], __uint_as_float(bits << 16), sum);
    }
    out[token * hidden + h] = sum;
  }
}
