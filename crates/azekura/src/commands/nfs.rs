//! `azekura nfs`: a gateway through which NFS clients reach a container. Owns its command line, its
//! sockets' addresses and its life as a process; what it answers is the business of the gateway.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_nfs::exports::Exports;
use azekura_nfs::metrics_server::MetricsServer;
use azekura_nfs::{Gateway, GatewayConfig, PortMapper, PortMapping, Server, ServerConfig};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::host::daemon::{self, Starting};
use crate::host::gateways::{self, Announced, Identity, Said};
use crate::host::places;
use crate::names::ContainerName;
use crate::report::{self, parse_size_u32};
use crate::{connect, watch};

/// Connecting to engines that are just starting may take a while.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// So long calls that are being worked may take when the gateway is told to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// What keys of file handles are derived for.
const HANDLES: &str = "nfs file handles";

/// Whether small writes are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Coalesce {
    /// Gather them into whole chunks
    On,
    /// Send each to the engines, and answer in two small messages, as servers of old did
    Off,
}

/// `azekura nfs`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura nfs default                                     for programs of this host\n  \
    azekura nfs big/scratch --listen 0.0.0.0:2049 --exports exports.toml --background\n  \
    mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock HOST:/ /mnt     (on a client, as root)\n  \
    azekura nfs default --with-engine                       in the engine's own process, without messages\n\n\
    A gateway is one more client of the pool: start as many as wanted, on any hosts; clients may move\n\
    from one to another. SIGHUP reads the exports again, SIGTERM lets calls under way finish and ends it.")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line are independent of each other.
pub(crate) struct NfsArgs {
    /// Container: POOL or POOL/CONTAINER
    #[arg(value_name = "POOL[/CONTAINER]")]
    name: ContainerName,
    /// Address to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:2049")]
    listen: SocketAddr,
    /// Port for MOUNT [default: the same]
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,
    /// What is exported to whom [default: all to this host]; docs/NFS.md shows such a file
    #[arg(long, value_name = "FILE")]
    exports: Option<PathBuf>,
    /// Let clients ask the port mapper for the ports, as lock managers of kernels do: be one if port 111
    /// is free (root), else use that of this host
    #[arg(long)]
    portmap: bool,
    /// Serve metrics (Prometheus text over HTTP) at this address
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Go to the background once it serves
    #[arg(long)]
    background: bool,
    /// Longest read and write that clients are told of [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    block: Option<u32>,
    /// Whether small writes are gathered into whole chunks
    #[arg(long, value_enum, default_value = "on")]
    coalesce: Coalesce,
    /// Have the process of the pool's engine on this host serve, by calls and without messages; this command
    /// stays, and the gateway ends with it or with the engine. A pool of this user that is down is started
    #[arg(long)]
    with_engine: bool,
    /// Was started by a command that waits to hear that the gateway serves
    #[arg(long, hide = true)]
    in_background: bool,
    /// The process that is told of as the gateway's, where another one serves
    #[arg(long, hide = true)]
    on_behalf_of: Option<u32>,
}

impl NfsArgs {
    /// The words for a process that serves instead of this one, which is told of as the gateway's.
    ///
    /// # Errors
    /// If a path among them cannot be made absolute.
    pub(crate) fn words_for_server(&self) -> Result<Vec<OsString>> {
        let mut all = vec!["nfs".into(), "--on-behalf-of".into()];
        all.push(std::process::id().to_string().into());
        all.extend(self.words()?);
        Ok(all)
    }

    /// Whether this process stays as long as the gateway.
    pub(crate) fn stays(&self) -> bool {
        !self.background
    }

    /// Whether the process of the pool's engine is to serve.
    pub(crate) fn is_with_engine(&self) -> bool {
        self.with_engine
    }

    /// Whether another command waits to hear that this one serves.
    pub(crate) fn is_in_background(&self) -> bool {
        self.in_background
    }

    /// The container.
    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// The options again, and the container, for another process.
    fn words(&self) -> Result<Vec<OsString>> {
        let mut all: Vec<OsString> = vec!["--listen".into(), self.listen.to_string().into()];
        if let Some(port) = self.mount_port {
            all.extend(["--mount-port".into(), port.to_string().into()]);
        }
        if let Some(exports) = &self.exports {
            all.extend(["--exports".into(), places::absolute(exports)?.into()]);
        }
        if self.portmap {
            all.push("--portmap".into());
        }
        if let Some(metrics) = &self.metrics {
            all.extend(["--metrics".into(), metrics.into()]);
        }
        if let Some(block) = self.block {
            all.extend(["--block".into(), block.to_string().into()]);
        }
        if self.coalesce == Coalesce::Off {
            all.extend(["--coalesce".into(), "off".into()]);
        }
        let name = connect::named_from_elsewhere(&self.name)?;
        all.extend(["--".into(), name.to_string().into()]);
        Ok(all)
    }
}

/// Runs the command.
///
/// # Errors
/// If the exports cannot be used, the address is taken, or the pool does not answer.
pub(crate) fn run(args: &NfsArgs) -> Result<()> {
    if args.stays() { stay(args, Starting::begin(args.in_background)?) } else { launch(args) }
}

/// Starts a process in the background that stays instead of this one.
///
/// # Errors
/// What it says went wrong.
pub(crate) fn launch(args: &NfsArgs) -> Result<()> {
    let log = places::gateway_log(&args.name.pool.replace('/', "_"), &args.listen.to_string())?;
    let what = format!("serving {} by NFS", args.name);
    let mut words: Vec<OsString> = vec!["nfs".into(), "--in-background".into()];
    if args.with_engine {
        words.push("--with-engine".into());
    }
    words.extend(args.words()?);
    let (pid, line) = daemon::launch_and_hear(&words, &log, READY_TIMEOUT, &what)?;
    report::say(format_args!("{line}"));
    report::note(format_args!("azekura: process {pid} serves; 'kill {pid}' ends it"));
    Ok(())
}

/// A gateway that this process serves, and what has to be known of it.
pub(crate) struct Serving {
    gateway: Arc<Gateway>,
    server: Server,
    pool: Arc<Pool>,
    ready: String,
    announced: Option<Announced>,
    mapping: Option<PortMapping>,
    metrics: Option<MetricsServer>,
}

/// Serves what the arguments say, of the pool that `connect` reaches once the addresses are found free.
///
/// # Errors
/// As of [`run`].
pub(crate) fn start(
    args: &NfsArgs,
    connect: impl FnOnce() -> Result<(PoolFile, Arc<Pool>)>,
) -> Result<Serving> {
    let listener = listen(args.listen)?;
    let address = listener.local_addr().context("cannot tell the address")?;
    let mut listeners = vec![listener];
    let mut mount_port = address.port();
    if let Some(port) = args.mount_port.filter(|port| *port != address.port()) {
        let listener = listen(SocketAddr::new(address.ip(), port))?;
        mount_port = listener.local_addr().context("cannot tell the address")?.port();
        listeners.push(listener);
    }
    let mapper = if args.portmap {
        let (mapper, listener) = PortMapper::open(address.ip())?;
        listeners.extend(listener);
        Some(mapper)
    } else {
        None
    };
    let mut metrics = args.metrics.as_deref().map(MetricsServer::listen).transpose()?;
    let (file, pool) = connect()?;
    let config =
        FsConfig { cache: CachePolicy::AUTO, check_permissions: true, ..FsConfig::default() };
    let fs = FileSystem::mount(Arc::clone(&pool), args.name.container(), config)?;
    let exports = exports(args, &fs)?;
    let first = exports.iter().next().map_or("", |export| export.path());
    let ready =
        format!("ready: nfs://{address}/{}?mountport={mount_port}", first.trim_start_matches('/'));
    let as_of_old = args.coalesce == Coalesce::Off;
    let gateway = Gateway::new(
        fs,
        exports,
        &file.secret()?.derive(HANDLES),
        GatewayConfig {
            block_bytes: args.block,
            coalesces: !as_of_old,
            ..GatewayConfig::default()
        },
    )
    .context("cannot draw a verifier")?;
    let config = ServerConfig { no_delay: !as_of_old, splits_answers: as_of_old };
    let server = Server::start(Arc::clone(&gateway), listeners, config)
        .context("cannot start the threads of the gateway")?;
    if let Some(metrics) = &mut metrics {
        metrics.start(&gateway)?;
    }
    let mapping =
        mapper.map(|mapper| mapper.start(&gateway, address.port(), mount_port)).transpose()?;
    let identity = Identity {
        pool: file.map.pool.to_string(),
        container: args.name.container().to_owned(),
        address: address.to_string(),
        mount_port,
        pid: args.on_behalf_of.unwrap_or_else(std::process::id),
        by_engine: args.on_behalf_of.is_some(),
    };
    let announced = announce(identity, &gateway, &server);
    Ok(Serving { gateway, server, pool, ready, announced, mapping, metrics })
}

/// Lets `azekura status` find the gateway; it serves also if that cannot be.
fn announce(identity: Identity, gateway: &Arc<Gateway>, server: &Server) -> Option<Announced> {
    let (gateway, clients) = (Arc::clone(gateway), server.clients());
    let ask = move || Said {
        exports: gateway.exports().iter().map(|export| export.path().to_owned()).collect(),
        clients: clients().iter().map(SocketAddr::ip).collect(),
        counted: gateway.metrics().snapshot(),
    };
    gateways::announce(identity, ask)
        .inspect_err(|error| tracing::warn!("'azekura status' will not show it: {error:#}"))
        .ok()
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| {
        format!("cannot listen at {address}: choose another address with '--listen', or port 0")
    })
}

fn exports(args: &NfsArgs, fs: &FileSystem) -> Result<Exports> {
    let container = fs.container().id;
    match &args.exports {
        Some(path) => Ok(Exports::load(path, container)?),
        None => Ok(Exports::whole_container_to_loopback(container)),
    }
}

fn connect_by_name(name: &str) -> Result<(PoolFile, Arc<Pool>)> {
    let file = connect::pool_file(name)?;
    watch::begin(&file);
    let pool = Pool::connect(&file, ClientConfig::default())?;
    Ok((file, pool))
}

/// Serves until a signal ends it.
fn stay(args: &NfsArgs, starting: Starting) -> Result<()> {
    let mut signals = signals()?;
    allow_many_connections();
    let serving = match start(args, || connect_by_name(&args.name.pool)) {
        Ok(serving) => serving,
        Err(error) => return Err(starting.failed(error)),
    };
    tracing::info!(container = %args.name, "{}", serving.ready);
    say_ready(args, starting, &serving.ready)?;
    for signal in &mut signals {
        if signal == SIGHUP {
            serving.reload(args);
            continue;
        }
        break;
    }
    serving.end();
    Ok(())
}

/// What a gateway's process waits for: `SIGHUP` to read the exports again, all others to end.
///
/// # Errors
/// If there are no descriptors for that.
pub(crate) fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")
}

/// Tells whoever waits for it that the gateway serves, and where.
///
/// # Errors
/// If there is nothing to put in the place of standard output.
pub(crate) fn say_ready(args: &NfsArgs, starting: Starting, ready: &str) -> Result<()> {
    if args.in_background {
        return starting.ready_as(ready);
    }
    report::say(format_args!("{ready}"));
    starting.ready()
}

impl Serving {
    /// Where it serves, as a client would write it.
    pub(crate) fn ready(&self) -> &str {
        &self.ready
    }

    /// Takes the exports anew; if they cannot be used the old ones stay.
    pub(crate) fn reload(&self, args: &NfsArgs) {
        match exports(args, self.gateway.file_system()) {
            Ok(exports) => {
                self.gateway.set_exports(exports);
                tracing::info!("the exports are read again");
            }
            Err(error) => tracing::error!("the exports stay as they were: {error:#}"),
        }
    }

    /// Lets calls under way finish, and ends it.
    pub(crate) fn end(self) {
        tracing::info!("the gateway ends");
        // Nobody is sent here any more.
        drop((self.mapping, self.announced));
        self.server.stop(DRAIN_TIMEOUT);
        drop(self.metrics);
        self.pool.leave();
    }
}

/// Every connection takes a descriptor, and the usual limit is low.
fn allow_many_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of descriptors stays: {errno}");
    }
}
