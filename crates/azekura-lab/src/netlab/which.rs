//! Which lab a command is about, and how it is told what to do: labs live in processes of their own.

use anyhow::{Context as _, Result, bail};
use azekura::host::places;
use azekura::outcome::usage;
use azekura_netlab::control::{self, Answer, Request};

/// Labs are told apart by the directory that the sockets of this user's pools lie in.
pub(crate) fn scope() -> Result<String> {
    Ok(places::socket_dir()?.to_string_lossy().into_owned())
}

/// The scope, and the lab that is meant in it.
pub(super) fn find(name: Option<&str>) -> Result<(String, String)> {
    let scope = scope()?;
    if let Some(name) = name {
        return Ok((scope, name.to_owned()));
    }
    let names = control::names(&scope).context("cannot read /proc/net/unix")?;
    match names.as_slice() {
        [only] => Ok((scope, only.clone())),
        [] => bail!("no lab is running: start one with 'azekura-lab netlab up FILE.toml'"),
        several => {
            Err(usage(format!("several labs are running, name one: {}", several.join(", "))))
        }
    }
}

/// Sends a request to a lab.
pub(super) fn tell(name: Option<&str>, request: &Request) -> Result<Answer> {
    let (scope, name) = find(name)?;
    Ok(control::ask(&scope, &name, request)?)
}
