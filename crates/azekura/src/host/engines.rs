//! What commands of this user ask of a process that serves an engine here: to serve a mount, a gateway or what
//! `azekura run` has mounted too. Owns the socket on which it hears them, and the words on it. Only the user's own
//! processes get at the socket.

use std::ffi::OsString;
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_proto::PoolId;
use azekura_wire::{receive_with_descriptor, send_with_descriptor};
use serde::{Deserialize, Serialize};

use super::{places, process};

/// What a socket of an engine's process is called, around its process id. No pool's name begins so, whose
/// socket may lie beside it.
const PREFIX: &str = ".engine-";
const SUFFIX: &str = ".sock";
/// How long a process may take over the words; to mount, it may have to wait for other engines.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// How long whoever connects may take to say what is wanted.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);
/// After a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// A command line is shorter.
const ORDER_BYTES_MAX: u64 = 1 << 20;
/// Most are shorter than this, and come by one message.
const ORDER_BYTES: usize = 16 << 10;

/// Why nobody was asked.
pub(crate) const NONE_HERE: &str = "no engine of the pool that you have started answers on this host: leave out \
     --with-engine, start the pool with 'azekura up', or see with 'azekura logs' whether it could make its socket in \
     $XDG_RUNTIME_DIR";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The pool's id.
    pool: String,
    /// Which mounts the one who asks sees, if one of them is asked for: nobody is served by a mount in another
    /// namespace.
    namespace: Option<PathBuf>,
    /// The words of a command of this program, the first of which is its name, with absolute paths.
    pub(crate) words: Vec<OsString>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// The engine is of another pool, or of none.
    NotMine,
    Done,
    /// With the reason.
    Refused(String),
}

/// The socket of this process; whoever asks from its end on finds nobody.
#[derive(Debug)]
pub(crate) struct Hearing {
    socket: PathBuf,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn namespace() -> Result<PathBuf> {
    std::fs::read_link("/proc/self/ns/mnt").context("cannot read /proc/self/ns/mnt")
}

/// From now on this process does what is asked for pools that `is_mine` knows. `carry_out` is called by a
/// thread of its own for each order, with the line on which whoever asked goes on to speak, if there is one.
///
/// # Errors
/// If the socket cannot be made.
pub(crate) fn hear(
    is_mine: impl Fn(&str) -> bool + Send + Sync + 'static,
    carry_out: impl Fn(&Order, Option<OwnedFd>) -> Result<()> + Send + Sync + 'static,
) -> Result<Hearing> {
    hear_in(&places::socket_dir()?, std::process::id(), Arc::new((is_mine, carry_out)))
}

fn hear_in<M, C>(dir: &Path, pid: u32, what: Arc<(M, C)>) -> Result<Hearing>
where
    M: Fn(&str) -> bool + Send + Sync + 'static,
    C: Fn(&Order, Option<OwnedFd>) -> Result<()> + Send + Sync + 'static,
{
    let socket = dir.join(format!("{PREFIX}{pid}{SUFFIX}"));
    // An older process of this number has been killed.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)
        .with_context(|| format!("cannot make the socket {}", socket.display()))?;
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Descriptors may be short for a while.
                std::thread::sleep(PAUSE);
                continue;
            };
            let what = Arc::clone(&what);
            // Without a thread there is no answer, and whoever asked is told so by the end of the stream.
            let _ = std::thread::Builder::new().name("order".to_owned()).spawn(move || {
                if let Err(error) = answer(stream, &what.0, &what.1) {
                    tracing::warn!("an order was not answered: {error:#}");
                }
            });
        }
    };
    std::thread::Builder::new().name("orders".to_owned()).spawn(accept)?;
    Ok(Hearing { socket })
}

fn answer(
    mut stream: UnixStream,
    is_mine: &impl Fn(&str) -> bool,
    carry_out: &impl Fn(&Order, Option<OwnedFd>) -> Result<()>,
) -> Result<()> {
    stream.set_read_timeout(Some(ORDER_TIMEOUT))?;
    let mut text = vec![0; ORDER_BYTES];
    let (begun_bytes, line) = receive_with_descriptor(&stream, &mut text)?;
    text.truncate(begun_bytes);
    (&stream).take(ORDER_BYTES_MAX).read_to_end(&mut text)?;
    // One of another version may say it in other words.
    let order: Order = serde_json::from_slice(&text).context("what is asked for makes no sense")?;
    let sees_others = match &order.namespace {
        Some(theirs) => *theirs != namespace()?,
        None => false,
    };
    let answer = if !is_mine(&order.pool) {
        Answer::NotMine
    } else if sees_others {
        Answer::Refused(
            "it sees other mounts than this command (another mount namespace): leave out --with-engine"
                .to_owned(),
        )
    } else {
        carry_out(&order, line)
            .map_or_else(|error| Answer::Refused(format!("{error:#}")), |()| Answer::Done)
    };
    stream.write_all(&serde_json::to_vec(&answer)?)?;
    Ok(())
}

/// Has a process that serves an engine of the pool mount what these words of `azekura mount` say. Gives its
/// id; `None` if there is no such process of this user here.
///
/// # Errors
/// If it refuses, or does not answer.
pub(crate) fn ask_to_mount(pool: PoolId, words: Vec<OsString>) -> Result<Option<u32>> {
    let order = Order { pool: pool.to_string(), namespace: Some(namespace()?), words };
    ask_all(&places::socket_dir()?, &order, None)
}

/// Has a process that serves an engine of the pool serve what these words of a command say, which goes on to
/// speak with it over the other end of `line`. Gives its id; `None` if there is no such process of this user here.
///
/// # Errors
/// As of [`ask_to_mount`].
pub(crate) fn ask_to_serve(
    pool: PoolId,
    words: Vec<OsString>,
    line: BorrowedFd<'_>,
) -> Result<Option<u32>> {
    let order = Order { pool: pool.to_string(), namespace: None, words };
    ask_all(&places::socket_dir()?, &order, Some(line))
}

fn ask_all(dir: &Path, order: &Order, line: Option<BorrowedFd<'_>>) -> Result<Option<u32>> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(None) };
    let number = |name: &OsString| {
        name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u32>().ok()
    };
    let found =
        entries.flatten().filter_map(|entry| Some((number(&entry.file_name())?, entry.path())));
    let mut found: Vec<(u32, PathBuf)> = found.collect();
    found.sort();
    // One that cannot do it says nothing about the others.
    let mut cannot = None;
    for (pid, socket) in found {
        match ask(&socket, pid, order, line).with_context(|| format!("the engine's process {pid}"))
        {
            Ok(Some(Answer::Done)) => return Ok(Some(pid)),
            Ok(Some(Answer::Refused(reason))) => {
                // It is of this pool, which others may only happen to be.
                cannot = Some(anyhow!("the engine's process {pid} refuses: {reason}"));
            }
            Ok(Some(Answer::NotMine) | None) => {}
            Err(error) => cannot = cannot.or(Some(error)),
        }
    }
    cannot.map_or(Ok(None), Err)
}

/// `None` if nobody hears at the socket any more.
fn ask(
    socket: &Path,
    pid: u32,
    order: &Order,
    line: Option<BorrowedFd<'_>>,
) -> Result<Option<Answer>> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
            if is_refused && process::running(pid).is_none() {
                // It was killed.
                let _ = std::fs::remove_file(socket);
            }
            return Ok(None);
        }
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let told = serde_json::to_vec(order)?;
    let mut text = Vec::new();
    let said = send_with_descriptor(&stream, &[IoSlice::new(&told)], line)
        .and_then(|sent| stream.write_all(&told[sent..]))
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .and_then(|()| stream.read_to_end(&mut text));
    said.with_context(|| {
        let limit_s = ANSWER_TIMEOUT.as_secs();
        format!(
            "has not answered, for which it has {limit_s} s, and may still do it: look at its log with \
             'azekura logs'"
        )
    })?;
    if text.is_empty() {
        bail!("ended before it answered: look at its log with 'azekura logs'");
    }
    Ok(Some(serde_json::from_slice(&text).context("gives an answer that makes no sense")?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn order(pool: &str) -> Order {
        let words = vec!["mount".into(), "/a b".into()];
        Order { pool: pool.to_owned(), namespace: Some(namespace().unwrap()), words }
    }

    fn asked(dir: &Path, order: &Order) -> Result<Option<u32>> {
        ask_all(dir, order, None)
    }

    fn hearing(dir: &Path, pid: u32, mine: &'static str) -> Hearing {
        let carry_out = |order: &Order, line: Option<OwnedFd>| {
            if let Some(line) = line {
                UnixStream::from(line).write_all(b"heard")?;
            }
            if order.words[1] == "/a b" { Ok(()) } else { Err(anyhow::anyhow!("not there")) }
        };
        hear_in(dir, pid, Arc::new((move |pool: &str| pool == mine, carry_out))).unwrap()
    }

    #[test]
    fn the_process_whose_pool_it_is_carries_an_order_out() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (hearing(dir.path(), 71, "one"), hearing(dir.path(), 72, "two"));
        assert_eq!(asked(dir.path(), &order("one")).unwrap(), Some(71));
        assert_eq!(asked(dir.path(), &order("two")).unwrap(), Some(72));
        assert_eq!(asked(dir.path(), &order("three")).unwrap(), None);
        drop((one, two));
        assert_eq!(asked(dir.path(), &order("one")).unwrap(), None);
    }

    #[test]
    fn a_refusal_comes_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let _hearing = hearing(dir.path(), 71, "one");
        let elsewhere = Order { namespace: Some("mnt:[1]".into()), ..order("one") };
        let wrong = Order { words: vec!["mount".into(), "/b".into()], ..order("one") };
        for (order, reason) in [(elsewhere, "namespace"), (wrong, "not there")] {
            let error = asked(dir.path(), &order).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("71"), "{error}");
        }
    }

    #[test]
    fn who_goes_on_to_speak_hands_over_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let _others = hearing(dir.path(), 71, "one");
        let _hearing = hearing(dir.path(), 72, "two");
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        // Longer than one message; and there is no mount that it would have to see.
        let mut long = order("two");
        long.words.push("x".repeat(3 * ORDER_BYTES).into());
        let long = Order { namespace: None, ..long };
        assert_eq!(ask_all(dir.path(), &long, Some(theirs.as_fd())).unwrap(), Some(72));
        drop(theirs);
        let mut said = String::new();
        ours.read_to_string(&mut said).unwrap();
        assert_eq!(said, "heard");
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_strangers_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join(".engine-4194305.sock");
        drop(UnixListener::bind(&socket).unwrap());
        drop(UnixListener::bind(dir.path().join(".engine-x.sock")).unwrap());
        assert_eq!(asked(dir.path(), &order("one")).unwrap(), None);
        assert!(!socket.exists() && dir.path().join(".engine-x.sock").exists());
        // Garbage at the door ends nothing.
        let hearing = hearing(dir.path(), 73, "one");
        let mut stranger = UnixStream::connect(&hearing.socket).unwrap();
        stranger.write_all(b"\xff\xff").unwrap();
        drop(stranger);
        assert_eq!(asked(dir.path(), &order("one")).unwrap(), Some(73));
    }
}
