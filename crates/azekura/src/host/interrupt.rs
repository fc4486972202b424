//! What a command does when it is told to end in the middle of its work: it looks here between two
//! steps, tidies up and ends by itself. Whoever asks twice does not want to wait, and gets it at once.
//! Owns what asking twice is: `timeout` and terminals send one wish as several signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Signals closer to the first than this say the same once more: `timeout` sends its own to the command
/// and then to the command's process group.
const ONE_WISH: Duration = Duration::from_millis(300);

/// What a signal to end asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To end in good order.
    ToEnd,
    /// What was asked for just now.
    TheSame,
    /// To end at once.
    Again,
}

/// The signals to end that have come.
#[derive(Debug, Default)]
pub struct EndSignals {
    first: Option<Instant>,
}

impl EndSignals {
    /// What the signal asks for that has come `at` this time.
    pub fn heard(&mut self, at: Instant) -> Asked {
        match self.first {
            None => {
                self.first = Some(at);
                Asked::ToEnd
            }
            Some(first) if at.duration_since(first) < ONE_WISH => Asked::TheSame,
            Some(_) => Asked::Again,
        }
    }
}

/// From here on the first SIGINT or SIGTERM is handed to `first`, in a thread of its own, and the next
/// wish ends this process at once. A process that was started with one of them ignored hears it too: it
/// will be sent that one by somebody who means it.
///
/// # Errors
/// If the signals cannot be waited for.
pub fn on_end_signals(mut first: impl FnMut(i32) + Send + 'static) -> Result<()> {
    let cannot = "cannot wait for signals";
    let mut signals = Signals::new([SIGINT, SIGTERM]).context(cannot)?;
    let wait = move || {
        let mut heard = EndSignals::default();
        for signal in signals.forever() {
            match heard.heard(Instant::now()) {
                Asked::ToEnd => first(signal),
                Asked::TheSame => {}
                Asked::Again => signal_hook::low_level::exit(128 + signal),
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context(cannot)?;
    Ok(())
}

/// Whether this process was told to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From here on SIGINT and SIGTERM are taken note of.
    pub(crate) fn watch() -> Result<Self> {
        let interrupt = Self::default();
        let shared = Arc::clone(&interrupt.signal);
        on_end_signals(move |signal| {
            shared.store(usize::try_from(signal).unwrap_or_default(), Ordering::Relaxed);
        })?;
        Ok(interrupt)
    }

    /// The exit code that a shell expects of a process that a signal has ended, if there was one.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Relaxed);
        (signal != 0).then(|| 128u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX)))
    }

    /// Whether there was a signal.
    pub(crate) fn came(&self) -> bool {
        self.exit_code().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sent_twice_at_once_is_one_wish_and_a_later_one_another() {
        let mut signals = EndSignals::default();
        let start = Instant::now();
        let mut after = |by| signals.heard(start + Duration::from_millis(by));
        assert_eq!(after(0), Asked::ToEnd);
        assert_eq!(after(1), Asked::TheSame);
        assert_eq!(after(299), Asked::TheSame);
        assert_eq!(after(1000), Asked::Again);
    }
}
