//! How ranks agree and report without the collective under test: every rank gives
//! every rank a part, in rounds, with a deadline.
//!
//! Counts of an oracle, row digests, findings and the NCCL id travel this way. Two
//! hubs: threads of one process ([`local`]), and processes that meet at a TCP store
//! ([`server`], [`client`]). A rank that dies or hangs ends the round everywhere
//! with a [`RankLost`] that names it.

pub mod client;
mod deadline;
pub mod frame;
pub mod local;
pub mod server;

/// Ranks that no longer take part. The job cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLost {
    pub ranks: Vec<usize>,
    /// What was seen, with the step in which they were last.
    pub why: String,
}

impl std::fmt::Display for RankLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        let (noun, list) = match names.len() {
            0 => return write!(f, "the job was ended: {}", self.why),
            1 => ("rank", names.concat()),
            _ => ("ranks", names.join(", ")),
        };
        write!(f, "{noun} {list} lost: {}", self.why)
    }
}

impl std::error::Error for RankLost {}

/// The meeting point of `ranks()` ranks.
pub trait Hub: Send + Sync {
    fn rank(&self) -> usize;
    fn ranks(&self) -> usize;

    /// Gives `parts[d]` to rank d and returns what each rank gave to this one. All
    /// ranks must call it the same number of times.
    ///
    /// # Errors
    /// [`RankLost`] as soon as a rank is known to be dead, or when one has shown no
    /// progress for the hub's timeout.
    fn exchange(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankLost>;

    /// Says what comes next; every rank takes the same steps. Of ranks that hang,
    /// the one with the fewest steps is named.
    fn step(&self, label: &str);

    /// Says that a long step is still making progress.
    fn alive(&self);
}

/// Gives the same bytes to all ranks and returns everybody's.
pub fn gather(hub: &dyn Hub, bytes: &[u8]) -> Result<Vec<Vec<u8>>, RankLost> {
    hub.exchange(vec![bytes.to_vec(); hub.ranks()])
}

/// Waits until every rank is here.
pub fn barrier(hub: &dyn Hub) -> Result<(), RankLost> {
    gather(hub, &[]).map(drop)
}

/// What is known about the progress of one rank.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub steps: u64,
    pub label: String,
    pub moved: std::time::Instant,
}

impl Progress {
    pub fn new() -> Progress {
        Progress {
            steps: 0,
            label: "joining".to_owned(),
            moved: std::time::Instant::now(),
        }
    }

    pub fn step(&mut self, label: &str) {
        self.steps += 1;
        self.label = label.to_owned();
        self.alive();
    }

    pub fn alive(&mut self) {
        self.moved = std::time::Instant::now();
    }
}

/// Of the ranks that have not moved for `timeout`, those that are furthest behind.
/// `busy[r]` is `None` for a rank that is waiting for others or has left.
pub(crate) fn hung(busy: &[Option<&Progress>], timeout: std::time::Duration) -> Option<RankLost> {
    let stuck = || {
        busy.iter()
            .enumerate()
            .filter_map(|(rank, progress)| Some((rank, (*progress)?)))
            .filter(|(_, progress)| progress.moved.elapsed() > timeout)
    };
    let fewest = stuck().map(|(_, progress)| progress.steps).min()?;
    let behind: Vec<(usize, &Progress)> = stuck().filter(|(_, p)| p.steps == fewest).collect();
    Some(RankLost {
        ranks: behind.iter().map(|(rank, _)| *rank).collect(),
        why: format!(
            "no progress for {} s in step `{}`",
            timeout.as_secs_f64(),
            behind[0].1.label
        ),
    })
}
