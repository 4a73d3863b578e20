//! Confinement of workers: Landlock on Linux, Seatbelt on macOS.
