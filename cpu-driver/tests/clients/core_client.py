"""cuda.core, unmodified: compile C++, launch, read back, compare with NumPy."""

import sys

import numpy
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SAXPY = r"""
template <typename T>
__global__ void saxpy(T a, const T *x, const T *y, T *out, size_t n) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = a * x[i] + y[i];
}
"""


def done(result):
    """The driver's answer behind its code, which has to be success."""
    code, *rest = result
    if int(code) != 0:
        sys.exit(f"driver call failed: {code}")
    return rest


def compiled(device, name):
    architecture = "".join(map(str, device.compute_capability))
    options = ProgramOptions(std="c++17", arch=f"compute_{architecture}")
    program = Program(SAXPY, code_type="c++", options=options)
    return program.compile("ptx", name_expressions=(name,)).get_kernel(name)


def saxpy(device, stream, kernel, x, y, a):
    memory = [device.allocate(x.nbytes, stream=stream) for _ in range(3)]
    for buffer, values in zip(memory, (x, y)):
        copy = (int(buffer.handle), values.ctypes.data, values.nbytes, int(stream.handle))
        done(driver.cuMemcpyHtoDAsync(*copy))
    config = LaunchConfig(grid=20, block=128)
    launch(stream, config, kernel, x.dtype.type(a), *memory, numpy.uint64(x.size))
    out = numpy.full_like(x, numpy.nan)
    done(driver.cuMemcpyDtoHAsync(
        out.ctypes.data, int(memory[2].handle), out.nbytes, int(stream.handle)))
    stream.sync()
    return out


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    random = numpy.random.default_rng(7)
    for dtype, name in ((numpy.float32, "saxpy<float>"), (numpy.float64, "saxpy<double>")):
        kernel = compiled(device, name)
        for n in (1, 127, 128, 5003):
            # Whole numbers: the result is exact whatever the rounding.
            x, y = (random.integers(-50, 50, n).astype(dtype) for _ in range(2))
            found = saxpy(device, stream, kernel, x, y, 3)
            if not numpy.array_equal(found, 3 * x + y):
                sys.exit(f"{name} of {n} elements differs from NumPy")
    print(f"cuda.core on {device.name}: 8 results agree with NumPy")


if __name__ == "__main__":
    main()
