//! What staging is held against: all nodes read the same file from one server, each over a connection of its
//! own, as they would from a file server without caches in between. The server gives what lies in memory
//! by sendfile; nothing is checked, and nobody waits for an answer.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::fixture::{SERVER, StagingLab, node};

const BUFFER_BYTES: usize = 256 * 1024;

/// How it is done, for pages.
pub(super) const METHOD: &str = "*copy* is a plain server that sends the file to each node by \
     sendfile over a TCP connection, all at once, and nodes that write it to memory.";

/// Has the first `nodes` nodes copy a file. Gives the time until the last has all of it, in seconds.
///
/// # Errors
/// If a connection fails.
pub(super) fn copy(lab: &StagingLab, nodes: usize, file: &Path) -> Result<f64> {
    let cache = lab.empty_dir("cache")?;
    let bytes = file.metadata().context("cannot look at the file")?.len();
    let listener = lab.lab.within(SERVER, || TcpListener::bind(("0.0.0.0", 0)))??;
    let address = (lab.lab.address(SERVER)?, listener.local_addr()?.port());
    let mut pairs = Vec::new();
    for number in 0..nodes {
        let receiver = lab.lab.within(&node(number), || TcpStream::connect(address))??;
        pairs.push((listener.accept()?.0, receiver));
    }
    let begun = Instant::now();
    let received: Vec<Result<u64>> = thread::scope(|scope| {
        let mut receiving = Vec::new();
        for (number, (sender, receiver)) in pairs.into_iter().enumerate() {
            scope.spawn(move || send(file, sender));
            let target = cache.join(node(number));
            receiving.push(scope.spawn(move || Ok(receive(receiver, &target)?)));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(received) => received,
            Err(_) => bail!("a thread that receives has panicked"),
        };
        receiving.into_iter().map(join).collect()
    });
    let time_s = begun.elapsed().as_secs_f64();
    for received in received {
        let received = received.context("a node cannot receive")?;
        if received != bytes {
            bail!("a node got {received} of {bytes} bytes");
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
