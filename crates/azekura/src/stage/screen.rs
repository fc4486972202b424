//! What a terminal sees while a job runs: a line for each node, drawn on standard error only if that is a
//! terminal and only while something travels, since the job's command writes there too. Lines for people go
//! through here so that they do not tear the others.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::summary::{files_and_bytes, rate};
use super::tally::NodeStatus;
use crate::report;

/// Nodes that have a line of their own; terminals are not higher.
const LINES_MAX: usize = 20;
/// Lines go when nothing has come for so long.
const STILL: Duration = Duration::from_millis(1500);
/// Rates are of this time.
const WINDOW: Duration = Duration::from_secs(1);

/// The lines.
#[derive(Debug)]
pub(super) struct Screen {
    lines: MultiProgress,
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    bars: Vec<ProgressBar>,
    /// Bytes of each node when the window began, and the rates of the window before.
    before: Vec<u64>,
    rates: Vec<String>,
    window: Option<Instant>,
    /// All bytes, and when they last became more.
    bytes: u64,
    moved: Option<Instant>,
}

impl Screen {
    /// Draws on standard error if it is a terminal.
    pub(super) fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    /// Draws nothing.
    #[cfg(test)]
    pub(super) fn hidden() -> Self {
        Self::on(ProgressDrawTarget::hidden())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        Self { lines: MultiProgress::with_draw_target(target), drawn: Mutex::default() }
    }

    /// A line for people.
    pub(super) fn note(&self, line: &str) {
        self.lines.suspend(|| report::note(line));
    }

    /// Draws how the nodes are; to be called a few times a second.
    pub(super) fn show(&self, nodes: &[NodeStatus]) {
        if self.lines.is_hidden() {
            return;
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = nodes.iter().map(|node| node.bytes).sum();
        if bytes > drawn.bytes {
            drawn.bytes = bytes;
            drawn.moved = Some(Instant::now());
        }
        if drawn.moved.is_none_or(|moved| moved.elapsed() > STILL) {
            drawn.clear(&self.lines);
            return;
        }
        drawn.measure(nodes);
        let count = nodes.len().min(LINES_MAX);
        while drawn.bars.len() < count {
            let bar = self.lines.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            drawn.bars.push(bar);
        }
        for (index, bar) in drawn.bars.iter().enumerate() {
            let rest =
                (index + 1 == LINES_MAX).then(|| nodes.len() - LINES_MAX).filter(|rest| *rest > 0);
            bar.set_message(line(&nodes[index], &drawn.rates[index], rest));
        }
    }

    /// Takes the lines away.
    pub(super) fn clear(&self) {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).clear(&self.lines);
    }
}

impl Drawn {
    fn measure(&mut self, nodes: &[NodeStatus]) {
        let bytes: Vec<u64> = nodes.iter().map(|node| node.bytes).collect();
        let Some(began) = self.window else {
            self.rates = vec!["-".to_owned(); nodes.len()];
            self.before = bytes;
            self.window = Some(Instant::now());
            return;
        };
        let passed = began.elapsed();
        if passed >= WINDOW {
            let came =
                bytes.iter().zip(&self.before).map(|(now, before)| now.saturating_sub(*before));
            self.rates = came.map(|bytes| rate(bytes, passed.as_secs_f64())).collect();
            self.before = bytes;
            self.window = Some(Instant::now());
        }
    }

    fn clear(&mut self, lines: &MultiProgress) {
        for bar in self.bars.drain(..) {
            bar.finish_and_clear();
            lines.remove(&bar);
        }
        self.window = None;
    }
}

fn line(node: &NodeStatus, rate: &str, rest: Option<usize>) -> String {
    let state = if node.up { "" } else { " gone" };
    let came = files_and_bytes(node.files, node.bytes);
    let mut text = format!("{:<16} {came:<28} {rate:>12}{state}", node.host);
    if node.stalls > 0 {
        let _ = write!(text, "  {} stalls", node.stalls);
    }
    if let Some(rest) = rest {
        let _ = write!(text, "  and {rest} more nodes");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_came_in_the_window() {
        let node = |bytes| NodeStatus { bytes, ..NodeStatus::default() };
        let mut drawn = Drawn::default();
        drawn.measure(&[node(0), node(5)]);
        assert_eq!(drawn.rates, ["-", "-"]);
        drawn.window = Instant::now().checked_sub(Duration::from_secs(2));
        drawn.measure(&[node(2_049), node(5)]);
        assert_eq!(drawn.rates[1], "0 B/s");
        assert!(drawn.rates[0].ends_with("B/s") && drawn.rates[0] != "0 B/s");
    }

    #[test]
    fn a_line_tells_of_a_node() {
        let node = NodeStatus {
            host: "n1".to_owned(),
            files: 1,
            bytes: 1024,
            stalls: 2,
            ..NodeStatus::default()
        };
        let text = line(&node, "1 KiB/s", Some(3));
        for part in ["n1", "1 file, 1 KiB", "1 KiB/s", "gone", "2 stalls", "3 more"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
