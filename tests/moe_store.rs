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
        holder: None,
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

/// A byte every second is a sign of life, not a greeting.
#[test]
fn a_stranger_that_drips_is_shown_the_door() {
    let server = server(1, Duration::from_secs(60));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let started = Instant::now();
    // The length of a frame, then one byte of it at a time.
    stream.write_all(&400u32.to_le_bytes()).unwrap();
    while started.elapsed() < Duration::from_secs(12) {
        if stream.write_all(&[1]).is_err() {
            assert!(started.elapsed() < Duration::from_secs(10));
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!("after {:?} it is still listened to", started.elapsed());
}

/// More of them than the store attends to at once.
#[test]
fn a_rank_gets_past_a_crowd_of_silent_strangers() {
    let server = server(1, Duration::from_secs(60));
    let crowd: Vec<TcpStream> = (0..80)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let patient = Joining {
        timeout: Duration::from_secs(30),
        ..joining(&server, 0, 1)
    };
    let hub = TcpHub::join(&patient).unwrap();
    assert_eq!(gather(&hub, b"here").unwrap(), [b"here"]);
    drop(crowd);
    assert_eq!(server.lost(), None);
}

/// Rubbish from a rank that was let in: never a panic or a hang, always its name.
#[test]
fn an_admitted_rank_that_sends_rubbish_is_named_whatever_it_is() {
    for seed in 0..40u64 {
        let job = server(2, Duration::from_secs(60));
        let waiting = TcpHub::join(&joining(&job, 0, 2)).unwrap();
        let mut odd = raw(&job, 1, 2);
        let length = 5 + word(seed, 0) as usize % 300;
        let mut bytes: Vec<u8> = (0..length)
            .map(|i| word(seed, 9 + i as u64) as u8)
            .collect();
        match seed % 4 {
            // Any bytes; a frame of any bytes; one larger than allowed; one cut short.
            0 => bytes[3] |= 0x80,
            1 => drop(bytes.splice(..0, (length as u32).to_le_bytes())),
            2 => bytes = (300u32 << 20).to_le_bytes().to_vec(),
            _ => drop(bytes.splice(..0, (length as u32 + 50).to_le_bytes())),
        }
        odd.write_all(&bytes).unwrap();
        odd.shutdown(std::net::Shutdown::Write).unwrap();
        let error = gather(&waiting, b"").unwrap_err();
        assert_eq!(error.ranks, [1], "seed {seed}: {error}");
    }
}

/// Something else listens at the store's address.
#[test]
fn a_store_that_is_none_is_an_error_in_time() {
    let answers: [(&str, &[u8]); 6] = [
        ("silence", b""),
        ("a web server", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("a huge frame", &[0xff; 64]),
        ("another message", &[1, 0, 0, 0, 4]),
        ("a cut frame", &[9, 0, 0, 0, 3, 1]),
        ("a goodbye", b"bye"),
    ];
    for (what, answer) in answers {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stranger = std::thread::spawn(move || {
            listener.set_nonblocking(true).unwrap();
            let started = Instant::now();
            let mut open = Vec::new();
            while started.elapsed() < Duration::from_secs(4) {
                if let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.write_all(answer);
                    // A goodbye closes.
                    if answer != b"bye" {
                        open.push(stream);
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let started = Instant::now();
        let lost = refused(&Joining {
            address,
            token: TOKEN.to_owned(),
            rank: 0,
            ranks: 1,
            timeout: Duration::from_secs(1),
            exit_after: None,
            holder: None,
        });
        assert!(started.elapsed() < Duration::from_secs(4), "{what}: {lost}");
        assert!(lost.contains("store"), "{what}: {lost}");
        drop(stranger);
    }
}

/// The rank that holds the store is the one that is missed with it.
#[test]
fn the_holder_of_a_store_that_is_gone_is_named() {
    let store = server(2, Duration::from_secs(60));
    let hub = TcpHub::join(&Joining {
        holder: Some(0),
        ..joining(&store, 1, 2)
    })
    .unwrap();
    drop(store);
    let error = gather(&hub, b"").unwrap_err();
    assert_eq!(error.ranks, [0], "{error}");
    assert!(error.why.contains("the store is gone"), "{error}");
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
