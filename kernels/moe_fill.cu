// kernelgate: target sm_75, isa 8.0
//
// Counter-based weights of a mixture-of-experts layer: element i is a function
// of (state, i) alone, so the host can make any expert again without this kernel.
//
// Contract
//   out    codes: count bytes; scales: count floats
//   state  64 mixed bits of seed, tensor and expert
//   launch 1-D, any block, one thread an element

using Long = unsigned long long;

__device__ __forceinline__ Long finalise(Long x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ Long word(Long state, Long index) {
  return finalise(state + index * 0x9e3779b97f4a7c15ull);
}

__device__ __forceinline__ Long here() {
  return static_cast<Long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// E4M3 codes of magnitude 1/4 to 15/4, either sign, never zero: a product that
// is left out always shows.
extern "C" __global__ void fillCodes(unsigned char* out, Long state, Long count) {
  const Long i = here();
  if (i >= count) return;
  const unsigned byte = (word(state, i / 8) >> (i % 8 * 8)) & 0xffu;
  out[i] = (byte & 0x80u) | (0x28u + (byte & 0x1fu));
}

// Floats of one binade with random mantissas: no two scales alike.
extern "C" __global__ void fillScales(float* out, Long state, Long count,
                                      unsigned exponent) {
  const Long i = here();
  if (i >= count) return;
  out[i] = __uint_as_float((exponent << 23) |
                           static_cast<unsigned>(word(state, i) >> 41));
}
