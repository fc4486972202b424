//! Tracing to standard error. Quiet for commands, informative for programs that run for long;
//! `RUST_LOG` overrides both.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging. `verbose` counts the `-v` on the command line.
pub fn start(verbose: u8, runs_long: bool) {
    let level = match (verbose, runs_long) {
        (0, false) => "error",
        (0, true) => "info",
        (1, _) => "debug",
        (_, _) => "trace",
    };
    // The key-value store tells its whole life story at these levels.
    let quiet = if verbose < 2 { ",fjall=warn,lsm_tree=warn" } else { "" };
    // What services are asked, and how, is told by azekura_services; theirs say it once more, request by request.
    let services = "opendal=error,opendal_core=error,reqwest=warn,hyper=warn,hyper_util=warn,rustls=error,mio=warn";
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("{level}{quiet},{services}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // It would complain on standard error, and panic when that is what has gone.
        .log_internal_errors(false)
        .init();
}
