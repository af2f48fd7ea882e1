//! Reading from a peer that may send a byte now and then.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream that gives what comes before an instant, however it is spread. A read
/// timeout alone starts anew with every byte.
pub struct Until<'s> {
    stream: &'s TcpStream,
    end: Instant,
}

impl Until<'_> {
    pub fn within(stream: &TcpStream, time: Duration) -> Until<'_> {
        Until {
            stream,
            end: Instant::now() + time,
        }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}
