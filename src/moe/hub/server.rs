//! The TCP store where the ranks of a job meet.
//!
//! It trusts nobody before the token: until then a peer may send one small frame
//! within `HANDSHAKE`, and only so many peers at once. It watches every rank: a
//! connection that closes, a rank without a sign of life, or one that makes no
//! progress ends the job, and every other rank is told who it was.
//!
//! The token keeps other users of the network out of the job. It travels in the
//! clear: on a network where others can listen it protects nothing.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::deadline::Until;
use super::frame::{FrameError, LIMIT_AFTER, LIMIT_BEFORE, Message, VERSION};
use super::{Progress, RankLost, hung};

/// Time a peer has to show the token.
const HANDSHAKE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(10);

type Parts = Vec<Vec<u8>>;

struct Member {
    stream: TcpStream,
    progress: Progress,
    beat: Instant,
    /// Its post of the open round has come.
    waiting: bool,
    left: bool,
}

struct State {
    members: Vec<Option<Member>>,
    rounds: BTreeMap<u64, Vec<Option<Parts>>>,
    opened: Instant,
    lost: Option<RankLost>,
}

struct Shared {
    token: Vec<u8>,
    ranks: usize,
    timeout: Duration,
    state: Mutex<State>,
    strangers: AtomicUsize,
    stop: AtomicBool,
}

/// A running store; stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` (port 0: any free one).
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn start(
        address: impl ToSocketAddrs,
        token: &str,
        ranks: usize,
        timeout: Duration,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            token: token.as_bytes().to_vec(),
            ranks,
            timeout,
            state: Mutex::new(State {
                members: (0..ranks).map(|_| None).collect(),
                rounds: BTreeMap::new(),
                opened: Instant::now(),
                lost: None,
            }),
            strangers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(&served, &listener))?;
        Ok(Server {
            shared,
            address,
            thread: Some(thread),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who was lost, if anyone.
    pub fn lost(&self) -> Option<RankLost> {
        self.shared.state().lost.clone()
    }

    /// Ends the job: `rank` is known to be gone, by other means than its connection.
    pub fn fail(&self, rank: usize, why: &str) {
        self.shared.fail(RankLost {
            ranks: vec![rank],
            why: why.to_owned(),
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Arc<Shared>, listener: &TcpListener) {
    // Far more than ranks that connect at once, far fewer than a process can hold.
    let room = 2 * shared.ranks + 32;
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) if shared.strangers.load(Ordering::Relaxed) < room => {
                shared.strangers.fetch_add(1, Ordering::Relaxed);
                let attending = Arc::clone(shared);
                let spawned = std::thread::Builder::new().spawn(move || attend(&attending, stream));
                if spawned.is_err() {
                    // No thread for it: the peer sees its connection close.
                    shared.strangers.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(_) => {}
            Err(_) => std::thread::sleep(TICK),
        }
        shared.watch();
    }
    for member in shared.state().members.iter().flatten() {
        let _ = member.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// One connection, from its first byte to its last.
fn attend(shared: &Shared, mut stream: TcpStream) {
    let admitted = admit(shared, &mut stream);
    shared.strangers.fetch_sub(1, Ordering::Relaxed);
    let rank = match admitted {
        Ok(rank) => rank,
        Err(why) => {
            let _ = Message::Refused { why }.write(&mut stream);
            return;
        }
    };
    let mut reader = BufReader::new(stream);
    loop {
        match Message::read(&mut reader, LIMIT_AFTER) {
            Ok(Message::Bye) => {
                if let Some(member) = &mut shared.state().members[rank] {
                    member.left = true;
                }
                return;
            }
            Ok(message) => {
                if let Err(why) = shared.take(rank, message) {
                    return shared.lose(rank, &why);
                }
            }
            Err(FrameError::Malformed(what)) => {
                return shared.lose(rank, &format!("it sent a malformed message: {what}"));
            }
            Err(FrameError::Closed | FrameError::Io(_)) => {
                return shared.lose(rank, "its connection closed: the process died");
            }
        }
    }
}

/// Reads the first frame and decides whether the peer is a rank of this job.
fn admit(shared: &Shared, stream: &mut TcpStream) -> Result<usize, String> {
    let io = |error: io::Error| error.to_string();
    stream.set_nonblocking(false).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    stream.set_write_timeout(Some(shared.timeout)).map_err(io)?;
    let hello = Message::read(&mut Until::within(stream, HANDSHAKE), LIMIT_BEFORE);
    let hello = hello.map_err(|e| e.to_string())?;
    let Message::Hello {
        version,
        token,
        rank,
        ranks,
    } = hello
    else {
        return Err("expected a greeting first".to_owned());
    };
    if !same(&token, &shared.token) {
        return Err("wrong token; give every rank the same KERNELGATE_TOKEN".to_owned());
    }
    if version != VERSION {
        return Err(format!(
            "protocol version {version}, the store speaks {VERSION}; use one build everywhere"
        ));
    }
    if ranks as usize != shared.ranks || rank as usize >= shared.ranks {
        return Err(format!(
            "rank {rank} of {ranks}, the job has ranks 0 to {}",
            shared.ranks - 1
        ));
    }
    let rank = rank as usize;
    let mut state = shared.state();
    if state.members[rank].is_some() {
        return Err(format!("rank {rank} is taken"));
    }
    Message::Welcome.write(stream).map_err(io)?;
    stream.set_read_timeout(None).map_err(io)?;
    state.members[rank] = Some(Member {
        stream: stream.try_clone().map_err(io)?,
        progress: Progress::new(),
        beat: Instant::now(),
        waiting: false,
        left: false,
    });
    if let Some(lost) = state.lost.clone() {
        let _ = told(&lost).write(stream);
    }
    Ok(rank)
}

/// Compares without telling by the time taken where the first difference is.
fn same(x: &[u8], y: &[u8]) -> bool {
    x.len() == y.len() && x.iter().zip(y).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

fn told(lost: &RankLost) -> Message {
    Message::Lost {
        ranks: lost.ranks.iter().map(|&rank| rank as u32).collect(),
        why: lost.why.clone(),
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a message of an admitted rank.
    fn take(&self, rank: usize, message: Message) -> Result<(), String> {
        let mut state = self.state();
        let Some(member) = &mut state.members[rank] else {
            return Err("it is not a member".to_owned());
        };
        member.beat = Instant::now();
        match message {
            Message::Beat => {}
            Message::Alive => member.progress.alive(),
            Message::Step { label } => member.progress.step(&label),
            Message::Post { round, parts } => {
                if parts.len() != self.ranks {
                    return Err(format!("it posted {} parts", parts.len()));
                }
                member.progress.alive();
                member.waiting = true;
                return self.post(&mut state, rank, round, parts);
            }
            other => return Err(format!("it sent {other:?}, which ranks do not send")),
        }
        Ok(())
    }

    fn post(&self, state: &mut State, rank: usize, round: u64, parts: Parts) -> Result<(), String> {
        let open = state
            .rounds
            .entry(round)
            .or_insert_with(|| vec![None; self.ranks]);
        if open[rank].replace(parts).is_some() {
            return Err(format!("it posted twice in round {round}"));
        }
        if state.rounds.len() > 1 {
            return Err(format!("it is in round {round}, others are not"));
        }
        if !state.rounds[&round].iter().all(Option::is_some) {
            return Ok(());
        }
        let Some(posts) = state.rounds.remove(&round) else {
            return Ok(());
        };
        let mut posts: Vec<Parts> = posts.into_iter().flatten().collect();
        let mut deaf = None;
        for (to, member) in state.members.iter_mut().enumerate() {
            let parts = posts.iter_mut().map(|p| std::mem::take(&mut p[to]));
            let inbox = Message::Inbox {
                round,
                parts: parts.collect(),
            };
            if let Some(member) = member {
                member.waiting = false;
                member.progress.alive();
                if inbox.write(&mut member.stream).is_err() {
                    deaf.get_or_insert(to);
                }
            }
        }
        if let Some(rank) = deaf {
            self.tell(
                state,
                RankLost {
                    ranks: vec![rank],
                    why: "it took no message: the process died or is stopped".to_owned(),
                },
            );
        }
        Ok(())
    }

    /// Ends the job if a rank has not joined, shows no sign of life or hangs.
    fn watch(&self) {
        let mut state = self.state();
        if state.lost.is_some() {
            return;
        }
        let absent: Vec<usize> = (0..self.ranks)
            .filter(|&rank| state.members[rank].is_none())
            .collect();
        if !absent.is_empty() && state.opened.elapsed() > self.timeout {
            let why = format!("not joined within {} s", self.timeout.as_secs_f64());
            return self.tell(&mut state, RankLost { ranks: absent, why });
        }
        // Half the timeout: a stopped process must be named before the ranks that
        // wait for it look as if they hang.
        let silence = self.timeout / 2;
        let members = || state.members.iter().enumerate();
        let silent = members().find_map(|(rank, member)| {
            let member = member.as_ref()?;
            (!member.left && member.beat.elapsed() > silence).then(|| RankLost {
                ranks: vec![rank],
                why: format!(
                    "no sign of life for {} s, last in step `{}`: the process is stopped or its host is gone",
                    silence.as_secs_f64(),
                    member.progress.label
                ),
            })
        });
        let busy: Vec<Option<&Progress>> = members()
            .map(|(_, member)| member.as_ref())
            .map(|member| member.filter(|m| !m.left && !m.waiting))
            .map(|member| member.map(|m| &m.progress))
            .collect();
        let early = state.rounds.values().next().and_then(|posts| {
            let gone = |rank: &usize| {
                let left = |m: &Member| m.left;
                posts[*rank].is_none() && state.members[*rank].as_ref().is_some_and(left)
            };
            (0..self.ranks).find(gone).map(|rank| RankLost {
                ranks: vec![rank],
                why: "it left while others wait for it".to_owned(),
            })
        });
        let lost = silent.or(early).or_else(|| hung(&busy, self.timeout));
        if let Some(lost) = lost {
            self.tell(&mut state, lost);
        }
    }

    fn lose(&self, rank: usize, why: &str) {
        let step = match &self.state().members[rank] {
            Some(member) if member.left => return,
            Some(member) => member.progress.label.clone(),
            None => String::new(),
        };
        self.fail(RankLost {
            ranks: vec![rank],
            why: format!("{why}, last in step `{step}`"),
        });
    }

    fn fail(&self, lost: RankLost) {
        if !self.stop.load(Ordering::Relaxed) {
            self.tell(&mut self.state(), lost);
        }
    }

    fn tell(&self, state: &mut State, lost: RankLost) {
        if state.lost.is_some() {
            return;
        }
        for member in state.members.iter_mut().flatten().filter(|m| !m.left) {
            let _ = told(&lost).write(&mut member.stream);
        }
        state.lost = Some(lost);
    }
}
