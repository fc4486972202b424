//! `azekura mount --with-engine`: the process of an engine of the pool on this host is asked to serve the mount
//! itself. Owns whom to ask, and that a pool that is down is started first; how a process mounts stands in
//! `own_mount`.

use anyhow::{Result, bail};

use super::mount::{self, MountArgs};
use super::up;
use crate::host::engines;
use crate::host::records::PoolLock;
use crate::names::check_name;
use crate::{connect, report};

/// Runs the command.
///
/// # Errors
/// If no engine of the pool is this user's and on this host, or it cannot mount.
pub(crate) fn run(args: &MountArgs) -> Result<()> {
    let name = args.name();
    let (words, dir) = mount::words_for_server(args)?;
    let pool = connect::pool_file(&name.pool)?.map.pool;
    // Not while another command stops the pool.
    let ask = || {
        let _lock = check_name(&name.pool).ok().map(|name| PoolLock::take(&name)).transpose()?;
        engines::ask_to_mount(pool, words.clone())
    };
    let pid = match ask()? {
        None if up::start_again(&name.pool, pool)? => ask()?,
        answer => answer,
    };
    let Some(pid) = pid else {
        bail!(
            "no engine of pool '{0}' that you have started answers on this host: leave out --with-engine, or \
             see with 'azekura logs {0}' whether it could make its socket in $XDG_RUNTIME_DIR",
            name.pool
        )
    };
    report::say(format_args!("{name} mounted at {} by its engine (process {pid})", dir.display()));
    Ok(())
}
