//! A slot on which many requests are in flight. Owns the order of what was sent and what comes back,
//! the taking in of replies part by part, and the end of the conversation when a request in flight has
//! nobody left who waits for it: what comes late must never meet another user of the slot.
//!
//! One thread has a channel to itself and submits, or several share it: then one posts while another
//! reads.

use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::message::{Answer, Request};
use parking_lot::{Mutex, MutexGuard};

use crate::failure::Failure;
use crate::in_flight::{Entry, InFlight};
use crate::slot::{Attempt, Destination, Place, Slot, head};
use crate::transport::{Line, SendHalf};

/// How long a channel that ends waits for a lock that nobody keeps for long.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// A request with its bulk data.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'m, 'r> {
    /// Where it goes.
    pub to: Destination,
    /// What is asked.
    pub request: &'m Request<'r>,
    /// Bulk data to send.
    pub bulk: &'m [u8],
    /// Most bulk bytes that may come back.
    pub reply_bytes_max: usize,
}

impl Outgoing<'_, '_> {
    fn entry<T>(&self, context: T) -> Entry<T> {
        Entry {
            context,
            bulk_bytes: self.bulk.len(),
            reply_bytes_max: self.reply_bytes_max,
            is_exact: self.request.needs_exact_retry(),
            is_slow: self.request.may_be_slow(),
        }
    }
}

/// A reply of which not all has come.
#[derive(Debug)]
struct Partial {
    answer: Answer,
    data: Vec<u8>,
    filled: usize,
}

#[derive(Debug)]
struct Receiving<S> {
    slot: S,
    partial: Option<Partial>,
}

/// What a look at a channel has brought.
#[derive(Debug)]
pub struct Arrival<T> {
    /// When the reply's head has come, if it was now.
    pub head_at: Option<Instant>,
    /// Bytes of data.
    pub bytes: u64,
    /// A reply that is complete: what its request was sent with, the answer, the data.
    pub reply: Option<(T, Answer, Vec<u8>)>,
}

/// A slot with requests in flight, each with what its sender keeps about it.
#[derive(Debug)]
pub struct Channel<S: DerefMut<Target = Slot>, T> {
    place: Place,
    line: Arc<dyn Line>,
    sender: Mutex<Option<Box<dyn SendHalf>>>,
    receiving: Mutex<Receiving<S>>,
    in_flight: Mutex<InFlight<T>>,
    is_broken: AtomicBool,
}

impl<S: DerefMut<Target = Slot>, T> Channel<S, T> {
    /// A channel over a slot that has a conversation.
    ///
    /// # Errors
    /// The slot is given back if it has none.
    pub fn open(mut slot: S) -> Result<Self, S> {
        let place = slot.place();
        let Ok(line) = slot.connected().map(|conversation| Arc::clone(&conversation.line)) else {
            return Err(slot);
        };
        let Ok(sender) = slot.take_sender() else { return Err(slot) };
        Ok(Self {
            place,
            line,
            sender: Mutex::new(Some(sender)),
            receiving: Mutex::new(Receiving { slot, partial: None }),
            in_flight: Mutex::default(),
            is_broken: AtomicBool::new(false),
        })
    }

    /// What shows that something has come.
    pub fn line(&self) -> &Arc<dyn Line> {
        &self.line
    }

    /// Whether the engine has heard nothing yet of the conversation: it does not wait for that for long, and the first
    /// request is to be one that changes nothing.
    pub fn is_silent(&self) -> bool {
        self.sender.lock().as_ref().is_some_and(|sender| sender.is_silent())
    }

    /// Whether requests may still be sent.
    pub fn is_whole(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    /// What is under way.
    pub fn in_flight(&self) -> MutexGuard<'_, InFlight<T>> {
        self.in_flight.lock()
    }

    /// Whether a further request may go before one of those under way has been answered.
    pub fn has_room(&mut self, request: &Request<'_>, bulk: &[u8]) -> bool {
        self.in_flight.get_mut().has_room(bulk.len(), request.needs_exact_retry())
    }

    /// Sends a request, for the one user of the channel; small ones wait for [`Channel::flush`].
    ///
    /// # Errors
    /// [`Failure`]; after all but `TooLarge` the channel is broken.
    pub fn submit(
        &mut self,
        outgoing: Outgoing<'_, '_>,
        attempt: Attempt,
        context: T,
    ) -> Result<(), Failure> {
        let slot = &mut self.receiving.get_mut().slot;
        let sender = self.sender.get_mut().as_mut().ok_or_else(Failure::not_connected)?;
        slot.send_releases(&mut **sender, outgoing.to)?;
        let head = head(self.place, outgoing.to, attempt);
        sender.send(&head, outgoing.request, outgoing.bulk, true)?;
        self.in_flight.get_mut().push(outgoing.entry(context));
        Ok(())
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The channel is broken.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.sender.get_mut().as_mut().ok_or_else(Failure::not_connected)?.flush()
    }

    /// The slot, for single requests while nothing is in flight.
    pub fn slot(&mut self) -> &mut S {
        &mut self.receiving.get_mut().slot
    }

    /// What the oldest request was sent with.
    pub fn oldest(&mut self) -> Option<&mut T> {
        self.in_flight.get_mut().oldest()
    }

    /// Waits for the answer to the oldest request, for the one user of the channel, as long as is left
    /// when so much of the call's time is `gone`.
    ///
    /// # Errors
    /// [`Failure`]; the channel is of no further use.
    pub fn wait(&mut self, bulk_in: &mut [u8], gone: Duration) -> Result<(T, Answer), Failure> {
        let receiving = self.receiving.get_mut();
        wait(&mut receiving.slot, &self.in_flight, bulk_in, gone)
    }

    /// Sends a request at once, while another thread may be reading. Requests that need an exact
    /// retry do not go this way.
    ///
    /// # Errors
    /// The failure, after which the channel is broken unless it is `TooLarge`, and what the request was
    /// sent with, unless another thread has ended the channel meanwhile and has it.
    pub fn post(&self, outgoing: Outgoing<'_, '_>, context: T) -> Result<(), (Failure, Option<T>)> {
        let mut sender = self.sender.lock();
        let (true, Some(sender)) = (self.is_whole(), sender.as_mut()) else {
            return Err((Failure::not_connected(), Some(context)));
        };
        // Before it is sent, so that the answer finds it.
        self.in_flight.lock().push(outgoing.entry(context));
        let head = head(self.place, outgoing.to, Attempt::default());
        sender.send(&head, outgoing.request, outgoing.bulk, false).map_err(|failure| {
            if !matches!(failure, Failure::TooLarge) {
                self.is_broken.store(true, Ordering::Release);
            }
            (failure, self.in_flight.lock().pop_youngest())
        })
    }

    /// The reading side; waits while another thread has it.
    pub fn reader(&self) -> Reader<'_, S, T> {
        Reader { channel: self, receiving: self.receiving.lock() }
    }

    /// The reading side, if no other thread has it.
    pub fn try_reader(&self) -> Option<Reader<'_, S, T>> {
        Some(Reader { channel: self, receiving: self.receiving.try_lock()? })
    }

    /// Nothing more is sent, and what comes is of no interest: gives what was under way. The connection
    /// ends with the channel.
    pub fn end(&self) -> Vec<T> {
        self.is_broken.store(true, Ordering::Release);
        // In a forked child the lock may be held by a thread that is not there.
        let in_flight = self.in_flight.try_lock_for(LOCK_PATIENCE);
        in_flight.map(|mut in_flight| in_flight.take_all()).unwrap_or_default()
    }

    /// [`Channel::end`] that also wakes a thread which waits for an answer. Not for a forked child: it
    /// would end its parent's connection.
    pub fn hang_up(&self) -> Vec<T> {
        self.line.shut_down();
        self.end()
    }

    /// What is still under way as the channel goes; takes no lock.
    pub fn abandon(&mut self) -> Vec<T> {
        let left = self.in_flight.get_mut().take_all();
        *self.is_broken.get_mut() |= !left.is_empty();
        left
    }

    /// Gives the slot back; without its conversation, if something is still under way.
    pub fn close(&mut self) -> &mut S {
        let slot = &mut self.receiving.get_mut().slot;
        let is_clean = !*self.is_broken.get_mut() && self.in_flight.get_mut().is_empty();
        match self.sender.get_mut().take() {
            Some(sender) if is_clean => slot.put_sender(sender),
            Some(_) => slot.give_up(),
            None => {}
        }
        slot
    }
}

impl<S: DerefMut<Target = Slot>, T> Drop for Channel<S, T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reading side of a channel, in the hands of one thread.
#[derive(Debug)]
pub struct Reader<'c, S: DerefMut<Target = Slot>, T> {
    channel: &'c Channel<S, T>,
    receiving: MutexGuard<'c, Receiving<S>>,
}

impl<S: DerefMut<Target = Slot>, T> Reader<'_, S, T> {
    /// Waits for the answer to the oldest request, whose reply has no data.
    ///
    /// # Errors
    /// [`Failure`]; the channel is to be ended.
    pub fn wait(&mut self) -> Result<(T, Answer), Failure> {
        wait(&mut self.receiving.slot, &self.channel.in_flight, &mut [], Duration::ZERO)
    }

    /// Takes what has come of the reply to the oldest request; never waits. A reader that waited for
    /// the rest of one reply would let the other channels fill up, and their senders slow down.
    ///
    /// # Errors
    /// [`Failure`]; the channel is to be ended.
    pub fn poll(&mut self, platform: &dyn Platform) -> Result<Arrival<T>, Failure> {
        let mut arrival = Arrival { head_at: None, bytes: 0, reply: None };
        let Receiving { slot, partial } = &mut *self.receiving;
        if partial.is_none() {
            let Some(bytes_max) =
                self.channel.in_flight.lock().front().map(|entry| entry.reply_bytes_max)
            else {
                return Ok(arrival);
            };
            let Some((answer, bytes)) = slot.try_receive(bytes_max)? else { return Ok(arrival) };
            arrival.head_at = Some(platform.now());
            *partial = Some(Partial { answer, data: vec![0; bytes], filled: 0 });
        }
        let Some(reply) = partial else { return Ok(arrival) };
        while reply.filled < reply.data.len() {
            let receiver = &mut slot.connected()?.receiver;
            let count = receiver.try_read_bulk(&mut reply.data[reply.filled..])?;
            if count == 0 {
                return Ok(arrival);
            }
            reply.filled += count;
            arrival.bytes += count as u64;
        }
        if let Some(Partial { answer, data, .. }) = partial.take()
            && let Some(context) = self.channel.in_flight.lock().pop()
        {
            arrival.reply = Some((context, answer, data));
        }
        Ok(arrival)
    }

    /// Whether something has come that waiting on the line would not show.
    pub fn has_buffered_input(&mut self) -> bool {
        let conversation = self.receiving.slot.connected();
        conversation.is_ok_and(|conversation| conversation.receiver.has_buffered_input())
    }
}

fn wait<T>(
    slot: &mut Slot,
    in_flight: &Mutex<InFlight<T>>,
    bulk_in: &mut [u8],
    gone: Duration,
) -> Result<(T, Answer), Failure> {
    let is_slow = in_flight.lock().front().is_some_and(|entry| entry.is_slow);
    let answer = slot.receive(bulk_in, is_slow, gone)?;
    let context = in_flight.lock().pop();
    Ok((context.ok_or(Failure::Protocol("a reply that nobody has asked for"))?, answer))
}

#[cfg(test)]
mod tests {
    use azekura_platform::System;
    use azekura_proto::message::Reply;

    use super::*;
    use crate::test_engine::{TARGET_0, network, shard, slot};

    fn read(offset: u64, bytes: u32) -> Request<'static> {
        Request::Read { data: shard(), offset, bytes }
    }

    fn outgoing<'m, 'r>(request: &'m Request<'r>, reply_bytes_max: usize) -> Outgoing<'m, 'r> {
        Outgoing { to: TARGET_0, request, bulk: &[], reply_bytes_max }
    }

    #[test]
    fn answers_come_with_what_their_requests_were_sent_with() {
        let (network, logs) = network(1);
        let mut channel = Channel::open(Box::new(slot(&network))).unwrap();
        let request = Request::ReadLink { oid: shard().oid };
        let attempt = Attempt { sequence: 7, resent: true };
        channel.submit(outgoing(&request, 0), attempt, "first").unwrap();
        channel.submit(outgoing(&read(9, 3), 3), Attempt::default(), "second").unwrap();
        channel.flush().unwrap();
        assert_eq!(channel.oldest(), Some(&mut "first"));
        assert_eq!(channel.wait(&mut [], Duration::ZERO).unwrap(), ("first", Ok(Reply::Done)));
        let mut data = [0; 3];
        assert_eq!(channel.wait(&mut data, Duration::ZERO).unwrap().0, "second");
        assert_eq!(data, [9; 3]);
        assert!(channel.close().is_connected(), "nothing was left in flight");
        let (head, _) = logs[0].lock()[0];
        assert_eq!((head.slot, head.sequence, head.resent, head.map_version), (3, 7, true, 1));
    }

    #[test]
    fn what_is_left_in_flight_ends_the_conversation() {
        let (network, _) = network(1);
        let mut channel = Channel::open(Box::new(slot(&network))).unwrap();
        channel.submit(outgoing(&Request::Ping, 0), Attempt::default(), 1).unwrap();
        channel.submit(outgoing(&Request::Ping, 0), Attempt::default(), 2).unwrap();
        assert_eq!(channel.end(), [1, 2]);
        assert!(!channel.is_whole() && !channel.close().is_connected());
    }

    #[test]
    fn more_data_than_fit_are_a_breach_of_the_protocol() {
        let (network, _) = network(1);
        let mut channel = Channel::open(Box::new(slot(&network))).unwrap();
        channel.submit(outgoing(&read(0, 4), 3), Attempt::default(), ()).unwrap();
        assert!(matches!(channel.wait(&mut [0; 3], Duration::ZERO), Err(Failure::Protocol(_))));
    }

    #[test]
    fn one_thread_posts_while_another_reads() {
        const COUNT: u64 = 500;
        let (network, _) = network(1);
        let channel = Channel::open(Box::new(slot(&network))).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..COUNT {
                    channel.post(outgoing(&read(number, 5), 5), number).unwrap();
                }
            });
            let mut next = 0;
            while next < COUNT {
                let Some(mut reader) = channel.try_reader() else { continue };
                let arrival = reader.poll(&System).unwrap();
                if let Some((number, answer, data)) = arrival.reply {
                    assert_eq!((number, data.as_slice()), (next, &[next as u8; 5][..]));
                    assert!(answer.is_ok() && arrival.head_at.is_some() && arrival.bytes == 5);
                    next += 1;
                }
            }
        });
        assert!(channel.in_flight().is_empty() && channel.is_whole());
    }

    #[test]
    fn after_the_engine_has_gone_nothing_is_sent_and_nothing_comes() {
        let (network, _) = network(1);
        let channel = Channel::open(Box::new(slot(&network))).unwrap();
        channel.post(outgoing(&Request::Ping, 0), 1).unwrap();
        network.remove(azekura_proto::EngineId(0));
        assert!(matches!(channel.reader().wait(), Err(Failure::Broken(_))));
        let (failure, unsent) = channel.post(outgoing(&Request::Ping, 0), 2).unwrap_err();
        assert!(matches!(failure, Failure::Broken(_)));
        assert_eq!(unsent, Some(2));
        assert_eq!(channel.hang_up(), [1]);
    }
}
