//! `azekura nfs`: a gateway through which NFS clients reach a container. Owns its command line, its
//! sockets' addresses and its life as a process; what it answers is the business of the gateway.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_client::{ClientConfig, Pool};
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
    mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock HOST:/ /mnt     (on a client, as root)\n\n\
    A gateway is one more client of the pool: start as many as wanted, on any hosts; clients may move\n\
    from one to another. SIGHUP reads the exports again, SIGTERM lets calls under way finish and ends it.")]
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
    /// Was started by a command that waits to hear that the gateway serves
    #[arg(long, hide = true)]
    in_background: bool,
}

impl NfsArgs {
    /// Whether this process itself serves.
    pub(crate) fn stays(&self) -> bool {
        !self.background
    }
}

/// Runs the command.
///
/// # Errors
/// If the exports cannot be used, the address is taken, or the pool does not answer.
pub(crate) fn run(args: &NfsArgs) -> Result<()> {
    if !args.background {
        return stay(args, Starting::begin(args.in_background)?);
    }
    let log = places::gateway_log(&args.name.pool.replace('/', "_"), &args.listen.to_string())?;
    let what = format!("serving {} by NFS", args.name);
    let (pid, line) =
        daemon::launch_and_hear(&background_arguments(args)?, &log, READY_TIMEOUT, &what)?;
    report::say(format_args!("{line}"));
    report::note(format_args!("azekura: process {pid} serves; 'kill {pid}' ends it"));
    Ok(())
}

fn background_arguments(args: &NfsArgs) -> Result<Vec<OsString>> {
    let mut all: Vec<OsString> = vec!["nfs".into(), "--in-background".into()];
    all.extend(["--listen".into(), args.listen.to_string().into()]);
    if let Some(port) = args.mount_port {
        all.extend(["--mount-port".into(), port.to_string().into()]);
    }
    if let Some(exports) = &args.exports {
        all.extend(["--exports".into(), places::absolute(exports)?.into()]);
    }
    if args.portmap {
        all.push("--portmap".into());
    }
    if let Some(metrics) = &args.metrics {
        all.extend(["--metrics".into(), metrics.into()]);
    }
    if let Some(block) = args.block {
        all.extend(["--block".into(), block.to_string().into()]);
    }
    if args.coalesce == Coalesce::Off {
        all.extend(["--coalesce".into(), "off".into()]);
    }
    let mut name = args.name.clone();
    if Path::new(&name.pool).exists() && name.pool.contains('/') {
        // A pool file; the process leaves this directory.
        name.pool = places::absolute(Path::new(&name.pool))?.to_string_lossy().into_owned();
    }
    all.extend(["--".into(), name.to_string().into()]);
    Ok(all)
}

/// A gateway that serves, and what has to be known of it.
struct Serving {
    gateway: Arc<Gateway>,
    server: Server,
    pool: Arc<Pool>,
    ready: String,
    announced: Option<Announced>,
    mapping: Option<PortMapping>,
    metrics: Option<MetricsServer>,
}

fn start(args: &NfsArgs) -> Result<Serving> {
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
    let file = connect::pool_file(&args.name.pool)?;
    watch::begin(&file);
    let pool = Pool::connect(&file, ClientConfig::default())?;
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
        pid: std::process::id(),
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

/// Serves until a signal ends it.
fn stay(args: &NfsArgs, starting: Starting) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot wait for signals")?;
    allow_many_connections();
    let serving = match start(args) {
        Ok(serving) => serving,
        Err(error) => return Err(starting.failed(error)),
    };
    tracing::info!(container = %args.name, "{}", serving.ready);
    if args.in_background {
        starting.ready_as(&serving.ready)?;
    } else {
        report::say(format_args!("{}", serving.ready));
        starting.ready()?;
    }
    for signal in &mut signals {
        if signal == SIGHUP {
            reload(args, &serving.gateway);
            continue;
        }
        break;
    }
    tracing::info!("the gateway ends");
    // Nobody is sent here any more.
    drop((serving.mapping, serving.announced));
    serving.server.stop(DRAIN_TIMEOUT);
    drop(serving.metrics);
    serving.pool.leave();
    Ok(())
}

/// Takes the exports anew; if they cannot be used the old ones stay.
fn reload(args: &NfsArgs, gateway: &Gateway) {
    match exports(args, gateway.file_system()) {
        Ok(exports) => {
            gateway.set_exports(exports);
            tracing::info!("the exports are read again");
        }
        Err(error) => tracing::error!("the exports stay as they were: {error:#}"),
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
