//! A gateway that the process of an engine serves for a command, which stays as long. Owns what the two say to each
//! other over the line between them: the gateway ends when the command closes its side, or is killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use azekura_client::{Pool, PoolFile};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::nfs::{self, NfsArgs};
use crate::report;

/// An error text and an address are shorter.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What the command says. It ends the gateway by saying no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// Read the exports again.
    Reload,
}

/// What the engine's process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromGateway {
    /// It serves, where this says.
    Ready(String),
    /// It cannot, for this reason.
    Refused(String),
    /// It has ended in good order.
    Ended,
}

/// One side of the line.
#[derive(Debug)]
pub(crate) struct Line(BufReader<UnixStream>);

impl Line {
    /// The side that has this socket.
    pub(crate) fn of(socket: UnixStream) -> Self {
        Self(BufReader::new(socket))
    }

    /// Says something.
    ///
    /// # Errors
    /// If the other side is gone.
    pub(crate) fn say(mut socket: &UnixStream, what: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(what)?;
        text.push(b'\n');
        Ok(socket.write_all(&text)?)
    }

    /// The next that the other side says; `None` if it says no more.
    ///
    /// # Errors
    /// If that makes no sense.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut text = Vec::new();
        // Whoever was killed has broken the line off, and says no more either.
        if (&mut self.0).take(LINE_BYTES_MAX).read_until(b'\n', &mut text).is_err()
            || text.is_empty()
        {
            return Ok(None);
        }
        serde_json::from_slice(&text).map(Some).context("what is said makes no sense")
    }

    fn socket(&self) -> &UnixStream {
        self.0.get_ref()
    }
}

/// Serves for the command at the other end of the line, until that or this process wants it to end.
pub(super) fn serve(
    args: &NfsArgs,
    line: UnixStream,
    connect: impl FnOnce() -> Result<(PoolFile, Arc<Pool>)>,
) {
    let mut line = Line::of(line);
    let serving = match nfs::start(args, connect) {
        Ok(serving) => serving,
        Err(error) => {
            let _ = Line::say(line.socket(), &FromGateway::Refused(report::explain(&error)));
            return;
        }
    };
    tracing::info!(container = %args.name(), "{}, by the engine's own process", serving.ready());
    // Whoever is gone already says no more, which is heard next.
    let _ = Line::say(line.socket(), &FromGateway::Ready(serving.ready().to_owned()));
    while let Ok(Some(FromCommand::Reload)) = line.hear() {
        serving.reload(args);
    }
    serving.end();
    let _ = Line::say(line.socket(), &FromGateway::Ended);
}

/// The command's side: hears whether the gateway serves, and where.
///
/// # Errors
/// Why it does not.
pub(super) fn hear_ready(line: &mut Line) -> Result<String> {
    match line.hear()? {
        Some(FromGateway::Ready(ready)) => Ok(ready),
        Some(FromGateway::Refused(reason)) => bail!(reason),
        Some(FromGateway::Ended) | None => bail!("the engine's process ended before it served"),
    }
}

/// The command wants the gateway to end.
pub(super) fn hang_up(socket: &UnixStream) {
    // Where the other side is gone it has ended.
    let _ = socket.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_until_one_hangs_up() {
        let (command, engine) = UnixStream::pair().unwrap();
        let (mut at_command, mut at_engine) =
            (Line::of(command.try_clone().unwrap()), Line::of(engine));
        Line::say(&command, &FromCommand::Reload).unwrap();
        hang_up(&command);
        assert_eq!(at_engine.hear().unwrap(), Some(FromCommand::Reload));
        assert_eq!(at_engine.hear::<FromCommand>().unwrap(), None);
        let said = [FromGateway::Ready("nfs://x\n/".to_owned()), FromGateway::Ended];
        for one in &said {
            Line::say(at_engine.socket(), one).unwrap();
            assert_eq!(at_command.hear().unwrap().as_ref(), Some(one));
        }
        drop(at_engine);
        assert_eq!(at_command.hear::<FromGateway>().unwrap(), None);
    }

    #[test]
    fn a_refusal_comes_with_its_reason() {
        let (command, engine) = UnixStream::pair().unwrap();
        Line::say(&engine, &FromGateway::Refused("the address is taken".to_owned())).unwrap();
        let mut line = Line::of(command);
        assert_eq!(hear_ready(&mut line).unwrap_err().to_string(), "the address is taken");
        drop(engine);
        assert!(hear_ready(&mut line).unwrap_err().to_string().contains("ended"));
    }
}
