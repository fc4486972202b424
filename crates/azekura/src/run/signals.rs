//! Signals while a command runs as a child: what a terminal sends reaches the command by itself,
//! and what others send to the front is passed on.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

const PASSED_ON: [i32; 9] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH];

/// Signals that do nothing to this process any more, but wait to be passed on.
pub(crate) struct Caught(SignalsInfo<WithOrigin>);

/// From now on these signals do not end this process. Those that it was started to ignore stay
/// ignored, for the command too.
pub(crate) fn catch() -> Result<Caught> {
    let ignored = ignored();
    let caught = PASSED_ON.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let signals = SignalsInfo::<WithOrigin>::new(caught).context("cannot wait for signals")?;
    Ok(Caught(signals))
}

/// A mask with a bit for each signal that is ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

impl Caught {
    /// Passes signals on to the child `pid`, for as long as this process lives. The child must not
    /// be waited for by anybody but the caller, who leaves soon after.
    pub(super) fn pass_on_to(self, pid: Pid) -> Result<()> {
        self.give_to(move |signal, came_to_all| {
            if !came_to_all {
                // It may have ended in the meantime.
                let _ = kill_process(pid, signal);
            }
        })
    }

    /// Gives signals to `take`, for as long as this process lives, with whether the terminal has sent
    /// them to the command as well.
    pub(crate) fn give_to(self, mut take: impl FnMut(Signal, bool) + Send + 'static) -> Result<()> {
        let mut signals = self.0;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for origin in &mut signals {
                    if let Some(signal) = Signal::from_named_raw(origin.signal) {
                        take(signal, came_to_all(&origin));
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(())
    }
}

/// A terminal sends its signals to the command as well; so does a shell that continues a job, but
/// to be continued twice does no harm.
fn came_to_all(origin: &Origin) -> bool {
    origin.cause == Cause::Kernel && origin.signal != SIGCONT
}
