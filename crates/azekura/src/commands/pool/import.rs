//! `azekura pool import`: learns how to reach a pool that runs, from its engines. Changes nothing at
//! them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use azekura_client::{PoolFile, SecretSource};
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_wire::Secret;
use clap::Args;

use super::engines::{Engine, EngineAddresses, parse_engine};
use crate::commands::up;
use crate::host::places;
use crate::host::records::PoolLock;
use crate::outcome::usage;
use crate::report;

/// `azekura pool import`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura pool import host1:7070\n  \
    azekura pool import host1:7070 --secret-file ./pool.secret     of a pool of 'azekura up --listen'\n\n\
    The engine that answers tells where the others are. Where this host has to take other ways, give\n\
    the address of each engine: it then stands first in the pool file.")]
pub(crate) struct ImportArgs {
    /// Address of an engine: host:port or unix:/path
    #[arg(required = true, value_name = "ADDR[,ADDR...]", value_parser = parse_engine)]
    engine: Vec<EngineAddresses>,
    /// File with the secret of the pool [default: ~/.config/azekura/site.secret]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If an engine does not answer, or another pool of that name is known.
pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let secret_file = match &args.secret_file {
        Some(file) => places::absolute(file)?,
        // A new secret would be of no use: the pool has one.
        None => places::config_dir()?.join("site.secret"),
    };
    let secret = Secret::load(&secret_file).context(
        "the secret of the pool is needed: copy it from a host that has it ('azekura pool show' there \
         says where), and name it with --secret-file",
    )?;
    let mut found: Option<PoolMap> = None;
    for EngineAddresses(addresses) in &args.engine {
        let engine = Engine::call(addresses, &secret)
            .context("an engine of the pool has to answer: is that its address?")?;
        let Some((id, map)) = &engine.place else {
            bail!(
                "the engine at {} belongs to no pool yet: 'azekura pool create' makes one",
                engine.shown()
            );
        };
        let known = found.get_or_insert_with(|| map.clone());
        if known.pool != map.pool {
            return Err(usage(format!(
                "{} is an engine of the pool '{}', and the others are of '{}'",
                engine.shown(),
                map.name,
                known.name
            )));
        }
        if map.version > known.version {
            let before = std::mem::replace(known, map.clone());
            for (new, old) in known.engines.iter_mut().zip(before.engines) {
                prefer(&mut new.addresses, &old.addresses);
            }
        }
        if let Some(entry) = known.engines.get_mut(usize::from(id.0)) {
            prefer(&mut entry.addresses, addresses);
        }
    }
    let Some(map) = found else { bail!("no engine was named") };
    save(map, secret_file)
}

/// Puts addresses before those that are there, once each.
fn prefer(addresses: &mut Vec<Address>, first: &[Address]) {
    addresses.retain(|address| !first.contains(address));
    addresses.splice(0..0, first.iter().cloned());
}

fn save(map: PoolMap, secret_file: PathBuf) -> Result<()> {
    let name = map.name.clone();
    let _lock = PoolLock::take(&name)?;
    let path = PoolFile::path_of(&name);
    if path.exists() {
        let before = PoolFile::load(&path)?;
        if before.map.pool != map.pool {
            bail!(
                "another pool '{name}' is known here already ({}): 'azekura pool forget {name}' forgets it",
                path.display()
            );
        }
    }
    let (targets, engines) = (map.target_count(), map.engines.len());
    PoolFile { map, secret: SecretSource::File(secret_file) }.save(&path)?;
    // A pool whose making stopped at the last step gets it now.
    up::ensure_default_container(&name)?;
    report::say(format_args!(
        "pool '{name}' is known here now: {targets} targets at {engines} engine{}; its file is {}",
        if engines == 1 { "" } else { "s" },
        path.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_were_given_come_first_and_once() {
        let of = |texts: &[&str]| -> Vec<Address> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let mut addresses = of(&["unix:/a", "h:1"]);
        prefer(&mut addresses, &of(&["h:1", "h:2"]));
        assert_eq!(addresses, of(&["h:1", "h:2", "unix:/a"]));
    }
}
