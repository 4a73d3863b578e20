//! The scripted worker of `lane demo`: it reads its brief, really edits, runs and commits.
