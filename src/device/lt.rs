//! cuBLASLt: the FP8 product that the GEMM harness tests, and the FP64 product that
//! it takes for a reference.
//!
//! The library is opened at run time; a machine without it gets [`LtError::Absent`].
//! cudarc asks for `libcublasLt.so` and does not know the name of CUDA 13, so a
//! library found under another name is given that one first (see `loader`).

use std::ffi::c_void;

use cudarc::cublaslt::{result, sys};

use super::buffer::Buffer;
use super::context::Device;
use super::error::DeviceError;
use super::loader;

/// Bytes that the library may use beside its operands.
const WORKSPACE: usize = 32 << 20;
const PLACES: [&str; 4] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
];

#[derive(Debug)]
pub enum LtError {
    /// No library of that name on this machine.
    Absent(String),
    /// The library has no algorithm for the request.
    Unsupported(String),
    Device(DeviceError),
    /// A call failed.
    Status {
        call: &'static str,
        status: String,
    },
}

impl std::fmt::Display for LtError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LtError::Absent(why) => write!(f, "cuBLASLt was not found: {why}"),
            LtError::Unsupported(what) => write!(f, "cuBLASLt has no algorithm for {what}"),
            LtError::Device(error) => write!(f, "{error}"),
            LtError::Status { call, status } => write!(f, "{call} returned {status}"),
        }
    }
}

impl std::error::Error for LtError {}

impl From<DeviceError> for LtError {
    fn from(error: DeviceError) -> LtError {
        LtError::Device(error)
    }
}

fn check<T>(call: &'static str, done: Result<T, result::CublasError>) -> Result<T, LtError> {
    done.map_err(|error| LtError::Status {
        call,
        status: format!("{:?}", error.0),
    })
}

/// How an operand is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleMode {
    /// One FP32 number.
    Tensor,
    /// 1 × 128 along k; scales are k-group-major: all rows of a group together.
    Vector128,
    /// 128 × 128; each row of scales padded to a multiple of four k-groups.
    Block128,
}

/// Output types of [`Fp8Gemm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LtOutput {
    F32,
    F16,
    Bf16,
}

/// D (m × n, row stride ldd) = A (m × k) · Bᵀ (n × k) [+ D], E4M3 operands with k
/// contiguous. Addresses are device addresses.
#[derive(Debug, Clone, Copy)]
pub struct Fp8Gemm {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub ldd: u64,
    pub a: u64,
    pub b: u64,
    pub d: u64,
    pub a_scale: (u64, ScaleMode),
    pub b_scale: (u64, ScaleMode),
    pub output: LtOutput,
    pub accumulate: bool,
    /// Sums stay in the tensor core instead of being promoted to FP32.
    pub fast: bool,
}

/// D (m × n) = A (m × k) · Bᵀ (n × k) in FP64, all dense and row-major. Addresses are
/// device addresses.
#[derive(Debug, Clone, Copy)]
pub struct Fp64Gemm {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub a: u64,
    pub b: u64,
    pub d: u64,
}

/// An open library with its workspace.
pub struct Lt {
    handle: sys::cublasLtHandle_t,
    workspace: Buffer<u8>,
}

impl Lt {
    /// Opens the library for `device`.
    ///
    /// # Errors
    /// [`LtError::Absent`] where there is none.
    pub fn open(device: &Device) -> Result<Lt, LtError> {
        loader::make_findable("libcublasLt.so", &PLACES).map_err(LtError::Absent)?;
        device.shared.enter()?;
        Ok(Lt {
            handle: check("cublasLtCreate", result::create_handle())?,
            workspace: device.uninitialised(WORKSPACE)?,
        })
    }

    /// Enqueues the product on the default stream.
    ///
    /// The caller vouches for the addresses, as with a kernel launch: the library
    /// can reach device memory only.
    pub fn gemm(&self, device: &Device, gemm: &Fp8Gemm) -> Result<(), LtError> {
        let plan = Plan::fp8(gemm)?;
        let (alpha, beta) = (1f32, if gemm.accumulate { 1f32 } else { 0f32 });
        self.enqueue(
            device,
            &plan,
            (gemm.a, gemm.b, gemm.d),
            (&alpha, &beta),
            gemm,
        )
    }

    /// Enqueues an FP64 product on the default stream; see [`Lt::gemm`].
    pub fn gemm_fp64(&self, device: &Device, gemm: &Fp64Gemm) -> Result<(), LtError> {
        let plan = Plan::fp64(gemm)?;
        let operands = (gemm.a, gemm.b, gemm.d);
        self.enqueue(device, &plan, operands, (&1f64, &0f64), gemm)
    }

    /// `factors` are alpha and beta, of the scale type of `plan`'s descriptor.
    fn enqueue<F>(
        &self,
        device: &Device,
        plan: &Plan,
        (a, b, d): (u64, u64, u64),
        factors: (&F, &F),
        what: &dyn std::fmt::Debug,
    ) -> Result<(), LtError> {
        device.shared.enter()?;
        // SAFETY: handle, descriptors and layouts are alive; the workspace has the
        // size that the preference allows; alpha and beta are on the host, as the
        // default pointer mode wants. The library's A is our B: it is column-major.
        unsafe {
            let chosen = result::get_matmul_algo_heuristic(
                self.handle,
                plan.descriptor,
                plan.weights,
                plan.activations,
                plan.out,
                plan.out,
                plan.preference,
            )
            .map_err(|error| LtError::Unsupported(format!("{what:?}: {:?}", error.0)))?;
            check(
                "cublasLtMatmul",
                result::matmul(
                    self.handle,
                    plan.descriptor,
                    std::ptr::from_ref(factors.0).cast(),
                    std::ptr::from_ref(factors.1).cast(),
                    b as *const c_void,
                    plan.weights,
                    a as *const c_void,
                    plan.activations,
                    d as *const c_void,
                    plan.out,
                    d as *mut c_void,
                    plan.out,
                    &chosen.algo,
                    self.workspace.address() as *mut c_void,
                    WORKSPACE,
                    std::ptr::null_mut(),
                ),
            )
        }
    }
}

impl Drop for Lt {
    fn drop(&mut self) {
        // SAFETY: created by this struct and destroyed once. A failure has nobody
        // to be told.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Descriptors of one call.
struct Plan {
    descriptor: sys::cublasLtMatmulDesc_t,
    preference: sys::cublasLtMatmulPreference_t,
    weights: sys::cublasLtMatrixLayout_t,
    activations: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
}

impl Plan {
    fn fp8(gemm: &Fp8Gemm) -> Result<Plan, LtError> {
        use sys::cudaDataType_t::{CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
        let out = match gemm.output {
            LtOutput::F32 => CUDA_R_32F,
            LtOutput::F16 => CUDA_R_16F,
            LtOutput::Bf16 => CUDA_R_16BF,
        };
        let plan = Plan::new(
            (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, CUDA_R_32F),
            (CUDA_R_8F_E4M3, out),
            (gemm.m, gemm.n, gemm.k, gemm.ldd),
        )?;
        plan.configure(gemm)?;
        Ok(plan)
    }

    fn fp64(gemm: &Fp64Gemm) -> Result<Plan, LtError> {
        use sys::cudaDataType_t::CUDA_R_64F;
        Plan::new(
            (sys::cublasComputeType_t::CUBLAS_COMPUTE_64F, CUDA_R_64F),
            (CUDA_R_64F, CUDA_R_64F),
            (gemm.m, gemm.n, gemm.k, gemm.n),
        )
    }

    /// Descriptors for sums of one type, operands and result of others; both operands
    /// with k contiguous.
    fn new(
        (compute, scale): (sys::cublasComputeType_t, sys::cudaDataType_t),
        (operand, out): (sys::cudaDataType_t, sys::cudaDataType_t),
        (m, n, k, ldd): (u64, u64, u64, u64),
    ) -> Result<Plan, LtError> {
        let layout = |kind, rows, cols, stride: u64| {
            check(
                "cublasLtMatrixLayoutCreate",
                result::create_matrix_layout(kind, rows, cols, stride as i64),
            )
        };
        let plan = Plan {
            descriptor: check(
                "cublasLtMatmulDescCreate",
                result::create_matmul_desc(compute, scale),
            )?,
            preference: check(
                "cublasLtMatmulPreferenceCreate",
                result::create_matmul_pref(),
            )?,
            weights: layout(operand, k, n, k)?,
            activations: layout(operand, k, m, k)?,
            out: layout(out, n, m, ldd)?,
        };
        let transposed = cudarc::cublas::sys::cublasOperation_t::CUBLAS_OP_T as i32;
        plan.set(
            sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
            &transposed,
        )?;
        plan.limit_workspace()?;
        Ok(plan)
    }

    fn configure(&self, gemm: &Fp8Gemm) -> Result<(), LtError> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        self.set(
            Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM,
            &i8::from(gemm.fast),
        )?;
        let (b, a) = (gemm.b_scale, gemm.a_scale);
        self.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b.0)?;
        self.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a.0)?;
        if (a.1, b.1) != (ScaleMode::Tensor, ScaleMode::Tensor) {
            self.set(Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode(b.1))?;
            self.set(Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode(a.1))?;
        }
        Ok(())
    }

    fn limit_workspace(&self) -> Result<(), LtError> {
        let bytes = WORKSPACE;
        // SAFETY: the attribute is a size_t, and `bytes` outlives the call.
        let done = unsafe {
            result::set_matmul_pref_attribute(
                self.preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                std::ptr::from_ref(&bytes).cast(),
                size_of::<usize>(),
            )
        };
        check("cublasLtMatmulPreferenceSetAttribute", done)
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), LtError> {
        // SAFETY: the descriptor is alive; the library copies size_of::<T>() bytes
        // and refuses a size that is not the attribute's own.
        let done = unsafe {
            result::set_matmul_desc_attribute(
                self.descriptor,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        };
        check("cublasLtMatmulDescSetAttribute", done)
    }
}

fn mode(mode: ScaleMode) -> i32 {
    use sys::cublasLtMatmulMatrixScale_t as Scale;
    (match mode {
        ScaleMode::Tensor => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
        ScaleMode::Vector128 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
        ScaleMode::Block128 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
    }) as i32
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: each was created by `new` and is destroyed once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.descriptor);
            let _ = result::destroy_matmul_pref(self.preference);
            for layout in [self.weights, self.activations, self.out] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}
