//! Giving contents to those who fetch them: one connection serves any number of fetches, each a piece at
//! a time in turn, as far as there are pieces; so a content that waits for its own supplier holds up no
//! other. The same for the front and for agents, which differ in where the bytes come from.

use std::sync::Arc;
use std::time::Duration;

use azekura_proto::frame;
use azekura_wire::{Connection, FrameReader, FrameWriter};
use parking_lot::{Condvar, Mutex};

use crate::doors::spawn;
use crate::message::{ContentId, FetchRequest, Supplied};
use crate::piece::Buffer;

/// A supplier that has nothing to send says so this often.
const BEAT: Duration = Duration::from_secs(1);
/// Fetches of one connection at most.
const FETCHES_MAX: usize = 64 * 1024;
/// A receiver that takes no byte for so long is lost.
const SEND_TIME: Duration = Duration::from_secs(10);

/// What a supplier has of a content.
#[derive(Debug)]
pub(crate) enum Offer {
    /// The piece that was asked for.
    Piece { checksum: u64, bytes: Arc<Buffer> },
    /// It has not come yet; the bell rings when it has.
    NotYet,
    /// There is no such piece: the content is whole before it.
    End { digest: u64 },
    /// The content is not here, or not any more.
    Gone,
}

/// Contents that can be fetched.
pub(crate) trait Shelf: Send + Sync + 'static {
    /// What there is of a piece. If it is not there yet, the bell is kept, to be rung once.
    fn offer(&self, content: ContentId, index: u32, bell: &Arc<Bell>) -> Offer;
}

/// What wakes a thread that waits for pieces of several contents.
#[derive(Default, Debug)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.ringing.notify_all();
    }

    /// Waits until it has rung since the last time.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.ringing.wait_for(&mut rung, limit);
        }
        *rung = false;
    }
}

/// What a receiver wants on a connection.
#[derive(Default)]
struct Wanted {
    fetches: Vec<Fetch>,
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Fetch {
    content: ContentId,
    next: u32,
}

struct Order {
    wanted: Mutex<Wanted>,
    bell: Arc<Bell>,
}

/// Serves a connection until the receiver hangs up.
pub(crate) fn serve(connection: Connection, shelf: &Arc<impl Shelf>) {
    let order = Arc::new(Order { wanted: Mutex::default(), bell: Arc::default() });
    if connection.socket().set_write_timeout(Some(SEND_TIME)).is_err() {
        return;
    }
    let (writer, reader) = connection.split();
    let socket = Arc::clone(reader.socket());
    let reading = Arc::clone(&order);
    if spawn("orders", move || read_orders(reader, &reading)).is_ok() {
        send(writer, &order, shelf);
    }
    socket.shut_down();
}

fn read_orders(mut reader: FrameReader, order: &Order) {
    while let Ok((_, body)) = reader.recv() {
        let Ok(request) = frame::decode::<FetchRequest>(body) else { break };
        let mut wanted = order.wanted.lock();
        match request {
            FetchRequest::From { content, piece } => {
                wanted.fetches.retain(|fetch| fetch.content != content);
                if wanted.fetches.len() >= FETCHES_MAX {
                    break;
                }
                wanted.fetches.push(Fetch { content, next: piece });
            }
            FetchRequest::Enough { content } => {
                wanted.fetches.retain(|fetch| fetch.content != content);
            }
        }
        drop(wanted);
        order.bell.ring();
    }
    order.wanted.lock().is_over = true;
    order.bell.ring();
}

fn send(mut writer: FrameWriter, order: &Order, shelf: &Arc<impl Shelf>) {
    loop {
        let fetches = {
            let wanted = order.wanted.lock();
            if wanted.is_over {
                return;
            }
            wanted.fetches.clone()
        };
        let mut has_sent = false;
        for fetch in &fetches {
            let offer = shelf.offer(fetch.content, fetch.next, &order.bell);
            if matches!(offer, Offer::NotYet) {
                continue;
            }
            let Some(then) = send_offer(&mut writer, fetch, &offer) else { return };
            has_sent = true;
            order.wanted.lock().advance(*fetch, then);
        }
        if has_sent {
            continue;
        }
        order.bell.wait(BEAT);
        let is_waited_for = !fetches.is_empty();
        let beaten = !is_waited_for
            || (writer.queue(&Supplied::Beat, 0).is_ok() && writer.flush(&[]).is_ok());
        if !beaten {
            return;
        }
    }
}

/// How a fetch goes on.
#[derive(Clone, Copy)]
enum Then {
    Next(u32),
    Over,
}

/// Sends what there is; `None` if the connection is broken.
fn send_offer(writer: &mut FrameWriter, fetch: &Fetch, offer: &Offer) -> Option<Then> {
    let content = fetch.content;
    let (message, bulk, then): (_, &[u8], _) = match offer {
        Offer::NotYet => return Some(Then::Next(fetch.next)),
        Offer::Piece { checksum, bytes } => {
            let message = Supplied::Piece { content, index: fetch.next, checksum: *checksum };
            (message, bytes, Then::Next(fetch.next + 1))
        }
        Offer::End { digest } => (Supplied::End { content, digest: *digest }, &[], Then::Over),
        Offer::Gone => (Supplied::Gone { content }, &[], Then::Over),
    };
    writer.queue(&message, bulk.len() as u32).ok()?;
    writer.flush(bulk).ok()?;
    Some(then)
}

impl Wanted {
    /// Unless the receiver has asked for something else of it meanwhile.
    fn advance(&mut self, sent: Fetch, then: Then) {
        let is_it = |fetch: &Fetch| fetch.content == sent.content && fetch.next == sent.next;
        let Some(place) = self.fetches.iter().position(is_it) else { return };
        match then {
            Then::Next(next) => self.fetches[place].next = next,
            Then::Over => {
                self.fetches.swap_remove(place);
            }
        }
    }
}
