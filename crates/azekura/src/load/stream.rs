//! The references: what two bare processes on this machine reach over a UNIX socket, with nothing of
//! Azekura in between. Small messages to and fro; a file sent with `sendfile`; a stream into a file.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::order::{Tally, clock_ns};

/// About as long as a small request and its answer.
const MESSAGE_BYTES: usize = 64;
const PIECE_BYTES: usize = 1 << 20;
/// As large as the send buffers of the pool's own sockets.
const SEND_BUFFER_BYTES: usize = 4 << 20;

type Prepared<'a> = Box<dyn FnOnce() -> Result<Tally> + 'a>;

fn listen(socket: &str) -> Result<UnixListener> {
    // Left over from the round before.
    let _ = std::fs::remove_file(socket);
    UnixListener::bind(socket).with_context(|| format!("cannot listen at {socket}"))
}

fn dial(socket: &str) -> Result<UnixStream> {
    let stream =
        UnixStream::connect(socket).with_context(|| format!("cannot connect to {socket}"))?;
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)
        .context("cannot size the send buffer")?;
    Ok(stream)
}

/// Answers small messages until the other side closes.
pub(super) fn pong(socket: &str) -> Result<Prepared<'static>> {
    let listener = listen(socket)?;
    Ok(Box::new(move || {
        let mut stream = listener.accept()?.0;
        let mut message = [0; MESSAGE_BYTES];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message)?;
        }
        Ok(Tally::default())
    }))
}

/// Sends small messages, each after the answer to the one before.
pub(super) fn ping(socket: &str, limit_ms: u64) -> Result<Prepared<'static>> {
    let mut stream = dial(socket)?;
    Ok(Box::new(move || {
        let mut message = [7; MESSAGE_BYTES];
        let limit = Duration::from_millis(limit_ms);
        let (started, start_ns) = (Instant::now(), clock_ns());
        let mut operations = 0;
        while operations % 64 != 0 || operations == 0 || started.elapsed() < limit {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            operations += 1;
        }
        let bytes = operations * MESSAGE_BYTES as u64;
        Ok(Tally { operations, bytes, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}

/// Sends a file with `sendfile`.
pub(super) fn send_file(socket: &str, file: &str, bytes: u64) -> Result<Prepared<'static>> {
    let source = source_file(file, bytes)?;
    let stream = dial(socket)?;
    Ok(Box::new(move || {
        let start_ns = clock_ns();
        let mut offset = 0;
        while offset < bytes {
            let piece = (bytes - offset).min(PIECE_BYTES as u64) as usize;
            let at = offset;
            let mut sent = 0;
            while sent < piece {
                let mut from = at + sent as u64;
                sent += rustix::fs::sendfile(&stream, &source, Some(&mut from), piece - sent)
                    .context("sendfile failed")?;
            }
            offset += piece as u64;
        }
        drop(stream);
        let operations = bytes.div_ceil(PIECE_BYTES as u64);
        Ok(Tally { operations, bytes, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}

fn source_file(path: &str, bytes: u64) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {path}"))?;
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|i| (i * 131 % 251) as u8).collect();
    let mut at = file.metadata()?.len();
    while at < bytes {
        let part = (bytes - at).min(PIECE_BYTES as u64) as usize;
        file.write_all_at(&piece[..part], at).with_context(|| format!("cannot write {path}"))?;
        at += part as u64;
    }
    Ok(file)
}

/// Fills `buffer` from the stream; fewer bytes only at its end.
fn read_piece(stream: &mut UnixStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match stream.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn drain_into(
    socket: &str,
    mut take: impl FnMut(&[u8], u64) -> std::io::Result<()> + 'static,
) -> Result<Prepared<'static>> {
    let listener = listen(socket)?;
    let mut buffer = vec![1; PIECE_BYTES];
    Ok(Box::new(move || {
        let mut stream = listener.accept()?.0;
        let start_ns = clock_ns();
        let (mut operations, mut bytes) = (0, 0);
        loop {
            let piece = read_piece(&mut stream, &mut buffer)?;
            if piece == 0 {
                break;
            }
            take(&buffer[..piece], bytes)?;
            operations += 1;
            bytes += piece as u64;
        }
        Ok(Tally { operations, bytes, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}

/// Reads a stream into a buffer.
pub(super) fn drain(socket: &str) -> Result<Prepared<'static>> {
    drain_into(socket, |_, _| Ok(()))
}

/// Reads a stream and writes it to a new file.
pub(super) fn drain_to_file(socket: &str, file: &str) -> Result<Prepared<'static>> {
    let target = File::create(file).with_context(|| format!("cannot make {file}"))?;
    drain_into(socket, move |piece, offset| target.write_all_at(piece, offset))
}

/// Writes a stream from a buffer.
pub(super) fn pour(socket: &str, bytes: u64) -> Result<Prepared<'static>> {
    let mut stream = dial(socket)?;
    let buffer: Vec<u8> = (0..PIECE_BYTES).map(|i| (i * 131 % 251) as u8).collect();
    Ok(Box::new(move || {
        let start_ns = clock_ns();
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE_BYTES as u64) as usize;
            stream.write_all(&buffer[..piece])?;
            left -= piece as u64;
        }
        drop(stream);
        let operations = bytes.div_ceil(PIECE_BYTES as u64);
        Ok(Tally { operations, bytes, start_ns, end_ns: clock_ns(), ..Tally::default() })
    }))
}
