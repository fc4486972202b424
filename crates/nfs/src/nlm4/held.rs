//! Which clients have locks through this gateway. Owns nothing but the list: the locks themselves are
//! the engines' and this session's. It is there so that a client that was started anew, and so has
//! forgotten what it had, can be taken at its word that it has nothing.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use azekura_posix::Oid;
use parking_lot::Mutex;

/// More owners on more files than that get no locks.
const HELD_MAX: usize = 1 << 16;

/// A client as it calls itself, and where it calls from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    pub(crate) name: Box<[u8]>,
}

impl Client {
    /// Whether a notice from `address` in the name of `name` is about this client. Both must fit: the
    /// address, for anyone can send any name, and the name, since machines may share an address. The
    /// name may have a domain here and none there, or be the address.
    pub(crate) fn is_meant(&self, address: IpAddr, name: &[u8]) -> bool {
        let host = |name: &[u8]| {
            let first = name.split(|byte| *byte == b'.').next().unwrap_or_default();
            first.to_ascii_lowercase()
        };
        let is_address = address.to_canonical().to_string().as_bytes() == name;
        self.address == address && (is_address || host(&self.name) == host(name))
    }
}

/// Who has locks on what.
#[derive(Debug, Default)]
pub(crate) struct Held {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    clients: HashMap<Client, HashSet<(Oid, u64)>>,
    count: usize,
}

impl Held {
    /// Notes that an owner has something locked; `false` if there is no room to.
    pub(crate) fn note(&self, client: &Client, oid: Oid, owner: u64) -> bool {
        let mut state = self.state.lock();
        if let Some(held) = state.clients.get(client)
            && held.contains(&(oid, owner))
        {
            return true;
        }
        if state.count >= HELD_MAX {
            return false;
        }
        state.clients.entry(client.clone()).or_default().insert((oid, owner));
        state.count += 1;
        true
    }

    /// An owner has nothing locked on the object any more.
    pub(crate) fn forget(&self, client: &Client, oid: Oid, owner: u64) {
        let mut state = self.state.lock();
        let Some(held) = state.clients.get_mut(client) else { return };
        let was_there = held.remove(&(oid, owner));
        if held.is_empty() {
            state.clients.remove(client);
        }
        state.count -= usize::from(was_there);
    }

    /// Takes out all that the clients which are meant have.
    pub(crate) fn take(&self, is_meant: impl Fn(&Client) -> bool) -> Vec<(Client, Oid, u64)> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for (client, held) in state.clients.extract_if(|client, _| is_meant(client)) {
            taken.extend(held.into_iter().map(|(oid, owner)| (client.clone(), oid, owner)));
        }
        state.count -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    fn client(last: u8, name: &str) -> Client {
        Client { address: IpAddr::from([10, 0, 0, last]), name: name.as_bytes().into() }
    }

    fn oid(serial: u64) -> Oid {
        Oid::new(ContainerId(0), ObjectClass::S1, TargetId(0), serial)
    }

    #[test]
    fn a_client_is_meant_by_address_and_name() {
        let one = client(1, "Host.example.org");
        let from = |last| IpAddr::from([10, 0, 0, last]);
        assert!(one.is_meant(from(1), b"host"));
        assert!(one.is_meant(from(1), b"host.other"));
        assert!(one.is_meant(from(1), b"10.0.0.1"));
        assert!(!one.is_meant(from(2), b"host"), "another machine says so");
        assert!(!one.is_meant(from(1), b"guest"), "another machine behind one address");
    }

    #[test]
    fn what_a_client_has_is_taken_once() {
        let held = Held::default();
        let (one, two) = (client(1, "a"), client(2, "a"));
        assert!(held.note(&one, oid(1), 7) && held.note(&one, oid(1), 7));
        assert!(held.note(&one, oid(2), 7) && held.note(&two, oid(1), 8));
        held.forget(&one, oid(2), 7);
        held.forget(&one, oid(2), 7);
        assert_eq!(held.take(|client| *client == one), [(one.clone(), oid(1), 7)]);
        assert_eq!(held.take(|client| *client == one), []);
        assert_eq!(held.state.lock().count, 1);
        held.forget(&two, oid(1), 8);
        assert!(held.state.lock().clients.is_empty());
        assert_eq!(held.state.lock().count, 0);
    }

    #[test]
    fn the_list_is_bounded() {
        let held = Held::default();
        let one = client(1, "a");
        assert!((0..HELD_MAX as u64).all(|serial| held.note(&one, oid(serial), 1)));
        assert!(!held.note(&one, oid(HELD_MAX as u64), 1));
        assert!(held.note(&one, oid(0), 1), "it is there already");
        held.forget(&one, oid(0), 1);
        assert!(held.note(&one, oid(HELD_MAX as u64), 1));
    }
}
