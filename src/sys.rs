//! The only unsafe code: poll, the signal self-pipe, the bound on waiting for sockets, process groups, reaping, what
//! happens between fork and exec, and a few questions to the kernel that the standard library does not ask.
//!
//! Invariants: every signature is safe whatever its arguments; a signal handler touches atomics, `alarm`, `write`,
//! `timer_settime`, `getpeername` and `shutdown`, nothing else; between fork and exec only async-signal-safe calls are made and nothing
//! is allocated.
//! No policy and no clock here: callers decide when and why. Linux only (PR_SET_PDEATHSIG, close_range, /proc).
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

/// After the first SIGTERM or SIGINT the process ends within this many seconds even if its loop is frozen: longer
/// than an orderly shutdown takes (5.5 s between two waits in [`bounded`]), shorter than a supervisor waits.
const FROZEN_SECONDS: u32 = 9;
/// From then on nothing in [`bounded`] waits longer: more than the dispatcher waits for a lock.
const LAST_WAIT: Duration = Duration::from_millis(1250);

/// The highest signal number of Linux.
const LAST_SIGNAL: i32 = 64;

/// Where the search for sockets by number ends: twice as many as there are pipes of 16 000 workers.
const LAST_DESCRIPTOR: RawFd = 65_536;

/// One descriptor for [`poll`], and what came of it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct PollFd(libc::pollfd);

impl PollFd {
    /// Waits for input or the end of it.
    pub fn input(fd: RawFd) -> PollFd {
        PollFd(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Waits for room to write, or for the reader to go away.
    pub fn output(fd: RawFd) -> PollFd {
        PollFd(libc::pollfd { fd, events: libc::POLLOUT, revents: 0 })
    }

    /// Something to do: the next read or write says what.
    pub fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    /// The other side is gone, or the descriptor is no good; unread input may be left.
    pub fn is_broken(&self) -> bool {
        self.0.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// Sleeps until a descriptor is ready, `timeout` is over (None: never) or a signal came; the last two leave nothing
/// ready. The timeout is rounded up to milliseconds, so that a caller with a deadline does not spin just before it.
pub fn poll(set: &mut [PollFd], timeout: Option<Duration>) -> io::Result<()> {
    let milliseconds =
        timeout.map_or(-1, |time| i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    for entry in set.iter_mut() {
        entry.0.revents = 0;
    }
    let count = set.len() as libc::nfds_t;
    // SAFETY: PollFd is a transparent pollfd, and the slice is ours alone for the length of the call.
    let result = unsafe { libc::poll(set.as_mut_ptr().cast(), count, milliseconds) };
    match checked(result) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other.map(|_| ()),
    }
}

/// From now on reads and writes of `fd` fail with WouldBlock instead of waiting.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and return flag words; no memory is involved.
    let flags = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

static SIGNAL_PIPE: AtomicI32 = AtomicI32::new(-1);
static CHILD_ENDED: AtomicBool = AtomicBool::new(false);
static TERMINATIONS: AtomicU32 = AtomicU32::new(0);
static RELOAD: AtomicBool = AtomicBool::new(false);
/// A SIGTERM or SIGINT came.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The signals SIGCHLD (of a child that ended, or stopped), SIGTERM, SIGINT and SIGHUP of this process, turned into input of a
/// descriptor.
pub struct Signals {
    wake: PipeReader,
}

/// What was signalled since the last look. Signals of one kind may have merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    pub child: bool,
    /// How many SIGTERM and SIGINT.
    pub terminate: u32,
    /// SIGHUP.
    pub reload: bool,
}

impl Signals {
    /// Takes the signals over; SIGPIPE is ignored. Once a process. The first SIGTERM or SIGINT also makes waits in
    /// [`bounded`] short, and arms an alarm that ends the process should its loop never get to act on it.
    pub fn install() -> io::Result<Signals> {
        let (wake, trigger) = io::pipe()?;
        set_nonblocking(wake.as_fd())?;
        set_nonblocking(trigger.as_fd())?;
        let earlier = SIGNAL_PIPE.swap(trigger.into_raw_fd(), Ordering::SeqCst);
        assert!(earlier == -1, "the signals are taken over once");
        dispose(libc::SIGPIPE, libc::SIG_IGN)?;
        dispose(libc::SIGALRM, libc::SIG_DFL)?;
        let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            dispose(signal, handler)?;
        }
        unblock_signals()?;
        Ok(Signals { wake })
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// What came since the last call. The pipe is emptied before the flags are read: a signal in between is
    /// reported now and causes one wake too many, never one too few.
    pub fn take(&mut self) -> Caught {
        let mut bytes = [0; 512];
        while matches!(self.wake.read(&mut bytes), Ok(count) if count > 0) {}
        Caught {
            child: CHILD_ENDED.swap(false, Ordering::SeqCst),
            terminate: TERMINATIONS.swap(0, Ordering::SeqCst),
            reload: RELOAD.swap(false, Ordering::SeqCst),
        }
    }
}

/// The flags carry what came and the byte only wakes: a pipe full of SIGCHLD bytes cannot hide a SIGTERM.
extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: errno is a thread-local int, saved and put back because the interrupted code may be about to read
    // it; alarm, write and timer_settime are async-signal-safe, the byte lives on this stack, and the descriptor is never closed.
    unsafe {
        let errno = *libc::__errno_location();
        if signal == libc::SIGCHLD {
            CHILD_ENDED.store(true, Ordering::SeqCst);
        } else if signal == libc::SIGHUP {
            RELOAD.store(true, Ordering::SeqCst);
        } else {
            TERMINATIONS.fetch_add(1, Ordering::SeqCst);
            // Only the first: a stream of signals must not put the end off for ever.
            if !ENDING.swap(true, Ordering::SeqCst) {
                libc::alarm(FROZEN_SECONDS);
                if ARMED.load(Ordering::SeqCst) {
                    set_timer(LAST_WAIT);
                }
            }
        }
        let byte = 1u8;
        libc::write(SIGNAL_PIPE.load(Ordering::SeqCst), (&raw const byte).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

fn dispose(signal: libc::c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = disposition;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` outlives the call, and the handlers passed by our callers are async-signal-safe.
    checked(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })?;
    Ok(())
}

/// A mask inherited from whoever started us could keep SIGTERM or the alarm away for good.
fn unblock_signals() -> io::Result<()> {
    // SAFETY: sigset_t is plain data that sigemptyset initialises; both calls are async-signal-safe.
    checked(unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())
    })?;
    Ok(())
}

/// For opening a file: one that has no writer yet, or a device that is not ready, is opened at once.
pub const DO_NOT_WAIT: i32 = libc::O_NONBLOCK;

/// What [`bounded`] works with.
struct Guard {
    timer: AtomicPtr<libc::c_void>,
    /// Sockets that were connected before: standard error may be one, and whoever started us may have left some.
    kept: Vec<RawFd>,
}

static GUARD: OnceLock<Guard> = OnceLock::new();
static EXPIRED: AtomicBool = AtomicBool::new(false);
static ARMED: AtomicBool = AtomicBool::new(false);

/// Prepares [`bounded`]. Once a process, before its first own socket: those that are connected now are left alone.
pub fn install_guard() -> io::Result<()> {
    let kept = connected_sockets()?;
    // SAFETY: an all-zero sigevent is a valid one; both pointers are to live values of ours.
    let timer = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGUSR1;
        let mut timer: libc::timer_t = std::mem::zeroed();
        checked(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer))?;
        timer
    };
    let is_first = GUARD.set(Guard { timer: AtomicPtr::new(timer), kept }).is_ok();
    assert!(is_first, "the guard is installed once");
    dispose(libc::SIGUSR1, on_expiry as extern "C" fn(libc::c_int) as libc::sighandler_t)
}

/// Does `work`, which may wait for answers on sockets that it does not show. When it takes longer than `limit`, and
/// again after each further `limit`, every connected socket of this process is shut down: whoever waits on one then
/// reads its end. Says which limit it was, if that happened. A socket that is still being connected is not shut down: that
/// has its own timeout. After a SIGTERM the limit is `LAST_WAIT`. Never within itself: there is one timer.
pub fn bounded<T>(limit: Duration, work: impl FnOnce() -> T) -> (T, Option<Duration>) {
    assert!(!ARMED.swap(true, Ordering::SeqCst), "one bound within another");
    EXPIRED.store(false, Ordering::SeqCst);
    let armed = Armed;
    let limit_now = || if ENDING.load(Ordering::SeqCst) { limit.min(LAST_WAIT) } else { limit };
    assert!(set_timer(limit), "the guard is installed before it is used");
    // A signal that comes from now on sets the timer by itself, one that came before did not.
    if limit_now() != limit {
        set_timer(limit_now());
    }
    let result = work();
    drop(armed);
    (result, EXPIRED.load(Ordering::SeqCst).then(limit_now))
}

/// The timer runs; also a panic stops it.
struct Armed;

impl Drop for Armed {
    fn drop(&mut self) {
        ARMED.store(false, Ordering::SeqCst);
        set_timer(Duration::ZERO);
    }
}

/// Zero stops it. Also called by a signal handler.
fn set_timer(every: Duration) -> bool {
    let Some(guard) = GUARD.get() else { return false };
    let timer = guard.timer.load(Ordering::SeqCst);
    let seconds = every.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    let time = libc::timespec { tv_sec: seconds, tv_nsec: every.subsec_nanos().into() };
    let time = libc::itimerspec { it_interval: time, it_value: time };
    // SAFETY: the timer was made by timer_create and is never deleted; `time` outlives the call.
    unsafe { libc::timer_settime(timer, 0, &time, std::ptr::null_mut()) == 0 }
}

/// The number of the socket in question is known to nobody but a library: hence all.
extern "C" fn on_expiry(_signal: libc::c_int) {
    EXPIRED.store(true, Ordering::SeqCst);
    // SAFETY: errno is a thread-local int, saved and put back because the interrupted code may be about to read it.
    // Reading a OnceLock that is set is an atomic load, and getpeername and shutdown are async-signal-safe.
    unsafe {
        let errno = *libc::__errno_location();
        if let Some(guard) = GUARD.get() {
            let is_ours = |fd: &RawFd| !guard.kept.contains(fd) && has_peer(*fd);
            (0..LAST_DESCRIPTOR).filter(is_ours).for_each(shut_down);
        }
        *libc::__errno_location() = errno;
    }
}

/// A child that has ended and waits to be reaped; until then its process id is its own. SIGCHLDs merge: reap it, and
/// ask again until this returns None.
pub fn ended() -> io::Result<Option<u32>> {
    reported(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT)
}

/// Whether the child with this process id has ended and waits to be reaped.
pub fn has_ended(pid: u32) -> io::Result<bool> {
    reported(libc::P_PID, process_id(pid).cast_unsigned(), libc::WEXITED | libc::WNOWAIT)
        .map(|child| child.is_some())
}

/// How the child with this process id ended; None when it has not, or is no child of ours.
pub fn reap(pid: u32) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: `status` is a valid int for the call to fill.
    match checked(unsafe { libc::waitpid(process_id(pid), &mut status, libc::WNOHANG) }) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(ExitStatus::from_raw(status))),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether this child has stopped since the last call that said so. One that has ended has not, and stays to be reaped.
pub fn has_stopped(pid: u32) -> io::Result<bool> {
    reported(libc::P_PID, process_id(pid).cast_unsigned(), libc::WSTOPPED).map(|child| child.is_some())
}

/// The child of which there is that to report, if any; one that is no child of ours has nothing.
fn reported(kind: libc::idtype_t, id: libc::id_t, what: libc::c_int) -> io::Result<Option<u32>> {
    // SAFETY: an all-zero siginfo_t is a valid value for the call to fill; without a child to report, si_pid stays 0.
    let (result, pid) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(kind, id, &mut info, what | libc::WNOHANG);
        (checked(result), info.si_pid())
    };
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other.map(|_| (pid != 0).then_some(pid.cast_unsigned())),
    }
}

/// SIGTERM; see [`signal_group`].
pub fn end_group(leader: u32) -> io::Result<()> {
    signal_group(leader, libc::SIGTERM)
}

/// SIGKILL, which also ends what is stopped; see [`signal_group`].
pub fn kill_group(leader: u32) -> io::Result<()> {
    signal_group(leader, libc::SIGKILL)
}

/// SIGSTOP: takes effect a little later, see [`has_stopped`].
pub fn stop_group(leader: u32) -> io::Result<()> {
    signal_group(leader, libc::SIGSTOP)
}

/// SIGCONT, which also takes back a SIGSTOP that had no effect yet.
pub fn continue_group(leader: u32) -> io::Result<()> {
    signal_group(leader, libc::SIGCONT)
}

/// A signal to `leader` and to every process of the group that it leads. The leader must not have been reaped: until
/// then its number cannot belong to anybody else. A process that is gone is no error.
fn signal_group(leader: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = process_id(leader);
    // SAFETY: kill and killpg take two numbers; process_id keeps out 0 and 1, which mean our own group and init.
    let (process, group) = unsafe { (checked(libc::kill(pid, signal)), libc::killpg(pid, signal)) };
    // The group may have no member (the leader moved to another one), so only the first result says something.
    let _ = group;
    match process {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(|_| ()),
    }
}

fn process_id(pid: u32) -> libc::pid_t {
    let pid = pid.cast_signed();
    assert!(pid > 1, "{pid} is no child's process id");
    pid
}

/// A child that was started. Only [`reap`] waits for it: the standard library's handle would wait a second time, for
/// a number that may be another process's by then.
pub struct Spawned {
    pub pid: u32,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
}

/// How a child's inherited descriptors are kept from its program: by one system call, or, on a kernel before
/// Linux 5.11, one by one from a list made before the fork.
enum Seal {
    Range,
    Listed(Vec<RawFd>),
}

/// Starts `command` as a leashed child: leader of its own process group, killed when the calling THREAD ends, all
/// signals at their default and unblocked, no descriptor but 0, 1 and 2.
///
/// The leash does not hold over an exec of a set-id program, nor for the child's own children.
pub fn spawn(command: &mut Command) -> io::Result<Spawned> {
    // SAFETY: close_range takes three numbers; from the last possible descriptor on there is none to close.
    let range =
        unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    let seal = if range == 0 { Seal::Range } else { Seal::Listed(open_descriptors()?) };
    spawn_sealed(command, seal, std::process::id())
}

fn spawn_sealed(command: &mut Command, seal: Seal, parent: u32) -> io::Result<Spawned> {
    // SAFETY: `before_exec` makes async-signal-safe calls only and allocates nothing.
    unsafe { command.pre_exec(move || before_exec(parent, &seal)) };
    let child = command.spawn()?;
    Ok(Spawned { pid: child.id(), stdin: child.stdin, stdout: child.stdout })
}

/// Runs in the child. Descriptors are marked close-on-exec rather than closed: among them is the one by which the
/// standard library reports a failed exec to the parent.
fn before_exec(parent: u32, seal: &Seal) -> io::Result<()> {
    // SAFETY: setpgid, signal, alarm, close_range and fcntl take numbers and are async-signal-safe. SIGKILL, SIGSTOP
    // and the C library's own two signals refuse a disposition, which is of no consequence.
    unsafe {
        checked(libc::setpgid(0, 0))?;
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Our handler may have run in this copy of us, and an alarm outlives the exec.
        libc::alarm(0);
        match seal {
            Seal::Range => {
                checked(libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) as i32)?;
            }
            Seal::Listed(descriptors) => {
                for &fd in descriptors.iter().filter(|&&fd| fd > 2) {
                    libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
                }
            }
        }
    }
    unblock_signals()?;
    die_with_parent()?;
    // SAFETY: getppid takes and touches nothing.
    if unsafe { libc::getppid() }.cast_unsigned() != parent {
        // It died before the leash was on; nobody would ever send the signal.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

fn die_with_parent() -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    Ok(())
}

/// Fails as opening a file would unless more than `count` descriptors can still be opened. The lowest number that is
/// free is given out first, so the next one tells how many are left, or fewer.
pub fn check_room(count: u32) -> io::Result<()> {
    let next = io::pipe()?.0.as_raw_fd();
    // SAFETY: an all-zero rlimit is a valid value, and the call fills it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit)).map(|_| limit.rlim_cur)
    }?;
    let wanted = u64::try_from(next).unwrap_or(0) + u64::from(count);
    if wanted < limit { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EMFILE)) }
}

fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse().ok());
    fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.map(number).transpose()).collect()
}

/// The open sockets that are connected to somebody. What is new in it after a library connected is that library's.
pub fn connected_sockets() -> io::Result<Vec<RawFd>> {
    let mut descriptors = open_descriptors()?;
    descriptors.retain(|&fd| has_peer(fd));
    Ok(descriptors)
}

fn has_peer(fd: RawFd) -> bool {
    // SAFETY: an all-zero sockaddr_storage is a valid value; the call writes at most `length` bytes of it.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        libc::getpeername(fd, (&raw mut address).cast(), &mut length) == 0
    }
}

/// Ends both directions of a socket, so that nobody waits for its other side any more. No error when it is closed.
pub fn shut_down(socket: RawFd) {
    // SAFETY: shutdown takes two numbers and changes no memory; a descriptor that is no socket only fails.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

/// The effective user's number.
pub fn uid() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The host's own name as the kernel has it; bytes that are not UTF-8 are replaced.
pub fn hostname() -> io::Result<String> {
    let name = fs::read("/proc/sys/kernel/hostname")?;
    Ok(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Gives memory that nobody uses back to the kernel, where the C library keeps it for later.
pub fn trim_memory() {
    // SAFETY: it takes a number, and moves nothing that is in use.
    #[cfg(target_env = "gnu")]
    let _ = unsafe { libc::malloc_trim(0) };
}

/// The C convention: -1 means errno.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
