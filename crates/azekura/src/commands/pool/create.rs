//! `azekura pool create`: makes a pool of engines that belong to none. Every engine is asked before the
//! first is told anything. If one does not take its place after all, the same command goes on where it
//! was: those that have theirs keep it. The secret is known to all sides beforehand and never crosses the
//! wire.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_client::{PoolFile, SecretSource};
use azekura_proto::message::typed::ContainerList;
use azekura_proto::pool_map::{Address, EngineEntry, PoolMap};
use azekura_proto::{EngineId, PoolId, TargetId};
use azekura_wire::Secret;
use clap::Args;

use super::engines::{Engine, EngineAddresses, parse_engine};
use crate::commands::{down, serve, up};
use crate::connect;
use crate::host::records::PoolLock;
use crate::names::check_name;
use crate::outcome::usage;
use crate::report;

/// `azekura pool create`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura pool create big --engine host1:7070 --engine host2:7070 --engine host3:7070\n\n\
    Several addresses of one engine stand with commas between them, the best first:\n  \
    --engine unix:/run/azekura/a.sock,host1:7070\n\n\
    If it fails, mend what it names and run the same command again.")]
pub(crate) struct CreateArgs {
    /// Name of the new pool
    #[arg(value_name = "NAME", value_parser = check_name)]
    name: String,
    /// An engine, started with 'azekura serve'; once for each
    #[arg(long, required = true, value_name = "ADDR[,ADDR...]", value_parser = parse_engine)]
    engine: Vec<EngineAddresses>,
    /// File with the secret of the engines [default: ~/.config/azekura/site.secret]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// What failed, at which engine, and the next step.
pub(super) fn run(args: CreateArgs) -> Result<()> {
    let name = args.name;
    let _lock = PoolLock::take(&name)?;
    let path = PoolFile::path_of(&name);
    if path.exists() {
        bail!(
            "a pool '{name}' is known here already ({}): choose another name, or run \
             'azekura pool forget {name}'",
            path.display()
        );
    }
    let secret_file = serve::site_secret_file(args.secret_file.as_deref())?;
    let secret = Secret::load(&secret_file)?;
    refuse_twice(&args.engine)?;
    let mut engines = ask_all(&args.engine, &secret)?;
    let map = match begun(&engines, &name)? {
        Some(map) => map,
        None => new_map(&engines, &name)?,
    };
    let complete = engines.iter().all(|engine| engine.place.is_some());
    // The file comes first: a pool that some engines belong to must not be without one.
    let file = PoolFile { map: map.clone(), secret: SecretSource::File(secret_file) };
    file.save(&path)?;
    let made = adopt(&mut engines, &map)
        .and_then(|()| if complete { refuse_used(&name) } else { Ok(()) })
        .and_then(|()| up::ensure_default_container(&name));
    if let Err(error) = made {
        // What failed counts. Without the file the same command can go on from here.
        let _ = down::forget(&name);
        return Err(error);
    }
    report::say(format_args!(
        "pool '{name}' made: {} targets at {} engines; its file is {}",
        map.target_count(),
        map.engines.len(),
        path.display()
    ));
    report::say(format_args!("use it:  azekura mount {name} DIR"));
    Ok(())
}

fn refuse_twice(engines: &[EngineAddresses]) -> Result<()> {
    let all: Vec<&Address> = engines.iter().flat_map(|engine| &engine.0).collect();
    let twice = all.iter().enumerate().find(|(index, address)| all[..*index].contains(address));
    twice.map_or(Ok(()), |(_, address)| Err(usage(format!("{address} is given twice"))))
}

/// Asks every engine whether it is there, so that one that is not is known before anything is done.
fn ask_all(engines: &[EngineAddresses], secret: &Secret) -> Result<Vec<Engine>> {
    let asked = engines.iter().map(|EngineAddresses(addresses)| {
        Engine::call(addresses, secret).context(
            "an engine cannot take part: it must run ('azekura serve') and know the same secret; no \
             engine was told anything",
        )
    });
    asked.collect()
}

/// The map of this very pool, if making it was begun and did not come to its end.
fn begun(engines: &[Engine], name: &str) -> Result<Option<PoolMap>> {
    let Some((_, map)) = engines.iter().find_map(|engine| engine.place.as_ref()) else {
        return Ok(None);
    };
    let targets: Vec<u16> = engines.iter().map(|engine| engine.targets).collect();
    let same = PoolMap::deal(map.pool, name.to_owned(), entries(engines), &targets) == *map;
    for (index, engine) in engines.iter().enumerate() {
        match &engine.place {
            Some((id, its)) if !(same && usize::from(id.0) == index && its == map) => bail!(
                "the engine at {} is engine {} of the pool '{}' already; no engine was told anything. \
                 To use that pool here: azekura pool import {}",
                engine.shown(),
                id.0,
                its.name,
                engine.shown()
            ),
            _ => {}
        }
    }
    Ok(Some(map.clone()))
}

fn entries(engines: &[Engine]) -> Vec<EngineEntry> {
    engines.iter().map(|engine| EngineEntry { addresses: engine.addresses.clone() }).collect()
}

fn new_map(engines: &[Engine], name: &str) -> Result<PoolMap> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("the system has no random bytes")?;
    let targets: Vec<u16> = engines.iter().map(|engine| engine.targets).collect();
    let map = PoolMap::deal(PoolId(id), name.to_owned(), entries(engines), &targets);
    map.validate().map_err(|what| anyhow!(what))?;
    Ok(map)
}

fn adopt(engines: &mut [Engine], map: &PoolMap) -> Result<()> {
    for (index, engine) in engines.iter_mut().enumerate().filter(|(_, it)| it.place.is_none()) {
        engine.adopt(map, EngineId(index as u16)).with_context(|| {
            format!(
                "engine {index} at {} did not become part of the pool, its log says why; mend that \
                 and run the same command again",
                engine.shown()
            )
        })?;
    }
    Ok(())
}

/// Where every engine has its place, only the last step can be missing.
fn refuse_used(name: &str) -> Result<()> {
    let containers = connect::pool(name)?.call(TargetId(0), ContainerList)?;
    if !containers.is_empty() {
        bail!(
            "these engines are the pool '{name}' already: to use it here, run 'azekura pool import' \
             with the address of one"
        );
    }
    Ok(())
}
