//! Processes that this one starts and that must not outlive it.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::exit::Exit;

/// Has the kernel kill the command's process when the thread that started it ends,
/// however it ends: whatever kills this process leaves no orphan.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl,
    // getppid and _exit.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the line above.
            if libc::getppid().cast_unsigned() != parent {
                libc::_exit(i32::from(Exit::CouldNotRun.code()));
            }
            Ok(())
        })
    }
}

/// The group of [`end_group_on_signal`]; 0 for none.
static GROUP: AtomicI32 = AtomicI32::new(0);

/// From now on a SIGHUP, SIGINT or SIGTERM to this process kills the process group
/// first. 0 forgets the group. One group at a time.
pub fn end_group_on_signal(group: i32) {
    GROUP.store(group, Ordering::SeqCst);
    let handler = end_group as extern "C" fn(libc::c_int);
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler makes async-signal-safe calls alone and lives as long as
        // the process.
        unsafe {
            // `nohup` stays `nohup`.
            if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

extern "C" fn end_group(signal: libc::c_int) {
    end_group_now(GROUP.load(Ordering::SeqCst));
    // SAFETY: both are async-signal-safe; the signal then ends this process as it would
    // have without a handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Kills every process of a group that this process made for a child; 0 is none.
pub fn end_group_now(group: i32) {
    if group > 1 {
        // SAFETY: a signal to a group; reads no memory.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// Makes this process the parent of whatever its children leave behind, so that
/// [`all_ended`] sees it.
///
/// # Errors
/// The kernel's, which has this since Linux 3.4.
pub fn adopt_orphans() -> std::io::Result<()> {
    // SAFETY: a request that reads no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether every child of this process ends within `limit`, adopted ones included.
/// Takes their exit codes: only for a caller that waits for no other child.
pub fn all_ended(limit: Duration) -> bool {
    let started = Instant::now();
    loop {
        // SAFETY: the status of the child is not asked for.
        let ended = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        match ended {
            -1 => return true,
            0 if started.elapsed() > limit => return false,
            0 => std::thread::sleep(Duration::from_millis(5)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn is_running(process: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("60").stdout(Stdio::null());
            die_with_parent(&mut command);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        let started = Instant::now();
        while is_running(child.id()) && started.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let gone = !is_running(child.id());
        let _ = child.kill();
        let _ = child.wait();
        assert!(gone, "it outlived its parent");
    }
}
