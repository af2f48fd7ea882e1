//! The collective over NCCL: device buffers, one communicator, a stream of its own.
//!
//! Through cudarc's raw calls: its safe `Comm` aborts on drop and does not bind the
//! context. Rows are bytes (NCCL 2.22 has no FP8 type). NVLink multicast and every
//! other setting of NCCL stay as the host sets them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use cudarc::driver::CudaStream;
use cudarc::nccl::result::{self, NcclError};
use cudarc::nccl::sys;

use super::collective::{Collective, Transfer};
use super::hub::{self, Hub};
use crate::device::{Buffer, Device, open_as};

/// Names the library, for hosts where it is in no well-known place.
pub const VARIABLE: &str = "KERNELGATE_NCCL";
const FILE: &str = "libnccl.so.2";
const ASKED_BY_CUDARC: &str = "libnccl.so";

/// A communicator of all ranks of the job.
pub struct NcclCollective {
    comm: sys::ncclComm_t,
    stream: Arc<CudaStream>,
    ranks: usize,
    counts: Option<(Buffer<u32>, Buffer<u32>)>,
    device: Arc<Device>,
    version: i32,
    file: PathBuf,
}

impl NcclCollective {
    /// Opens the library and joins: rank 0 makes the id, the hub carries it.
    ///
    /// # Errors
    /// No library; a rank was lost; NCCL refused.
    pub fn join(
        device: Arc<Device>,
        hub: &dyn Hub,
        named: Option<&Path>,
    ) -> Result<NcclCollective> {
        let file = open_library(named)?;
        device.synchronize()?;
        let (rank, ranks) = (hub.rank(), hub.ranks());
        let mine = match rank {
            0 => check(result::get_uniqueid(), "ncclGetUniqueId")?
                .internal
                .iter()
                .map(|&c| c.cast_unsigned())
                .collect(),
            _ => Vec::new(),
        };
        hub.step("exchange the NCCL id");
        let ids = hub::gather(hub, &mine)?;
        let mut id = sys::ncclUniqueId { internal: [0; 128] };
        if ids[0].len() != id.internal.len() {
            bail!("rank 0 sent an NCCL id of {} bytes", ids[0].len());
        }
        for (to, &from) in id.internal.iter_mut().zip(&ids[0]) {
            *to = from.cast_signed();
        }
        hub.step("ncclCommInitRank");
        let context = device.context();
        context
            .bind_to_thread()
            .map_err(|e| anyhow!("cuCtxSetCurrent: {e:?}"))?;
        let mut comm = std::ptr::null_mut();
        // SAFETY: `comm` outlives the call, the context of this rank's device is
        // current, and every rank of the job makes the same call.
        let made = unsafe { result::comm_init_rank(&mut comm, ranks as i32, id, rank as i32) };
        check(made, "ncclCommInitRank")?;
        Ok(NcclCollective {
            comm,
            stream: context
                .new_stream()
                .map_err(|e| anyhow!("cuStreamCreate: {e:?}"))?,
            ranks,
            counts: None,
            version: check(result::get_nccl_version(), "ncclGetVersion")?,
            device,
            file,
        })
    }

    fn stream(&self) -> sys::cudaStream_t {
        self.stream.cu_stream().cast()
    }

    fn wait(&self) -> Result<()> {
        self.stream
            .synchronize()
            .map_err(|e| anyhow!("waiting for NCCL: {e:?}"))
    }

    fn enqueue(&self, transfer: &Transfer<'_>) -> Result<()> {
        let kind = sys::ncclDataType_t::ncclUint8;
        for rank in 0..self.ranks {
            let (to, from) = (&transfer.to[rank], &transfer.from[rank]);
            if !to.is_empty() {
                let address = transfer.send.address() + to.start as u64;
                // SAFETY: the range lies in the buffer, checked in `start`, and both
                // stay untouched until `finish`.
                let sent = unsafe {
                    let address = address as *const std::ffi::c_void;
                    result::send(
                        address,
                        to.len(),
                        kind,
                        rank as i32,
                        self.comm,
                        self.stream(),
                    )
                };
                check(sent, "ncclSend")?;
            }
            if !from.is_empty() {
                let address = transfer.receive.address() + from.start as u64;
                // SAFETY: as above; the buffer is borrowed exclusively.
                let received = unsafe {
                    let address = address as *mut std::ffi::c_void;
                    result::recv(
                        address,
                        from.len(),
                        kind,
                        rank as i32,
                        self.comm,
                        self.stream(),
                    )
                };
                check(received, "ncclRecv")?;
            }
        }
        Ok(())
    }
}

impl Collective for NcclCollective {
    fn name(&self) -> String {
        let v = self.version;
        format!(
            "NCCL {}.{}.{} ({})",
            v / 10_000,
            v / 100 % 100,
            v % 100,
            self.file.display()
        )
    }

    fn gather_counts(&mut self, counts: &[u32]) -> Result<Vec<Vec<u32>>> {
        if self
            .counts
            .as_ref()
            .is_none_or(|(s, _)| s.len() != counts.len())
        {
            self.counts = Some((
                self.device.poisoned(counts.len())?,
                self.device.poisoned(counts.len() * self.ranks)?,
            ));
        }
        let (comm, stream) = (self.comm, self.stream());
        let (send, receive) = self.counts.as_mut().context("made above")?;
        send.upload(counts)?;
        // The upload may still be on its way when the call returns.
        self.device.synchronize()?;
        // SAFETY: `receive` has room for `ranks` times the elements of `send`, and
        // both live until the stream is waited for below.
        let gathered = unsafe {
            result::all_gather(
                send.address() as *const _,
                receive.address() as *mut _,
                counts.len(),
                sys::ncclDataType_t::ncclUint32,
                comm,
                stream,
            )
        };
        check(gathered, "ncclAllGather")?;
        self.wait()?;
        let (_, receive) = self.counts.as_ref().context("made above")?;
        let all = receive.download()?;
        Ok(all.chunks(counts.len()).map(<[u32]>::to_vec).collect())
    }

    fn start(&mut self, transfers: &mut [Transfer<'_>]) -> Result<()> {
        for transfer in transfers.iter() {
            let ends = |ranges: &[std::ops::Range<usize>]| ranges.iter().map(|r| r.end).max();
            let (to, from) = (ends(&transfer.to), ends(&transfer.from));
            if to > Some(transfer.send.bytes()) || from > Some(transfer.receive.bytes()) {
                bail!("a transfer reaches past its buffer");
            }
        }
        // Packing runs on the default stream, which this stream does not wait for.
        self.device.synchronize()?;
        check(result::group_start(), "ncclGroupStart")?;
        let queued = transfers.iter().try_for_each(|t| self.enqueue(t));
        check(result::group_end(), "ncclGroupEnd")?;
        queued
    }

    fn finish(&mut self, _: &mut [Transfer<'_>]) -> Result<()> {
        self.wait()
    }
}

impl Drop for NcclCollective {
    fn drop(&mut self) {
        if self.device.is_lost() || self.stream.synchronize().is_err() {
            return;
        }
        // SAFETY: the communicator is this rank's own and nothing is queued on it.
        let _ = unsafe { result::comm_destroy(self.comm) };
    }
}

fn check<T>(made: Result<T, NcclError>, call: &str) -> Result<T> {
    made.map_err(|NcclError(code)| {
        anyhow!("{call} returned {code:?}; NCCL_DEBUG=INFO shows NCCL's own messages")
    })
}

/// Where the library may be: as named, on the loader's path, in the site-packages
/// of the Pythons on PATH, and in CUDA's usual folders.
fn candidates(named: Option<&Path>) -> Vec<PathBuf> {
    let variable = std::env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(named) = named.map(Path::to_path_buf).or(variable) {
        return match named.is_dir() {
            true => vec![named.join(FILE), named.join("lib").join(FILE)],
            false => vec![named],
        };
    }
    let folders = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    found.extend(
        [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
            "/usr/local/cuda/lib64",
            "/usr/lib",
        ]
        .map(PathBuf::from),
    );
    let mut files: Vec<PathBuf> = found.into_iter().map(|folder| folder.join(FILE)).collect();
    files.extend(
        python_packages()
            .into_iter()
            .map(|p| p.join("nvidia/nccl/lib").join(FILE)),
    );
    files
}

/// `lib/python3.*/{site,dist}-packages` of every prefix with a `bin` on PATH, and
/// of /usr/local and /opt.
fn python_packages() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut prefixes: Vec<PathBuf> = std::env::split_paths(&path)
        .filter_map(|bin| Some(bin.parent()?.to_path_buf()))
        .collect();
    prefixes.extend(
        ["VIRTUAL_ENV", "CONDA_PREFIX"]
            .iter()
            .filter_map(std::env::var_os)
            .map(PathBuf::from),
    );
    prefixes.extend(["/usr/local", "/usr", "/opt/conda", "/opt/venv"].map(PathBuf::from));
    prefixes.dedup();
    let list = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    prefixes
        .into_iter()
        .flat_map(|prefix| list(prefix.join("lib")))
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("python3"))
        })
        .flat_map(|p| [p.join("site-packages"), p.join("dist-packages")])
        .collect()
}

/// Opens the first library there is; once a process.
fn open_library(named: Option<&Path>) -> Result<PathBuf> {
    let candidates = candidates(named);
    let file = candidates.iter().find(|file| file.is_file()).with_context(|| {
        format!(
            "no {FILE}: looked at {}; install it (`pip install nvidia-nccl-cu13`) or name it with \
             --nccl or {VARIABLE}",
            candidates.iter().map(|c| c.display().to_string()).collect::<Vec<_>>().join(", ")
        )
    })?;
    open_as(file, ASKED_BY_CUDARC).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    Ok(file.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_is_the_only_candidate_and_a_folder_means_the_file_in_it() {
        let file = Path::new("/no/such/libnccl.so.2");
        assert_eq!(candidates(Some(file)), [file]);
        let folder = std::env::temp_dir();
        assert_eq!(candidates(Some(&folder))[0], folder.join(FILE));
        let error = open_library(Some(file)).unwrap_err().to_string();
        assert!(
            error.contains("/no/such/libnccl.so.2") && error.contains("--nccl"),
            "{error}"
        );
    }
}
