//! What agents say of files that go home, kept for whoever waits for it. Owns which nodes live, as far as
//! files that go home are concerned; whoever waits for a node that dies hears of that.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use azekura_proto::staging::NodeId;
use parking_lot::Mutex;

use crate::front::outgoing::arrival::Arrival;
use crate::message::{Answer, ContentId};

/// Something that has to do with the files of one node.
pub(crate) enum Note {
    /// Its agent has answered.
    Answer(Answer),
    /// A content has come, all of it checked.
    Whole(ContentId, Box<Arrival>),
    /// A content does not come.
    Broken(ContentId, Why),
    /// The node is lost.
    Gone,
}

/// Why a content does not come.
pub(crate) enum Why {
    /// Another try may help.
    Lost(String),
    /// It cannot be written at home.
    Unwritable(String),
}

/// A letterbox for each node that waits for something.
#[derive(Default)]
pub(crate) struct Post {
    nodes: Mutex<BTreeMap<NodeId, Letterbox>>,
}

#[derive(Default)]
struct Letterbox {
    is_gone: bool,
    sender: Option<Sender<Note>>,
}

impl Post {
    /// From now on this receives what has to do with a node. What is received is bounded by what is asked.
    pub(crate) fn open(&self, node: NodeId) -> Receiver<Note> {
        let (sender, receiver) = channel();
        let mut nodes = self.nodes.lock();
        let letterbox = nodes.entry(node).or_default();
        if letterbox.is_gone {
            // The receiver is here.
            let _ = sender.send(Note::Gone);
        }
        letterbox.sender = Some(sender);
        receiver
    }

    pub(crate) fn send(&self, to: NodeId, note: Note) {
        if let Some(letterbox) = self.nodes.lock().get(&to)
            && let Some(sender) = &letterbox.sender
        {
            // Nobody waits for it any more.
            let _ = sender.send(note);
        }
    }

    /// A node is lost.
    pub(crate) fn gone(&self, node: NodeId) {
        self.nodes.lock().entry(node).or_default().is_gone = true;
        self.send(node, Note::Gone);
    }
}
