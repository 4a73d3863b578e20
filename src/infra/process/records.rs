//! The files by which keeper and supervisor speak to each other, and how they are written.
//!
//! Each is written by rename after fsync, so a reader sees none or a whole one.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::app::ports::Confinement;
use crate::domain::ids::ProcessIdentity;
use crate::domain::time::{Millis, Monotonic};
use crate::domain::worker::ProcessExit;

/// What the keeper starts.
pub const ARGV_FILE: &str = "argv.json";
/// Who the worker is.
pub const WORKER_FILE: &str = "worker.json";
/// How the worker ended.
pub const EXIT_FILE: &str = "exit.json";
/// Locked for the keeper's whole life.
pub const KEEPER_LOCK_FILE: &str = "keeper.lock";
/// The worker's stdin.
pub const BRIEF_FILE: &str = "brief.md";
/// The worker's stdout.
pub const EVENTS_FILE: &str = "events.jsonl";
/// The worker's stderr.
pub const STDERR_FILE: &str = "stderr.log";
/// What supervisor and keeper have to say.
pub const SUPERVISOR_LOG_FILE: &str = "supervisor.log";
/// The request to stop; each further request adds a line or writes it anew.
pub const CANCEL_FILE: &str = "cancel";

/// The room that is kept for the worker's end, so that a full disk cannot swallow it.
const EXIT_RESERVED_BYTES: usize = 1024;

/// Text that need not be UTF-8, readable where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// The usual case.
    Text(String),
    /// Anything else, byte by byte.
    Bytes(Vec<u8>),
}

impl From<&OsStr> for Word {
    fn from(text: &OsStr) -> Self {
        text.to_str().map_or_else(|| Self::Bytes(text.as_bytes().to_vec()), |text| Self::Text(text.to_owned()))
    }
}

impl From<Word> for OsString {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text.into(),
            Word::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// What the keeper starts: `argv.json`. No secret and no variable stands in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgvRecord {
    /// The executable.
    pub program: Word,
    /// Its arguments.
    pub arguments: Vec<Word>,
    /// Where it works.
    pub directory: Word,
    /// What it is confined to, if it is.
    pub confinement: Option<ConfinementRecord>,
}

/// What a worker may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfinementRecord {
    /// Folders.
    pub write_dirs: Vec<Word>,
    /// Files.
    pub write_files: Vec<Word>,
}

impl From<&Confinement> for ConfinementRecord {
    fn from(confinement: &Confinement) -> Self {
        let words = |paths: &[PathBuf]| paths.iter().map(|path| Word::from(path.as_os_str())).collect();
        Self { write_dirs: words(&confinement.write_dirs), write_files: words(&confinement.write_files) }
    }
}

impl From<ConfinementRecord> for Confinement {
    fn from(record: ConfinementRecord) -> Self {
        let paths = |words: Vec<Word>| words.into_iter().map(|word| OsString::from(word).into()).collect();
        Self { write_dirs: paths(record.write_dirs), write_files: paths(record.write_files) }
    }
}

/// Who the worker is: `worker.json`, written by the worker's process itself before it becomes the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The worker.
    pub worker: ProcessIdentity,
    /// Its keeper.
    pub keeper: ProcessIdentity,
    /// When it started.
    pub started: Monotonic,
}

/// How the worker ended: `exit.json`. Exactly one of the first three is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it ran, in milliseconds.
    pub ran_for_ms: u64,
}

impl ExitRecord {
    /// The end of a worker that ran.
    pub fn new(exit: ProcessExit, ran_for: Millis) -> Self {
        let (exit_code, signal) = match exit {
            ProcessExit::Code(code) => (Some(code), None),
            ProcessExit::Signal(signal) => (None, Some(signal)),
            ProcessExit::Unknown => (None, None),
        };
        Self { exit_code, signal, error: None, ran_for_ms: ran_for.0 }
    }

    /// How it ended; one that could not be started counts as a shell counts it.
    pub fn exit(&self) -> ProcessExit {
        match (self.exit_code, self.signal) {
            (Some(code), _) => ProcessExit::Code(code),
            (None, Some(signal)) => ProcessExit::Signal(signal),
            (None, None) if self.error.is_some() => ProcessExit::Code(127),
            (None, None) => ProcessExit::Unknown,
        }
    }

    /// How long it ran.
    pub const fn ran_for(&self) -> Millis {
        Millis(self.ran_for_ms)
    }
}

/// Opens a private file for appending, making it if it is not there.
pub fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Reads a record; `None` when it is not there. A damaged one is an error of kind `InvalidData`.
pub fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record by rename after fsync, the folder included.
pub fn save<T: Serialize>(run_dir: &Path, name: &str, record: &T) -> io::Result<()> {
    let temporary = run_dir.join(format!(".{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    publish(&file, &temporary, run_dir, name)
}

fn publish(file: &File, temporary: &Path, run_dir: &Path, name: &str) -> io::Result<()> {
    file.sync_all()?;
    std::fs::rename(temporary, run_dir.join(name))?;
    File::open(run_dir)?.sync_all()
}

/// Room on the disk for the worker's end, taken before the worker starts.
#[derive(Debug)]
pub struct ExitSlot {
    run_dir: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl ExitSlot {
    /// Takes the room.
    pub fn reserve(run_dir: &Path) -> io::Result<Self> {
        let temporary = run_dir.join(format!(".{EXIT_FILE}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&[b' '; EXIT_RESERVED_BYTES])?;
        file.sync_all()?;
        Ok(Self { run_dir: run_dir.to_owned(), temporary, file })
    }

    /// Writes the end into it and puts it in its place.
    pub fn fill(self, record: &ExitRecord) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let bytes = serde_json::to_vec(record)?;
        self.file.write_all_at(&bytes, 0)?;
        self.file.set_len(bytes.len() as u64)?;
        publish(&self.file, &self.temporary, &self.run_dir, EXIT_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_even_when_they_are_no_text() {
        for bytes in [b"plain".as_slice(), b"\xff\xfe", b""] {
            let word = Word::from(OsStr::from_bytes(bytes));
            let text = serde_json::to_string(&word).unwrap();
            let back: OsString = serde_json::from_str::<Word>(&text).unwrap().into();
            assert_eq!(back.as_bytes(), bytes);
        }
    }

    #[test]
    fn an_end_is_read_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let slot = ExitSlot::reserve(folder.path()).unwrap();
        assert_eq!(load::<ExitRecord>(&folder.path().join(EXIT_FILE)).unwrap(), None);
        let record = ExitRecord { signal: Some(9), ran_for_ms: 12, ..ExitRecord::default() };
        slot.fill(&record).unwrap();
        assert_eq!(load(&folder.path().join(EXIT_FILE)).unwrap(), Some(record.clone()));
        assert_eq!(record.exit(), ProcessExit::Signal(9));
    }

    #[test]
    fn a_damaged_record_is_an_error_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(WORKER_FILE);
        assert_eq!(load::<WorkerRecord>(&path).unwrap(), None);
        std::fs::write(&path, b"{\"worker\":").unwrap();
        assert_eq!(load::<WorkerRecord>(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
