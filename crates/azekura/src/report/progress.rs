//! Progress bars on standard error, shown only on a terminal and only once the work has taken a
//! second. They never change what is done.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::streams::note;

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bar of one piece of work.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
}

impl Progress {
    /// Work measured in bytes, of which more and more are found.
    pub(crate) fn bytes(what: &str) -> Self {
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
        Self::with(what, Some(0), template)
    }

    /// Work measured in pieces; 0 if their number is not known.
    pub fn count(what: &str, total: u64) -> Self {
        Self::with(
            what,
            (total > 0).then_some(total),
            if total == 0 {
                "{spinner} {msg} {human_pos} {per_sec}"
            } else {
                "{msg} {wide_bar} {human_pos}/{human_len} {eta}"
            },
        )
    }

    /// Work of which only the duration is known.
    pub(crate) fn waiting(what: &str) -> Self {
        Self::with(what, None, "{spinner} {msg} {elapsed}")
    }

    fn with(what: &str, total: Option<u64>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self { bar, since: Instant::now(), shown: false }
    }

    /// That much more is done.
    pub fn advance(&mut self, amount: u64) {
        self.bar.inc(amount);
        if !self.shown && self.since.elapsed() > PATIENCE {
            self.shown = true;
            // Draws nothing where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Still waiting; moves the spinner.
    pub(crate) fn tick(&mut self) {
        self.advance(0);
        self.bar.tick();
    }

    /// More work has been found.
    pub(crate) fn extend(&mut self, amount: u64) {
        self.bar.inc_length(amount);
    }

    /// Prints a line on standard error without tearing the bar.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| note(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
