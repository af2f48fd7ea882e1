/* A driver-API program in C, as one without a wrapper library is written.
 *
 *   cc -std=c11 -o plain_client plain_client.c -ldl && ./plain_client LIBCUDA.SO
 *
 * Finds every entry point through cuGetProcAddress, as the runtime libraries do,
 * computes on the device and compares with the host. Prints a line a section;
 * exits 1 at the first thing that is not as cuda.h and the manual say. The same
 * program runs on NVIDIA's driver.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
};

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "plain_client.c:%d: not so: %s\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)
#define EXPECT(call, code)                                                        \
    do {                                                                          \
        CUresult got = (call);                                                    \
        if (got != (code)) {                                                      \
            fprintf(stderr, "plain_client.c:%d: %s: expected %d, found %d\n", __LINE__, \
                    #call, (code), got);                                          \
            exit(1);                                                              \
        }                                                                         \
    } while (0)
#define OK(call) EXPECT(call, 0)

typedef CUresult (*GetProcAddress)(const char *, void **, int, uint64_t, int *);
static GetProcAddress get_proc_address;

static void *entry_point(const char *name)
{
    void *found = NULL;
    int status = -1;
    OK(get_proc_address(name, &found, 12000, 0, &status));
    CHECK(found != NULL && status == 0);
    return found;
}

/* Each entry point is declared with the types of cuda.h. */
#define ENTRY_POINTS(ENTRY)                                                       \
    ENTRY(cuInit, (unsigned))                                                     \
    ENTRY(cuDriverGetVersion, (int *))                                            \
    ENTRY(cuDeviceGetCount, (int *))                                              \
    ENTRY(cuDeviceGet, (CUdevice *, int))                                         \
    ENTRY(cuDeviceGetName, (char *, int, CUdevice))                               \
    ENTRY(cuDeviceGetAttribute, (int *, int, CUdevice))                           \
    ENTRY(cuDeviceTotalMem, (size_t *, CUdevice))                                 \
    ENTRY(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                      \
    ENTRY(cuDevicePrimaryCtxRelease, (CUdevice))                                  \
    ENTRY(cuDevicePrimaryCtxReset, (CUdevice))                                    \
    ENTRY(cuCtxSetCurrent, (CUcontext))                                           \
    ENTRY(cuCtxSynchronize, (void))                                               \
    ENTRY(cuModuleLoadData, (CUmodule *, const void *))                           \
    ENTRY(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **)) \
    ENTRY(cuModuleUnload, (CUmodule))                                             \
    ENTRY(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))            \
    ENTRY(cuModuleGetGlobal, (CUdeviceptr *, size_t *, CUmodule, const char *))   \
    ENTRY(cuMemAlloc, (CUdeviceptr *, size_t))                                    \
    ENTRY(cuMemFree, (CUdeviceptr))                                               \
    ENTRY(cuMemcpyHtoD, (CUdeviceptr, const void *, size_t))                      \
    ENTRY(cuMemcpyDtoH, (void *, CUdeviceptr, size_t))                            \
    ENTRY(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))            \
    ENTRY(cuStreamCreate, (CUstream *, unsigned))                                 \
    ENTRY(cuStreamSynchronize, (CUstream))                                        \
    ENTRY(cuStreamDestroy, (CUstream))                                            \
    ENTRY(cuEventCreate, (CUevent *, unsigned))                                   \
    ENTRY(cuEventRecord, (CUevent, CUstream))                                     \
    ENTRY(cuEventSynchronize, (CUevent))                                          \
    ENTRY(cuEventElapsedTime, (float *, CUevent, CUevent))                        \
    ENTRY(cuEventDestroy, (CUevent))                                              \
    ENTRY(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned,    \
                           unsigned, unsigned, unsigned, CUstream, void **, void **)) \
    ENTRY(cuGetErrorName, (CUresult, const char **))                              \
    ENTRY(cuGetErrorString, (CUresult, const char **))

#define DECLARE(name, arguments) static CUresult(*name) arguments;
ENTRY_POINTS(DECLARE)

static void find_entry_points(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    CHECK(get_proc_address != NULL);
#define FIND(name, arguments) *(void **)&name = entry_point(#name);
    ENTRY_POINTS(FIND)

    void *found = &found, *per_thread = NULL;
    int status = -1;
    EXPECT(get_proc_address("cuNoSuchThing", &found, 12000, 0, &status), NOT_FOUND);
    CHECK(found == NULL && status == 1);
    EXPECT(get_proc_address("cuLaunchKernelEx", &found, 3000, 0, &status), NOT_FOUND);
    CHECK(found == NULL && status == 2);
    OK(get_proc_address("cuLaunchKernel", &per_thread, 12000, 2, &status));
    CHECK(per_thread != NULL && per_thread != *(void **)&cuLaunchKernel);
    EXPECT(get_proc_address("cuInit", NULL, 12000, 0, &status), INVALID_VALUE);
    printf("entry points: found by name and version\n");
}

static CUcontext start(void)
{
    int count = -1, version = 0, warp = 0, major = 0;
    size_t bytes = 0;
    char name[100] = "";
    CUdevice device = -1;
    CUcontext context = NULL;
    EXPECT(cuDeviceGetCount(&count), 3); /* not initialised */
    EXPECT(cuInit(1), INVALID_VALUE);
    OK(cuInit(0));
    OK(cuDriverGetVersion(&version));
    OK(cuDeviceGetCount(&count));
    CHECK(version >= 12000 && count >= 1);
    OK(cuDeviceGet(&device, 0));
    EXPECT(cuDeviceGet(&device, count), 101);
    OK(cuDeviceGetName(name, sizeof name, 0));
    OK(cuDeviceTotalMem(&bytes, 0));
    OK(cuDeviceGetAttribute(&warp, 10, 0));
    OK(cuDeviceGetAttribute(&major, 75, 0));
    CHECK(strlen(name) > 0 && bytes > 1 << 20 && warp == 32 && major >= 7);
    EXPECT(cuCtxSynchronize(), INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    printf("device: %s\n", name);
    return context;
}

/* out[i] = scale * in[i] + i, and a count of the threads that wrote. */
static const char PTX[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 writers;\n"
    ".visible .entry scale(.param .u64 out, .param .u64 in, .param .f32 s, .param .u32 n) {\n"
    "  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .f32 %f<6>; .reg .b64 %rd<8>;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\n"
    "  ld.param.f32 %f1, [s]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd2, %rd3; add.s64 %rd5, %rd1, %rd3;\n"
    "  ld.global.f32 %f2, [%rd4]; cvt.rn.f32.u32 %f3, %r5; fma.rn.f32 %f4, %f1, %f2, %f3;\n"
    "  st.global.f32 [%rd5], %f4; mov.u64 %rd6, writers; atom.global.add.u32 %r6, [%rd6], 1;\n"
    "DONE: ret;\n}\n"
    ".visible .entry wild() {\n"
    "  .reg .b64 %rd<2>; mov.u64 %rd1, 1099511627776; st.global.u32 [%rd1], 7; ret;\n}\n";

enum { N = 1003, THREADS = 128, BLOCKS = (N + THREADS - 1) / THREADS };

static void compute(CUmodule module)
{
    static float in[N], out[N + 1];
    CUfunction function = NULL;
    CUdeviceptr device_in = 0, device_out = 0, writers = 0;
    CUstream stream = NULL;
    CUevent before = NULL, after = NULL;
    size_t bytes = 0;
    float milliseconds = -1, scale = 0.5f;
    unsigned n = N, count = 0;

    OK(cuModuleGetFunction(&function, module, "scale"));
    OK(cuModuleGetGlobal(&writers, &bytes, module, "writers"));
    CHECK(bytes == 4);
    for (int i = 0; i < N; i++)
        in[i] = (float)(i % 97) - 40;
    OK(cuMemAlloc(&device_in, sizeof in));
    OK(cuMemAlloc(&device_out, sizeof out));
    OK(cuMemcpyHtoD(device_in, in, sizeof in));
    OK(cuStreamCreate(&stream, 1));
    OK(cuEventCreate(&before, 0));
    OK(cuEventCreate(&after, 0));
    OK(cuMemsetD32Async(device_out, 0x7fc00000, N + 1, stream));
    OK(cuEventRecord(before, stream));
    void *arguments[] = {&device_out, &device_in, &scale, &n};
    OK(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
    OK(cuEventRecord(after, stream));
    OK(cuEventSynchronize(after));
    OK(cuEventElapsedTime(&milliseconds, before, after));
    CHECK(milliseconds >= 0 && milliseconds < 60000);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(out, device_out, sizeof out));
    OK(cuMemcpyDtoH(&count, writers, sizeof count));
    for (int i = 0; i < N; i++) {
        float expected = scale * in[i] + (float)i; /* exact: halves below 2^23 */
        CHECK(out[i] == expected);
    }
    CHECK(out[N] != out[N]); /* the NaN behind the last element */
    CHECK(count == N);
    OK(cuEventDestroy(before));
    OK(cuEventDestroy(after));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(device_in));
    OK(cuMemFree(device_out));
    EXPECT(cuMemFree(device_out), INVALID_VALUE);
    printf("compute: %d elements as on the host, %u threads wrote\n", N, count);
}

static void mistakes(CUmodule module)
{
    CUmodule none = NULL;
    CUfunction function = NULL;
    const char *name = NULL, *text = NULL;
    char log[400] = "";
    int keys[] = {5, 6}; /* error log buffer and its size */
    void *values[] = {log, (void *)sizeof log};

    EXPECT(cuModuleLoadDataEx(&none, ".version 8.0\n.target sm_75\n.entry k() { bra NOPE; }",
                              2, keys, values), INVALID_PTX);
    CHECK(strstr(log, "line 3") != NULL && strstr(log, "NOPE") != NULL);
    EXPECT(cuModuleGetFunction(&function, module, "absent"), NOT_FOUND);
    EXPECT(cuModuleGetFunction(NULL, module, "scale"), INVALID_VALUE);
    OK(cuModuleGetFunction(&function, module, "scale"));
    EXPECT(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    OK(cuGetErrorName(ILLEGAL_ADDRESS, &name));
    OK(cuGetErrorString(ILLEGAL_ADDRESS, &text));
    CHECK(strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0 && strlen(text) > 0);
    EXPECT(cuGetErrorName(12345, &name), INVALID_VALUE);
    OK(cuCtxSynchronize());
    printf("mistakes: each has its code\n");
}

/* A wild store loses the context: every later call says so until a reset. */
static void fault(CUmodule module)
{
    CUfunction function = NULL;
    CUdeviceptr memory = 0;
    CUcontext context = NULL;
    OK(cuModuleGetFunction(&function, module, "wild"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(cuCtxSynchronize(), ILLEGAL_ADDRESS);
    EXPECT(cuMemAlloc(&memory, 4), ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 4));
    OK(cuMemFree(memory));
    printf("fault: sticky, and gone with the context\n");
}

int main(int count, char **words)
{
    CUmodule module = NULL;
    if (count != 2) {
        fprintf(stderr, "usage: %s LIBCUDA.SO\n", words[0]);
        return 2;
    }
    find_entry_points(words[1]);
    start();
    OK(cuModuleLoadData(&module, PTX));
    compute(module);
    mistakes(module);
    fault(module);
    OK(cuDevicePrimaryCtxRelease(0));
    printf("plain client: all as it should be\n");
    return 0;
}
