//! One connection of a client or of another engine, served by a thread of its own: frames in, frames
//! out, in order. Owns the moving of bulk data between socket and files, and nothing of what is asked.
//! A peer that breaks the protocol is cut off with one log line.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use azekura_proto::Status;
use azekura_proto::frame::decode_borrowed;
use azekura_proto::limits::FRAME_MS;
use azekura_proto::message::{Answer, Reply, Request, RequestHead};
use azekura_wire::{Arrival, Connection, RecvError, Rings, Secret, Socket};

use crate::requests::attachment::Attachment;
use crate::requests::bulk::{BulkIn, BulkOut, FileRange, Response};

/// Answers to requests that came together wait for each other up to this size, in bytes.
const QUEUED_BYTES_MAX: usize = 32 * 1024;

/// So many bytes of data wait with their answer: copying them costs less than a system call.
const QUEUED_BULK_MAX: usize = 8 * 1024;

/// How long the next request is looked for where it comes by a ring, before this thread sleeps: to be woken takes
/// longer than most requests do. A mount's next request comes when its program and the kernel have run.
const RING_PATIENCE: Duration = Duration::from_micros(100);

/// Why a connection is over.
enum End {
    Closed,
    /// The peer broke the protocol.
    CutOff(String),
    Lost(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// An idle peer is fine; one that stops inside a frame is not.
pub(crate) fn bound_frames(connection: &mut Connection) -> io::Result<()> {
    let frame_time = Duration::from_millis(FRAME_MS);
    connection.set_frame_time(frame_time);
    // So that a wait ends at all, and what has gone is looked at.
    connection.socket().set_read_timeout(Some(frame_time))?;
    connection.socket().set_write_timeout(Some(frame_time))
}

/// Serves a connection until it ends.
pub(crate) fn serve(attachment: &mut Attachment, connection: &mut Connection) {
    let mut buffer = Vec::new();
    let end = loop {
        if let Err(end) = serve_one(attachment, connection, &mut buffer) {
            break end;
        }
    };
    let session = attachment.session();
    match end {
        End::Closed => {}
        End::CutOff(reason) => tracing::warn!(%session, "peer cut off: {reason}"),
        End::Lost(error) => tracing::debug!(%session, "connection lost: {error}"),
    }
}

/// Answers what came with the caller's hello, before it has proven who it is if it may ask so; then it has to.
pub(crate) fn serve_first(
    attachment: &mut Attachment,
    arrival: &mut Arrival,
    secret: &Secret,
) -> io::Result<()> {
    if let Some(body) = arrival.first.take() {
        let (head, request): (RequestHead, Request<'_>) =
            decode_borrowed(&body).map_err(io::Error::other)?;
        // It may be somebody who has overheard it.
        if with_bulk(&request).is_some() || arrival.is_to_prove() && request.is_fenced() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut buffer = Vec::new();
        let response = attachment.serve(&head, &request, BulkIn::Bytes(&[]), &mut buffer)?;
        send(&mut arrival.connection, response)?;
        // Nothing that follows may keep it waiting.
        arrival.connection.flush(&[])?;
    }
    arrival.take_proof(secret).map_err(io::Error::other)
}

fn serve_one(
    attachment: &mut Attachment,
    connection: &mut Connection,
    buffer: &mut Vec<u8>,
) -> Result<(), End> {
    let (frame, body) = match connection.recv() {
        Ok(received) => received,
        Err(RecvError::Closed) => return Err(End::Closed),
        Err(RecvError::Idle) => return Ok(()),
        Err(error) => return Err(End::CutOff(error.to_string())),
    };
    let (head, request): (RequestHead, Request<'_>) = decode_borrowed(body)
        .map_err(|_| End::CutOff("a request that cannot be decoded".to_owned()))?;
    if matches!(request, Request::ShareMemory) {
        return share_memory(connection).map_err(End::Lost);
    }
    let response = match with_bulk(&request) {
        Some(request) => {
            let mut left = frame.bulk_bytes;
            let mut read = |piece: &mut [u8]| {
                left -= piece.len() as u32;
                connection.read_bulk(piece)
            };
            let bulk = BulkIn::Stream { bytes: frame.bulk_bytes, read: &mut read };
            let response = attachment.serve(&head, &request, bulk, buffer)?;
            connection.discard_bulk(u64::from(left))?;
            response
        }
        None if frame.bulk_bytes > 0 => {
            let reason = "bulk data behind a request that takes none";
            return Err(End::CutOff(reason.to_owned()));
        }
        None => attachment.serve(&head, &request, BulkIn::Bytes(&[]), buffer)?,
    };
    send(connection, response).map_err(End::Lost)
}

/// Goes on by rings, if the peer is on this host and has nothing else under way.
fn share_memory(connection: &mut Connection) -> io::Result<()> {
    // Earlier answers go where the peer looks for them.
    connection.flush(&[])?;
    let can = matches!(connection.socket(), Socket::Unix(_))
        && !connection.goes_by_rings()
        && !connection.has_buffered_input();
    let Some((rings, descriptor)) = can.then(|| Rings::create().ok()).flatten() else {
        connection.queue(&Answer::Err(Status::Unsupported), 0).map_err(io::Error::other)?;
        return connection.flush(&[]);
    };
    connection.queue(&Answer::Ok(Reply::Done), 0).map_err(io::Error::other)?;
    connection.flush_with_descriptor(descriptor.as_fd())?;
    connection.use_rings(rings);
    connection.set_patience(RING_PATIENCE);
    Ok(())
}

/// The request, if bulk data come with it. It borrows nothing from its frame then, so that the socket
/// can be read while it is served.
fn with_bulk(request: &Request<'_>) -> Option<Request<'static>> {
    match *request {
        Request::Write { data, offset } => Some(Request::Write { data, offset }),
        Request::WriteLeased { data, offset, epoch } => {
            Some(Request::WriteLeased { data, offset, epoch })
        }
        Request::WriteFile { oid, offset, guard } => {
            Some(Request::WriteFile { oid, offset, guard })
        }
        Request::Append { oid } => Some(Request::Append { oid }),
        Request::Relay { to, stream, ref request } => {
            Some(Request::Relay { to, stream, request: request.clone() })
        }
        Request::OnBehalf { client, stream: Some(stream), ref request } => {
            let stream = Some(stream);
            Some(Request::OnBehalf { client, stream, request: request.clone() })
        }
        _ => None,
    }
}

fn send(connection: &mut Connection, response: Response<'_>) -> io::Result<()> {
    let Some(answer) = response.answer else { return Ok(()) };
    match response.bulk {
        BulkOut::None | BulkOut::Bytes([]) => {
            if connection.queue(&answer, 0).is_err() {
                // A page that came out larger than a frame: never expected, but not worth a cut.
                let too_large = Answer::Err(Status::TooLarge);
                connection.queue(&too_large, 0).map_err(io::Error::other)?;
            }
            // Answers to requests that came together go out together.
            if connection.has_buffered_input() && connection.queued_bytes() < QUEUED_BYTES_MAX {
                return Ok(());
            }
            connection.flush(&[])
        }
        BulkOut::Bytes(data) => {
            connection.queue(&answer, data.len() as u32).map_err(io::Error::other)?;
            let fits = data.len() <= QUEUED_BULK_MAX
                && connection.queued_bytes() + data.len() < QUEUED_BYTES_MAX;
            if fits && connection.has_buffered_input() {
                connection.queue_bulk(data);
                return Ok(());
            }
            connection.flush(data)
        }
        BulkOut::Descriptor(descriptor) => {
            // It belongs to the first byte of its own frame.
            connection.flush(&[])?;
            connection.queue(&answer, 0).map_err(io::Error::other)?;
            connection.flush_with_descriptor(descriptor.as_fd())
        }
        BulkOut::File(range) => {
            connection.queue(&answer, range.bytes).map_err(io::Error::other)?;
            send_file(connection, &range)
        }
    }
}

fn send_file(connection: &mut Connection, range: &FileRange) -> io::Result<()> {
    let file = range.descriptor().ok_or(io::ErrorKind::Unsupported)?;
    let (mut at, mut left) = (range.offset, range.bytes as usize);
    connection.flush_before_bulk(left)?;
    while left > 0 {
        match rustix::fs::sendfile(connection.as_fd(), file, Some(&mut at), left) {
            // The file was cut meanwhile; the frame's length stands, so zeros follow.
            Ok(0) => return connection.continue_bulk(&vec![0; left]),
            Ok(sent) => left -= sent,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
