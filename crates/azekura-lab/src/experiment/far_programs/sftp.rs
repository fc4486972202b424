//! A server of files by sftp on a far host, with keys that are thrown away. Owns its process and
//! its configuration; what the system's own sshd does is left alone.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::load::{ScratchDir, last_line};
use azekura_netlab::Lab;

use super::door::SftpPlace;
use super::installed::{PATH, found};
use super::run::to_end;

const PORT: u16 = 2222;
const START_LIMIT: Duration = Duration::from_secs(20);
/// The directory that sshd wants to be there, in memory that this host alone sees, where the
/// machine has none.
const SCRIPT: &str = "test -d /run/sshd || { mount -t tmpfs sshd /run && mkdir -m 755 /run/sshd; }
exec \"$0\" -D -e -f \"$1\"";

/// An sshd that runs.
pub(super) struct SftpServer {
    process: Child,
    place: SftpPlace,
}

impl SftpServer {
    /// Starts it on a host, for a directory. Keys and configuration lie in `scratch`.
    ///
    /// # Errors
    /// If it does not start: what it said last.
    pub(super) fn start(lab: &Lab, host: &str, scratch: &ScratchDir, dir: &Path) -> Result<Self> {
        for key in ["host-key", "user-key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &scratch.path(key)]);
            to_end(keygen.env("PATH", PATH))?;
        }
        let address = lab.address(host)?;
        let config = scratch.path("sshd_config");
        let text = configuration(&address.to_string(), scratch);
        std::fs::write(&config, text).with_context(|| format!("cannot write {config}"))?;
        let log = scratch.path("sshd.log");
        let said = std::fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let sshd = found("sshd").context("there is no sshd (Debian: openssh-server)")?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).arg(sshd).arg(&config).env("PATH", PATH);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let place = SftpPlace {
            address: address.to_string(),
            port: PORT,
            key: scratch.path("user-key"),
            dir: dir.to_string_lossy().into_owned(),
        };
        let mut server = Self { process: lab.spawn(host, &mut command)?, place };
        let deadline = Instant::now() + START_LIMIT;
        while lab.within(host, || TcpStream::connect((address, PORT)))?.is_err() {
            let has_ended = !matches!(server.process.try_wait(), Ok(None));
            if has_ended || Instant::now() > deadline {
                bail!("sshd does not start: {}", last_line(Path::new(&log)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// How clients reach it.
    pub(super) fn place(&self) -> &SftpPlace {
        &self.place
    }
}

impl Drop for SftpServer {
    fn drop(&mut self) {
        // Nothing can be done about one that is gone already; sessions end with their clients.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(address: &str, scratch: &ScratchDir) -> String {
    format!(
        "ListenAddress {address}:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\n\
         Subsystem sftp internal-sftp\n",
        scratch.path("host-key"),
        scratch.path("user-key.pub"),
    )
}
