// The kernel of examples/own_gemm.rs: one thread an element of C.
//
// Compiled by hand, as a user's kernel would be:
//   nvcc -arch=compute_75 -ptx examples/own_gemm.cu -o examples/own_gemm.ptx
// with the .version line lowered to 8.0 for older drivers.

__device__ float e4m3(unsigned char code) {
  const float value = __uint_as_float((code & 0x7fu) << 20) * 0x1p120f;
  return code & 0x80u ? -value : value;
}

extern "C" __global__ void ownGemm(const unsigned char* a,
                                   const unsigned char* b, const float* aScale,
                                   const float* bScale, float* c, unsigned n,
                                   unsigned k, unsigned ldc) {
  const unsigned row = blockIdx.y;
  const unsigned col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= n) return;
  float sum = 0.0f;
  // Promoted every 128 products, as the bound of the harness presumes.
  for (unsigned from = 0; from < k; from += 128) {
    float part = 0.0f;
    for (unsigned i = from; i < min(from + 128, k); ++i) {
      part = fmaf(e4m3(a[row * k + i]), e4m3(b[col * k + i]), part);
    }
    sum += part;
  }
  c[row * ldc + col] = sum * (*aScale * *bScale);
}
