//! The calls to the Linux kernel that the standard library does not offer.
//!
//! A pidfd names one process for ever: unlike a number it can never mean another one later.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

use crate::domain::worker::ProcessExit;

/// Opens a pidfd (close-on-exec) on the process that has this number now.
#[expect(unsafe_code, reason = "no safe wrapper for this system call")]
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers go in, and a descriptor that nobody else owns comes out.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process behind a pidfd. One that is gone already is no error.
#[expect(unsafe_code, reason = "no safe wrapper for this system call")]
pub fn pidfd_send_signal(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: the descriptor lives as long as the borrow, and no memory is handed over.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, 0, 0) };
    if sent == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// Reaps the process behind a pidfd if it is our child and has ended, and says how.
///
/// Real-time signals are numbers that no enum of signals knows, so the raw call is used.
#[expect(unsafe_code, reason = "the safe wrapper refuses real-time signals after it has reaped")]
pub fn reap(fd: BorrowedFd<'_>) -> Option<ProcessExit> {
    let id = libc::id_t::try_from(fd.as_raw_fd()).ok()?;
    // SAFETY: an all-zero siginfo is a valid value of this plain C structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor lives as long as the borrow, and `info` is ours to be written.
    let done = unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | libc::WNOHANG) };
    // SAFETY: waitid fills exactly these fields when it has reaped a child, else they stay zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if done != 0 || pid == 0 {
        return None;
    }
    Some(if info.si_code == libc::CLD_EXITED { ProcessExit::Code(status) } else { ProcessExit::Signal(status) })
}

/// Waits for any child to end, reaps it, and says which and how. Without a child it is an error.
#[expect(unsafe_code, reason = "the safe wrapper refuses real-time signals after it has reaped")]
pub fn wait_any() -> io::Result<(i32, ProcessExit)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours to be written.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid > 0 {
            return Ok((pid, exit_of(status)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads a status in the form that `waitpid` uses.
pub fn exit_of(status: i32) -> ProcessExit {
    if libc::WIFEXITED(status) {
        ProcessExit::Code(libc::WEXITSTATUS(status))
    } else {
        ProcessExit::Signal(libc::WTERMSIG(status))
    }
}

/// Makes this process the one that orphaned descendants are handed to, or no longer.
pub fn set_subreaper(on: bool) -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(on).map_err(io::Error::from)
}

/// Whether orphaned descendants are handed to this process.
pub fn is_subreaper() -> bool {
    nix::sys::prctl::get_child_subreaper().unwrap_or(false)
}

/// Gives every signal its default disposition and unblocks all. Safe between fork and exec.
///
/// The bare system call also reaches the two signals that the C library keeps for itself, which some
/// launchers leave ignored.
#[expect(unsafe_code, reason = "dispositions are per process and cannot be reset through a safe call")]
pub fn reset_signals() {
    // All zero is the default disposition without flags; no kernel's structure is longer than this.
    let default = [0_u64; 4];
    let no_old: *mut u64 = std::ptr::null_mut();
    for signal in 1..=64 {
        // SAFETY: the kernel reads `default`, which outlives the call; numbers that may not be set are refused.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), no_old, 8_usize) };
    }
    nix::sys::signal::SigSet::empty().thread_set_mask().ok();
}

/// Ignores the signals that a terminal or a careless `kill` of a group may send.
#[expect(unsafe_code, reason = "dispositions are per process and cannot be set through a safe call")]
pub fn ignore_group_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE, libc::SIGTSTP] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Marks every descriptor from 3 on close-on-exec, except those in `keep`, which are inherited.
///
/// Safe between fork and exec: it allocates nothing.
#[expect(unsafe_code, reason = "no safe wrapper for this system call")]
pub fn inherit_only(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: only flags of descriptors change, and whoever owns them in this process is about to exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done != 0 {
        // Kernels before 5.11: one by one, as far as a process usually gets.
        for fd in 3..4096 {
            // SAFETY: as above; a number that is not open is refused.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    for fd in keep {
        // SAFETY: as above.
        if unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Starts a session of our own. A process that leads one already keeps it.
pub fn new_session() {
    nix::unistd::setsid().ok();
}

/// Duplicates a descriptor to a number above the standard three, close-on-exec.
pub fn duplicate_high(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "the call returns a bare number")]
    let owned = |raw: RawFd| {
        // SAFETY: the kernel has just given us this descriptor.
        unsafe { OwnedFd::from_raw_fd(raw) }
    };
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(10)).map(owned).map_err(io::Error::from)
}
