//! Run folders on disk.
