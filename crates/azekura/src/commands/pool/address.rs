//! `azekura pool set-address`: an engine listens elsewhere than the pool was told. The map that says so is
//! a newer version of the pool's, which every engine takes and every client asks for when it meets it.

use anyhow::{Context as _, Result, bail};
use azekura_client::PoolFile;
use azekura_proto::EngineId;
use azekura_proto::pool_map::PoolMap;
use azekura_wire::Secret;
use clap::Args;

use super::engines::{Engine, EngineAddresses, parse_engine};
use crate::host::records::PoolLock;
use crate::names::check_name;
use crate::outcome::usage;
use crate::report;

/// `azekura pool set-address`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura pool set-address big 1=host9:7070\n  \
    azekura pool set-address big 0=10.0.1.1:7070 1=10.0.1.2:7070      all at once, as after a move\n\n\
    Start the engine at its new address first ('azekura serve --listen'). All engines have to answer: \
    they reach each other by these addresses too. Mounts and programs that run follow when they \
    next ask another engine; other hosts need 'azekura pool import' with an address that is \
    right.")]
pub(crate) struct SetAddressArgs {
    /// Name of the pool
    #[arg(value_name = "POOL", value_parser = check_name)]
    name: String,
    /// Number of the engine ('azekura pool show' has it) and where it listens now
    #[arg(required = true, value_name = "ENGINE=ADDR[,ADDR...]", value_parser = parse_change)]
    change: Vec<Change>,
}

/// Where an engine listens now.
#[derive(Clone, Debug)]
struct Change {
    engine: u16,
    addresses: EngineAddresses,
}

fn parse_change(text: &str) -> Result<Change, String> {
    let wrong = || format!("'{text}' is not of the form ENGINE=ADDR, such as 1=host:7070");
    let (engine, addresses) = text.split_once('=').ok_or_else(wrong)?;
    let engine = engine.parse().map_err(|_| wrong())?;
    Ok(Change { engine, addresses: parse_engine(addresses)? })
}

/// Runs the command.
///
/// # Errors
/// If an engine does not answer, or is another one than was said.
pub(super) fn run(args: &SetAddressArgs) -> Result<()> {
    let _lock = PoolLock::take(&args.name)?;
    let path = PoolFile::path_of(&args.name);
    let mut file = PoolFile::load(&path)?;
    for Change { engine, addresses } in &args.change {
        let count = file.map.engines.len();
        let Some(entry) = file.map.engines.get_mut(usize::from(*engine)) else {
            return Err(usage(format!(
                "pool '{}' has no engine {engine}: its {count} are counted from 0",
                args.name
            )));
        };
        entry.addresses.clone_from(&addresses.0);
    }
    let mut engines = ask_all(&file.map, &file.secret()?)?;
    // Newer than what any engine has: a try that stopped half-way may have left two versions.
    let versions = engines.iter().filter_map(|engine| Some(engine.place.as_ref()?.1.version));
    file.map.version = versions.chain([file.map.version]).max().unwrap_or(0) + 1;
    for (index, engine) in engines.iter_mut().enumerate() {
        engine.adopt(&file.map, EngineId(index as u16)).context(
            "an engine did not take the new map: run the same command again when it does",
        )?;
    }
    file.save(&path)?;
    for Change { engine, addresses } in &args.change {
        let addresses: Vec<String> = addresses.0.iter().map(ToString::to_string).collect();
        let name = &args.name;
        report::say(format_args!("engine {engine} of pool '{name}' is at {}", addresses.join(" ")));
    }
    Ok(())
}

/// Asks all engines of the pool, each where it should be now, before one of them is told anything.
fn ask_all(map: &PoolMap, secret: &Secret) -> Result<Vec<Engine>> {
    let mut engines = Vec::new();
    for (index, entry) in map.engines.iter().enumerate() {
        let engine = Engine::call(&entry.addresses, secret).with_context(|| {
            format!("engine {index} does not answer, and all have to; nothing was changed")
        })?;
        match &engine.place {
            Some((id, its)) if its.pool == map.pool && usize::from(id.0) == index => {}
            Some((id, its)) => bail!(
                "at {} listens engine {} of the pool '{}', not engine {index} of '{}'; nothing was \
                 changed",
                engine.shown(),
                id.0,
                its.name,
                map.name
            ),
            None => {
                bail!("the engine at {} belongs to no pool; nothing was changed", engine.shown())
            }
        }
        engines.push(engine);
    }
    Ok(engines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_are_written() {
        let change = parse_change("2=unix:/a,h:1").unwrap();
        assert_eq!((change.engine, change.addresses.0.len()), (2, 2));
        for wrong in ["2", "x=h:1", "2=h", "=h:1"] {
            assert!(parse_change(wrong).is_err(), "{wrong}");
        }
    }
}
