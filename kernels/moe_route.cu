// kernelgate: target sm_75, isa 8.0
//
// Top-k routing, one warp a token.
//
//   softmax  choose by logit; weight = exp(logit) over the sum of the chosen
//   sigmoid  score = 1 / (1 + exp(-logit)); choose by score + bias among the
//            topGroups groups whose two best choices sum highest; weight =
//            score over the sum of the chosen, times scaling
// Ties go to the lower index.
//
// Contract
//   logits  tokens x experts, bias experts floats
//   index, weight  tokens x topK, best first
//   limits  experts <= 1024, groups <= 32 of equal size, topK <= experts of the
//           chosen groups
//   launch  ceil(tokens / 4) blocks of 128 threads

using Word = unsigned int;
using Long = unsigned long long;

constexpr Word kAll = 0xffffffffu;

struct Best {
  float value;
  Word index;
};

__device__ __forceinline__ bool better(float value, Word index, Best best) {
  return value > best.value || (value == best.value && index < best.index);
}

__device__ __forceinline__ Best warpBest(Best best) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(kAll, best.value, step);
    const Word index = __shfl_xor_sync(kAll, best.index, step);
    if (better(value, index, best)) best = Best{value, index};
  }
  return best;
}

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

extern "C" __global__ void __launch_bounds__(128)
    routeTopK(const float* logits, const float* bias, Word* index, float* weight,
              Word tokens, Word experts, Word topK, Word groups, Word topGroups,
              Word useSigmoid, float scaling) {
  const float kLowest = __uint_as_float(0xff800000u);
  const Word lane = threadIdx.x % 32;
  const Word token = blockIdx.x * 4 + threadIdx.x / 32;
  if (token >= tokens) return;
  const float* mine = logits + static_cast<Long>(token) * experts;
  auto choice = [&](Word e) {
    return useSigmoid ? sigmoid(mine[e]) + bias[e] : mine[e];
  };

  const Word size = experts / groups;
  Word allowed = kAll;
  if (groups > 1) {
    float first = kLowest;
    float second = kLowest;
    if (lane < groups) {
      for (Word e = lane * size; e < (lane + 1) * size; ++e) {
        const float c = choice(e);
        second = fmaxf(second, fminf(first, c));
        first = fmaxf(first, c);
      }
    }
    const float score = size > 1 ? first + second : first;
    allowed = 0;
    for (Word g = 0; g < topGroups; ++g) {
      const bool open = lane < groups && ((allowed >> lane) & 1u) == 0;
      const Best best = warpBest(Best{open ? score : kLowest, open ? lane : 32u + lane});
      allowed |= 1u << (best.index & 31u);
    }
  }

  Word taken = 0;
  float total = 0.0f;
  float top = 0.0f;
  for (Word k = 0; k < topK; ++k) {
    Best best{kLowest, 0x7fffffffu};
    for (Word j = 0; lane + 32 * j < experts; ++j) {
      const Word e = lane + 32 * j;
      const bool open = ((taken >> j) & 1u) == 0 &&
                        (groups == 1 || ((allowed >> (e / size)) & 1u) != 0);
      if (!open) continue;
      const float c = choice(e);
      if (better(c, e, best)) best = Best{c, e};
    }
    best = warpBest(best);
    if (best.index % 32 == lane) taken |= 1u << (best.index / 32);
    const float logit = mine[best.index];
    if (k == 0) top = logit;
    const float score = useSigmoid ? sigmoid(logit) : expf(logit - top);
    total += score;
    if (lane == 0) {
      index[static_cast<Long>(token) * topK + k] = best.index;
      weight[static_cast<Long>(token) * topK + k] = score;
    }
  }
  __syncwarp();
  for (Word k = lane; k < topK; k += 32) {
    float* w = weight + static_cast<Long>(token) * topK + k;
    *w = *w / total * scaling;
  }
}
