"""numba-cuda, unmodified: two kernels against NumPy. Run by hand:

    python3 -m venv target/numba
    target/numba/bin/pip install 'numba-cuda[cu12]==0.30.4'
    target/numba/bin/pip uninstall -y nvidia-nvjitlink-cu12
    LD_LIBRARY_PATH=target/clients/lib target/numba/bin/python cpu-driver/tests/clients/numba_client.py

With nvJitLink installed numba hands machine code to the driver, which is
refused (209); without it, PTX goes through cuLink*.
"""

import sys

import numpy
from numba import cuda

THREADS = 128
BLOCKS = 40


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def total(x, out):
    tile = cuda.shared.array(THREADS, dtype=numpy.float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    tile[thread] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            tile[thread] += tile[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(out, 0, tile[0])


def main():
    # Whole numbers: sums are exact in any order.
    x = numpy.arange(5003, dtype=numpy.float32) % 97
    y = numpy.ones_like(x)
    out = numpy.full_like(x, numpy.nan)
    saxpy[BLOCKS, THREADS](numpy.float32(2), x, y, out)
    if not numpy.array_equal(out, 2 * x + y):
        sys.exit("saxpy differs from NumPy")
    found = numpy.zeros(1, dtype=numpy.float32)
    total[BLOCKS, THREADS](x, found)
    if found[0] != x.sum():
        sys.exit(f"total is {found[0]}, NumPy says {x.sum()}")
    print("numba-cuda: 2 results agree with NumPy")


if __name__ == "__main__":
    main()
