//! One sitting of a run: of which commit the program is, what was typed, on which processors, and how busy those
//! were with other things before and after. Owns what counts as busy.

use std::fmt::Write as _;
use std::time::Duration;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Processors that are this busy with other work spoil a measurement, in percent.
const BUSY_PERCENT: f64 = 10.0;
/// For how long it is looked at how busy they are.
const LOOK: Duration = Duration::from_millis(500);

/// How busy the processors that the run may use are while it does nothing.
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
        let ours = Processors::of_this_process();
        let before = ours.times();
        std::thread::sleep(LOOK);
        let busy_percent = match (before, ours.times()) {
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

/// The processors that a run may use: all, unless `taskset` or a cgroup keeps it to some.
struct Processors(Option<CpuSet>);

impl Processors {
    fn of_this_process() -> Self {
        Self(rustix::thread::sched_getaffinity(None).ok())
    }

    fn has(&self, number: usize) -> bool {
        self.0.as_ref().is_none_or(|set| number < CpuSet::MAX_CPU && set.is_set(number))
    }

    /// Time at work and time in all, in ticks since the system started.
    fn times(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let (mut busy, mut all) = (0, 0);
        for line in text.lines() {
            let Some((name, times)) = line.split_once(' ') else { continue };
            let number = name.strip_prefix("cpu").and_then(|number| number.parse().ok());
            if number.is_some_and(|number| self.has(number)) {
                let (own_busy, own_all) = times_of(times)?;
                busy += own_busy;
                all += own_all;
            }
        }
        (all > 0).then_some((busy, all))
    }

    /// Which they are if the run may not use all of the machine's, in words.
    fn described(&self, of: usize) -> String {
        let Some(set) = self.0.as_ref().filter(|set| (set.count() as usize) < of) else {
            return String::new();
        };
        let mut text = String::new();
        for number in (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)) {
            let separator = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{separator}{number}");
        }
        text
    }
}

/// Time at work and time in all of a processor's line of /proc/stat.
fn times_of(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let mut ticks = [0_u64; 8];
    for tick in &mut ticks {
        *tick = words.next()?.parse().ok()?;
    }
    let [_, _, _, idle, waiting, ..] = ticks;
    let all = ticks.iter().sum::<u64>();
    Some((all - idle - waiting, all))
}

fn busy_percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    let (busy, all) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    (busy as f64 / all.max(1) as f64 * 1000.0).round() / 10.0
}

/// How many processors the machine has, also those that this process may not use.
fn machine_processors() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let of_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    text.lines().filter(of_one).count()
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
    /// The processors that it was kept to; empty if it had all of the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) only_processors: String,
    /// The load of its processors before anything was measured.
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
            only_processors: Processors::of_this_process().described(machine_processors()),
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
        let which = match self.only_processors.as_str() {
            "" => "processors".to_owned(),
            some => format!("kept to processor {some}, which was"),
        };
        format!("{which} busy {:.0} % before, {after}", self.load_before.busy_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_the_share_of_time_at_work() {
        assert!((busy_percent((100, 1000), (125, 1100)) - 25.0).abs() < 1e-9);
        assert!(busy_percent((100, 1000), (100, 1000)).abs() < 1e-9);
        let ours = Processors::of_this_process();
        assert!(ours.times().is_some_and(|(busy, all)| busy <= all));
        assert_eq!(times_of(" 10 0 5 70 3 1 1 0 0 0"), Some((17, 90)));
        assert_eq!(times_of("10 0 5"), None);
        assert!((0.0..=100.0).contains(&Load::now().busy_percent));
    }

    #[test]
    fn a_run_that_is_kept_to_some_processors_looks_at_those_alone() {
        let mut set = CpuSet::new();
        set.set(0);
        let one = Processors(Some(set));
        assert!(one.has(0) && !one.has(1) && !one.has(CpuSet::MAX_CPU));
        assert_eq!((one.described(1), one.described(2)), (String::new(), "0".to_owned()));
        assert!(one.times().unwrap().1 <= Processors(None).times().unwrap().1);
        assert!(machine_processors() >= 1);
        let session = Session {
            only_processors: "1".to_owned(),
            load_before: Load { busy_percent: 2.0, average: 1.0 },
            ..Session::begin("c".to_owned(), "d".to_owned())
        };
        assert_eq!(
            session.load_described(),
            "kept to processor 1, which was busy 2 % before, cut short"
        );
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
