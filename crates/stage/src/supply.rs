//! Giving contents to those who fetch them: one connection serves any number of fetches, each a piece at
//! a time in turn, as far as there are pieces; so a content that waits for its own supplier holds up no
//! other. The same for the front and for agents, which differ in where the bytes come from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_proto::frame;
use azekura_wire::{Connection, FrameReader, FrameWriter};
use parking_lot::{Condvar, Mutex};

use crate::doors::spawn;
use crate::message::{AT_HOME_AHEAD, ContentId, FetchRequest, Supplied};
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

    /// Whether a receiver on this host may read it at home itself.
    fn is_at_hand(&self, content: ContentId) -> bool {
        let _ = content;
        false
    }
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
    /// How many were asked for.
    asked: u64,
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Fetch {
    /// No other has it, also of the same content from the same piece on.
    number: u64,
    content: ContentId,
    next: u32,
    /// Of a receiver that may read at home: so far it is to be told of pieces at the moment.
    beside: Option<u32>,
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
            FetchRequest::From { content, piece } => wanted.add(content, piece, None),
            FetchRequest::Beside { content, piece } => {
                wanted.add(content, piece, Some(piece.saturating_add(AT_HOME_AHEAD)));
            }
            FetchRequest::Taken { content, piece } => wanted.taken(content, piece),
            FetchRequest::Enough { content } => wanted.remove(content),
        }
        if wanted.fetches.len() > FETCHES_MAX {
            break;
        }
        drop(wanted);
        order.bell.ring();
    }
    order.wanted.lock().is_over = true;
    order.bell.ring();
}

fn send(mut writer: FrameWriter, order: &Order, shelf: &Arc<impl Shelf>) {
    // When a byte was last sent, or would have been if anybody waited for it.
    let mut said = Instant::now();
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
            let is_beside = fetch.beside.is_some() && shelf.is_at_hand(fetch.content);
            if is_beside && fetch.beside.is_some_and(|limit| fetch.next >= limit) {
                continue;
            }
            let offer = shelf.offer(fetch.content, fetch.next, &order.bell);
            if matches!(offer, Offer::NotYet) {
                continue;
            }
            let Some(then) = send_offer(&mut writer, fetch, &offer, is_beside) else { return };
            has_sent = true;
            order.wanted.lock().advance(*fetch, then);
        }
        if has_sent {
            said = Instant::now();
            continue;
        }
        order.bell.wait(BEAT.saturating_sub(said.elapsed()));
        // Not whenever it has rung: then there is a piece to send, mostly, and that says enough.
        if said.elapsed() < BEAT {
            continue;
        }
        said = Instant::now();
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
fn send_offer(
    writer: &mut FrameWriter,
    fetch: &Fetch,
    offer: &Offer,
    is_beside: bool,
) -> Option<Then> {
    let Fetch { content, next: index, .. } = *fetch;
    let (message, bulk, then): (_, &[u8], _) = match offer {
        Offer::NotYet => return Some(Then::Next(index)),
        Offer::Piece { checksum, .. } if is_beside => {
            let message = Supplied::AtHome { content, index, checksum: *checksum };
            (message, &[], Then::Next(index + 1))
        }
        Offer::Piece { checksum, bytes } => {
            let message = Supplied::Piece { content, index, checksum: *checksum };
            (message, bytes, Then::Next(index + 1))
        }
        Offer::End { digest } => (Supplied::End { content, digest: *digest }, &[], Then::Over),
        Offer::Gone => (Supplied::Gone { content }, &[], Then::Over),
    };
    writer.queue(&message, bulk.len() as u32).ok()?;
    writer.flush(bulk).ok()?;
    Some(then)
}

impl Wanted {
    fn add(&mut self, content: ContentId, next: u32, beside: Option<u32>) {
        self.remove(content);
        self.asked += 1;
        self.fetches.push(Fetch { number: self.asked, content, next, beside });
    }

    fn remove(&mut self, content: ContentId) {
        self.fetches.retain(|fetch| fetch.content != content);
    }

    /// A receiver has read so far at home.
    fn taken(&mut self, content: ContentId, piece: u32) {
        let of_it = self.fetches.iter_mut().filter(|fetch| fetch.content == content);
        for limit in of_it.filter_map(|fetch| fetch.beside.as_mut()) {
            *limit = piece.saturating_add(AT_HOME_AHEAD).max(*limit);
        }
    }

    /// Unless the receiver has asked again meanwhile, be it for the very piece that was just sent.
    fn advance(&mut self, sent: Fetch, then: Then) {
        let is_it = |fetch: &Fetch| fetch.number == sent.number;
        let Some(place) = self.fetches.iter().position(is_it) else { return };
        match then {
            Then::Next(next) => self.fetches[place].next = next,
            Then::Over => {
                self.fetches.swap_remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura_wire::Socket;

    use super::*;
    use crate::piece::Buffers;

    const PIECES: u32 = 3 * AT_HOME_AHEAD;
    const CONTENT: ContentId = ContentId(1);

    /// A file whose pieces are all there.
    struct Whole {
        is_at_hand: bool,
    }

    impl Shelf for Whole {
        fn offer(&self, _: ContentId, index: u32, _: &Arc<Bell>) -> Offer {
            if index == PIECES {
                return Offer::End { digest: 7 };
            }
            let bytes = Arc::new(Buffers::default().take(100));
            Offer::Piece { checksum: u64::from(index), bytes }
        }

        fn is_at_hand(&self, _: ContentId) -> bool {
            self.is_at_hand
        }
    }

    fn call(is_at_hand: bool) -> Connection {
        let (ours, theirs) = Socket::pair().unwrap();
        let shelf = Arc::new(Whole { is_at_hand });
        spawn("test", move || serve(Connection::new(theirs), &shelf)).unwrap();
        Connection::new(ours)
    }

    fn ask(connection: &mut Connection, request: &FetchRequest) {
        connection.queue(request, 0).unwrap();
        connection.flush(&[]).unwrap();
    }

    fn told(connection: &mut Connection) -> Supplied {
        let (head, body) = connection.recv().unwrap();
        let (supplied, bulk) = (frame::decode(body).unwrap(), head.bulk_bytes);
        connection.discard_bulk(u64::from(bulk)).unwrap();
        assert_eq!(bulk, if matches!(supplied, Supplied::Piece { .. }) { 100 } else { 0 });
        supplied
    }

    #[test]
    fn a_receiver_beside_is_told_of_few_pieces_ahead_and_sent_none() {
        let mut connection = call(true);
        ask(&mut connection, &FetchRequest::Beside { content: CONTENT, piece: 0 });
        for expected in 0..=AT_HOME_AHEAD {
            if expected == AT_HOME_AHEAD {
                // No more than a sign of life comes before it is said that one has been taken.
                assert!(matches!(told(&mut connection), Supplied::Beat));
                ask(&mut connection, &FetchRequest::Taken { content: CONTENT, piece: 1 });
            }
            match told(&mut connection) {
                Supplied::AtHome { index, checksum, .. } => {
                    assert_eq!((index, checksum), (expected, u64::from(expected)));
                }
                other => panic!("{other:?}"),
            }
        }
        // What cannot be read there is sent from then on.
        ask(&mut connection, &FetchRequest::From { content: CONTENT, piece: 2 });
        for expected in 2..PIECES {
            let is_it = |told| matches!(told, Supplied::Piece { index, .. } if index == expected);
            assert!(is_it(told(&mut connection)), "{expected}");
        }
        assert!(matches!(told(&mut connection), Supplied::End { digest: 7, .. }));
    }

    /// The receiver may be faster than the thread that sends.
    #[test]
    fn a_piece_that_is_asked_for_again_before_the_sender_goes_on_is_sent_again() {
        let mut wanted = Wanted::default();
        wanted.add(CONTENT, 3, Some(9));
        let sent = wanted.fetches[0];
        wanted.add(CONTENT, 3, None);
        wanted.advance(sent, Then::Next(4));
        assert_eq!((wanted.fetches.len(), wanted.fetches[0].next), (1, 3));
        let sent = wanted.fetches[0];
        wanted.advance(sent, Then::Next(4));
        assert_eq!(wanted.fetches[0].next, 4);
    }

    #[test]
    fn what_is_not_at_hand_is_sent_to_receivers_beside_too() {
        let mut connection = call(false);
        ask(&mut connection, &FetchRequest::Beside { content: CONTENT, piece: 0 });
        for _ in 0..PIECES {
            assert!(matches!(told(&mut connection), Supplied::Piece { .. }));
        }
        assert!(matches!(told(&mut connection), Supplied::End { .. }));
    }
}
