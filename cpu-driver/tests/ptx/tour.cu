// Regenerate: nvcc -ptx -lineinfo -arch=sm_75 tour.cu -o tour_sm75.ptx
// A tour of the PTX that nvcc emits: one kernel per idea, for the parser's tests.
#include <cuda_fp16.h>
#include <cstdint>
#include <cstdio>
struct __align__(16) Particle { float4 position; int id[3]; const char *name; };
struct Shape { __device__ virtual float area() const = 0; };
struct Square : Shape { float side; __device__ Square(float s): side(s) {} __device__ float area() const override { return side * side; } };
__device__ int counter = 7;
__device__ int *counterAddress = &counter;
__constant__ float weights[4] = {1.0f, -2.5f, 3.25f, 0.0f};
__constant__ double tables[2][2] = {{1.0, 2.0}, {3.0, -4.0}};
__managed__ unsigned managedTotal = 3;
__device__ const char greeting[] = "tour";
__device__ Particle seedParticle = {{1, 2, 3, 4}, {5, 6, 7}, "seed"};
template <class T> __device__ __noinline__ T fibonacci(T n) { return n < 2 ? n : fibonacci<T>(n - 1) + fibonacci<T>(n - 2); }
typedef float (*Unary)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ float negate(float x) { return -x; }
__device__ Unary table[2] = {twice, negate};
__device__ __forceinline__ float inlinedHelper(float x) { return __fmaf_rn(x, x, 1.0f); }
extern "C" __global__ void __launch_bounds__(256, 2) indirect(float *out, int which) { out[threadIdx.x] = inlinedHelper(table[which](out[threadIdx.x])); }
extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fibonacci<int>(threadIdx.x); }
extern "C" __global__ void printing(int n) { printf("%d %f\n", n, (double)n * 0.5); if (n < 0) __trap(); }
extern "C" __global__ void virtualCall(float *out) { Square s(out[0]); Shape *p = &s; if (out[1] > 0) out[2] = p->area(); }
extern "C" __global__ void switched(int *out, int k) {
  switch (k) { case 0: out[0] = 3; break; case 1: out[1] = clock(); break; case 2: out[2] = out[5]; break; case 3: atomicAdd(out, 9); break; case 4: out[4] = out[9] * 3; break; case 5: out[3] = __popc(out[1]); break; case 6: out[6] = __brev(out[3]); break; default: out[7] = 1; }
}
extern "C" __global__ void sharedTile(const float *in, float *out) {
  __shared__ float tile[33 * 32]; extern __shared__ double dynamic[];
  tile[threadIdx.x] = in[threadIdx.x]; dynamic[threadIdx.x] = tile[threadIdx.x]; __syncthreads();
  out[threadIdx.x] = tile[32 - threadIdx.x] + dynamic[31 - threadIdx.x] + weights[threadIdx.x & 3] + tables[threadIdx.x & 1][1];
}
extern "C" __global__ void warpWords(unsigned *out) {
  unsigned v = out[threadIdx.x]; v += __shfl_down_sync(~0u, v, 4); v ^= __ballot_sync(~0u, v & 1);
  v += __match_any_sync(~0u, v); int all; v += __match_all_sync(~0u, v, &all); v += all + __activemask(); __syncwarp();
  out[threadIdx.x] = v;
  unsigned long long t = clock64(); out[1] = (unsigned)t; __nanosleep(10);
}
extern "C" __global__ void halves(const half2 *a, half2 *b, Particle p) { b[threadIdx.x] = __hfma2(a[threadIdx.x], a[1], b[2]); b[1] = __float2half2_rn(p.position.x + p.id[threadIdx.x]); }
extern "C" __global__ void doubles(double *a) { a[threadIdx.x] = sin(a[threadIdx.x]) / sqrt(a[1]) + (threadIdx.x & 1 ? 0.1 : 1e300); atomicAdd(a, 1.5); }
extern "C" __global__ void totals(const int *x) { atomicAdd(&managedTotal, x[0] + *counterAddress + greeting[x[1]] + seedParticle.id[x[2]]); }
extern "C" __global__ void localArray(int *out, int k) { int buffer[16]; for (int i = 0; i < 16; i++) buffer[(i * k) & 15] = out[i]; out[0] = buffer[k]; }
extern "C" __global__ void heap(int **out) { out[0] = (int *)malloc(64); free(out[1]); }
extern "C" __global__ void inlineAsm(unsigned *out) { unsigned r; asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %1, 0;\n selp.b32 %0, 1, 2, p;\n}" : "=r"(r) : "r"(out[0])); out[1] = r; }
