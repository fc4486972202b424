//! What each thread of the server does: it waits until some connection can be served, takes messages off
//! it, and answers them. Short calls of a connection are answered one after another, which costs no change
//! of threads; beside a long one, or a short one that takes long after all, others go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, EventFlags};

use super::connection::{Connection, Taken};
use super::state::{STOP_TOKEN, Shared};
use super::turns::Turn;
use crate::dispatch::{self, Outcome};
use crate::gateway::Asker;
use crate::xdr::Writer;

/// What a thread keeps from one message to the next.
#[derive(Debug, Default)]
struct Scratch {
    taken: Taken,
    answers: Writer,
}

pub(super) fn run(shared: &Shared, turn: &Turn) {
    let mut scratch = Scratch::default();
    let nothing = epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    let mut events = [nothing];
    loop {
        match epoll::wait(&shared.epoll, &mut events, None) {
            Ok(1..) => {}
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => {
                tracing::error!("a thread of the gateway ends: {errno}");
                return;
            }
        }
        let token = events[0].data.u64();
        if token == STOP_TOKEN {
            return;
        }
        let Some(connection) = shared.find(token) else { continue };
        if let Err(error) = serve(shared, &connection, turn, &mut scratch) {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::debug!(client = %connection.peer(), "a connection ends: {error}");
            }
            shared.remove(&connection);
        }
    }
}

/// Serves a connection that can be read or written, until nothing more has come or a call takes long.
fn serve(
    shared: &Shared,
    connection: &Arc<Connection>,
    turn: &Turn,
    scratch: &mut Scratch,
) -> io::Result<()> {
    let Scratch { taken, answers } = scratch;
    loop {
        // Who does not take answers gets no further ones.
        if !connection.flush()? {
            return shared.watch(connection, EventFlags::OUT);
        }
        if shared.is_draining.load(Ordering::Acquire) {
            return Ok(());
        }
        connection.take(taken)?;
        if taken.is_empty() {
            return shared.watch(connection, EventFlags::IN);
        }
        shared.in_flight.fetch_add(1, Ordering::AcqRel);
        let may_go_on = connection.begin();
        let done = answer_all(shared, connection, turn, (taken, answers), may_go_on);
        let have_others_waited = connection.end();
        shared.in_flight.fetch_sub(1, Ordering::AcqRel);
        let have_others_begun = done?;
        if have_others_waited {
            return shared.watch(connection, EventFlags::IN | EventFlags::OUT);
        }
        if have_others_begun || !may_go_on {
            return Ok(());
        }
    }
}

/// Answers what was taken off a connection. Tells whether other threads may serve it by now.
fn answer_all(
    shared: &Shared,
    connection: &Arc<Connection>,
    turn: &Turn,
    (taken, answers): (&Taken, &mut Writer),
    may_go_on: bool,
) -> io::Result<bool> {
    turn.begin(connection);
    answers.clear();
    let short = taken.short();
    let are_calls = short.len() == 0
        || dispatch::answer_all(&shared.gateway, asker(connection), short, answers);
    let is_passed_on = turn.end();
    if !are_calls {
        return Err(no_call());
    }
    send(shared, connection, answers)?;
    let Some(message) = taken.long() else { return Ok(is_passed_on) };
    if may_go_on {
        // What has come already does not wake anybody, but that it can be answered does.
        let ready = if taken.has_more { EventFlags::OUT } else { EventFlags::empty() };
        shared.watch(connection, EventFlags::IN | ready)?;
    }
    let outcome = dispatch::answer(&shared.gateway, asker(connection), message, answers);
    if outcome == Outcome::NoCall {
        return Err(no_call());
    }
    send(shared, connection, answers)?;
    Ok(true)
}

fn asker(connection: &Connection) -> Asker<'_> {
    Asker { address: connection.peer().ip(), owner: connection.owner() }
}

fn no_call() -> io::Error {
    io::Error::other("a message that is no call")
}

fn send(shared: &Shared, connection: &Connection, answers: &mut Writer) -> io::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let is_sent = connection.send(answers.bytes(), shared.config.splits_answers)?;
    answers.clear();
    if is_sent { Ok(()) } else { shared.watch(connection, EventFlags::OUT) }
}
