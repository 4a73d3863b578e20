//! Reads the entries of an index that Lane's own git call has just written.
//!
//! Asking git to list ten thousand entries costs as much as a tenth of checking them out; one look
//! at the file does not. Only the plain versions 2 and 3 are read, which Lane's calls write.

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Its mode, as git has it.
    pub(super) mode: u32,
    /// Its object id, in bytes.
    pub(super) id: &'a [u8],
    /// Its path from the root.
    pub(super) path: &'a [u8],
}

/// Bytes of a file's times, sizes and owners in front of the object id.
const STAT_BYTES: usize = 40;

/// Where the mode stands among them.
const MODE_AT: usize = 24;

/// Returns all entries; `None` when the file is anything else than a whole index of a plain version.
///
/// `id_bytes` is the length of an object id: 20 (SHA-1) or 32 (SHA-256).
pub(super) fn entries(bytes: &[u8], id_bytes: usize) -> Option<Vec<Entry<'_>>> {
    let version = number(bytes, 4)?;
    if !bytes.starts_with(b"DIRC") || !matches!(version, 2 | 3) {
        return None;
    }
    let count = number(bytes, 8)?;
    let mut found = Vec::new();
    let mut at = 12_usize;
    for _ in 0..count {
        let entry = bytes.get(at..)?;
        let flags_at = STAT_BYTES.checked_add(id_bytes)?;
        let extended = entry.get(flags_at)? & 0x40 != 0;
        let path_at = flags_at.checked_add(if extended { 4 } else { 2 })?;
        let rest = entry.get(path_at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        found.push(Entry {
            mode: number(entry, MODE_AT)?,
            id: entry.get(STAT_BYTES..flags_at)?,
            path: rest.get(..length)?,
        });
        // An entry is padded with one to eight NUL bytes to a multiple of eight.
        at = at.checked_add(path_at.checked_add(length)?.checked_add(8)? / 8 * 8)?;
    }
    Some(found)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(paths: &[&str]) -> Vec<u8> {
        let mut bytes = b"DIRC\0\0\0\x02".to_vec();
        bytes.extend(u32::try_from(paths.len()).unwrap().to_be_bytes());
        for path in paths {
            let mut entry = vec![0; 24];
            entry.extend(0o160_000_u32.to_be_bytes());
            entry.extend([0; 12]);
            entry.extend([7; 20]);
            entry.extend([0, 0]);
            entry.extend(path.as_bytes());
            entry.push(0);
            entry.resize(entry.len().next_multiple_of(8), 0);
            bytes.extend(entry);
        }
        bytes
    }

    #[test]
    fn paths_of_every_length_are_found() {
        let paths = ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "abcdefghi"];
        let bytes = index(&paths);
        let found = entries(&bytes, 20).unwrap();
        assert_eq!(found.iter().map(|entry| entry.path).collect::<Vec<_>>(), paths.map(str::as_bytes));
        assert!(found.iter().all(|entry| entry.mode == 0o160_000 && entry.id == [7; 20]));
        assert_eq!(entries(&bytes[..bytes.len() - 9], 20), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = entries(&bytes, 20);
            bytes.splice(0..0, *b"DIRC\0\0\0\x02");
            let _ = entries(&bytes, 32);
        }
    }
}
