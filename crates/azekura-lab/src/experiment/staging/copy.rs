//! What staging is held against: all nodes read the same file from one server, or write a file to it each, over a
//! connection of their own, as they would with a file server without caches in between. Whoever sends gives what
//! lies in memory by sendfile; nothing is checked, and nobody waits for an answer.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::fixture::{SERVER, StagingLab, node};

const BUFFER_BYTES: usize = 256 * 1024;

/// How files come to the nodes, for pages.
pub(super) const METHOD_IN: &str = "*copy* is a plain server that sends the file to each node by \
     sendfile over a TCP connection, all at once, and nodes that write it to memory.";
/// How files come from the nodes, for pages.
pub(super) const METHOD_OUT: &str = "*copy* is nodes that send a file each by sendfile over a TCP \
     connection, all at once, and a plain server that writes them to memory.";

/// A file on its way.
struct Sending {
    file: PathBuf,
    from: TcpStream,
    to: TcpStream,
    target: PathBuf,
}

/// Has the first `nodes` nodes copy a file of the server's. Gives the time until the last has all of it, in seconds.
///
/// # Errors
/// If a connection fails.
pub(super) fn from_server(lab: &StagingLab, nodes: usize, file: &Path) -> Result<f64> {
    let cache = lab.empty_dir("cache")?;
    let ends = connect(lab, nodes)?.into_iter().enumerate();
    let sending = |(number, (from, to))| {
        let target = cache.join(node(number));
        Sending { file: file.to_owned(), from, to, target }
    };
    send_all(ends.map(sending).collect())
}

/// Has the first `nodes` nodes copy a file of `bytes` bytes each to the server. Gives the time until it has all of
/// the last, in seconds.
///
/// # Errors
/// If a connection fails.
pub(super) fn to_server(lab: &StagingLab, nodes: usize, bytes: u64) -> Result<f64> {
    let (cache, home) = (lab.files(nodes as u64, bytes)?, lab.empty_dir("cache")?);
    let ends = connect(lab, nodes)?.into_iter().enumerate();
    let sending = |(number, (to, from))| {
        let file = cache.join(format!("{}/{number}", number / 100));
        Sending { file, from, to, target: home.join(node(number)) }
    };
    send_all(ends.map(sending).collect())
}

/// Connects the nodes with the server; the server's end of each connection, and the node's.
fn connect(lab: &StagingLab, nodes: usize) -> Result<Vec<(TcpStream, TcpStream)>> {
    let listener = lab.lab.within(SERVER, || TcpListener::bind(("0.0.0.0", 0)))??;
    let address = (lab.lab.address(SERVER)?, listener.local_addr()?.port());
    let connect = |number| {
        let near = lab.lab.within(&node(number), || TcpStream::connect(address))??;
        Ok((listener.accept()?.0, near))
    };
    (0..nodes).map(connect).collect()
}

fn send_all(all: Vec<Sending>) -> Result<f64> {
    let length = |sending: &Sending| Ok(sending.file.metadata()?.len());
    let expected: Vec<u64> = all.iter().map(length).collect::<io::Result<_>>()?;
    let begun = Instant::now();
    let received: Vec<Result<u64>> = thread::scope(|scope| {
        let mut receiving = Vec::new();
        for Sending { file, from, to, target } in all {
            scope.spawn(move || send(&file, from));
            receiving.push(scope.spawn(move || Ok(receive(to, &target)?)));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(received) => received,
            Err(_) => bail!("a thread that receives has panicked"),
        };
        receiving.into_iter().map(join).collect()
    });
    let time_s = begun.elapsed().as_secs_f64();
    for (received, bytes) in received.into_iter().zip(expected) {
        let received = received.context("a file does not come")?;
        if received != bytes {
            bail!("{received} of {bytes} bytes of a file have come");
        }
    }
    Ok(time_s)
}

fn send(file: &Path, mut connection: TcpStream) -> io::Result<u64> {
    // From a file to a socket this is sendfile.
    io::copy(&mut File::open(file)?, &mut connection)
}

fn receive(mut connection: TcpStream, target: &Path) -> io::Result<u64> {
    let mut target = File::create(target)?;
    let (mut buffer, mut received) = (vec![0; BUFFER_BYTES], 0);
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(received),
            bytes => {
                target.write_all(&buffer[..bytes])?;
                received += bytes as u64;
            }
        }
    }
}
