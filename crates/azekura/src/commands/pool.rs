//! `azekura pool`: pools over several engines. Making one tells every engine the map; the secret is
//! known to all sides beforehand and never crosses the wire.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_client::{PoolFile, SecretSource};
use azekura_proto::message::typed::Adopt;
use azekura_proto::pool_map::{Address, EngineEntry, PoolMap};
use azekura_proto::{EngineId, PoolId};
use azekura_wire::Secret;
use clap::{Args, Subcommand};

use super::down::{self, DownArgs};
use super::{serve, status, up};
use crate::connect::{self, EngineLine};
use crate::host::records::{self, LocalPool, PoolLock};
use crate::names::check_name;
use crate::outcome::{Verdict, usage};
use crate::report::{self, Table};

/// `azekura pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of engines that belong to none yet
    Create(CreateArgs),
    /// List the pools known here
    #[command(after_long_help = "Example:\n  azekura pool list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the map of a pool, and where its file and secret are
    #[command(after_long_help = "Example:\n  azekura pool show big")]
    Show {
        /// Name, file or URL of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop a pool of this machine and remove it with all that is in it, as 'azekura down --destroy'
    #[command(after_long_help = "Example:\n  azekura pool destroy fast")]
    Destroy {
        /// Name of the pool
        #[arg(value_name = "NAME", value_parser = check_name)]
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Forget how to reach a pool; its engines and data stay as they are
    #[command(after_long_help = "Example:\n  azekura pool forget old")]
    Forget {
        /// Name of the pool
        #[arg(value_name = "NAME", value_parser = check_name)]
        name: String,
    },
}

/// `azekura pool create`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura pool create big --engine host1:7070 --engine host2:7070 --engine host3:7070\n\n\
    Several addresses of one engine stand with commas between them, the best first:\n  \
    --engine unix:/run/azekura/a.sock,host1:7070")]
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

/// The addresses of one engine. A type of its own, since a plain list would be several values.
#[derive(Clone, Debug)]
struct EngineAddresses(Vec<Address>);

fn parse_engine(text: &str) -> Result<EngineAddresses, String> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(EngineAddresses)
}

/// Runs the command.
///
/// # Errors
/// What failed, at which engine, and the next step.
pub(crate) fn run(command: PoolCommand) -> Result<Verdict> {
    match command {
        PoolCommand::Create(args) => create(args)?,
        PoolCommand::List { json } => list(json)?,
        PoolCommand::Show { pool, json } => show(&pool, json)?,
        PoolCommand::Destroy { name, yes } => down::run(&DownArgs::destroying(name, yes))?,
        PoolCommand::Forget { name } => forget(&name)?,
    }
    Ok(Verdict::Good)
}

/// An engine that is to take part.
struct Candidate {
    addresses: Vec<Address>,
    line: EngineLine,
    targets: u16,
}

impl Candidate {
    fn call(addresses: Vec<Address>, secret: &Secret) -> Result<Self> {
        let mut last = anyhow!("an engine has no address");
        for address in &addresses {
            let asked = EngineLine::dial(address, None, secret)
                .and_then(|mut line| Ok((line.report()?, line)));
            match asked {
                Ok((report, line)) => {
                    let targets = report.targets.len() as u16;
                    return Ok(Self { addresses, line, targets });
                }
                Err(error) => last = error,
            }
        }
        Err(last.context(
            "an engine cannot take part: it must run ('azekura serve'), know the same secret, \
             and belong to no pool yet",
        ))
    }
}

fn create(args: CreateArgs) -> Result<()> {
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
    let all: Vec<&Address> = args.engine.iter().flat_map(|engine| &engine.0).collect();
    if let Some(twice) =
        all.iter().enumerate().find(|(index, address)| all[..*index].contains(address))
    {
        return Err(usage(format!("{} is given twice", twice.1)));
    }
    let mut engines = Vec::new();
    for engine in args.engine {
        engines.push(Candidate::call(engine.0, &secret)?);
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("the system has no random bytes")?;
    let targets: Vec<u16> = engines.iter().map(|engine| engine.targets).collect();
    let entries =
        engines.iter().map(|engine| EngineEntry { addresses: engine.addresses.clone() }).collect();
    let map = PoolMap::deal(PoolId(id), name.clone(), entries, &targets);
    map.validate().map_err(|what| anyhow!(what))?;
    // The file comes first: a pool that some engines belong to must not be without one.
    PoolFile { map: map.clone(), secret: SecretSource::File(secret_file) }.save(&path)?;
    adopt(&mut engines, &map).inspect_err(|_| {
        // What is left of it is named in the error.
        let _ = down::forget(&name);
    })?;
    up::ensure_default_container(&name)?;
    report::say(format_args!(
        "pool '{name}' made: {} targets at {} engines; its file is {}",
        map.target_count(),
        map.engines.len(),
        path.display()
    ));
    report::say(format_args!("use it:  azekura mount {name} DIR"));
    Ok(())
}

fn adopt(engines: &mut [Candidate], map: &PoolMap) -> Result<()> {
    for (index, engine) in engines.iter_mut().enumerate() {
        let request = Adopt { map: map.clone(), engine: EngineId(index as u16) };
        engine.line.ask(request).with_context(|| {
            let address = engine.addresses.first().map(ToString::to_string).unwrap_or_default();
            format!(
                "engine {index} at {address} did not become part of the pool; the {index} before \
                 it did: stop those, remove their directories and start again"
            )
        })?;
    }
    Ok(())
}

fn list(json: bool) -> Result<()> {
    let mut table = Table::new(&["pool", ">engines", ">targets", "made by", "file"]);
    let mut all = Vec::new();
    for name in status::known_pools()? {
        let path = PoolFile::path_of(&name);
        let file = match PoolFile::load(&path) {
            Ok(file) => file,
            Err(error) => {
                report::note(format_args!("azekura: {error}"));
                continue;
            }
        };
        let local: Option<LocalPool> = records::load(&name)?;
        table.row([
            name.clone(),
            file.map.engines.len().to_string(),
            file.map.target_count().to_string(),
            if local.is_some() { "azekura up" } else { "azekura pool create" }.to_owned(),
            path.display().to_string(),
        ]);
        all.push(serde_json::json!({
            "name": name,
            "pool": file.map.pool.to_string(),
            "engines": file.map.engines.len(),
            "targets": file.map.target_count(),
            "file": path,
            "dir": local.map(|local| local.dir),
        }));
    }
    if json {
        return report::say_json(&serde_json::json!({ "pools": all }));
    }
    if all.is_empty() {
        report::say("no pool is known here; 'azekura up' starts one");
    } else {
        report::say(table);
    }
    Ok(())
}

fn show(pool: &str, json: bool) -> Result<()> {
    let file = connect::pool_file(pool)?;
    let map = &file.map;
    let secret = match &file.secret {
        SecretSource::File(path) => path.display().to_string(),
        SecretSource::Inline(_) => "in the pool file".to_owned(),
    };
    if json {
        let engines: Vec<_> = map
            .engines
            .iter()
            .enumerate()
            .map(|(id, engine)| {
                let targets: Vec<u16> = map.targets_of(EngineId(id as u16)).map(|t| t.0).collect();
                serde_json::json!({ "id": id, "addresses": engine.addresses, "targets": targets })
            })
            .collect();
        return report::say_json(&serde_json::json!({
            "name": map.name,
            "pool": map.pool.to_string(),
            "version": map.version,
            "engines": engines,
            "targets": map.target_count(),
            "secret": secret,
        }));
    }
    report::say(format_args!("pool '{}', id {}, map version {}", map.name, map.pool, map.version));
    report::say(format_args!("secret: {secret}"));
    let mut table = Table::new(&[">engine", "targets", "addresses"]);
    for (id, engine) in map.engines.iter().enumerate() {
        let targets: Vec<String> =
            map.targets_of(EngineId(id as u16)).map(|target| target.0.to_string()).collect();
        let addresses: Vec<String> = engine.addresses.iter().map(ToString::to_string).collect();
        table.row([id.to_string(), targets.join(","), addresses.join(" ")]);
    }
    report::say(table);
    Ok(())
}

fn forget(name: &str) -> Result<()> {
    let _lock = PoolLock::take(name)?;
    let local: Option<LocalPool> = records::load(name)?;
    if local.is_none() && !PoolFile::path_of(name).exists() {
        bail!("no pool '{name}' is known here: see 'azekura pool list'");
    }
    if let Some(pid) = local.as_ref().and_then(|local| serve::running_engine(local.pid)) {
        bail!(
            "pool '{name}' runs (process {}): stop it first with 'azekura down {name}'",
            pid.as_raw_pid()
        );
    }
    down::forget(name)?;
    report::say(match local {
        Some(local) => {
            let dir = local.dir.display();
            format!(
                "pool '{name}' forgotten; 'azekura up --name {name} --dir {dir}' finds it again"
            )
        }
        None => format!("pool '{name}' forgotten; its engines and data stay as they are"),
    });
    Ok(())
}
