//! Reading the two outputs of a call at once, within limits, without a thread.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// After the end of the output, how long a descendant that holds the other pipe is waited for.
const REST_LIMIT: Duration = Duration::from_secs(5);

/// One output of a call, as far as it was read.
pub(super) struct Pipe {
    file: Option<File>,
    limit_bytes: u64,
    /// What came, up to the limit.
    pub(super) bytes: Vec<u8>,
    /// Whether more came than the limit.
    pub(super) cut: bool,
}

impl Pipe {
    /// Builds it; a call whose output goes elsewhere has none.
    pub(super) fn new(pipe: Option<OwnedFd>, limit_bytes: u64) -> Self {
        Self { file: pipe.map(File::from), limit_bytes, bytes: Vec::new(), cut: false }
    }

    /// Reads once, and closes the pipe at its end.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let count = match file.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            read => read?,
        };
        if count == 0 {
            self.file = None;
        }
        let room = usize::try_from(self.limit_bytes).unwrap_or(usize::MAX).saturating_sub(self.bytes.len());
        self.cut |= count > room;
        self.bytes.extend_from_slice(chunk.get(..count.min(room)).unwrap_or_default());
        Ok(())
    }
}

/// Reads both to their ends. Returns whether that was done within `limit`.
///
/// The first one is the answer: once it has ended, a descendant that keeps the second open is not
/// waited for any longer than a few seconds.
pub(super) fn read_both(first: &mut Pipe, second: &mut Pipe, limit: Duration) -> io::Result<bool> {
    let mut deadline = Instant::now() + limit;
    let mut chunk = vec![0; CHUNK_BYTES];
    let has_answer = first.file.is_some();
    let mut waits_for_rest = false;
    while first.file.is_some() || second.file.is_some() {
        if has_answer && first.file.is_none() && !waits_for_rest {
            waits_for_rest = true;
            deadline = Instant::now() + REST_LIMIT;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(waits_for_rest);
        }
        let [first_is_ready, second_is_ready] = wait(first, second, left)?;
        if first_is_ready {
            first.read(&mut chunk)?;
        }
        if second_is_ready {
            second.read(&mut chunk)?;
        }
    }
    Ok(true)
}

/// Waits until one of them can be read, or until the time is up.
fn wait(first: &Pipe, second: &Pipe, limit: Duration) -> io::Result<[bool; 2]> {
    let mut polled = Vec::with_capacity(2);
    for pipe in [first, second] {
        polled.extend(pipe.file.as_ref().map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)));
    }
    match poll(&mut polled, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)) {
        Ok(_) => {}
        Err(nix::errno::Errno::EINTR) => return Ok([false, false]),
        Err(error) => return Err(error.into()),
    }
    let mut ready = polled.iter().map(|one| one.any().unwrap_or(true));
    let mut of = |pipe: &Pipe| pipe.file.is_some() && ready.next().unwrap_or(false);
    Ok([of(first), of(second)])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair(limit_bytes: u64) -> (Pipe, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        (Pipe::new(Some(reader.into()), limit_bytes), writer)
    }

    #[test]
    fn both_are_read_to_their_ends_whichever_fills_first() {
        let ((mut first, mut to_first), (mut second, mut to_second)) = (pair(1 << 30), pair(1 << 30));
        let writer = std::thread::spawn(move || {
            to_second.write_all(&vec![b'e'; 300_000]).unwrap();
            to_first.write_all(&vec![b'o'; 300_000]).unwrap();
        });
        assert!(read_both(&mut first, &mut second, Duration::from_secs(60)).unwrap());
        writer.join().unwrap();
        assert_eq!((first.bytes.len(), first.cut), (300_000, false));
        assert_eq!((second.bytes.len(), second.cut), (300_000, false));
    }

    #[test]
    fn what_is_over_the_limit_is_drained_and_told() {
        let (mut first, mut to_first) = pair(10);
        let mut second = Pipe::new(None, 10);
        to_first.write_all(b"0123456789abc").unwrap();
        drop(to_first);
        assert!(read_both(&mut first, &mut second, Duration::from_secs(60)).unwrap());
        assert_eq!((first.bytes.as_slice(), first.cut), (&b"0123456789"[..], true));
    }

    #[test]
    fn a_call_that_says_nothing_is_given_up() {
        let ((mut first, _open), (mut second, _also_open)) = (pair(10), pair(10));
        assert!(!read_both(&mut first, &mut second, Duration::from_millis(20)).unwrap());
    }
}
