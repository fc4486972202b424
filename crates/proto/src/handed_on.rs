//! What a process that uses a pool hands on to the programs that it starts, as text for their environment: so they
//! need not ask again. Owns the text's form. Whoever takes it makes sure that it is about its own pool and container.

use std::ffi::CStr;

use serde::{Deserialize, Serialize};

use crate::message::Container;
use crate::{Oid, PoolId, hex};

/// The variable of the environment.
pub const VARIABLE: &CStr = c"AZEKURA_HANDED_ON";
/// How the text begins; another form begins otherwise.
const FORM: &[u8] = b"2-";
/// A longer text is none of ours.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// What is handed on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedOn {
    /// The pool.
    pub pool: PoolId,
    /// Its container as it was when the first of these processes opened it, which is as old as what a mount has of it.
    pub container: Container,
    /// About how long a round trip to the pool takes, in microseconds; 0 if that is not known.
    pub round_trip_us: u64,
    /// The working directory, if it lies in the container.
    pub directory: Option<HandedDirectory>,
}

/// A working directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedDirectory {
    /// The directory.
    pub oid: Oid,
    /// Its path below the container's root, without symlinks and dots; empty for the root.
    pub path: Vec<u8>,
    /// Where its names lead, one after the other, if that is still believed.
    pub way: Option<HandedWay>,
}

/// Where the names of a path lead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedWay {
    /// What each of them leads to.
    pub dirs: Vec<Oid>,
    /// When the first was asked for, in microseconds of the host's monotonic clock.
    pub asked_us: u64,
}

impl HandedOn {
    /// As text; `None` if it would be too long.
    pub fn to_text(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_stdvec(self).ok()?;
        let text = [FORM, hex::digits(&bytes).as_bytes()].concat();
        (text.len() <= TEXT_BYTES_MAX).then_some(text)
    }

    /// Out of such a text; `None` if it is none.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(FORM).filter(|_| text.len() <= TEXT_BYTES_MAX)?;
        match postcard::take_from_bytes(&hex::bytes(digits)?) {
            Ok((handed_on, [])) => Some(handed_on),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Inheritance;
    use crate::{ContainerId, ObjectClass, TargetId};

    #[test]
    fn what_is_handed_on_arrives_and_nothing_else_is_taken_for_it() {
        let root = Oid::new(ContainerId(3), ObjectClass::SX, TargetId(1), 1);
        let container = Container {
            id: ContainerId(3),
            name: "default".to_owned(),
            root,
            inheritance: Inheritance::default(),
        };
        let way = Some(HandedWay { dirs: vec![root; 2], asked_us: 1 << 40 });
        let directory = Some(HandedDirectory { oid: root, path: b"/a b/\xff".to_vec(), way });
        let handed_on =
            HandedOn { pool: PoolId([7; 16]), container, round_trip_us: 50_000, directory };
        let text = handed_on.to_text().unwrap();
        assert!(text.is_ascii() && !text.contains(&0));
        assert_eq!(HandedOn::from_text(&text), Some(handed_on.clone()));
        for wrong in
            [&text[..text.len() - 1], &text[..text.len() - 2], &text[1..], &b""[..], b"2-", b"2-xy"]
        {
            assert_eq!(HandedOn::from_text(wrong), None);
        }
        assert_eq!(HandedOn::from_text(&[&text[..], b"00"].concat()), None);
        let path = vec![b'x'; TEXT_BYTES_MAX];
        let directory = Some(HandedDirectory { oid: root, path, way: None });
        assert_eq!(HandedOn { directory, ..handed_on }.to_text(), None);
    }
}
