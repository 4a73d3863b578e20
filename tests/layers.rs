//! Imports run one way only: this fails when a file breaks the house (see `src/lib.rs`).

use std::path::{Path, PathBuf};

/// For each folder of `src`, the folders that its files may import.
const MAY_IMPORT: [(&str, &[&str]); 6] = [
    ("domain", &["domain"]),
    ("provider", &["provider", "domain"]),
    ("wire", &["wire", "domain"]),
    ("app", &["app", "provider", "domain"]),
    ("infra", &["infra", "app", "provider", "domain"]),
    ("cli", &["cli", "app", "wire", "provider", "domain"]),
];

/// Of `app`, adapters may see only its ports.
const INFRA_SEES_OF_APP: &str = "crate::app::ports";

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The lines of a file that are code: comments and documentation may name anything.
fn code_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::to_owned).collect()
}

/// Whether a line names `crate::<layer>` as a path.
fn names(line: &str, layer: &str) -> bool {
    let needle = format!("crate::{layer}");
    line.match_indices(&needle)
        .any(|(at, _)| !line[at + needle.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

#[test]
fn imports_run_one_way() {
    let layers = ["domain", "provider", "wire", "app", "infra", "cli", "wiring"];
    let mut faults = Vec::new();
    for (folder, allowed) in MAY_IMPORT {
        let files = rust_files(&source().join(folder));
        assert!(!files.is_empty(), "src/{folder} is empty");
        for file in files {
            for line in code_lines(&file) {
                let forbidden = layers.iter().find(|layer| !allowed.contains(layer) && names(&line, layer));
                let beyond_ports = folder == "infra" && names(&line, "app") && !line.contains(INFRA_SEES_OF_APP);
                if forbidden.is_some() || beyond_ports {
                    faults.push(format!("{}: {}", file.display(), line.trim()));
                }
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn the_core_reads_no_environment_no_clock_and_no_disk() {
    let mut faults = Vec::new();
    for folder in ["domain", "provider", "wire"] {
        for file in rust_files(&source().join(folder)) {
            for line in code_lines(&file) {
                for forbidden in ["std::env::", "std::fs", "SystemTime", "Instant::now", "std::process", "std::net"] {
                    if line.contains(forbidden) {
                        faults.push(format!("{}: {}", file.display(), line.trim()));
                    }
                }
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn only_the_printer_prints() {
    let mut faults = Vec::new();
    for file in rust_files(&source()) {
        let printer = file.ends_with("cli/output.rs");
        for line in code_lines(&file) {
            let prints = [
                "println!(",
                "print!(",
                "eprintln!(",
                "eprint!(",
                "stdout().lock",
                "stdout().write",
                "&mut io::stdout()",
            ]
            .iter()
            .any(|call| line.contains(call));
            if prints && !printer && !is_a_worker(&file) {
                faults.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

/// The scripted worker of `lane demo` speaks on stdout because that is a worker's stream, and the
/// keeper because its stdout is the pipe to its supervisor.
fn is_a_worker(file: &Path) -> bool {
    ["infra/demo_worker.rs", "infra/process/keeper.rs"].iter().any(|name| file.ends_with(name))
}

#[test]
fn no_file_is_over_six_hundred_lines() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for folder in ["src", "tests", "fakes"] {
        for file in rust_files(&root.join(folder)) {
            let lines = std::fs::read_to_string(&file).unwrap().lines().count();
            if lines > 600 {
                long.push(format!("{}: {lines} lines", file.display()));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}
