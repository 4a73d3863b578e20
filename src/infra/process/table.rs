//! The process table, as `/proc` shows it. The readers of text are pure; only `load_*` touch the machine.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// The longest description of a process, in characters of its command line.
const DESCRIPTION_MAX_CHARACTERS: usize = 120;

/// The bit of the flags field that marks threads of the kernel (`PF_KTHREAD`).
const KERNEL_THREAD_FLAG: u64 = 0x0020_0000;

/// One process, as one look at the table found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub pid: i32,
    /// Its short name, at most 15 bytes.
    pub name: String,
    /// The kernel's letter for its state; `Z` has ended and waits for its parent.
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// Whether it is a thread of the kernel, which belongs to nobody.
    pub is_kernel: bool,
    /// Processor time of it and of the children that it has reaped, in clock ticks.
    pub ticks: u64,
    /// How many threads it has.
    pub threads: u64,
    /// Start time in clock ticks since the machine started.
    pub start_ticks: u64,
    /// How it ended, in the form that `waitpid` uses; meaningful only for a zombie.
    pub exit_status: Option<i32>,
}

impl Row {
    /// Whether it can still run. The main thread may be gone while others go on.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x') || self.threads > 1
    }
}

/// Reads one line of `/proc/PID/stat`; `None` if it is none.
///
/// The name stands in parentheses and may itself hold parentheses, blanks and line feeds.
pub fn parse_stat(text: &str) -> Option<Row> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The kernel counts fields from 1, and field 3 is the first after the name.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let signed = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
    Some(Row {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: signed(4)?,
        session: signed(6)?,
        is_kernel: number(9)? & KERNEL_THREAD_FLAG != 0,
        ticks: number(14)? + number(15)? + number(16)? + number(17)?,
        threads: number(20)?,
        start_ticks: number(22)?,
        exit_status: signed(52),
    })
}

/// Returns the row of one process; `None` when there is no such process.
pub fn load_row(pid: i32) -> Option<Row> {
    let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// One look at the whole table.
#[derive(Debug)]
pub struct Table {
    /// Every process that could be read.
    pub rows: Vec<Row>,
    /// Whether a process ended between being listed and being read. It may have had a child in
    /// between that this look does not show.
    pub lost_one: bool,
}

/// Looks at every process. The look is no snapshot: processes come and go while it lasts.
pub fn load_table() -> std::io::Result<Table> {
    let mut table = Table { rows: Vec::new(), lost_one: false };
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match load_row(pid) {
            Some(row) => table.rows.push(row),
            None => table.lost_one = true,
        }
    }
    Ok(table)
}

/// Adds to `found` everything that descends from a member of it, never walking through `stop`.
pub fn add_descendants(rows: &[Row], found: &mut HashSet<i32>, stop: i32) {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for row in rows {
        children.entry(row.parent).or_default().push(row.pid);
    }
    let mut open: Vec<i32> = found.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if *child != stop && found.insert(*child) {
                open.push(*child);
            }
        }
    }
}

/// The tag that an environment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// This lane's.
    Ours,
    /// Another lane's.
    Foreign,
    /// None.
    Absent,
}

/// Reads the tag `LANE_ID` out of an environment whose entries end with NUL.
pub fn tag_of(environ: &[u8], lane_id: &str) -> Tag {
    let mut tag = Tag::Absent;
    for entry in environ.split(|byte| *byte == 0) {
        match entry.strip_prefix(b"LANE_ID=") {
            Some(value) if value == lane_id.as_bytes() => return Tag::Ours,
            Some(_) => tag = Tag::Foreign,
            None => {}
        }
    }
    tag
}

/// Returns the tag of a process; absent where its environment may not be read, `None` where it
/// ended before it could be.
pub fn load_tag(row: &Row, lane_id: &str) -> Option<Tag> {
    if row.is_kernel || !row.is_alive() {
        return Some(Tag::Absent);
    }
    let environ = std::fs::read(format!("/proc/{}/environ", row.pid)).unwrap_or_default();
    if !environ.is_empty() {
        return Some(tag_of(&environ, lane_id));
    }
    // A process that has ended shows an empty environment, too.
    load_row(row.pid).filter(Row::is_alive).map(|_| Tag::Absent)
}

/// Returns the user that a process belongs to.
pub fn load_user(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(PathBuf::from(format!("/proc/{pid}"))).ok().map(|data| data.uid())
}

/// Names a process for people: `sleep 60 (pid 123)`, or `[sleep] (pid 123)` where only its name is known.
pub fn describe(command_line: &[u8], name: &str, pid: i32) -> String {
    let words = String::from_utf8_lossy(command_line);
    let line: String = words.trim_end_matches('\0').chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim();
    if line.is_empty() {
        return format!("[{name}] (pid {pid})");
    }
    let short: String = line.chars().take(DESCRIPTION_MAX_CHARACTERS).collect();
    let dots = if short.len() < line.len() { "..." } else { "" };
    format!("{short}{dots} (pid {pid})")
}

/// Names a running process for people.
pub fn load_description(row: &Row) -> String {
    let command_line = std::fs::read(format!("/proc/{}/cmdline", row.pid)).unwrap_or_default();
    describe(&command_line, &row.name, row.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, name: &str, state: char, parent: i32, threads: u64) -> String {
        format!(
            "{pid} ({name}) {state} {parent} 7 8 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 {threads} 0 777 1 2 3 4 5 6 7 8 \
             9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 0 256\n"
        )
    }

    #[test]
    fn a_name_may_hold_anything() {
        let row = parse_stat(&stat(12, "a) R 1 (b\nc", 'S', 3, 1)).unwrap();
        assert_eq!((row.pid, row.name.as_str(), row.state, row.parent), (12, "a) R 1 (b\nc", 'S', 3));
        assert_eq!((row.session, row.ticks, row.start_ticks), (8, 127, 777));
        assert_eq!(parse_stat("12 (cut"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("12 (x) S 1 2"), None);
    }

    #[test]
    fn exit_status_is_the_last_field() {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(text.rsplit_once(')').unwrap().1.split_ascii_whitespace().count(), 50);
        assert_eq!(parse_stat(&text).unwrap().exit_status, Some(0));
    }

    #[test]
    fn a_zombie_leader_with_threads_still_lives() {
        assert!(!parse_stat(&stat(1, "x", 'Z', 3, 1)).unwrap().is_alive());
        assert!(parse_stat(&stat(1, "x", 'Z', 3, 2)).unwrap().is_alive());
        assert!(parse_stat(&stat(1, "x", 'T', 3, 1)).unwrap().is_alive());
    }

    #[test]
    fn descendants_are_found_whatever_the_order() {
        let rows: Vec<Row> = [(5, 4), (4, 3), (3, 2), (9, 1), (7, 9)]
            .into_iter()
            .map(|(pid, parent)| parse_stat(&stat(pid, "x", 'S', parent, 1)).unwrap())
            .collect();
        let mut found = HashSet::from([3]);
        add_descendants(&rows, &mut found, 0);
        assert_eq!(found, HashSet::from([3, 4, 5]));
        let mut stopped = HashSet::from([3]);
        add_descendants(&rows, &mut stopped, 4);
        assert_eq!(stopped, HashSet::from([3]));
    }

    #[test]
    fn the_tag_is_compared_whole() {
        assert_eq!(tag_of(b"A=1\0LANE_ID=x\0B=2\0", "x"), Tag::Ours);
        assert_eq!(tag_of(b"LANE_ID=xy\0", "x"), Tag::Foreign);
        assert_eq!(tag_of(b"MY_LANE_ID=x\0LANE_ID_X=x\0", "x"), Tag::Absent);
        assert_eq!(tag_of(b"", "x"), Tag::Absent);
    }

    #[test]
    fn descriptions_are_one_short_line() {
        assert_eq!(describe(b"sleep\x0060\0", "sleep", 123), "sleep 60 (pid 123)");
        assert_eq!(describe(b"", "kworker", 5), "[kworker] (pid 5)");
        assert_eq!(describe(b"a\nb\x1b[1m\0", "a", 5), "a b [1m (pid 5)");
        assert_eq!(describe("é".repeat(200).as_bytes(), "a", 5), format!("{}... (pid 5)", "é".repeat(120)));
    }
}
