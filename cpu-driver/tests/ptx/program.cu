// What ordinary CUDA C++ needs beyond single instructions. program_sm80.ptx is
//   nvcc -lineinfo -arch=compute_80 -ptx program.cu   (13.0.88, paths shortened)
#include <cassert>
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <new>
namespace cg = cooperative_groups;

// Tiles add up, the grid meets, everybody reads the total.
extern "C" __global__ void gridTotal(unsigned* x)
{
    auto grid = cg::this_grid();
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    unsigned v = tile.thread_rank();
    for (int step = 8; step > 0; step /= 2) v += tile.shfl_down(v, step);
    if (tile.thread_rank() == 0) atomicAdd(x, v);
    grid.sync();
    x[1 + grid.thread_rank()] = *(volatile unsigned*)x;
}

// Sizes of groups with the same label, found by lanes themselves.
extern "C" __global__ void groupSizes(unsigned* x)
{
    if (threadIdx.x % 32 < 21) {
        auto active = cg::coalesced_threads();
        auto same = cg::labeled_partition(active, threadIdx.x % 3 == 0 ? 7 : threadIdx.x % 2);
        x[threadIdx.x] = same.size() * 100 + same.thread_rank();
    }
}

struct Shape {
    unsigned side;
    __device__ explicit Shape(unsigned s) : side(s) {}
    __device__ virtual unsigned area() const { return 0; }
};
struct Square : Shape {
    __device__ explicit Square(unsigned s) : Shape(s) {}
    __device__ unsigned area() const override { return side * side; }
};
struct Strip : Shape {
    __device__ explicit Strip(unsigned s) : Shape(s) {}
    __device__ __noinline__ unsigned area() const override { return side; }
};

// Virtual calls on local and on heap objects, different ones in one warp.
extern "C" __global__ void virtualCalls(unsigned* x)
{
    Square square(threadIdx.x);
    Strip strip(threadIdx.x);
    const Shape* shape = threadIdx.x % 2 ? (const Shape*)&square : (const Shape*)&strip;
    Shape* made = threadIdx.x % 3 ? (Shape*)new Square(3) : (Shape*)new Strip(1000);
    x[threadIdx.x] = shape->area() + made->area();
    free(made);
}

__constant__ unsigned primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ unsigned counter = 40;

// Constants, a module variable, a local array with computed indices.
extern "C" __global__ void variables(unsigned* x, unsigned n)
{
    unsigned local[24];
    for (unsigned i = 0; i < 24; ++i) local[i] = i * n;
    atomicAdd(&counter, 1);
    x[threadIdx.x] = primes[threadIdx.x % 8] + local[(threadIdx.x * n) % 24];
    __syncthreads();
    if (threadIdx.x == 0) x[0] = counter;
}

// Copies in the background, several stages, and a reversal in shared memory.
extern "C" __global__ void staged(const float4* in, float4* out)
{
    __shared__ float4 tile[128];
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
}

extern "C" __global__ void asserts(unsigned n)
{
    assert(n != threadIdx.x);
}
