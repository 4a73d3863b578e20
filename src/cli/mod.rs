//! The front door.
