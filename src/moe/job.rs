//! A job, however its ranks are run: threads of this process, processes that this
//! one starts, or one rank of a job that something else started.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::check::Rank;
use super::collective::{Collective, HostCollective};
use super::hub::client::{Joining, TcpHub};
use super::hub::server::Server;
use super::hub::{self, Hub};
use super::launch::{self, GRACE, STORE_ELSEWHERE};
use super::nccl::NcclCollective;
use super::threads;
use super::world::{World, environment};
use crate::device::choice::Driver;
use crate::device::{Device, DeviceError};
use crate::errln;
use crate::exit::{Exit, READER_LEFT};
use crate::output::OutputError;

/// What a command line says about its job.
#[derive(Debug, Clone)]
pub struct Job {
    pub ranks: usize,
    /// Processes even where ranks could be threads.
    pub processes: bool,
    /// A rank without progress for so long is lost.
    pub timeout: Duration,
    pub nccl: Option<PathBuf>,
}

/// What `Job::run` gives back.
pub enum Outcome<T> {
    /// Every rank's result, or this rank's alone.
    Ran(Vec<T>),
    /// The ranks were processes of their own, and have reported.
    Launched(Exit),
}

impl Job {
    /// Runs `body` on every rank; `lead` is true on the one that prints.
    ///
    /// # Errors
    /// [`hub::RankLost`], or what `body` returns.
    pub fn run<T: Send>(
        &self,
        body: impl Fn(&mut Rank, bool) -> Result<T> + Sync,
    ) -> Result<Outcome<T>> {
        if let Some(world) = World::read(&environment)? {
            return Ok(Outcome::Ran(vec![self.join(&world, body)?]));
        }
        if self.processes || on_gpus()? {
            let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
            let ended = launch::run(self.ranks, &arguments, self.timeout)?;
            if ended.codes.contains(&Some(i32::from(READER_LEFT))) {
                return Err(OutputError::ReaderLeft.into());
            }
            if let Some(lost) = &ended.lost {
                errln!("error: {lost}; the job was ended");
            }
            return Ok(Outcome::Launched(ended.exit()));
        }
        let results = threads::run(self.ranks, self.timeout, |rank| {
            let lead = rank.hub.rank() == 0;
            body(rank, lead)
        })?;
        Ok(Outcome::Ran(results))
    }

    fn join<T>(&self, world: &World, body: impl Fn(&mut Rank, bool) -> Result<T>) -> Result<T> {
        end_the_process_at_a_panic();
        // Rank 0 holds the store, unless the launcher does.
        let elsewhere = environment(STORE_ELSEWHERE).is_some();
        let own = world.rank == 0 && !elsewhere;
        let _store = own
            .then(|| {
                let address = (world.host.as_str(), world.port);
                Server::start(address, &world.token, world.ranks, self.timeout)
                    .with_context(|| format!("the store on {}:{}", world.host, world.port))
            })
            .transpose()?;
        let joining = Joining {
            address: format!("{}:{}", world.host, world.port),
            token: world.token.clone(),
            rank: world.rank,
            ranks: world.ranks,
            timeout: self.timeout,
            exit_after: Some(GRACE),
            holder: (!elsewhere).then_some(0),
        };
        let hub = TcpHub::join(&joining)?;
        hub.step("open the device");
        let hub: Arc<dyn Hub> = Arc::new(hub);
        let device = Arc::new(open(world.local_rank)?);
        let collective: Box<dyn Collective> = match device.info().driver {
            Driver::Nvidia => Box::new(NcclCollective::join(
                Arc::clone(&device),
                hub.as_ref(),
                self.nccl.as_deref(),
            )?),
            _ => Box::new(HostCollective::new(Arc::clone(&hub))),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut rank = Rank {
            device,
            collective,
            hub: Arc::clone(&hub),
            threads: (cores / world.local_ranks).max(1),
        };
        let result = body(&mut rank, world.rank == 0)?;
        // The one that holds the store leaves last.
        hub::barrier(hub.as_ref())?;
        drop(rank);
        Ok(result)
    }
}

/// The device of a rank: its own, or the only one it sees (a launcher may show each
/// rank one device, and the CPU driver serves all ranks with one).
fn open(local_rank: usize) -> Result<Device, DeviceError> {
    match Device::open_ordinal(local_rank) {
        Err(DeviceError::NoDevice { .. }) if local_rank > 0 => Device::open(),
        other => other,
    }
}

/// A panic in any thread ends this rank's process at once, and the others see its
/// connection close. Unwinding would wait in NCCL for ranks that wait for this one.
fn end_the_process_at_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // SAFETY: ends the process; exit handlers could call the driver and wait.
        unsafe { libc::_exit(i32::from(Exit::CouldNotRun.code())) }
    }));
}

/// Whether ranks run on NVIDIA's driver: one process a device then.
fn on_gpus() -> Result<bool> {
    Ok(Device::open()?.info().driver == Driver::Nvidia)
}
