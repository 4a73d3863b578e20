//! What this program does when a measurement starts it again as a child.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use lane::app::ports::RunFolders;
use lane::domain::worker::ProviderName;
use lane::infra::run_folder::RunFoldersOnDisk;
use lane::provider::provider;

use crate::bed::{Fallible, own_program};

/// Does a child's work, if `arguments` ask for one.
pub fn run(arguments: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["child-nothing"] => Ok(()),
        ["child-floor", database, repository] => floor(Path::new(database), Path::new(repository)),
        ["child-read", folder] => read_stream(Path::new(folder)),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// The least that a start can be: one `git rev-parse`, one commit that is on the disk, one process
/// that outlives this one.
fn floor(database: &Path, repository: &Path) -> Fallible<()> {
    use std::os::unix::process::CommandExt;
    crate::bed::success(Command::new("git").arg("-C").arg(repository).args(["rev-parse", "HEAD"]))?;
    commit(database).map_err(|error| error.to_string())?;
    let mut child = Command::new(own_program()?);
    child.arg("child-nothing").process_group(0).current_dir("/");
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    child.spawn().map_err(|error| error.to_string())?;
    println!("{{}}");
    Ok(())
}

fn commit(database: &Path) -> rusqlite::Result<()> {
    let connection = rusqlite::Connection::open(database)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; BEGIN IMMEDIATE; INSERT INTO t VALUES (hex(randomblob(500))); COMMIT",
    )
}

/// Makes the database that [`floor`] commits to.
pub fn make_floor_database(database: &Path) -> Fallible<()> {
    let made = rusqlite::Connection::open(database)
        .and_then(|connection| connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x TEXT)"));
    made.map_err(|error| error.to_string())
}

/// Reads a whole event stream as the end of a lane does, and says how much memory that took.
fn read_stream(folder: &Path) -> Fallible<()> {
    let mut decoder = provider(ProviderName::Openai).decoder();
    RunFoldersOnDisk::new()
        .lines(folder, "events.jsonl", 0, true, &mut |line| {
            decoder.skim(line);
        })
        .map_err(|error| error.to_string())?;
    if !decoder.summary().clean_end {
        return Err("the stream was not read to its end".to_owned());
    }
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    println!("{}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}
