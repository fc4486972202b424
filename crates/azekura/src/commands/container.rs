//! `azekura container`: the containers of a pool and what new files in them start with.

use anyhow::{Context as _, Result, bail};
use azekura_client::Pool;
use azekura_proto::attr::Inheritance;
use azekura_proto::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use azekura_proto::message::Container;
use azekura_proto::message::typed::{
    ContainerChange, ContainerCreate, ContainerDestroy, ContainerList, ContainerOpen,
};
use azekura_proto::{ObjectClass, Status, TargetId};
use clap::{Args, Subcommand};

use super::down;
use crate::connect;
use crate::names::{DEFAULT_CONTAINER, check_name};
use crate::outcome::usage;
use crate::report::{self, Table, format_bytes, parse_size_u32};

/// Container requests go to the first target.
const LIST_TARGET: TargetId = TargetId(0);

/// `azekura container`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContainerCommand {
    /// Make a container
    #[command(after_long_help = "Example:\n  \
        azekura container create scratch --pool default --file-class S2 --chunk-size 4MiB")]
    Create {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        defaults: DefaultsArgs,
    },
    /// List the containers of a pool
    #[command(after_long_help = "Example:\n  azekura container list default")]
    List {
        /// Name, file or URL of the pool
        #[arg(value_name = "POOL", default_value = "default")]
        pool: String,
        /// The same
        #[arg(long = "pool", value_name = "POOL", hide = true)]
        named: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change what new files and directories of a container start with
    #[command(after_long_help = "Example:\n  \
        azekura container set scratch --pool default --chunk-size 256KiB\n\n\
        Files and directories that are there stay as they are.")]
    Set {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        defaults: DefaultsArgs,
    },
    /// Destroy a container with all that is in it
    #[command(after_long_help = "Example:\n  azekura container destroy scratch --pool default")]
    Destroy {
        #[command(flatten)]
        which: WhichArgs,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// A name without the pool, which these commands take by an option.
fn check_plain_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((pool, name)) => Err(format!("write '{name} --pool {pool}'")),
        None => check_name(text),
    }
}

/// Which container.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// Name of the container
    #[arg(value_name = "NAME", value_parser = check_plain_name)]
    name: String,
    /// Name, file or URL of the pool
    #[arg(long, value_name = "POOL", default_value = "default")]
    pool: String,
}

/// What new entries start with; what is not given stays.
#[derive(Debug, Args)]
pub(crate) struct DefaultsArgs {
    /// Class of new files: S1, S2, S4 .. SX, over how many targets one is striped
    #[arg(long, value_name = "CLASS")]
    file_class: Option<ObjectClass>,
    /// Class of new directories
    #[arg(long, value_name = "CLASS")]
    dir_class: Option<ObjectClass>,
    /// Chunk size of new files
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    chunk_size: Option<u32>,
}

impl DefaultsArgs {
    fn apply(&self, before: Inheritance) -> Result<Inheritance> {
        let chunk_bytes = self.chunk_size.unwrap_or(before.chunk_bytes);
        check_chunk_bytes(chunk_bytes)?;
        Ok(Inheritance {
            file_class: self.file_class.unwrap_or(before.file_class),
            dir_class: self.dir_class.unwrap_or(before.dir_class),
            chunk_bytes,
        })
    }

    fn says_nothing(&self) -> bool {
        self.file_class.is_none() && self.dir_class.is_none() && self.chunk_size.is_none()
    }
}

/// Checks a chunk size.
///
/// # Errors
/// If files cannot have it.
pub(crate) fn check_chunk_bytes(bytes: u32) -> Result<()> {
    if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) {
        return Err(usage(format!(
            "a chunk size is {} to {}",
            format_bytes(u64::from(CHUNK_BYTES_MIN)),
            format_bytes(u64::from(CHUNK_BYTES_MAX))
        )));
    }
    Ok(())
}

/// Finds a container.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn open(pool: &Pool, name: &str) -> Result<Container> {
    let shown = pool.map().name.clone();
    match pool.call(LIST_TARGET, ContainerOpen { name }) {
        Ok(container) => Ok(container),
        Err(error) if error.status() == Some(Status::NotFound) => {
            bail!("pool '{shown}' has no container '{name}': see 'azekura container list {shown}'")
        }
        Err(error) => Err(error).with_context(|| format!("cannot open container '{name}'")),
    }
}

/// Runs the command.
///
/// # Errors
/// What failed, on which container, and the next step.
pub(crate) fn run(command: &ContainerCommand) -> Result<()> {
    match command {
        ContainerCommand::Create { which, defaults } => create(which, defaults),
        ContainerCommand::List { pool, named, json } => list(named.as_ref().unwrap_or(pool), *json),
        ContainerCommand::Set { which, defaults } => set(which, defaults),
        ContainerCommand::Destroy { which, yes } => destroy(which, *yes),
    }
}

fn create(which: &WhichArgs, defaults: &DefaultsArgs) -> Result<()> {
    let pool = connect::pool(&which.pool)?;
    let inheritance = defaults.apply(Inheritance::default())?;
    let request = ContainerCreate { name: which.name.clone(), inheritance };
    match pool.call(LIST_TARGET, request) {
        Ok(_) => {}
        Err(error) if error.status() == Some(Status::Exists) => {
            bail!("pool '{}' has a container '{}' already", which.pool, which.name)
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot make container '{}'", which.name));
        }
    }
    let place = if which.name == DEFAULT_CONTAINER {
        which.pool.clone()
    } else {
        format!("{}/{}", which.pool, which.name)
    };
    report::say(format_args!("container '{}' made; use it: azekura mount {place} DIR", which.name));
    Ok(())
}

fn list(pool: &str, json: bool) -> Result<()> {
    let client = connect::pool(pool)?;
    let mut containers = client
        .call(LIST_TARGET, ContainerList)
        .with_context(|| format!("cannot list containers of '{pool}'"))?;
    containers.sort_by(|one, other| one.name.cmp(&other.name));
    if json {
        let rows: Vec<_> = containers
            .iter()
            .map(|container| {
                serde_json::json!({
                    "name": container.name,
                    "id": container.id.0,
                    "root": container.root.to_string(),
                    "file_class": container.inheritance.file_class.name(),
                    "dir_class": container.inheritance.dir_class.name(),
                    "chunk_bytes": container.inheritance.chunk_bytes,
                })
            })
            .collect();
        return report::say_json(&serde_json::json!({ "containers": rows }));
    }
    let mut table = Table::new(&["container", ">id", "files", "directories", ">chunk"]);
    for container in containers {
        table.row([
            container.name,
            container.id.0.to_string(),
            container.inheritance.file_class.to_string(),
            container.inheritance.dir_class.to_string(),
            format_bytes(u64::from(container.inheritance.chunk_bytes)),
        ]);
    }
    report::say(table);
    Ok(())
}

fn set(which: &WhichArgs, defaults: &DefaultsArgs) -> Result<()> {
    if defaults.says_nothing() {
        return Err(usage("say what to change: --file-class, --dir-class or --chunk-size"));
    }
    let pool = connect::pool(&which.pool)?;
    let inheritance = defaults.apply(open(&pool, &which.name)?.inheritance)?;
    let request = ContainerChange { name: &which.name, inheritance };
    pool.call(LIST_TARGET, request)
        .with_context(|| format!("cannot change container '{}'", which.name))?;
    report::say(format_args!(
        "container '{}': new files {} in chunks of {}, new directories {}",
        which.name,
        inheritance.file_class,
        format_bytes(u64::from(inheritance.chunk_bytes)),
        inheritance.dir_class
    ));
    Ok(())
}

fn destroy(which: &WhichArgs, yes: bool) -> Result<()> {
    let pool = connect::pool(&which.pool)?;
    open(&pool, &which.name)?;
    let (name, of) = (&which.name, &pool.map().name);
    down::refuse_in_use(of, Some(name))
        .with_context(|| format!("container '{name}' cannot be destroyed"))?;
    let what = format!("destroy container '{name}' of pool '{of}' with all that is in it");
    report::confirm(&what, yes)?;
    pool.call(LIST_TARGET, ContainerDestroy { name: &which.name })
        .with_context(|| format!("cannot destroy container '{}'", which.name))?;
    report::say(format_args!("container '{}' destroyed", which.name));
    Ok(())
}
