//! One rank's connection to the TCP store.

use crate::errln;
use std::io::BufReader;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::deadline::Until;
use super::frame::{FrameError, LIMIT_AFTER, LIMIT_BEFORE, Message, VERSION};
use super::{Hub, RankLost};

type Parts = Vec<Vec<u8>>;

/// What a rank needs to join.
#[derive(Debug, Clone)]
pub struct Joining {
    /// `HOST:PORT` of the store.
    pub address: String,
    pub token: String,
    pub rank: usize,
    pub ranks: usize,
    pub timeout: Duration,
    /// End this process so long after a rank was lost, whatever it is doing: a
    /// thread that waits inside a collective for a dead peer cannot be woken.
    pub exit_after: Option<Duration>,
    /// The rank that holds the store, where one of them does: it is lost when the
    /// store is.
    pub holder: Option<usize>,
}

#[derive(Default)]
struct Received {
    inbox: Option<(u64, Parts)>,
    lost: Option<RankLost>,
}

#[derive(Default)]
struct Mailbox {
    received: Mutex<Received>,
    changed: Condvar,
    done: AtomicBool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank's end of the store.
pub struct TcpHub {
    rank: usize,
    ranks: usize,
    round: Mutex<u64>,
    writer: Arc<Mutex<TcpStream>>,
    mailbox: Arc<Mailbox>,
}

impl TcpHub {
    /// Connects, shows the token, and starts listening and beating.
    ///
    /// # Errors
    /// [`RankLost`] without ranks: the store was not reached in time, or refused.
    pub fn join(joining: &Joining) -> Result<TcpHub, RankLost> {
        let failed = |why: String| RankLost {
            ranks: Vec::new(),
            why,
        };
        let io = |e: std::io::Error| failed(format!("the store at {}: {e}", joining.address));
        let stream = greet(joining)?;
        stream.set_read_timeout(None).map_err(io)?;
        let mailbox = Arc::new(Mailbox::default());
        let reader = stream.try_clone().map_err(io)?;
        let writer = Arc::new(Mutex::new(stream));
        listen(reader, Arc::clone(&mailbox), joining).map_err(io)?;
        beat(Arc::clone(&writer), Arc::clone(&mailbox), joining.timeout).map_err(io)?;
        Ok(TcpHub {
            rank: joining.rank,
            ranks: joining.ranks,
            round: Mutex::new(0),
            writer,
            mailbox,
        })
    }

    fn send(&self, message: &Message) -> bool {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        message.write(&mut *writer).is_ok()
    }
}

/// Connects and shows the token until the store says welcome or no. A store that is
/// not there yet, or closes because too many peers are at its door, is asked again.
fn greet(joining: &Joining) -> Result<TcpStream, RankLost> {
    let failed = |why: String| RankLost {
        ranks: Vec::new(),
        why,
    };
    let started = Instant::now();
    loop {
        let error = match connect(joining).and_then(|stream| first_words(joining, stream)) {
            Ok(Answer::Welcome(stream)) => return Ok(stream),
            Ok(Answer::Refused(why)) => {
                return Err(failed(format!(
                    "the store at {} refused rank {}: {why}",
                    joining.address, joining.rank
                )));
            }
            Ok(Answer::Other(what)) => {
                return Err(failed(format!(
                    "what listens at {} is no store of ours: {what}",
                    joining.address
                )));
            }
            Err(error) => error,
        };
        if started.elapsed() > joining.timeout {
            let resolved = joining.address.to_socket_addrs().is_ok();
            let hint = if resolved {
                "is rank 0 running, and the port open?"
            } else {
                "the name does not resolve"
            };
            return Err(failed(format!(
                "no store at {} within {} s ({error}); {hint}",
                joining.address,
                joining.timeout.as_secs_f64()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// To the first address that answers; none may take longer than the job's timeout.
fn connect(joining: &Joining) -> std::io::Result<TcpStream> {
    let mut last = std::io::ErrorKind::NotFound.into();
    for address in joining.address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, joining.timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

enum Answer {
    Welcome(TcpStream),
    Refused(String),
    /// Not a message of a store, or none in time.
    Other(String),
}

/// # Errors
/// A connection that is closed before an answer.
fn first_words(joining: &Joining, mut stream: TcpStream) -> std::io::Result<Answer> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(joining.timeout))?;
    let hello = Message::Hello {
        version: VERSION,
        token: joining.token.as_bytes().to_vec(),
        rank: joining.rank as u32,
        ranks: joining.ranks as u32,
    };
    hello.write(&mut stream)?;
    // A refusal is longer than a greeting, never longer than a text.
    let mut reader = Until::within(&stream, joining.timeout);
    match Message::read(&mut reader, 16 * LIMIT_BEFORE) {
        Ok(Message::Welcome) => Ok(Answer::Welcome(stream)),
        Ok(Message::Refused { why }) => Ok(Answer::Refused(why)),
        Ok(other) => Ok(Answer::Other(format!("it answered {other:?}"))),
        Err(FrameError::Closed) => Err(std::io::ErrorKind::ConnectionReset.into()),
        Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => {
            Err(error)
        }
        Err(error) => Ok(Answer::Other(error.to_string())),
    }
}

fn listen(stream: TcpStream, mailbox: Arc<Mailbox>, joining: &Joining) -> std::io::Result<()> {
    let (holder, exit_after) = (joining.holder, joining.exit_after);
    let spawn = std::thread::Builder::new().name("store-listener".into());
    spawn.spawn(move || {
        let mut reader = BufReader::new(stream);
        let lost = loop {
            match Message::read(&mut reader, LIMIT_AFTER) {
                Ok(Message::Inbox { round, parts }) => {
                    mailbox.lock().inbox = Some((round, parts));
                    mailbox.changed.notify_all();
                }
                Ok(Message::Lost { ranks, why }) => {
                    break RankLost {
                        ranks: ranks.into_iter().map(|rank| rank as usize).collect(),
                        why,
                    };
                }
                Ok(_) => {}
                Err(error) => {
                    break RankLost {
                        ranks: holder.into_iter().collect(),
                        why: format!("the store is gone: {error}"),
                    };
                }
            }
        };
        if mailbox.done.load(Ordering::Relaxed) {
            return;
        }
        mailbox.lock().lost = Some(lost.clone());
        mailbox.changed.notify_all();
        let Some(grace) = exit_after else { return };
        std::thread::sleep(grace);
        if !mailbox.done.load(Ordering::Relaxed) {
            errln!("error: {lost}; this rank was still waiting for it and is ended");
            // SAFETY: ends the process without running destructors, which could
            // wait for a device that waits for the lost rank.
            unsafe { libc::_exit(i32::from(crate::exit::Exit::CouldNotRun.code())) }
        }
    })?;
    Ok(())
}

fn beat(
    writer: Arc<Mutex<TcpStream>>,
    mailbox: Arc<Mailbox>,
    timeout: Duration,
) -> std::io::Result<()> {
    let spawn = std::thread::Builder::new().name("store-beat".into());
    spawn.spawn(move || {
        let pause = (timeout / 10).min(Duration::from_secs(1));
        while !mailbox.done.load(Ordering::Relaxed) {
            let mut writer_now = writer.lock().unwrap_or_else(PoisonError::into_inner);
            if Message::Beat.write(&mut *writer_now).is_err() {
                return;
            }
            drop(writer_now);
            std::thread::sleep(pause);
        }
    })?;
    Ok(())
}

impl Drop for TcpHub {
    fn drop(&mut self) {
        self.mailbox.done.store(true, Ordering::Relaxed);
        // Without the farewell the store reports this rank as dead: right for a
        // panic, wrong for a rank that is done.
        if !std::thread::panicking() {
            self.send(&Message::Bye);
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.shutdown(std::net::Shutdown::Both);
    }
}

impl Hub for TcpHub {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn exchange(&self, parts: Parts) -> Result<Parts, RankLost> {
        assert_eq!(parts.len(), self.ranks, "one part for each rank");
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.send(&Message::Post {
            round: *round,
            parts,
        });
        let mut received = self.mailbox.lock();
        loop {
            if let Some(lost) = &received.lost {
                return Err(lost.clone());
            }
            match received.inbox.take() {
                Some((of, parts)) if of == *round && parts.len() == self.ranks => {
                    *round += 1;
                    return Ok(parts);
                }
                Some((of, parts)) => {
                    return Err(RankLost {
                        ranks: Vec::new(),
                        why: format!(
                            "the store answered round {of} with {} parts in round {round}",
                            parts.len()
                        ),
                    });
                }
                None if !sent => {
                    // The listener learns why; it may take a moment.
                    drop(received);
                    std::thread::sleep(Duration::from_millis(100));
                    return Err(self.mailbox.lock().lost.clone().unwrap_or(RankLost {
                        ranks: Vec::new(),
                        why: "the store takes no more messages".to_owned(),
                    }));
                }
                None => {}
            }
            let waited = self
                .mailbox
                .changed
                .wait_timeout(received, Duration::from_secs(1));
            received = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn step(&self, label: &str) {
        self.send(&Message::Step {
            label: label.chars().take(200).collect(),
        });
    }

    fn alive(&self) {
        self.send(&Message::Alive);
    }
}
