//! The TCP store against peers that are not ranks, and ranks that are lost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kernelgate::moe::generate::word;
use kernelgate::moe::hub::client::{Joining, TcpHub};
use kernelgate::moe::hub::frame::{Message, VERSION};
use kernelgate::moe::hub::server::Server;
use kernelgate::moe::hub::{Hub, RankLost, gather};

const TOKEN: &str = "0123456789abcdef";

fn server(ranks: usize, timeout: Duration) -> Server {
    Server::start(("127.0.0.1", 0), TOKEN, ranks, timeout).unwrap()
}

fn joining(server: &Server, rank: usize, ranks: usize) -> Joining {
    Joining {
        address: server.address().to_string(),
        token: TOKEN.to_owned(),
        rank,
        ranks,
        timeout: Duration::from_secs(5),
        exit_after: None,
    }
}

fn refused(joining: &Joining) -> String {
    match TcpHub::join(joining) {
        Ok(_) => panic!("{joining:?} was let in"),
        Err(RankLost { why, .. }) => why,
    }
}

#[test]
fn ranks_exchange_parts_in_rounds() {
    let ranks = 4;
    let server = server(ranks, Duration::from_secs(20));
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let joining = joining(&server, rank, ranks);
            scope.spawn(move || {
                let hub = TcpHub::join(&joining).unwrap();
                for round in 0..50u8 {
                    hub.step("round");
                    let me = rank as u8;
                    let parts = (0..ranks as u8).map(|to| vec![me, to, round]).collect();
                    let inbox = hub.exchange(parts).unwrap();
                    let want: Vec<Vec<u8>> =
                        (0..ranks as u8).map(|from| vec![from, me, round]).collect();
                    assert_eq!(inbox, want);
                }
                gather(&hub, &vec![7; 3 << 20]).unwrap();
            });
        }
    });
    assert_eq!(server.lost(), None);
}

#[test]
fn a_wrong_token_rank_or_job_is_refused_and_the_job_goes_on() {
    let server = server(1, Duration::from_secs(20));
    let good = joining(&server, 0, 1);
    for token in [
        "",
        "0123456789abcdeF",
        "0123456789abcde",
        "0123456789abcdef0",
    ] {
        let wrong = Joining {
            token: token.to_owned(),
            ..good.clone()
        };
        assert!(refused(&wrong).contains("wrong token"), "{token}");
    }
    assert!(refused(&joining(&server, 1, 2)).contains("rank 1 of 2"));
    assert!(refused(&joining(&server, 1, 1)).contains("rank 1 of 1"));
    let hub = TcpHub::join(&good).unwrap();
    assert!(refused(&good).contains("rank 0 is taken"));
    assert_eq!(gather(&hub, b"x").unwrap(), [b"x"]);
    assert_eq!(server.lost(), None);
}

/// Rubbish, silence and early goodbyes from strangers, before and during a job.
#[test]
fn strangers_cannot_disturb_a_job() {
    let server = server(1, Duration::from_secs(20));
    let mut kept = Vec::new();
    for seed in 0..60u64 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let length = word(seed, 0) as usize % 2000;
        let bytes: Vec<u8> = (0..length).map(|i| word(seed, i as u64) as u8).collect();
        let sent = match seed % 4 {
            0 => bytes,
            1 => Vec::new(),
            2 => u32::MAX.to_le_bytes().to_vec(),
            _ => Message::Post {
                round: 0,
                parts: vec![bytes],
            }
            .encode(),
        };
        let _ = stream.write_all(&sent);
        if seed % 8 == 1 && kept.len() < 8 {
            kept.push(stream);
        }
    }
    let hub = TcpHub::join(&joining(&server, 0, 1)).unwrap();
    assert_eq!(gather(&hub, b"still here").unwrap(), [b"still here"]);
    assert_eq!(server.lost(), None);
}

#[test]
fn a_silent_stranger_is_shown_the_door() {
    let server = server(1, Duration::from_secs(20));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(12)))
        .unwrap();
    let started = Instant::now();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// An admitted rank's connection by hand.
fn raw(server: &Server, rank: u32, ranks: u32) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let hello = Message::Hello {
        version: VERSION,
        token: TOKEN.as_bytes().to_vec(),
        rank,
        ranks,
    };
    hello.write(&mut stream).unwrap();
    let welcome = Message::read(&mut stream, 4096).unwrap();
    assert_eq!(welcome, Message::Welcome);
    stream
}

fn lost(server: &Server, within: Duration) -> RankLost {
    let started = Instant::now();
    while started.elapsed() < within {
        if let Some(lost) = server.lost() {
            return lost;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody was missed within {within:?}");
}

#[test]
fn a_rank_that_dies_or_talks_rubbish_is_named_at_once() {
    let soon = Duration::from_secs(3);
    let job = server(2, Duration::from_secs(60));
    let waiting = TcpHub::join(&joining(&job, 0, 2)).unwrap();
    let mut dying = raw(&job, 1, 2);
    let step = Message::Step {
        label: "dispatch".into(),
    };
    step.write(&mut dying).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(dying);
    let error = gather(&waiting, b"").unwrap_err();
    assert_eq!(error.ranks, [1]);
    assert!(
        error.why.contains("died") && error.why.contains("`dispatch`"),
        "{error}"
    );
    assert_eq!(lost(&job, soon), error);

    let job = server(2, Duration::from_secs(60));
    raw(&job, 1, 2).write_all(&[1, 0, 0, 0, 99]).unwrap();
    assert!(lost(&job, soon).why.contains("malformed"));

    let job = server(2, Duration::from_secs(60));
    let post = Message::Post {
        round: 0,
        parts: vec![vec![]; 5],
    };
    let mut odd = raw(&job, 1, 2);
    post.write(&mut odd).unwrap();
    assert!(lost(&job, soon).why.contains("5 parts"));
}

#[test]
fn a_rank_that_never_joins_is_silent_or_makes_no_progress_is_named_in_time() {
    let timeout = Duration::from_secs(1);
    let soon = Duration::from_secs(4);
    let job = server(3, timeout);
    let _first = TcpHub::join(&joining(&job, 0, 3)).unwrap();
    let missing = lost(&job, soon);
    assert_eq!(missing.ranks, [1, 2]);
    assert!(missing.why.contains("not joined"));

    let job = server(1, timeout);
    let _silent = raw(&job, 0, 1);
    assert!(lost(&job, soon).why.contains("no sign of life"));

    let job = server(2, timeout);
    let ahead = TcpHub::join(&joining(&job, 0, 2)).unwrap();
    let behind = TcpHub::join(&joining(&job, 1, 2)).unwrap();
    ahead.step("gather counts");
    ahead.step("dispatch");
    behind.step("gather counts");
    let hung = lost(&job, soon);
    assert_eq!(hung.ranks, [1], "{hung}");
    assert!(hung.why.contains("`gather counts`"), "{hung}");
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let job = server(2, Duration::from_secs(60));
    let waiting = TcpHub::join(&joining(&job, 0, 2)).unwrap();
    drop(TcpHub::join(&joining(&job, 1, 2)).unwrap());
    let error = gather(&waiting, b"").unwrap_err();
    assert_eq!(error.ranks, [1], "{error}");
    assert!(error.why.contains("left"), "{error}");
}
