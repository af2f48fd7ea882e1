// Hopper's asynchronous instructions, one function each: barriers in shared memory,
// bulk tensor copies, wgmma. Source: PTX ISA 9.0.
#pragma once

#include <cstdint>

namespace {

// Opaque to the kernel; the driver encodes it.
struct alignas(64) TensorMap {
  char opaque[128];
};

// ---- barriers and copies ------------------------------------------------------

__device__ __forceinline__ uint32_t sharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrierInit(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   sharedAddress(barrier)),
               "r"(count));
}

__device__ __forceinline__ void barrierExpect(uint64_t* barrier,
                                              uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
          sharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void barrierWait(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(sharedAddress(barrier)),
      "r"(phase)
      : "memory");
}

__device__ __forceinline__ void barrierArriveAt(uint64_t* barrier,
                                                uint32_t block) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(
          sharedAddress(barrier)),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ void clusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

__device__ __forceinline__ void fetchTile(void* to, const TensorMap* map,
                                          uint64_t* barrier, int k, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(sharedAddress(to)),
      "l"(map), "r"(sharedAddress(barrier)), "r"(k), "r"(row)
      : "memory");
}

// Into both blocks of the cluster, at the same place.
__device__ __forceinline__ void fetchTileForBoth(void* to, const TensorMap* map,
                                                 uint64_t* barrier, int k,
                                                 int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(
          sharedAddress(to)),
      "l"(map), "r"(sharedAddress(barrier)), "r"(k), "r"(row),
      "h"(static_cast<uint16_t>(3))
      : "memory");
}

__device__ __forceinline__ void fetchLine(void* to, const void* from,
                                          uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(sharedAddress(to)),
      "l"(from), "r"(bytes), "r"(sharedAddress(barrier))
      : "memory");
}

// ---- wgmma --------------------------------------------------------------------

// Operand in shared memory: 128-byte swizzle, 8 rows are 1,024 bytes apart.
__device__ __forceinline__ uint64_t operand(const void* p) {
  uint64_t bits = (sharedAddress(p) & 0x3FFFF) >> 4;
  bits |= static_cast<uint64_t>(1) << 16;
  bits |= static_cast<uint64_t>(1024 >> 4) << 32;
  bits |= static_cast<uint64_t>(1) << 62;
  return bits;
}

__device__ __forceinline__ void wgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define EIGHT(i)                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]),             \
      "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

// d (+)= a * b over 32 of k; 64 x 128 of C in the 128 threads of a warp group.
__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b,
                                         int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,"
      "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,"
      "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,"
      "%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1;\n}"
      : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40),
        EIGHT(48), EIGHT(56)
      : "l"(a), "l"(b), "r"(accumulate));
}
#undef EIGHT

// Keeps the compiler from moving uses of d across a wgmma that is in flight.
__device__ __forceinline__ void pin(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace
