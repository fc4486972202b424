//! What runs say of the machine that they were done on.

use serde::{Deserialize, Serialize};

use crate::report::format_bytes;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim())
            .to_owned();
        let info = rustix::system::sysinfo();
        Self {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: info.totalram * u64::from(info.mem_unit),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    /// In one sentence's worth of words.
    pub fn described(&self) -> String {
        format!(
            "{} processor{} ({}), {} of memory, Linux {}",
            self.processors,
            if self.processors == 1 { "" } else { "s" },
            self.processor,
            format_bytes(self.memory_bytes),
            self.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_description() {
        let machine = Machine::here();
        assert!(machine.processors > 0 && machine.memory_bytes > 0);
        assert!(machine.described().contains("Linux"));
    }
}
