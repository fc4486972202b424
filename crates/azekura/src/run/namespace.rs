//! A mount namespace of this process's own, within a user namespace where the user needs one. Owns
//! the diagnosis of machines that do not allow it. The user stays who he is.

use std::path::Path;

use anyhow::{Context as _, Error, Result, anyhow};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};

const CLONE_SWITCH: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR_SWITCH: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
const COUNT_LIMIT: &str = "/proc/sys/user/max_user_namespaces";

/// Whom the kernel knows within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Everybody, as outside.
    Everybody,
    /// Only the user of this process.
    OneUser,
}

/// Gives this process, which must have one thread only, mounts of its own. Nothing that is mounted
/// from then on is seen outside.
///
/// # Errors
/// If the machine does not allow it; the message says why and what to do.
pub(super) fn enter() -> Result<Users> {
    let users = match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => Users::Everybody,
        // Everybody but a real root.
        Err(Errno::EPERM) => {
            enter_user_namespace()?;
            Users::OneUser
        }
        Err(error) => return Err(error).context("cannot make a mount namespace"),
    };
    // What is mounted and unmounted outside is still seen inside, but nothing gets out.
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|error| {
        refused_by_apparmor().unwrap_or_else(|| anyhow!("cannot make the mounts private: {error}"))
    })?;
    Ok(users)
}

fn enter_user_namespace() -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(diagnose)?;
    let write = |file: &str, text: String| {
        std::fs::write(file, text).map_err(|error| {
            refused_by_apparmor().unwrap_or_else(|| {
                Error::new(error).context(format!("cannot write {file} of a user namespace"))
            })
        })
    };
    // An ordinary user may map the own group only if groups cannot be dropped in there.
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn reads(file: impl AsRef<Path>, value: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == value)
}

fn refused_by_apparmor() -> Option<Error> {
    reads(APPARMOR_SWITCH, "1").then(|| {
        anyhow!(
            "this machine's AppArmor keeps ordinary users from mounting in user namespaces; as \
             root, run 'sysctl -w kernel.apparmor_restrict_unprivileged_userns=0', or use \
             --via preload or 'azekura mount'"
        )
    })
}

fn diagnose(error: Errno) -> Error {
    let instead = "or use --via preload or 'azekura mount'";
    match error {
        Errno::ENOSPC if reads(COUNT_LIMIT, "0") => anyhow!(
            "this machine allows no user namespaces (user.max_user_namespaces is 0); as root, run \
             'sysctl -w user.max_user_namespaces=10000', {instead}"
        ),
        Errno::ENOSPC => anyhow!(
            "there are too many user namespaces, or too many within each other; as root, raise \
             user.max_user_namespaces, {instead}"
        ),
        Errno::EPERM if reads(CLONE_SWITCH, "0") => anyhow!(
            "this machine allows no user namespaces for ordinary users \
             (kernel.unprivileged_userns_clone is 0); as root, run \
             'sysctl -w kernel.unprivileged_userns_clone=1', {instead}"
        ),
        Errno::EPERM => refused_by_apparmor().unwrap_or_else(|| {
            anyhow!(
                "user namespaces are not allowed here: a container needs a seccomp profile that \
                 allows them, such as '--security-opt seccomp=unconfined', and a changed root \
                 directory does not have them; {instead}"
            )
        }),
        Errno::EINVAL | Errno::ENOSYS => {
            anyhow!("this kernel has no user namespaces; run it as root, {instead}")
        }
        error => anyhow!("cannot make a user namespace: {error}"),
    }
}
