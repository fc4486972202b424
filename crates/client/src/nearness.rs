//! Whether an engine is reached without a network, as the files of this host show it. Owns for how long that counts: as
//! long as the connections that were made then, since files are looked at for each opening otherwise.

use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const HERE: u8 = 1;
const ELSEWHERE: u8 = 2;

/// What was seen when it was last looked.
#[derive(Debug, Default)]
pub(crate) struct Nearness {
    seen: AtomicU8,
}

impl Nearness {
    /// Whether the engine is here; `looks` finds out where that is not known.
    pub(crate) fn is_here(&self, looks: impl FnOnce() -> bool) -> bool {
        match self.seen.load(Ordering::Relaxed) {
            HERE => true,
            ELSEWHERE => false,
            _ => {
                let is_here = looks();
                self.seen.store(if is_here { HERE } else { ELSEWHERE }, Ordering::Relaxed);
                is_here
            }
        }
    }

    /// Connections are made, or the engine is said to be elsewhere: it is to be looked again.
    pub(crate) fn forget(&self) {
        self.seen.store(UNKNOWN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Nearness;

    #[test]
    fn it_is_looked_once_for_all_connections() {
        let nearness = Nearness::default();
        for seen in [true, false] {
            nearness.forget();
            assert_eq!(nearness.is_here(|| seen), seen);
            assert_eq!(nearness.is_here(|| !seen), seen);
        }
    }
}
