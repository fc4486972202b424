//! What each thread of the server does: it waits until some connection can be served, takes one message
//! off it, and answers it.

use std::io;
use std::sync::atomic::Ordering;

use rustix::event::epoll;

use super::connection::{Connection, Taken};
use super::shared::{STOP_TOKEN, Shared};
use crate::dispatch::{self, Asker, Outcome};
use crate::xdr::Writer;

/// What a thread keeps from one message to the next.
#[derive(Debug, Default)]
struct Scratch {
    message: Vec<u8>,
    reply: Writer,
}

pub(super) fn run(shared: &Shared) {
    let mut scratch = Scratch::default();
    let nothing =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
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
        if let Err(error) = serve(shared, &connection, &mut scratch) {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::debug!(client = %connection.peer(), "a connection ends: {error}");
            }
            shared.remove(&connection);
        }
    }
}

/// Serves one message of a connection that can be read or written.
fn serve(shared: &Shared, connection: &Connection, scratch: &mut Scratch) -> io::Result<()> {
    // Who does not take answers gets no further ones.
    if !connection.flush()? {
        return shared.watch(connection, epoll::EventFlags::OUT);
    }
    if shared.is_draining.load(Ordering::Acquire) {
        return Ok(());
    }
    let (range, has_more) = match connection.take(&mut scratch.message)? {
        Taken::Message { range, has_more } => (range, has_more),
        Taken::Nothing => return shared.watch(connection, epoll::EventFlags::IN),
    };
    shared.in_flight.fetch_add(1, Ordering::AcqRel);
    let may_go_on = connection.begin();
    let done = (|| {
        if may_go_on {
            // What has come already does not wake anybody, but that it can be answered does.
            let ready = if has_more { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            shared.watch(connection, epoll::EventFlags::IN | ready)?;
        }
        answer(shared, connection, &scratch.message[range], &mut scratch.reply)
    })();
    let have_others_waited = connection.end();
    shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    done?;
    if have_others_waited {
        shared.watch(connection, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
    }
    Ok(())
}

fn answer(
    shared: &Shared,
    connection: &Connection,
    message: &[u8],
    reply: &mut Writer,
) -> io::Result<()> {
    let asker = Asker { address: connection.peer().ip() };
    match dispatch::answer(&shared.gateway, asker, message, reply) {
        Outcome::Answered => {
            if !connection.send(reply.bytes(), shared.config.splits_answers)? {
                shared.watch(connection, epoll::EventFlags::OUT)?;
            }
            Ok(())
        }
        Outcome::Silent => Ok(()),
        Outcome::NoCall => Err(io::Error::other("a message that is no call")),
    }
}
