//! Device attributes by their number in `CUdevice_attribute` (CUDA 13.0).

/// What differs between the profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbers {
    multiprocessors: i32,
    /// kHz
    clock: i32,
    memory_clock: i32,
    /// Bits.
    memory_bus: i32,
    l2_bytes: i32,
    threads_per_multiprocessor: i32,
    blocks_per_multiprocessor: i32,
    shared_per_multiprocessor: i32,
    /// The most a block may ask for by opting in.
    shared_optin: i32,
    /// Shared memory that the system keeps of each block.
    shared_reserved: i32,
    /// Single to double precision throughput.
    double_ratio: i32,
}

pub(super) const H200: Numbers = Numbers {
    multiprocessors: 132,
    clock: 1_980_000,
    memory_clock: 3_201_000,
    memory_bus: 6_144,
    l2_bytes: 60 << 20,
    threads_per_multiprocessor: 2_048,
    blocks_per_multiprocessor: 32,
    shared_per_multiprocessor: 233_472,
    shared_optin: 232_448,
    shared_reserved: 1_024,
    double_ratio: 2,
};

pub(super) const T4: Numbers = Numbers {
    multiprocessors: 40,
    clock: 1_590_000,
    memory_clock: 5_001_000,
    memory_bus: 256,
    l2_bytes: 4 << 20,
    threads_per_multiprocessor: 1_024,
    blocks_per_multiprocessor: 16,
    shared_per_multiprocessor: 65_536,
    shared_optin: 65_536,
    shared_reserved: 0,
    double_ratio: 32,
};

/// The last number that CUDA 13.0 knows.
const LAST: i32 = 147;

impl Numbers {
    pub(super) fn attribute(&self, number: i32, major: i32, minor: i32) -> Option<i32> {
        if !(1..=LAST).contains(&number) {
            return None;
        }
        let value = self
            .execution(number, major, minor)
            .or_else(|| self.memory(number))
            .or_else(|| texture(number))
            .or_else(|| feature(number));
        // Everything else is a capability that this driver does not have.
        Some(value.unwrap_or(0))
    }

    fn execution(&self, number: i32, major: i32, minor: i32) -> Option<i32> {
        Some(match number {
            1..=3 => 1_024,    // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, _Y
            4 => 64,           // MAX_BLOCK_DIM_Z
            5 => i32::MAX,     // MAX_GRID_DIM_X
            6 | 7 => 65_535,   // MAX_GRID_DIM_Y, _Z
            10 => 32,          // WARP_SIZE
            12 | 82 => 65_536, // MAX_REGISTERS_PER_BLOCK, _PER_MULTIPROCESSOR
            13 => self.clock,  // CLOCK_RATE
            16 => self.multiprocessors,
            39 => self.threads_per_multiprocessor,
            40 => 3, // ASYNC_ENGINE_COUNT
            75 => major,
            76 => minor,
            87 => self.double_ratio,
            106 => self.blocks_per_multiprocessor,
            _ => return None,
        })
    }

    fn memory(&self, number: i32) -> Option<i32> {
        Some(match number {
            8 => 49_152,    // MAX_SHARED_MEMORY_PER_BLOCK
            9 => 65_536,    // TOTAL_CONSTANT_MEMORY
            11 => i32::MAX, // MAX_PITCH
            36 => self.memory_clock,
            37 => self.memory_bus,
            38 => self.l2_bytes,
            81 => self.shared_per_multiprocessor,
            97 => self.shared_optin,
            111 => self.shared_reserved,
            _ => return None,
        })
    }
}

fn texture(number: i32) -> Option<i32> {
    Some(match number {
        14 | 30 => 512,     // TEXTURE_ALIGNMENT, SURFACE_ALIGNMENT
        51 => 32,           // TEXTURE_PITCH_ALIGNMENT
        21 => 131_072,      // TEXTURE1D
        22 | 56 => 131_072, // TEXTURE2D, SURFACE2D
        23 | 57 => 65_536,
        24..=26 | 58..=60 => 16_384, // TEXTURE3D, SURFACE3D
        27 | 28 | 61 | 63 | 64 | 66 | 67 => 32_768,
        29 | 43 | 62 | 65 => 2_048, // layers
        42 | 45 | 46 | 52 | 53 | 55 | 73 | 74 | 77 => 32_768,
        47 | 48 => 8_192, // TEXTURE3D alternate
        49 => 32_768,
        54 | 68 => 2_046,  // cubemap layers
        69 => 268_435_456, // TEXTURE1D_LINEAR
        70 => 131_072,
        71 => 65_000,
        72 => 2_097_120,
        _ => return None,
    })
}

/// Capabilities that this driver has. Those that it does not have (textures,
/// virtual memory management, inter-process handles, multicast, …) are 0.
fn feature(number: i32) -> Option<i32> {
    Some(match number {
        15 // GPU_OVERLAP
        | 19 // CAN_MAP_HOST_MEMORY
        | 31 // CONCURRENT_KERNELS
        | 41 // UNIFIED_ADDRESSING
        | 78 // STREAM_PRIORITIES_SUPPORTED
        | 79 | 80 // GLOBAL_ and LOCAL_L1_CACHE_SUPPORTED
        | 83 // MANAGED_MEMORY
        | 89 // CONCURRENT_MANAGED_ACCESS
        | 90 // COMPUTE_PREEMPTION_SUPPORTED
        | 91 // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | 95 // COOPERATIVE_LAUNCH
        | 99 // HOST_REGISTER_SUPPORTED
        | 113 // READ_ONLY_HOST_REGISTER_SUPPORTED
        | 115 // MEMORY_POOLS_SUPPORTED
        | 129 => 1, // UNIFIED_FUNCTION_POINTERS
        33 => 1, // PCI_BUS_ID: 0 would be a bridge
        126 => 1, // MEM_SYNC_DOMAIN_COUNT
        131 | 134 => -1, // NUMA_ID, HOST_NUMA_ID: none
        _ => return None,
    })
}
