//! What happened in a simulation, line by line. Owns how many lines are kept.

use std::fmt;
use std::time::Duration;

const LINES_MAX: usize = 4000;

/// The lines, each with the virtual time at which it happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History(Vec<(Duration, String)>);

impl History {
    pub(crate) fn note(&mut self, elapsed: Duration, line: String) {
        if self.0.len() < LINES_MAX {
            self.0.push((elapsed, line));
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (elapsed, line) in &self.0 {
            writeln!(f, "{:>10.6}  {line}", elapsed.as_secs_f64())?;
        }
        Ok(())
    }
}
