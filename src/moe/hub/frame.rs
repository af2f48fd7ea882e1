//! Messages of the TCP store, and reading them from a peer that is not trusted.
//!
//! A frame is a length (u32, little endian, of what follows), a kind byte and the
//! body. Nothing is allocated on the word of the length field: a body is read in
//! pieces as it arrives, up to a limit that depends on whether the peer has shown
//! the token. A body must be used up exactly.

use std::io::{self, Read, Write};

/// Version of this protocol; ranks of different builds must not meet.
pub const VERSION: u32 = 1;
/// Largest frame before a peer has shown the token.
pub const LIMIT_BEFORE: usize = 512;
/// Largest frame afterwards.
pub const LIMIT_AFTER: usize = 256 << 20;
const LONGEST_TEXT: usize = 4096;
const MOST_RANKS: usize = 65_536;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// First words of a rank.
    Hello {
        version: u32,
        token: Vec<u8>,
        rank: u32,
        ranks: u32,
    },
    Welcome,
    Refused {
        why: String,
    },
    /// A sign of life.
    Beat,
    Step {
        label: String,
    },
    Alive,
    Post {
        round: u64,
        parts: Vec<Vec<u8>>,
    },
    Inbox {
        round: u64,
        parts: Vec<Vec<u8>>,
    },
    Lost {
        ranks: Vec<u32>,
        why: String,
    },
    /// The rank is done.
    Bye,
}

#[derive(Debug)]
pub enum FrameError {
    /// The peer closed between two frames.
    Closed,
    Io(io::Error),
    /// Not a message of ours.
    Malformed(String),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::Closed => write!(f, "the connection was closed"),
            FrameError::Io(error) => write!(f, "{error}"),
            FrameError::Malformed(what) => write!(f, "malformed message: {what}"),
        }
    }
}

impl std::error::Error for FrameError {}

fn malformed(what: impl Into<String>) -> FrameError {
    FrameError::Malformed(what.into())
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Hello { .. } => 1,
            Message::Welcome => 2,
            Message::Refused { .. } => 3,
            Message::Beat => 4,
            Message::Step { .. } => 5,
            Message::Alive => 6,
            Message::Post { .. } => 7,
            Message::Inbox { .. } => 8,
            Message::Lost { .. } => 9,
            Message::Bye => 10,
        }
    }

    /// The frame's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.push(self.kind());
        match self {
            Message::Hello {
                version,
                token,
                rank,
                ranks,
            } => {
                for word in [version, rank, ranks] {
                    body.extend(word.to_le_bytes());
                }
                put_bytes(&mut body, token);
            }
            Message::Refused { why: text } | Message::Step { label: text } => {
                put_bytes(&mut body, text.as_bytes());
            }
            Message::Post { round, parts } | Message::Inbox { round, parts } => {
                body.extend(round.to_le_bytes());
                body.extend((parts.len() as u32).to_le_bytes());
                parts.iter().for_each(|part| put_bytes(&mut body, part));
            }
            Message::Lost { ranks, why } => {
                body.extend((ranks.len() as u32).to_le_bytes());
                for rank in ranks {
                    body.extend(rank.to_le_bytes());
                }
                put_bytes(&mut body, why.as_bytes());
            }
            Message::Welcome | Message::Beat | Message::Alive | Message::Bye => {}
        }
        let length = (body.len() - 4) as u32;
        body[..4].copy_from_slice(&length.to_le_bytes());
        body
    }

    /// # Errors
    /// When the kernel's buffer does not take it within the stream's write timeout.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.encode())?;
        to.flush()
    }

    /// Reads one message of at most `limit` bytes.
    pub fn read(from: &mut impl Read, limit: usize) -> Result<Message, FrameError> {
        let mut length = [0u8; 4];
        let mut have = 0;
        while have < length.len() {
            match from.read(&mut length[have..]) {
                Ok(0) if have == 0 => return Err(FrameError::Closed),
                Ok(0) => return Err(malformed("it ends within its length field")),
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FrameError::Io(error)),
            }
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 || length > limit {
            return Err(malformed(format!(
                "a length of {length}; expected 1 to {limit}"
            )));
        }
        let mut body = Vec::with_capacity(length.min(64 << 10));
        let read = from.take(length as u64).read_to_end(&mut body);
        read.map_err(FrameError::Io)?;
        if body.len() != length {
            return Err(malformed(format!(
                "{} bytes of the {length} announced",
                body.len()
            )));
        }
        Message::decode(&body)
    }

    fn decode(body: &[u8]) -> Result<Message, FrameError> {
        let (&kind, rest) = body.split_first().ok_or_else(|| malformed("empty"))?;
        let mut rest = Rest(rest);
        let message = match kind {
            1 => Message::Hello {
                version: rest.word()?,
                rank: rest.word()?,
                ranks: rest.word()?,
                token: rest.bytes()?,
            },
            2 => Message::Welcome,
            3 => Message::Refused { why: rest.text()? },
            4 => Message::Beat,
            5 => Message::Step {
                label: rest.text()?,
            },
            6 => Message::Alive,
            7 => Message::Post {
                round: rest.long()?,
                parts: rest.parts()?,
            },
            8 => Message::Inbox {
                round: rest.long()?,
                parts: rest.parts()?,
            },
            9 => Message::Lost {
                ranks: rest.ranks()?,
                why: rest.text()?,
            },
            10 => Message::Bye,
            other => return Err(malformed(format!("kind {other}"))),
        };
        match rest.0.len() {
            0 => Ok(message),
            left => Err(malformed(format!("{left} bytes too many"))),
        }
    }
}

fn put_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend((bytes.len() as u32).to_le_bytes());
    body.extend_from_slice(bytes);
}

/// What is left of a body.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, n: usize) -> Result<&[u8], FrameError> {
        if n > self.0.len() {
            return Err(malformed(format!(
                "{n} bytes expected, {} left",
                self.0.len()
            )));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn word(&mut self) -> Result<u32, FrameError> {
        let bytes = self.take(4)?.try_into();
        bytes
            .map(u32::from_le_bytes)
            .map_err(|_| malformed("a word"))
    }

    fn long(&mut self) -> Result<u64, FrameError> {
        let bytes = self.take(8)?.try_into();
        bytes
            .map(u64::from_le_bytes)
            .map_err(|_| malformed("a long"))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, FrameError> {
        let length = self.word()? as usize;
        Ok(self.take(length)?.to_vec())
    }

    fn text(&mut self) -> Result<String, FrameError> {
        let bytes = self.bytes()?;
        if bytes.len() > LONGEST_TEXT {
            return Err(malformed(format!("a text of {} bytes", bytes.len())));
        }
        String::from_utf8(bytes).map_err(|_| malformed("a text that is not UTF-8"))
    }

    /// A count of things that take at least four bytes each.
    fn count(&mut self) -> Result<usize, FrameError> {
        let count = self.word()? as usize;
        if count > MOST_RANKS || count > self.0.len() / 4 {
            return Err(malformed(format!(
                "{count} parts in {} bytes",
                self.0.len()
            )));
        }
        Ok(count)
    }

    fn parts(&mut self) -> Result<Vec<Vec<u8>>, FrameError> {
        (0..self.count()?).map(|_| self.bytes()).collect()
    }

    fn ranks(&mut self) -> Result<Vec<u32>, FrameError> {
        (0..self.count()?).map(|_| self.word()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::generate::word;

    fn samples() -> Vec<Message> {
        vec![
            Message::Hello {
                version: VERSION,
                token: b"0123".to_vec(),
                rank: 3,
                ranks: 8,
            },
            Message::Welcome,
            Message::Refused { why: "no".into() },
            Message::Beat,
            Message::Step {
                label: "dispatch µ".into(),
            },
            Message::Alive,
            Message::Post {
                round: u64::MAX,
                parts: vec![vec![], vec![1, 2, 3], vec![0; 1000]],
            },
            Message::Inbox {
                round: 0,
                parts: vec![],
            },
            Message::Lost {
                ranks: vec![1, 2],
                why: "gone".into(),
            },
            Message::Bye,
        ]
    }

    fn read(bytes: &[u8]) -> Result<Message, FrameError> {
        Message::read(&mut &bytes[..], LIMIT_AFTER)
    }

    #[test]
    fn every_message_reads_back() {
        for message in samples() {
            assert_eq!(read(&message.encode()).unwrap(), message);
        }
    }

    #[test]
    fn a_message_that_is_cut_short_or_too_long_is_refused_at_every_length() {
        for message in samples() {
            let bytes = message.encode();
            for cut in 0..bytes.len() {
                assert!(read(&bytes[..cut]).is_err(), "{message:?} cut to {cut}");
                // The same with a length field that agrees.
                if cut > 4 {
                    let mut agreed = bytes[..cut].to_vec();
                    agreed[..4].copy_from_slice(&((cut - 4) as u32).to_le_bytes());
                    assert!(read(&agreed).is_err(), "{message:?} cut to {cut}");
                }
            }
            let mut long = bytes.clone();
            long.push(0);
            let length = (long.len() - 4) as u32;
            long[..4].copy_from_slice(&length.to_le_bytes());
            assert!(matches!(read(&long), Err(FrameError::Malformed(_))));
        }
    }

    /// Random bytes and random changes of good messages: an error or a message that
    /// reads back as itself, never a panic or a large allocation.
    #[test]
    fn rubbish_never_panics() {
        let samples = samples();
        for seed in 0..20_000u64 {
            let pick = word(seed, 0) as usize;
            let mut bytes = match seed % 2 {
                0 => samples[pick % samples.len()].encode(),
                _ => (0..pick % 64).map(|i| word(seed, i as u64) as u8).collect(),
            };
            for change in 1..4 {
                if let Some(byte) = bytes
                    .len()
                    .checked_sub(1)
                    .map(|last| word(seed, change) as usize % (last + 1))
                {
                    bytes[byte] = (word(seed, change) >> 32) as u8;
                }
            }
            if let Ok(message) = read(&bytes) {
                assert_eq!(read(&message.encode()).unwrap(), message, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_read() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.extend([7; 100]);
        assert!(matches!(read(&bytes), Err(FrameError::Malformed(_))));
        // Within the limit but not there: what arrived is all that is held.
        let mut bytes = (LIMIT_AFTER as u32).to_le_bytes().to_vec();
        bytes.extend([7; 100]);
        assert!(matches!(read(&bytes), Err(FrameError::Malformed(_))));
        let hello = &samples()[6].encode();
        assert!(Message::read(&mut &hello[..], LIMIT_BEFORE).is_err());
    }

    #[test]
    fn a_count_larger_than_the_body_is_refused() {
        let mut body = vec![7u8];
        body.extend(1u64.to_le_bytes());
        body.extend(60_000u32.to_le_bytes());
        assert!(Message::decode(&body).is_err());
    }
}
