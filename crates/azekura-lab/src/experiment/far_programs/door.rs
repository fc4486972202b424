//! The ways by which a program reaches what lies far away: four of Azekura's, and two others that
//! people use. Owns the commands that open and close each of them, where what opens a mount goes on
//! to serve it; knows no hosts.

use std::path::Path;

use super::installed::first_missing;
use crate::experiment::frame::{Cells, Parameter};

/// Which it is.
pub(super) const DOOR: Parameter = Parameter { name: "door", title: "door", cells: Cells::Plain };

/// A cache that holds what was read and written, as programs that seek and write need it.
const RCLONE_OPTIONS: [&str; 6] = [
    "--vfs-cache-mode=full",
    // Otherwise what was written waits for five seconds.
    "--vfs-write-back=0s",
    "--config=/dev/null",
    "--rc",
    "--rc-no-auth",
    RCLONE_TOLD_AT,
];
/// Where a mount of rclone tells what it has still to send: in the network of its host alone.
const RCLONE_TOLD_AT: &str = "--rc-addr=127.0.0.1:5572";
const SSH_OPTIONS: &str = "UserKnownHostsFile=/dev/null,StrictHostKeyChecking=no,BatchMode=yes";

/// A way to what lies far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// `azekura run --via preload`.
    Preload,
    /// `azekura run`, which chooses the way by itself.
    Run,
    /// `azekura mount`.
    Mount,
    /// The same, believing names that it has from listings for a moment.
    MountListed,
    /// sshfs.
    Sshfs,
    /// rclone mount, by sftp.
    Rclone,
}

/// A server of files by sftp, as its clients have to know it.
pub(super) struct SftpPlace {
    pub(super) address: String,
    pub(super) port: u16,
    /// File of the key that lets root in.
    pub(super) key: String,
    /// The directory that is served.
    pub(super) dir: String,
}

/// The words of a command, the first of which is the program.
pub(super) type Words = Vec<String>;

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(str::to_owned).into()
}

impl Door {
    pub(super) const ALL: [Self; 6] =
        [Self::Preload, Self::Run, Self::Mount, Self::MountListed, Self::Sshfs, Self::Rclone];

    /// In the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Run => "run",
            Self::Mount => "mount",
            Self::MountListed => "mount-listed",
            Self::Sshfs => "sshfs",
            Self::Rclone => "rclone",
        }
    }

    /// The door of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.name() == name)
    }

    /// Whether a pool is behind it, and not a server of sftp.
    pub(super) fn leads_to_pool(self) -> bool {
        match self {
            Self::Preload | Self::Run | Self::Mount | Self::MountListed => true,
            Self::Sshfs | Self::Rclone => false,
        }
    }

    /// A program that it takes and that is not there.
    pub(super) fn lacks(self) -> Option<&'static str> {
        first_missing(match self {
            Self::Preload | Self::Run | Self::Mount | Self::MountListed => &[],
            Self::Sshfs => &["sshfs", "sshd", "ssh-keygen"],
            Self::Rclone => &["rclone", "fusermount", "sshd", "ssh-keygen"],
        })
    }
}

/// `azekura mount` of a pool, with further options.
pub(super) fn mount(azekura: &str, options: &[&str], pool: &str, at: &str) -> Words {
    let mut all = words([azekura, "mount", "--foreground"]);
    all.extend(options.iter().map(|&option| option.to_owned()));
    all.extend(words([pool, at]));
    all
}

/// A command that finds a pool at a path by `azekura run`, by way of the library or by what that chooses.
pub(super) fn run(azekura: &str, door: Door, pool: &str, at: &str, command: &[&str]) -> Words {
    let via = if door == Door::Preload { "preload" } else { "auto" };
    let mut all = words([azekura, "run", "--via", via, "--pool", pool, "--prefix", at, "--"]);
    all.extend(command.iter().map(|&word| word.to_owned()));
    all
}

/// sshfs as it is by itself, but for the keys.
pub(super) fn sshfs(place: &SftpPlace, at: &str) -> Words {
    let SftpPlace { address, port, key, dir } = place;
    let options = format!("IdentityFile={key},{SSH_OPTIONS}");
    let remote = format!("root@{address}:{dir}");
    let port = port.to_string();
    words(["sshfs", "-f", "-F", "/dev/null", "-p", &port, "-o", &options, &remote, at])
}

/// rclone, with its cache in a directory of its own.
pub(super) fn rclone(place: &SftpPlace, cache: &Path, at: &str) -> Words {
    let SftpPlace { address, port, key, dir } = place;
    let mut all = words(["rclone", "mount", &format!(":sftp:{dir}"), at]);
    all.extend([
        format!("--sftp-host={address}"),
        format!("--sftp-port={port}"),
        format!("--sftp-key-file={key}"),
        "--sftp-user=root".to_owned(),
        format!("--cache-dir={}", cache.display()),
    ]);
    all.extend(words(RCLONE_OPTIONS));
    all
}

/// Asks a mount of rclone what it has still to send: [`has_sent_all`] reads the answer.
pub(super) fn ask_rclone() -> Words {
    words(["rclone", "rc", "--config=/dev/null", RCLONE_TOLD_AT, "vfs/stats"])
}

/// Whether a mount of rclone, by its answer, has sent all that was written.
pub(super) fn has_sent_all(answer: &[u8]) -> bool {
    let told: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = |name| told["diskCache"][name].as_u64();
    count("uploadsInProgress") == Some(0) && count("uploadsQueued") == Some(0)
}

/// Takes a mount away, when all that was written to it has arrived.
pub(super) fn take_away(door: Door, azekura: &str, at: &str) -> Words {
    match door {
        Door::Preload | Door::Run | Door::Mount | Door::MountListed => {
            words([azekura, "umount", at])
        }
        Door::Sshfs | Door::Rclone => words(["umount", at]),
    }
}

/// Takes a mount away at once, whatever is going on in it. Requests that it does not answer fail: a
/// program that waits for one cannot be ended otherwise.
pub(super) fn tear_away(at: &str) -> Words {
    words(["umount", "-f", "-l", at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_told_by_name() {
        for door in Door::ALL {
            assert_eq!(Door::named(door.name()), Some(door));
        }
        assert_eq!(Door::named("window"), None);
    }

    #[test]
    fn what_rclone_still_has_to_send_is_read_from_its_answer() {
        let answer = |running: u32, waiting: u32| {
            format!(
                "{{\"diskCache\": {{\"files\": 3, \"uploadsInProgress\": {running}, \
                 \"uploadsQueued\": {waiting}}}, \"inUse\": 1}}"
            )
        };
        assert!(has_sent_all(answer(0, 0).as_bytes()));
        assert!(!has_sent_all(answer(1, 0).as_bytes()) && !has_sent_all(answer(0, 2).as_bytes()));
        assert!(!has_sent_all(b"") && !has_sent_all(b"{\"error\": \"no such mount\"}"));
    }

    #[test]
    fn a_server_is_told_to_its_clients() {
        let place = SftpPlace {
            address: "10.77.0.2".to_owned(),
            port: 2222,
            key: "/keys/user".to_owned(),
            dir: "/far".to_owned(),
        };
        let sshfs = sshfs(&place, "/at").join(" ");
        assert!(sshfs.contains("IdentityFile=/keys/user") && sshfs.ends_with(":/far /at"));
        let rclone = rclone(&place, Path::new("/cache"), "/at").join(" ");
        assert!(rclone.contains("--sftp-port=2222") && rclone.contains(":sftp:/far /at"));
    }
}
