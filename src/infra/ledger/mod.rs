//! The ledger: SQLite, append-only events and their projection.
