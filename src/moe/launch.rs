//! One process a rank on this host, started, watched and ended together.
//!
//! The launcher holds the TCP store. A rank that ends early, shows no sign of life
//! or hangs is named, the others are told, and after [`GRACE`] whatever is left is
//! killed. If the launcher itself dies, the kernel kills the ranks
//! (PR_SET_PDEATHSIG): there is no way to leave an orphan.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::hub::RankLost;
use super::hub::server::Server;
use super::world::World;
use crate::children::die_with_parent;
use crate::errln;
use crate::exit::Exit;

/// Time that ranks have to end by themselves once one is lost.
pub const GRACE: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(20);

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Exit codes by rank; `None` for a rank that a signal ended.
    pub codes: Vec<Option<i32>>,
    /// Who was lost, if anyone.
    pub lost: Option<RankLost>,
    /// Time from the moment that a loss was known until every process was gone.
    pub after_loss: Option<Duration>,
}

impl Ended {
    /// The worst of the ranks; a job that lost one without a failed claim could not
    /// tell.
    pub fn exit(&self) -> Exit {
        let worst = |code: i32| self.codes.contains(&Some(code));
        if self.lost.is_none() && self.codes.iter().all(|code| *code == Some(0)) {
            Exit::Held
        } else if worst(1) {
            Exit::Failed
        } else if worst(2) {
            Exit::Usage
        } else {
            Exit::CouldNotRun
        }
    }
}

/// Starts this program again as `ranks` ranks with `arguments`, waits for all.
///
/// # Errors
/// When no port or no process can be had.
pub fn run(ranks: usize, arguments: &[OsString], timeout: Duration) -> Result<Ended> {
    let token = token()?;
    let store = Server::start(("127.0.0.1", 0), &token, ranks, timeout)
        .context("no port for the store on 127.0.0.1")?;
    let program = std::env::current_exe().context("this program's own file")?;
    let mut job = Job::default();
    for rank in 0..ranks {
        let world = World {
            rank,
            ranks,
            local_rank: rank,
            local_ranks: ranks,
            host: "127.0.0.1".to_owned(),
            port: store.address().port(),
            token: token.clone(),
        };
        let mut command = Command::new(&program);
        command.args(arguments).envs(world.variables());
        command.env(STORE_ELSEWHERE, "1");
        command.env_remove("TORCHELASTIC_USE_AGENT_STORE");
        die_with_parent(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start rank {rank} from {}", program.display()))?;
        errln!("rank {rank}: process {}", child.id());
        job.children.push((child, None));
    }
    Ok(job.wait(&store))
}

/// Set for ranks whose launcher holds the store; otherwise rank 0 does.
pub const STORE_ELSEWHERE: &str = "KERNELGATE_STORE_ELSEWHERE";

/// 128 random bits.
fn token() -> Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("no random bytes for the job's token")?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[derive(Default)]
struct Job {
    children: Vec<(Child, Option<ExitStatus>)>,
}

impl Job {
    fn wait(mut self, store: &Server) -> Ended {
        let mut known: Option<Instant> = None;
        loop {
            for (rank, (child, status)) in self.children.iter_mut().enumerate() {
                if status.is_some() {
                    continue;
                }
                *status = child.try_wait().unwrap_or(None);
                if let Some(status) = status
                    && let Some(signal) = status.signal()
                    && known.is_none()
                {
                    store.fail(rank, &format!("its process was ended by signal {signal}"));
                }
            }
            if store.lost().is_some() && known.is_none() {
                known = Some(Instant::now());
            }
            if self.children.iter().all(|(_, status)| status.is_some()) {
                break;
            }
            if known.is_some_and(|known| known.elapsed() > GRACE) {
                self.kill();
            }
            std::thread::sleep(TICK);
        }
        Ended {
            codes: self
                .children
                .iter()
                .map(|(_, status)| status.and_then(|s| s.code()))
                .collect(),
            lost: store.lost(),
            after_loss: known.map(|known| known.elapsed()),
        }
    }

    fn kill(&mut self) {
        for (child, status) in &mut self.children {
            if status.is_none() {
                let _ = child.kill();
            }
        }
    }
}

/// Whatever ends the launcher ends the ranks.
impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
        for (child, status) in &mut self.children {
            if status.is_none() {
                let _ = child.wait();
            }
        }
    }
}
