//! Contents on their way home: takes their pieces, checks them, and puts them into memory or into a file
//! that has no name yet. Gives no names: what is whole is handed on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use azekura_proto::staging::NodeId;
use parking_lot::Mutex;

use crate::fetch::{After, EndHead, PieceHead, Receiver};
use crate::front::event::Event;
use crate::front::outgoing::arrival::Arrival;
use crate::front::outgoing::post::{Note, Post, Why};
use crate::message::{ContentId, Supplier};
use crate::piece::{self, Buffer};

/// A content of which so many pieces in turn are wrong is fetched anew.
const WRONG_MAX: u32 = 3;

type Key = (NodeId, ContentId);

/// All contents that come.
pub(crate) struct Arrivals {
    post: Arc<Post>,
    events: Sender<Event>,
    table: Mutex<HashMap<Key, Arc<Mutex<Option<Arrival>>>>>,
}

impl Arrivals {
    pub(crate) fn new(post: Arc<Post>, events: Sender<Event>) -> Self {
        Self { post, events, table: Mutex::default() }
    }

    /// A content is about to be fetched.
    pub(crate) fn expect(&self, node: NodeId, arrival: Arrival) {
        let key = (node, arrival.description.id);
        self.table.lock().insert(key, Arc::new(Mutex::new(Some(arrival))));
    }

    /// Nothing of a node is expected any more. What has come of it is dropped.
    pub(crate) fn forget(&self, node: NodeId) {
        self.table.lock().retain(|(from, _), _| *from != node);
    }

    fn key(from: Supplier, content: ContentId) -> Option<Key> {
        match from {
            Supplier::Node(node) => Some((node, content)),
            Supplier::Front => None,
        }
    }

    /// Takes a content out, and says what became of it.
    fn close(&self, key: Key, tell: impl FnOnce(Arrival) -> Note) {
        let arrival = self.table.lock().remove(&key);
        let arrival = arrival.and_then(|arrival| arrival.lock().take());
        if let Some(arrival) = arrival {
            self.post.send(key.0, tell(arrival));
        }
    }

    fn broken(&self, key: Key, why: Why) -> After {
        // The file is removed before anybody hears that it does not come.
        self.close(key, |arrival| {
            drop(arrival);
            Note::Broken(key.1, why)
        });
        After::Enough
    }

    fn wrong(&self, key: Key, arrival: &mut Arrival, index: u32) -> Option<After> {
        let (node, ContentId(content)) = key;
        // Nobody needs to listen.
        let _ = self.events.send(Event::WrongPieceHome { content, index, node });
        arrival.wrong += 1;
        (arrival.wrong < WRONG_MAX).then_some(After::Again(arrival.checksums.len() as u32))
    }
}

impl Receiver for Arrivals {
    fn piece(&self, from: Supplier, head: PieceHead, bytes: Buffer) -> After {
        let Some(key) = Self::key(from, head.content) else { return After::Enough };
        let Some(entry) = self.table.lock().get(&key).cloned() else { return After::Enough };
        let mut entry = entry.lock();
        let Some(arrival) = &mut *entry else { return After::Enough };
        // What was sent before the node heard that a piece is wanted again.
        if head.index as usize != arrival.checksums.len() {
            return After::Next;
        }
        let is_right = !bytes.is_empty()
            && bytes.len() == arrival.description.bytes_of(head.index)
            && piece::checksum(&bytes) == head.checksum;
        if !is_right {
            let after = self.wrong(key, arrival, head.index);
            drop(entry);
            let why = || Why::Lost("its pieces are not what their checksums say".to_owned());
            return after.unwrap_or_else(|| self.broken(key, why()));
        }
        if let Err(error) = arrival.put(head.index, &bytes) {
            drop(entry);
            return self.broken(key, Why::Unwritable(error.to_string()));
        }
        arrival.wrong = 0;
        arrival.checksums.push(head.checksum);
        After::Next
    }

    fn end(&self, from: Supplier, EndHead { content, digest, .. }: EndHead) -> After {
        let Some(key) = Self::key(from, content) else { return After::Enough };
        let Some(entry) = self.table.lock().get(&key).cloned() else { return After::Enough };
        let is_right = entry.lock().as_ref().is_some_and(|arrival| {
            arrival.checksums.len() == arrival.description.pieces() as usize
                && piece::digest(&arrival.checksums) == digest
        });
        if !is_right {
            let why = "what has come is not what its digest says".to_owned();
            return self.broken(key, Why::Lost(why));
        }
        self.close(key, |arrival| Note::Whole(content, Box::new(arrival)));
        After::Enough
    }

    fn lost(&self, from: Supplier, content: ContentId, why: &str) {
        if let Some(key) = Self::key(from, content) {
            self.broken(key, Why::Lost(why.to_owned()));
        }
    }
}
