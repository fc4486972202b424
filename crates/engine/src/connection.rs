//! One connection of a client or of another engine, served by a thread of its own: requests in,
//! answers out, in order. Owns the moving of bulk data between socket and files. A peer that breaks
//! the protocol is cut off with one log line.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_proto::frame::{FrameHead, decode_borrowed};
use azekura_proto::limits::LEASED_WRITE_BYTES_MAX;
use azekura_proto::message::{Answer, Reply, Request, RequestHead, Role, ShardRef};
use azekura_proto::{Oid, SessionId, Status};
use azekura_store::ShardFile;
use azekura_wire::{Connection, RecvError};

use crate::data;
use crate::dispatch::dispatch;
use crate::node::Node;
use crate::reclaim::end_session;
use crate::retry::Caller;
use crate::sessions::Session;
use crate::stored::store_status;
use crate::target::Target;

/// Reads up to this size are copied, which costs less than a second system call.
const COPY_MAX: u32 = 32 * 1024;
/// Writes go to disk in pieces of this size, so that 256 busy connections need 64 MiB.
const PIECE_BYTES: usize = 256 * 1024;

/// What to do once the borrowed request is gone.
enum Job {
    Answer(Answer),
    Read(Result<data::ReadJob, Status>),
    Write(Result<Arc<ShardFile>, Status>, u64),
    WriteLeased { target: Arc<Target>, data: ShardRef, offset: u64, epoch: u64 },
    Append { head: RequestHead, role: Role, target: Arc<Target>, oid: Oid },
    Silent,
    Goodbye,
}

/// Serves a connection until it ends.
pub(crate) fn serve(
    node: &Arc<Node>,
    connection: &mut Connection,
    session: &Arc<Session>,
    role: Role,
) {
    let mut buffer = Vec::new();
    loop {
        let job = match connection.recv() {
            Ok((head, body)) => match accept(node, session, role, head, body) {
                Ok(job) => (job, head.bulk_bytes),
                Err(reason) => {
                    tracing::warn!(session = %session.id, "peer cut off: {reason}");
                    return;
                }
            },
            Err(RecvError::Closed) => return,
            Err(RecvError::Idle) => continue,
            Err(error) => {
                tracing::warn!(session = %session.id, "peer cut off: {error}");
                return;
            }
        };
        let ends = matches!(job.0, Job::Goodbye);
        if let Err(error) = finish(node, connection, session, job, &mut buffer) {
            tracing::debug!(session = %session.id, "connection lost: {error}");
            return;
        }
        if ends && let Some(session) = node.sessions.take(session) {
            end_session(node, &session);
        }
    }
}

/// Decodes a request and does as much as can be done without its bulk data.
fn accept(
    node: &Arc<Node>,
    session: &Arc<Session>,
    role: Role,
    frame: FrameHead,
    body: &[u8],
) -> Result<Job, &'static str> {
    let (head, request): (RequestHead, Request<'_>) =
        decode_borrowed(body).map_err(|_| "a request that cannot be decoded")?;
    node.metrics.count(request.name());
    let takes_bulk = matches!(
        request,
        Request::Write { .. } | Request::WriteLeased { .. } | Request::Append { .. }
    );
    if frame.bulk_bytes > 0 && !takes_bulk {
        return Err("bulk data behind a request that takes none");
    }
    let for_engine = request.is_for_engine();
    if head.map_version != node.map.version && !for_engine {
        return Ok(refuse(&request, Status::Refresh));
    }
    let any = || node.local_targets().next().filter(|_| for_engine);
    let Some(target) = node.local(head.target).or_else(any) else {
        return Ok(refuse(&request, Status::WrongTarget));
    };
    if let Request::Append { oid } = request {
        return Ok(Job::Append { head, role, target: Arc::clone(target), oid });
    }
    if !request.needs_exact_retry() || role == Role::Engine {
        return Ok(start(node, target, &Caller::engine(), (session, role), &request, frame));
    }
    let (mut slot, seen) = match session.enter_slot(head.slot, head.sequence) {
        Ok(entered) => entered,
        Err(status) => return Ok(refuse(&request, status)),
    };
    let mut caller = caller_of(session, &head, seen);
    caller.created = slot.created.filter(|_| slot.sequence == head.sequence);
    let job = start(node, target, &caller, (session, role), &request, frame);
    if let Job::Answer(Ok(Reply::Created(attr))) = &job {
        slot.created = Some(attr.oid);
    }
    Ok(job)
}

fn caller_of(session: &Session, head: &RequestHead, seen: bool) -> Caller {
    Caller {
        session: session.id,
        slot: head.slot,
        sequence: head.sequence,
        resent: head.resent || seen,
        created: None,
    }
}

fn refuse(request: &Request<'_>, status: Status) -> Job {
    match request {
        Request::Release { .. } => Job::Silent,
        Request::Write { .. } | Request::WriteLeased { .. } | Request::Append { .. } => {
            Job::Write(Err(status), 0)
        }
        _ => Job::Answer(Err(status)),
    }
}

fn start(
    node: &Node,
    target: &Arc<Target>,
    caller: &Caller,
    (session, role): (&Arc<Session>, Role),
    request: &Request<'_>,
    frame: FrameHead,
) -> Job {
    match *request {
        Request::Read { data, offset, bytes } => {
            Job::Read(data::read(target, Some(session.id), data, offset, bytes))
        }
        Request::Write { data, offset } => {
            let writer = (role == Role::Client).then_some(session.id);
            Job::Write(open_for_write(target, writer, data, offset, frame), offset)
        }
        Request::WriteLeased { .. } if frame.bulk_bytes > LEASED_WRITE_BYTES_MAX => {
            Job::Write(Err(Status::TooLarge), 0)
        }
        Request::WriteLeased { data, offset, epoch } => {
            Job::WriteLeased { target: Arc::clone(target), data, offset, epoch }
        }
        Request::Goodbye => Job::Goodbye,
        _ => {
            let answer = dispatch(node, target, caller, Some(session), request);
            if request.has_reply() { Job::Answer(answer) } else { Job::Silent }
        }
    }
}

fn open_for_write(
    target: &Target,
    writer: Option<SessionId>,
    data: ShardRef,
    offset: u64,
    frame: FrameHead,
) -> Result<Arc<ShardFile>, Status> {
    data::open_for_write(target, writer, data, offset, u64::from(frame.bulk_bytes))
}

/// Moves the bulk data and sends the answer.
fn finish(
    node: &Node,
    connection: &mut Connection,
    session: &Session,
    (job, bulk_bytes): (Job, u32),
    buffer: &mut Vec<u8>,
) -> std::io::Result<()> {
    match job {
        Job::Silent => Ok(()),
        Job::Goodbye => answer(node, connection, &Ok(Reply::Done)),
        Job::Answer(result) => answer(node, connection, &result),
        Job::Read(Err(status)) => answer(node, connection, &Err(status)),
        Job::Read(Ok(job)) => send_data(node, connection, &job, buffer),
        Job::Write(file, offset) => {
            let result = receive_data(connection, file, offset, bulk_bytes, buffer)?;
            node.metrics.written_bytes.fetch_add(u64::from(bulk_bytes), Ordering::Relaxed);
            answer(node, connection, &result.map(|()| Reply::Done))
        }
        Job::WriteLeased { target, data, offset, epoch } => {
            let bytes = bulk_bytes as usize;
            if buffer.len() < bytes {
                buffer.resize(bytes, 0);
            }
            connection.read_bulk(&mut buffer[..bytes])?;
            node.metrics.written_bytes.fetch_add(u64::from(bulk_bytes), Ordering::Relaxed);
            let place = (offset, epoch);
            let result = data::write_leased(&target, session.id, data, place, &buffer[..bytes]);
            answer(node, connection, &result)
        }
        Job::Append { head, role, target, oid } => {
            // All of it has to be here before its place is taken: a slow peer must not hold up
            // the others that append.
            let mut data = vec![0; bulk_bytes as usize];
            connection.read_bulk(&mut data)?;
            node.metrics.written_bytes.fetch_add(u64::from(bulk_bytes), Ordering::Relaxed);
            let result = match role {
                Role::Engine => data::append(node, &target, &Caller::engine(), oid, &data),
                Role::Client => {
                    session.enter_slot(head.slot, head.sequence).and_then(|(_slot, seen)| {
                        let caller = caller_of(session, &head, seen);
                        data::append(node, &target, &caller, oid, &data)
                    })
                }
            };
            answer(node, connection, &result)
        }
    }
}

fn answer(node: &Node, connection: &mut Connection, answer: &Answer) -> std::io::Result<()> {
    if answer.is_err() {
        node.metrics.failed_count.fetch_add(1, Ordering::Relaxed);
    }
    if connection.queue(answer, 0).is_err() {
        // A page that came out larger than a frame: never expected, but not worth a cut.
        connection.queue(&Answer::Err(Status::TooLarge), 0).map_err(std::io::Error::other)?;
    }
    flush(connection)
}

/// Answers to requests that came together go out together.
fn flush(connection: &mut Connection) -> std::io::Result<()> {
    if connection.has_buffered_input() && connection.queued_bytes() < COPY_MAX as usize {
        return Ok(());
    }
    connection.flush(&[])
}

fn receive_data(
    connection: &mut Connection,
    file: Result<Arc<ShardFile>, Status>,
    offset: u64,
    bulk_bytes: u32,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Result<(), Status>> {
    let file = match file {
        Ok(file) => file,
        Err(status) => {
            connection.discard_bulk(u64::from(bulk_bytes))?;
            return Ok(Err(status));
        }
    };
    let mut result = Ok(());
    let mut done = 0;
    while done < bulk_bytes as usize {
        let piece = (bulk_bytes as usize - done).min(PIECE_BYTES);
        if buffer.len() < piece {
            buffer.resize(piece, 0);
        }
        connection.read_bulk(&mut buffer[..piece])?;
        if result.is_ok() {
            result = file
                .write_at(&buffer[..piece], offset + done as u64)
                .map_err(|error| store_status(&error));
        }
        done += piece;
    }
    Ok(result)
}

fn send_data(
    node: &Node,
    connection: &mut Connection,
    job: &data::ReadJob,
    buffer: &mut Vec<u8>,
) -> std::io::Result<()> {
    let Some(file) = &job.file else {
        return send_head(connection, 0, job.wide).and_then(|()| flush(connection));
    };
    if job.bytes <= COPY_MAX {
        return send_copy(node, connection, job, file, buffer);
    }
    let stat = match file.stat() {
        Ok(stat) => stat,
        Err(error) => return answer(node, connection, &Err(store_status(&error))),
    };
    let bytes = u64::from(job.bytes).min(stat.bytes.saturating_sub(job.offset)) as u32;
    send_head(connection, bytes, job.wide)?;
    if bytes == 0 {
        return flush(connection);
    }
    connection.flush_before_bulk()?;
    node.metrics.read_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    let mut at = job.offset;
    let mut left = bytes as usize;
    while left > 0 {
        match rustix::fs::sendfile(connection.as_fd(), file.fd(), Some(&mut at), left) {
            // The file was cut meanwhile; the frame's length stands, so zeros follow.
            Ok(0) => return connection.flush(&vec![0; left]),
            Ok(sent) => left -= sent,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn send_copy(
    node: &Node,
    connection: &mut Connection,
    job: &data::ReadJob,
    file: &ShardFile,
    buffer: &mut Vec<u8>,
) -> std::io::Result<()> {
    if buffer.len() < job.bytes as usize {
        buffer.resize(job.bytes as usize, 0);
    }
    match file.read_at(&mut buffer[..job.bytes as usize], job.offset) {
        Ok(bytes) => {
            node.metrics.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            send_head(connection, bytes as u32, job.wide)?;
            connection.flush(&buffer[..bytes])
        }
        Err(error) => answer(node, connection, &Err(store_status(&error))),
    }
}

fn send_head(connection: &mut Connection, bytes: u32, wide: bool) -> std::io::Result<()> {
    let reply: Answer = Ok(Reply::Data { bytes, wide });
    connection.queue(&reply, bytes).map_err(std::io::Error::other)
}
