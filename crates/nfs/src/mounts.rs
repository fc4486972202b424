//! Who has mounted what, as far as clients have said. A list for people: nothing depends on it.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

/// More mounts than that are not remembered.
const MOUNTS_MAX: usize = 4096;
/// Refused clients are named in the log once, while they are among so many.
const REFUSED_MAX: usize = 1024;

/// One mount, as the client has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Its address.
    pub client: IpAddr,
    /// The path that it has mounted.
    pub path: String,
}

/// Who has mounted what, and who was refused.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    mounted: Mutex<VecDeque<Mounted>>,
    refused: Mutex<VecDeque<Mounted>>,
}

impl Mounts {
    /// The mounts that clients have not given up.
    pub(crate) fn list(&self) -> Vec<Mounted> {
        self.mounted.lock().iter().cloned().collect()
    }

    pub(crate) fn add(&self, mount: Mounted) {
        note(&mut self.mounted.lock(), mount, MOUNTS_MAX);
    }

    pub(crate) fn remove(&self, is_given_up: impl Fn(&Mounted) -> bool) {
        self.mounted.lock().retain(|mount| !is_given_up(mount));
    }

    /// Whether this refusal is new, and so worth a line in the log.
    pub(crate) fn is_new_refusal(&self, mount: Mounted) -> bool {
        note(&mut self.refused.lock(), mount, REFUSED_MAX)
    }
}

/// Adds what is not there yet, in the place of the oldest if there are too many.
fn note(list: &mut VecDeque<Mounted>, mount: Mounted, count_max: usize) -> bool {
    if list.contains(&mount) {
        return false;
    }
    if list.len() == count_max {
        list.pop_front();
    }
    list.push_back(mount);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded_and_without_repetition() {
        let mut list = VecDeque::new();
        let mount = |number: u32| Mounted {
            client: IpAddr::from([127, 0, 0, 1]),
            path: number.to_string(),
        };
        assert!(note(&mut list, mount(1), 2));
        assert!(!note(&mut list, mount(1), 2));
        assert!(note(&mut list, mount(2), 2));
        assert!(note(&mut list, mount(3), 2));
        assert_eq!(Vec::from(list), [mount(2), mount(3)]);
    }
}
