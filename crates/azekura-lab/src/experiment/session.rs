//! One sitting of a run: of which commit the program is, what was typed, and how busy the machine was with
//! other things before and after. Owns what counts as busy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Processors that are this busy with other work spoil a measurement, in percent.
const BUSY_PERCENT: f64 = 10.0;
/// For how long it is looked at how busy they are.
const LOOK: Duration = Duration::from_millis(500);

/// How busy the machine is while the run does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Time that processors were at work, in percent of all they had.
    pub(crate) busy_percent: f64,
    /// The system's own average of the last minute.
    pub(crate) average: f64,
}

impl Load {
    /// As it is now; takes half a second.
    pub(crate) fn now() -> Self {
        let before = processor_times();
        std::thread::sleep(LOOK);
        let busy_percent = match (before, processor_times()) {
            (Some(before), Some(after)) => busy_percent(before, after),
            _ => 0.0,
        };
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let average = text.split_whitespace().next().and_then(|word| word.parse().ok());
        Self { busy_percent, average: average.unwrap_or(0.0) }
    }

    /// Whether what is measured beside it is spoilt.
    pub(crate) fn is_busy(self) -> bool {
        self.busy_percent >= BUSY_PERCENT
    }
}

/// Time at work and time in all, in ticks since the system started.
fn processor_times() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let mut words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut ticks = [0; 8];
    for tick in &mut ticks {
        *tick = words.next()?.parse().ok()?;
    }
    let [_, _, _, idle, waiting, ..] = ticks;
    let all = ticks.iter().sum();
    Some((all - idle - waiting, all))
}

fn busy_percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    let (busy, all) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    (busy as f64 / all.max(1) as f64 * 1000.0).round() / 10.0
}

/// A sitting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The command as it was typed.
    pub(crate) command_line: String,
    /// When it was begun: date and time, UTC.
    pub(crate) begun: String,
    /// The commit that the program was built from; empty if that is not known.
    pub(crate) commit: String,
    /// Whether something was changed since that commit.
    pub(crate) dirty: bool,
    /// The load before anything was measured.
    pub(crate) load_before: Load,
    /// And after, unless the sitting was cut short.
    pub(crate) load_after: Option<Load>,
}

impl Session {
    /// One that begins now.
    pub(crate) fn begin(command_line: String, begun: String) -> Self {
        Self {
            command_line,
            begun,
            commit: env!("AZEKURA_COMMIT").to_owned(),
            dirty: env!("AZEKURA_DIRTY") == "true",
            load_before: Load::now(),
            load_after: None,
        }
    }

    /// Whether other work ran beside it.
    pub(crate) fn was_busy(&self) -> bool {
        self.load_before.is_busy() || self.load_after.is_some_and(Load::is_busy)
    }

    /// The commit in words.
    pub(crate) fn described(&self) -> String {
        let commit = if self.commit.is_empty() { "unknown" } else { &self.commit };
        let changes = if self.dirty { ", with changes that are not committed" } else { "" };
        format!("{commit}{changes}")
    }

    /// The load in words.
    pub(crate) fn load_described(&self) -> String {
        let after = match self.load_after {
            Some(load) => format!("{:.0} % after", load.busy_percent),
            None => "cut short".to_owned(),
        };
        format!("processors busy {:.0} % before, {after}", self.load_before.busy_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_the_share_of_time_at_work() {
        assert!((busy_percent((100, 1000), (125, 1100)) - 25.0).abs() < 1e-9);
        assert!(busy_percent((100, 1000), (100, 1000)).abs() < 1e-9);
        assert!(processor_times().is_some_and(|(busy, all)| busy <= all));
        assert!((0.0..=100.0).contains(&Load::now().busy_percent));
    }

    #[test]
    fn a_busy_machine_is_told_before_or_after() {
        let quiet = Load { busy_percent: 1.0, average: 0.1 };
        let busy = Load { busy_percent: 60.0, average: 0.1 };
        let session = |load_before, load_after| Session {
            load_before,
            load_after,
            ..Session::begin("c".to_owned(), "d".to_owned())
        };
        assert!(!session(quiet, Some(quiet)).was_busy());
        assert!(session(busy, None).was_busy());
        assert!(session(quiet, Some(busy)).was_busy());
        assert!(session(quiet, Some(busy)).load_described().contains("60 % after"));
        assert!(session(quiet, None).load_described().contains("cut short"));
    }
}
