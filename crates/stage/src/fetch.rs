//! Fetching contents from suppliers: one connection to each, made when it is first needed, kept, and read by
//! one thread. Owns what is fetched from whom, and the rule that a supplier which says nothing for too
//! long is lost. What is done with the pieces is the business of the [`Receiver`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::frame;
use azekura_wire::{Connection, FrameReader, FrameWriter, RecvError, Socket};
use parking_lot::Mutex;

use crate::doors::{OpenSockets, spawn};
use crate::lumps::Lumps;
use crate::message::{AT_HOME_AHEAD, ContentId, FetchRequest, PIECE_BYTES_MAX, Supplied, Supplier};
use crate::piece::{Buffer, Buffers};

/// A supplier that is waited for and sends nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(3);

/// What goes on with a fetch after a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// The next piece.
    Next,
    /// The pieces from this one on are to be sent again.
    Again(u32),
    /// Nothing of this is wanted from this supplier any more.
    Enough,
}

/// Who takes what has been fetched. Called by one thread for each supplier.
pub(crate) trait Receiver: Send + Sync + 'static {
    fn piece(&self, from: Supplier, piece: PieceHead, bytes: Buffer) -> After;
    /// A piece that this host's home has. By default it is to be sent after all.
    fn piece_at_home(&self, from: Supplier, piece: PieceHead) -> After {
        let _ = from;
        After::Again(piece.index)
    }
    fn end(&self, from: Supplier, end: EndHead) -> After;
    /// The supplier gives no more of it.
    fn lost(&self, from: Supplier, content: ContentId, why: &str);
}

/// What is said of a piece before its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceHead {
    pub(crate) content: ContentId,
    pub(crate) index: u32,
    pub(crate) checksum: u64,
}

/// What is known at the end of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndHead {
    pub(crate) content: ContentId,
    pub(crate) digest: u64,
    /// How fast the connection is; 0 if that is not known.
    pub(crate) bytes_per_second: u64,
}

type Dial = Box<dyn Fn(Supplier) -> Result<Connection, String> + Send + Sync>;

/// The fetching side of a process.
pub(crate) struct Fetcher {
    lines: Mutex<HashMap<Supplier, Arc<Line>>>,
    dial: Dial,
    buffers: Buffers,
    open: Arc<OpenSockets>,
}

/// A connection to a supplier, or one that is being made.
struct Line {
    supplier: Supplier,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// What is being fetched, and since when nothing came is known by the reading thread.
    fetched: HashSet<ContentId>,
    /// Requests that wait for the connection.
    waiting: Vec<FetchRequest>,
    writer: Option<FrameWriter>,
    /// The supplier is on this host.
    is_beside: bool,
    is_dead: bool,
}

/// What is asked for first of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// Its bytes.
    Bytes,
    /// Its bytes, but for those that can be read at home if the supplier is on this host.
    BytesFromAfar,
}

impl Wish {
    /// Of a node: the front alone has files at home, and bundles are none.
    pub(crate) fn of(supplier: Supplier, is_small: bool) -> Self {
        match supplier {
            Supplier::Front if !is_small => Self::BytesFromAfar,
            _ => Self::Bytes,
        }
    }
}

impl Fetcher {
    pub(crate) fn new(dial: Dial, buffers: Buffers, open: Arc<OpenSockets>) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), dial, buffers, open })
    }

    /// Fetches a content, or the rest of it. What comes of it, the receiver is told, never by this thread.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        supplier: Supplier,
        content: ContentId,
        piece: u32,
        wish: Wish,
        receiver: &Arc<impl Receiver>,
    ) {
        let request = match wish {
            Wish::Bytes => FetchRequest::From { content, piece },
            Wish::BytesFromAfar => FetchRequest::Beside { content, piece },
        };
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(&supplier)
            && line.ask(request.clone(), content)
        {
            return;
        }
        let line = Arc::new(Line { supplier, state: Mutex::default() });
        line.ask(request, content);
        lines.insert(supplier, Arc::clone(&line));
        drop(lines);
        let (fetcher, taker) = (Arc::clone(self), Arc::clone(receiver));
        let running = Arc::clone(&line);
        let name = "fetch";
        if let Err(error) = spawn(name, move || fetcher.run(&running, &*taker)) {
            // The caller may hold what the receiver wants to have.
            tracing::error!("cannot start a thread to fetch from {supplier:?}: {error}");
            line.state.lock().is_dead = true;
        }
    }

    /// Whether a content is being fetched from this supplier.
    pub(crate) fn give_up(&self, supplier: Supplier, content: ContentId) {
        let line = self.lines.lock().get(&supplier).cloned();
        if let Some(line) = line
            && line.state.lock().fetched.remove(&content)
        {
            line.send(FetchRequest::Enough { content });
        }
    }

    fn run(&self, line: &Arc<Line>, receiver: &dyn Receiver) {
        let why = match (self.dial)(line.supplier) {
            Err(why) => why,
            Ok(connection) => match self.open.enter(&connection) {
                Err(error) => error.to_string(),
                Ok(_entered) => {
                    let is_beside = is_on_this_host(connection.socket());
                    let (writer, reader) = connection.split();
                    line.connected(writer, is_beside);
                    self.read(line, reader, receiver)
                }
            },
        };
        let lost = {
            let mut state = line.state.lock();
            state.is_dead = true;
            state.writer = None;
            std::mem::take(&mut state.fetched)
        };
        for content in lost {
            receiver.lost(line.supplier, content, &why);
        }
    }

    /// Reads until the supplier is lost, and says why it is.
    fn read(&self, line: &Line, mut reader: FrameReader, receiver: &dyn Receiver) -> String {
        if let Err(error) = reader.socket().set_read_timeout(Some(SILENCE)) {
            return error.to_string();
        }
        let mut lumps = Lumps::default();
        loop {
            let (supplied, bulk_bytes) = match reader.recv() {
                Ok((head, body)) => match frame::decode::<Supplied>(body) {
                    Ok(supplied) => (supplied, head.bulk_bytes),
                    Err(error) => return error.to_string(),
                },
                Err(RecvError::Idle) if line.state.lock().fetched.is_empty() => continue,
                Err(error) => return error.to_string(),
            };
            if bulk_bytes > PIECE_BYTES_MAX {
                return format!("a piece of {bulk_bytes} bytes");
            }
            let mut bytes = self.buffers.take(bulk_bytes as usize);
            if let Err(error) = lumps.read(&mut reader, &mut bytes, SILENCE) {
                return error.to_string();
            }
            line.take(supplied, bytes, lumps.bytes_per_second(), receiver);
        }
    }
}

impl Line {
    /// False if the connection is lost already.
    fn ask(&self, request: FetchRequest, content: ContentId) -> bool {
        let mut state = self.state.lock();
        if state.is_dead {
            return false;
        }
        state.fetched.insert(content);
        state.send(request);
        true
    }

    fn send(&self, request: FetchRequest) {
        self.state.lock().send(request);
    }

    fn connected(&self, writer: FrameWriter, is_beside: bool) {
        let mut state = self.state.lock();
        state.writer = Some(writer);
        state.is_beside = is_beside;
        for request in std::mem::take(&mut state.waiting) {
            state.send(request);
        }
    }

    fn take(
        &self,
        supplied: Supplied,
        bytes: Buffer,
        bytes_per_second: u64,
        receiver: &dyn Receiver,
    ) {
        let content = match supplied {
            Supplied::Beat => return,
            Supplied::Piece { content, .. }
            | Supplied::AtHome { content, .. }
            | Supplied::End { content, .. }
            | Supplied::Gone { content } => content,
        };
        // What was given up may still be on its way.
        if !self.state.lock().fetched.contains(&content) {
            return;
        }
        let after = match supplied {
            Supplied::Piece { content, index, checksum } => {
                receiver.piece(self.supplier, PieceHead { content, index, checksum }, bytes)
            }
            Supplied::AtHome { content, index, checksum } => {
                drop(bytes);
                let after =
                    receiver.piece_at_home(self.supplier, PieceHead { content, index, checksum });
                // One message for several pieces: each wakes a thread of the supplier.
                if after == After::Next && (index + 1).is_multiple_of(AT_HOME_AHEAD / 2) {
                    self.send(FetchRequest::Taken { content, piece: index + 1 });
                }
                after
            }
            Supplied::End { content, digest } => {
                receiver.end(self.supplier, EndHead { content, digest, bytes_per_second })
            }
            Supplied::Gone { .. } | Supplied::Beat => {
                if self.state.lock().fetched.remove(&content) {
                    receiver.lost(self.supplier, content, "it does not have it");
                }
                return;
            }
        };
        match after {
            After::Next => {}
            After::Again(piece) => self.send(FetchRequest::From { content, piece }),
            After::Enough => {
                let was_fetched = self.state.lock().fetched.remove(&content);
                if was_fetched && !matches!(supplied, Supplied::End { .. }) {
                    self.send(FetchRequest::Enough { content });
                }
            }
        }
    }
}

impl LineState {
    fn send(&mut self, request: FetchRequest) {
        let Some(writer) = &mut self.writer else {
            self.waiting.push(request);
            return;
        };
        let request = match request {
            FetchRequest::Beside { content, piece } if !self.is_beside => {
                FetchRequest::From { content, piece }
            }
            request => request,
        };
        // If it fails the reading thread finds the connection broken too.
        let _ = writer.queue(&request, 0).map(|()| writer.flush(&[]));
    }
}

/// Whether both ends of a connection are on one host, as hosts are told apart by their addresses.
fn is_on_this_host(socket: &Socket) -> bool {
    match socket {
        Socket::Unix(_) => true,
        Socket::Tcp(stream) => match (stream.local_addr(), stream.peer_addr()) {
            (Ok(ours), Ok(theirs)) => ours.ip().to_canonical() == theirs.ip().to_canonical(),
            _ => false,
        },
    }
}
