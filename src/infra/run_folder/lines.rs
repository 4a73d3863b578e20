//! Reading lines of files of any size, in bounded memory.

use std::fs::File;
use std::io::{BufRead, Read, Seek, SeekFrom};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// The longest line that is handed on whole. A longer one is cut here, so that it no longer reads
/// as JSON and is counted by whoever decodes it.
const LINE_MAX_BYTES: usize = 64 << 20;

/// Calls `take` with each line from `offset` on, and returns the offset after the last whole line;
/// with `last` a cut last line counts as whole.
pub(super) fn read(file: File, offset: u64, last: bool, take: &mut dyn FnMut(&[u8])) -> std::io::Result<u64> {
    read_up_to(file, offset, last, LINE_MAX_BYTES, take)
}

fn read_up_to(
    mut file: File,
    offset: u64,
    last: bool,
    line_max: usize,
    take: &mut dyn FnMut(&[u8]),
) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut begun = Begun { bytes: Vec::new(), length: 0, line_max };
    let mut done = offset;
    loop {
        let count = match file.read(&mut chunk) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let mut rest = chunk.get(..count).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let before = rest;
            let length = rest.skip_until(b'\n')?;
            let piece = before.get(..length).unwrap_or_default();
            if let Some(line) = piece.strip_suffix(b"\n") {
                done = done.saturating_add(begun.finish(line, take)).saturating_add(1);
            } else {
                begun.add(piece);
            }
        }
    }
    if last && begun.length > 0 {
        done = done.saturating_add(begun.finish(b"", take));
    }
    Ok(done)
}

/// A line whose beginning lay in an earlier chunk.
struct Begun {
    bytes: Vec<u8>,
    /// Its true length so far in bytes, which may be more than is kept.
    length: u64,
    line_max: usize,
}

impl Begun {
    fn add(&mut self, piece: &[u8]) {
        let room = self.line_max.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(piece.get(..room).unwrap_or(piece));
        self.length = self.length.saturating_add(piece.len() as u64);
    }

    /// Hands the line on with its end, and returns its true length.
    fn finish(&mut self, end: &[u8], take: &mut dyn FnMut(&[u8])) -> u64 {
        if self.length == 0 {
            take(end.get(..self.line_max).unwrap_or(end));
            return end.len() as u64;
        }
        self.add(end);
        take(&self.bytes);
        // One huge line must not keep its memory for the rest of the file.
        self.bytes.clear();
        self.bytes.shrink_to(CHUNK_BYTES);
        std::mem::take(&mut self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn all(content: &[u8], offset: u64, last: bool, line_max: usize) -> (Vec<Vec<u8>>, u64) {
        let mut lines = Vec::new();
        let end = read_up_to(file(content), offset, last, line_max, &mut |line| lines.push(line.to_vec())).unwrap();
        (lines, end)
    }

    #[test]
    fn a_cut_last_line_waits_for_its_end() {
        assert_eq!(all(b"one\n\ntw", 0, false, 99), (vec![b"one".to_vec(), vec![]], 5));
        assert_eq!(all(b"one\n\ntw", 5, true, 99), (vec![b"tw".to_vec()], 7));
        assert_eq!(all(b"one\n", 4, true, 99), (vec![], 4));
        assert_eq!(all(b"one\n", 99, true, 99), (vec![], 99));
    }

    #[test]
    fn long_lines_cross_chunks_and_longer_ones_are_cut() {
        let mut content = vec![b'a'; CHUNK_BYTES * 2 + 5];
        content.extend_from_slice(b"\nshort\n");
        let (lines, end) = all(&content, 0, false, LINE_MAX_BYTES);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_BYTES * 2 + 5, 5]);
        assert_eq!(end, content.len() as u64);
        let (lines, cut_end) = all(&content, 0, false, CHUNK_BYTES + 1);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_BYTES + 1, 5]);
        assert_eq!(cut_end, end, "what is cut off is still read past");
    }

    proptest! {
        #[test]
        fn lines_are_those_of_split(content in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200)) {
            let (lines, end) = all(&content, 0, true, 999);
            let mut expected: Vec<Vec<u8>> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            prop_assert_eq!(lines, expected);
            prop_assert_eq!(end, content.len() as u64);
        }
    }
}
