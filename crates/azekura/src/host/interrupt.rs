//! What a command does when it is told to end in the middle of its work: it looks here between two
//! steps, tidies up and ends by itself. Whoever asks twice does not want to wait, and gets it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether this process was told to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From here on SIGINT and SIGTERM are taken note of. A process that was started with one of them
    /// ignored has to look too: it will be sent that one by somebody who means it.
    pub(crate) fn watch() -> Result<Self> {
        let interrupt = Self::default();
        let asked = Arc::new(AtomicBool::new(false));
        let cannot = "cannot wait for signals";
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, and sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
                .context(cannot)?;
            flag::register(signal, Arc::clone(&asked)).context(cannot)?;
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, Arc::clone(&interrupt.signal), number).context(cannot)?;
        }
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
