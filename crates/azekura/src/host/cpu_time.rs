//! The processor time that running processes have taken, in nanoseconds, as the kernel's scheduler
//! counts it for each of their threads. Owns where it stands; who is counted, and for what, is the
//! business of others.

use std::collections::HashMap;

/// The processor time of some processes at one moment, by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTimes(HashMap<u32, u64>);

impl CpuTimes {
    /// Of these processes, now. One that is gone, or that another user hides, counts nothing.
    pub(crate) fn of(pids: &[u32]) -> Self {
        let threads = pids.iter().flat_map(|pid| numbers_in(&format!("/proc/{pid}/task")));
        Self(threads.filter_map(|thread| Some((thread, spent_ns(thread)?))).collect())
    }

    /// What was taken since `before`, in nanoseconds. What threads took that have ended since is
    /// not known.
    pub(crate) fn since_ns(&self, before: &Self) -> u64 {
        let taken = |(thread, spent_ns): (&u32, &u64)| {
            spent_ns.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        self.0.iter().map(taken).sum()
    }
}

/// These processes, with all that they have started and that still run.
pub(crate) fn with_descendants(roots: &[u32]) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        numbers_in("/proc").filter_map(|process| Some((process, parent_of(process)?))).collect();
    let mut found = roots.to_vec();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child);
        let new: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
        found.extend(new);
        next += 1;
    }
    found
}

/// The entries of a directory whose names are numbers; none if it cannot be read.
fn numbers_in(dir: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The first field of a thread's `schedstat` (Documentation/scheduler/sched-stats.rst of Linux).
fn spent_ns(thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it stands in parentheses and may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_any_thread_counts_and_that_of_others_does_not() {
        let own = [std::process::id()];
        let before = CpuTimes::of(&own);
        let worked = std::thread::spawn(|| {
            let own = [std::process::id()];
            let began = std::time::Instant::now();
            let from = CpuTimes::of(&own);
            // As long as this thread itself has counted for; other tests may use the processors.
            while CpuTimes::of(&own).since_ns(&from) < 5_000_000 {
                assert!(began.elapsed().as_secs() < 60, "no processor time is counted");
            }
            CpuTimes::of(&own)
        });
        let after = worked.join().unwrap();
        assert!(after.since_ns(&before) >= 5_000_000);
        assert_eq!(CpuTimes::of(&[]).since_ns(&before), 0);
    }

    #[test]
    fn children_are_found_below_those_that_started_them() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let began = std::time::Instant::now();
        let tree = loop {
            let tree = with_descendants(&[child.id()]);
            if tree.len() == 2 || began.elapsed().as_secs() > 30 {
                break tree;
            }
        };
        assert!(tree.len() == 2 && tree[0] == child.id(), "{tree:?}");
        assert!(with_descendants(&[std::process::id()]).contains(&tree[1]));
        for process in &tree[1..] {
            let process = super::super::process::running(*process).unwrap();
            super::super::process::ask_to_end(process).unwrap();
        }
        child.wait().unwrap();
    }
}
