//! Result codes of the driver API: the public numbers and names.

/// A code other than success, as the API returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

pub const SUCCESS: i32 = 0;

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $(pub const $name: Code = Code($value);)*
        }

        /// Value, name and text of every code, NUL-terminated because clients
        /// keep pointers to them.
        const TABLE: &[(i32, &str, &str)] = &[
            (SUCCESS, "CUDA_SUCCESS\0", "no error\0"),
            $(($value, concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0")),)*
        ];
    };
}

/// Name and text of a code, each with a terminating NUL.
pub fn describe(value: i32) -> Option<(&'static str, &'static str)> {
    let found = TABLE.iter().find(|(code, ..)| *code == value);
    found.map(|&(_, name, text)| (name, text))
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, text) = describe(self.0).unwrap_or(("CUDA_ERROR_?", "?"));
        let (name, text) = (name.trim_end_matches('\0'), text.trim_end_matches('\0'));
        write!(f, "{name} ({}): {text}", self.0)
    }
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    PROFILER_DISABLED = 5, "profiler disabled";
    PROFILER_NOT_INITIALIZED = 6, "profiler not initialized";
    PROFILER_ALREADY_STARTED = 7, "profiler already started";
    PROFILER_ALREADY_STOPPED = 8, "profiler already stopped";
    STUB_LIBRARY = 34, "stub library";
    CALL_REQUIRES_NEWER_DRIVER = 36, "call requires newer driver";
    DEVICE_UNAVAILABLE = 46, "device unavailable";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    DEVICE_NOT_LICENSED = 102, "device not licensed";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    CONTEXT_ALREADY_CURRENT = 202, "context already current";
    MAP_FAILED = 205, "map failed";
    UNMAP_FAILED = 206, "unmap failed";
    ARRAY_IS_MAPPED = 207, "array is mapped";
    ALREADY_MAPPED = 208, "already mapped";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    ALREADY_ACQUIRED = 210, "already acquired";
    NOT_MAPPED = 211, "not mapped";
    NOT_MAPPED_AS_ARRAY = 212, "not mapped as array";
    NOT_MAPPED_AS_POINTER = 213, "not mapped as pointer";
    ECC_UNCORRECTABLE = 214, "ecc uncorrectable";
    UNSUPPORTED_LIMIT = 215, "limit is not supported on this architecture";
    CONTEXT_ALREADY_IN_USE = 216, "context already in use";
    PEER_ACCESS_UNSUPPORTED = 217, "peer access is not supported between these two devices";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    INVALID_GRAPHICS_CONTEXT = 219, "invalid graphics context";
    NVLINK_UNCORRECTABLE = 220, "nvlink uncorrectable";
    JIT_COMPILER_NOT_FOUND = 221, "jit compiler not found";
    UNSUPPORTED_PTX_VERSION = 222, "the provided PTX was compiled with an unsupported toolchain";
    JIT_COMPILATION_DISABLED = 223, "jit compilation disabled";
    UNSUPPORTED_EXEC_AFFINITY = 224, "unsupported exec affinity";
    UNSUPPORTED_DEVSIDE_SYNC = 225, "unsupported devside sync";
    CONTAINED = 226, "contained";
    INVALID_SOURCE = 300, "device kernel image is invalid";
    FILE_NOT_FOUND = 301, "file not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "shared object symbol not found";
    SHARED_OBJECT_INIT_FAILED = 303, "shared object init failed";
    OPERATING_SYSTEM = 304, "operating system";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    LOSSY_QUERY = 402, "lossy query";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, "launch incompatible texturing";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "cannot set while device is active in this process";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    ASSERT = 710, "device-side assert triggered";
    TOO_MANY_PEERS = 711, "too many peers";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    HARDWARE_STACK_ERROR = 714, "hardware stack error";
    ILLEGAL_INSTRUCTION = 715, "an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    INVALID_ADDRESS_SPACE = 717, "operation not supported on global/shared address space";
    INVALID_PC = 718, "invalid program counter";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "too many blocks in cooperative launch";
    TENSOR_MEMORY_LEAK = 721, "tensor memory leak";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    SYSTEM_NOT_READY = 802, "system not ready";
    SYSTEM_DRIVER_MISMATCH = 803, "system driver mismatch";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "compat not supported on device";
    MPS_CONNECTION_FAILED = 805, "mps connection failed";
    MPS_RPC_FAILURE = 806, "mps rpc failure";
    MPS_SERVER_NOT_READY = 807, "mps server not ready";
    MPS_MAX_CLIENTS_REACHED = 808, "mps max clients reached";
    MPS_MAX_CONNECTIONS_REACHED = 809, "mps max connections reached";
    MPS_CLIENT_TERMINATED = 810, "mps client terminated";
    CDP_NOT_SUPPORTED = 811, "cdp not supported";
    CDP_VERSION_MISMATCH = 812, "cdp version mismatch";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    TIMEOUT = 909, "timeout";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "graph exec update failure";
    EXTERNAL_DEVICE = 911, "external device";
    INVALID_CLUSTER_SIZE = 912, "invalid cluster size";
    FUNCTION_NOT_LOADED = 913, "function not loaded";
    INVALID_RESOURCE_TYPE = 914, "invalid resource type";
    INVALID_RESOURCE_CONFIGURATION = 915, "invalid resource configuration";
    KEY_ROTATION = 916, "key rotation";
    UNKNOWN = 999, "unknown error";
}
