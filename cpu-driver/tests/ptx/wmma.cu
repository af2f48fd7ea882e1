// Tiles through nvcuda::wmma. wmma_sm80.ptx is
//   nvcc -arch=compute_80 -ptx wmma.cu   (13.0.88)
#include <mma.h>
using namespace nvcuda;

template <int M, int N, int K, typename In, typename Stored, typename Out, typename A, typename B>
__device__ void product(const Stored* a, const Stored* b, Out* c)
{
    wmma::fragment<wmma::matrix_a, M, N, K, In, A> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, In, B> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Out> fc;
    wmma::fill_fragment(fc, Out(3));
    bool rowA = __is_same(A, wmma::row_major), rowB = __is_same(B, wmma::row_major);
    wmma::load_matrix_sync(fa, a, rowA ? K : M);
    wmma::load_matrix_sync(fb, b, rowB ? N : K);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] += Out(1);
    wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}

using R = wmma::row_major;
using C = wmma::col_major;
extern "C" __global__ void half16(const half* a, const half* b, float* c) { product<16, 16, 16, half, half, float, R, C>(a, b, c); }
extern "C" __global__ void half32(const half* a, const half* b, float* c) { product<32, 8, 16, half, half, float, R, R>(a, b, c); }
extern "C" __global__ void half8(const half* a, const half* b, float* c) { product<8, 32, 16, half, half, float, C, C>(a, b, c); }
extern "C" __global__ void bytes(const signed char* a, const signed char* b, int* c) { product<16, 16, 16, signed char, signed char, int, R, C>(a, b, c); }
extern "C" __global__ void tensor(const float* a, const float* b, float* c) { product<16, 16, 8, wmma::precision::tf32, float, float, R, C>(a, b, c); }
extern "C" __global__ void doubles(const double* a, const double* b, double* c) { product<8, 8, 4, double, double, double, R, C>(a, b, c); }
