//! `azekura pool`: pools over several engines. Owns the commands that look at what is known here; making
//! a pool, learning of one, and changing where an engine listens stand in modules of their own.

mod address;
mod create;
mod engines;
mod import;

use anyhow::{Result, bail};
use azekura_client::{PoolFile, SecretSource};
use azekura_proto::EngineId;
use clap::Subcommand;

use super::down::{self, DownArgs};
use super::{serve, status};
use crate::connect;
use crate::host::records::{self, LocalPool, PoolLock};
use crate::names::check_name;
use crate::outcome::Verdict;
use crate::report::{self, Table};

/// `azekura pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of engines that belong to none yet
    Create(create::CreateArgs),
    /// Learn how to reach a pool that runs, from its engines
    Import(import::ImportArgs),
    /// Tell all sides that an engine of a pool listens elsewhere now
    SetAddress(address::SetAddressArgs),
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
        #[arg(value_name = "POOL", value_parser = check_name)]
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Forget how to reach a pool; its engines and data stay as they are
    #[command(after_long_help = "Example:\n  azekura pool forget old")]
    Forget {
        /// Name of the pool
        #[arg(value_name = "POOL", value_parser = check_name)]
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// What failed, at which engine, and the next step.
pub(crate) fn run(command: PoolCommand) -> Result<Verdict> {
    match command {
        PoolCommand::Create(args) => create::run(args)?,
        PoolCommand::Import(args) => import::run(&args)?,
        PoolCommand::SetAddress(args) => address::run(&args)?,
        PoolCommand::List { json } => list(json)?,
        PoolCommand::Show { pool, json } => show(&pool, json)?,
        PoolCommand::Destroy { name, yes } => down::run(&DownArgs::destroying(name, yes))?,
        PoolCommand::Forget { name } => forget(&name)?,
    }
    Ok(Verdict::Good)
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
