//! Ranks as threads of this process, each with a context of its own on device 0.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::check::Rank;
use super::collective::HostCollective;
use super::hub::Hub;
use super::hub::local::LocalHub;
use crate::device::Device;

/// Runs `body` on every rank and returns the results by rank.
///
/// # Errors
/// The first error of a rank that was not told of another rank's: the cause.
pub fn run<T: Send>(
    ranks: usize,
    timeout: Duration,
    body: impl Fn(&mut Rank) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = LocalHub::all(ranks, timeout)
            .into_iter()
            .map(|hub| {
                scope.spawn(move || {
                    let hub = Arc::new(hub);
                    let result = one(Arc::clone(&hub), cores / ranks, body);
                    if let Err(error) = &result {
                        hub.fail(&format!("{error:#}"));
                    }
                    result
                })
            })
            .collect();
        threads
            .into_iter()
            .enumerate()
            .map(|(rank, thread)| match thread.join() {
                Ok(result) => result,
                Err(_) => Err(anyhow!("rank {rank} panicked")),
            })
            .collect()
    });
    let told = |error: &anyhow::Error| error.downcast_ref::<super::hub::RankLost>().is_some();
    let mut values = Vec::with_capacity(ranks);
    let mut first: Option<anyhow::Error> = None;
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Ok(value) => values.push(value),
            Err(error) if first.as_ref().is_none_or(|f| told(f) && !told(&error)) => {
                first = Some(if told(&error) {
                    error
                } else {
                    error.context(format!("rank {rank}"))
                });
            }
            Err(_) => {}
        }
    }
    match first {
        Some(error) => Err(error),
        None => Ok(values),
    }
}

fn one<T>(
    hub: Arc<LocalHub>,
    threads: usize,
    body: &(impl Fn(&mut Rank) -> Result<T> + Sync),
) -> Result<T> {
    let device = Arc::new(Device::open().context("opening a device")?);
    let hub: Arc<dyn Hub> = hub;
    body(&mut Rank {
        device,
        collective: Box::new(HostCollective::new(Arc::clone(&hub))),
        hub,
        threads: threads.max(1),
    })
}
