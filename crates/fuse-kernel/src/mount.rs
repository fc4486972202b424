//! Mounts and unmounts, by system call for root and through `fusermount3` for everybody else.
//! Owns the diagnosis of everything that can be wrong with a machine or mountpoint; each error
//! says what to do.

use std::ffi::{CString, OsStr};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const HELPER_CONFIG: &str = "/etc/fuse.conf";

/// How to mount. Each switch is a mount option of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "mount options are independent switches")]
pub struct MountOptions {
    /// Name shown as the source in the mount table.
    pub fsname: String,
    /// Type shown after `fuse.` in the mount table.
    pub subtype: String,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode, owner and group.
    pub default_permissions: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Set-user and set-group bits of programs count. Root only.
    pub allow_suid: bool,
    /// Device nodes can be opened. Root only.
    pub allow_devices: bool,
    /// Largest read request, in bytes.
    pub max_read_bytes: u32,
}

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No such directory.
    #[error("cannot mount on {path}: there is no such directory; make it with `mkdir -p {path}`",
        path = .0.display())]
    NoMountpoint(PathBuf),
    /// Not a directory.
    #[error("cannot mount on {}: it is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// A mount whose server is gone.
    #[error(
        "cannot mount on {path}: an earlier mount is still there, but its server is gone; clean \
         it up with `azekura umount {path}` or `fusermount3 -uz {path}`",
        path = .0.display())]
    DeadMount(PathBuf),
    /// The directory cannot be looked at.
    #[error("cannot mount on {}: {}", .path.display(), .errno)]
    Mountpoint {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The kernel has no FUSE.
    #[error(
        "/dev/fuse is missing; load the kernel module with `modprobe fuse` as root (in a \
         container, start it with `--device /dev/fuse`)"
    )]
    NoDevice,
    /// The device cannot be opened.
    #[error(
        "/dev/fuse cannot be opened ({errno}; its mode is {mode:04o}); as root, run \
         `chmod 666 /dev/fuse` (in a container, start it with `--device /dev/fuse`)"
    )]
    DeviceDenied {
        /// Why.
        errno: Errno,
        /// Its permission bits.
        mode: u32,
    },
    /// No helper program.
    #[error(
        "an ordinary user needs the program fusermount3 to mount; install it with \
         `apt-get install fuse3`, or mount as root"
    )]
    NoHelper,
    /// The helper program could not be run.
    #[error("cannot run fusermount3: {0}")]
    HelperFailed(std::io::Error),
    /// Other users' access is not allowed.
    #[error(
        "allow_other is not enabled for ordinary users; as root, put the line \
         `user_allow_other` into /etc/fuse.conf, or mount without it, or mount as root"
    )]
    AllowOtherDenied,
    /// The helper program refused.
    #[error("fusermount3 refused {path}: {reason}", path = .path.display())]
    HelperRefused {
        /// The directory.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The system call failed.
    #[error("mounting on {} failed: {errno}{hint}", .path.display(), hint = mount_hint(*.errno))]
    Mount {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The unmount failed.
    #[error("cannot unmount {}: {errno}{hint}", .path.display(), hint = unmount_hint(*.errno))]
    Unmount {
        /// The directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// A name has a zero byte in it.
    #[error("the name {0:?} cannot be used in a mount")]
    BadName(String),
}

fn mount_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM => " (a container needs CAP_SYS_ADMIN to mount)",
        Errno::NODEV => " (the kernel has no FUSE; try `modprobe fuse` as root)",
        _ => "",
    }
}

fn unmount_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::BUSY => {
            " (a program has a file open or its working directory there; see `fuser -vm DIR`, \
             or unmount lazily)"
        }
        Errno::INVAL => " (nothing is mounted there)",
        _ => "",
    }
}

/// Mounts on the directory `path`. The mount answers nothing before the returned device is
/// served.
///
/// # Errors
/// See [`MountError`].
pub fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    check_mountpoint(path)?;
    check_names(options)?;
    if rustix::process::geteuid().is_root() {
        mount_by_call(path, options)
    } else {
        mount_by_helper(path, options)
    }
}

/// Mounts on the directory `path` by system call, whoever the user is: for a process that may do
/// so because it is in a user namespace of its own. The mount answers nothing before the returned
/// device is served, which any process can do that is given it.
///
/// # Errors
/// See [`MountError`].
pub fn attach(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    check_mountpoint(path)?;
    check_names(options)?;
    mount_by_call(path, options)
}

fn check_names(options: &MountOptions) -> Result<(), MountError> {
    if options.fsname.contains('\0') || options.subtype.contains(['\0', ',']) {
        return Err(MountError::BadName(options.fsname.clone()));
    }
    Ok(())
}

/// Fails if `path` cannot be mounted on.
fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    match rustix::fs::stat(path) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(()),
        Ok(_) => Err(MountError::NotDirectory(path.to_owned())),
        Err(Errno::NOENT) => Err(MountError::NoMountpoint(path.to_owned())),
        Err(Errno::NOTCONN) => Err(MountError::DeadMount(path.to_owned())),
        Err(errno) => Err(MountError::Mountpoint { path: path.to_owned(), errno }),
    }
}

fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
            errno => MountError::DeviceDenied { errno, mode: device_mode() },
        }
    })
}

fn device_mode() -> u32 {
    std::fs::metadata(DEVICE).map_or(0, |metadata| metadata.mode() & 0o7777)
}

fn mount_by_call(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.max_read_bytes,
    );
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    // Reading never changes a time of access: nothing else is to be promised in the mount table.
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::NOSUID, !options.allow_suid);
    flags.set(MountFlags::NODEV, !options.allow_devices);
    flags.set(MountFlags::RDONLY, options.read_only);
    let kind = format!("fuse.{}", options.subtype);
    let data = CString::new(data).map_err(|_| MountError::BadName(options.fsname.clone()))?;
    rustix::mount::mount(&options.fsname, path, kind, flags, data.as_c_str())
        .map_err(|errno| MountError::Mount { path: path.to_owned(), errno })?;
    Ok(device)
}

/// The options in the helper's words. It wants commas and backslashes quoted.
fn helper_options(options: &MountOptions) -> String {
    let fsname = options.fsname.replace('\\', "\\\\").replace(',', "\\,");
    let mut text = format!(
        "fsname={fsname},subtype={},max_read={},nosuid,nodev,noatime",
        options.subtype, options.max_read_bytes
    );
    for (wanted, name) in [
        (options.default_permissions, ",default_permissions"),
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
    ] {
        if wanted {
            text.push_str(name);
        }
    }
    text
}

fn mount_by_helper(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    if options.allow_other && !allow_other_enabled() {
        return Err(MountError::AllowOtherDenied);
    }
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| MountError::HelperFailed(errno.into()))?;
    // The helper gets its socket as descriptor 0, which needs no juggling with close-on-exec.
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(helper_error)?;
    let device = receive_descriptor(&ours);
    drop(ours);
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What it said serves an error message only, so a failure to read it changes nothing.
        let _ = stderr.take(4096).read_to_end(&mut said);
    }
    let status = child.wait().map_err(MountError::HelperFailed)?;
    match device {
        Ok(Some(device)) if status.success() => Ok(device),
        Ok(_) => Err(helper_refusal(path, &said)),
        Err(errno) => Err(MountError::HelperFailed(errno.into())),
    }
}

fn helper_error(error: std::io::Error) -> MountError {
    match error.kind() {
        std::io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::HelperFailed(error),
    }
}

fn helper_refusal(path: &Path, said: &[u8]) -> MountError {
    let said = String::from_utf8_lossy(said);
    if said.contains("user_allow_other") {
        return MountError::AllowOtherDenied;
    }
    if said.contains(DEVICE) && said.contains("ermission denied") {
        return MountError::DeviceDenied { errno: Errno::ACCESS, mode: device_mode() };
    }
    let reason = said.trim().trim_start_matches("fusermount3: ");
    let reason = if reason.is_empty() { "it gave no reason" } else { reason };
    MountError::HelperRefused { path: path.to_owned(), reason: reason.to_owned() }
}

/// Whether the machine lets ordinary users open their mounts to others. An unreadable file leaves
/// the decision to the helper.
fn allow_other_enabled() -> bool {
    match std::fs::read_to_string(HELPER_CONFIG) {
        Ok(text) => text.lines().any(|line| line.trim() == "user_allow_other"),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Receives the device from the helper; `None` if it hung up instead.
fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

/// Unmounts `path`. With `lazy` it disappears at once and ends when the last open file is closed.
///
/// # Errors
/// See [`MountError`].
pub fn unmount(path: &Path, lazy: bool) -> Result<(), MountError> {
    if rustix::process::geteuid().is_root() {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazy);
        return rustix::mount::unmount(path, flags)
            .map_err(|errno| MountError::Unmount { path: path.to_owned(), errno });
    }
    let output = Command::new(HELPER)
        .arg(OsStr::new(if lazy { "-uz" } else { "-u" }))
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(helper_error)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Err(MountError::Unmount { path: path.to_owned(), errno: Errno::BUSY });
    }
    if said.contains("not found in") {
        return Err(MountError::Unmount { path: path.to_owned(), errno: Errno::INVAL });
    }
    Err(helper_refusal(path, &output.stderr))
}

/// Lets the kernel read ahead up to `bytes` on the mount at `path`. Only root may, so that a
/// failure is no error: reading is a little slower.
pub fn raise_readahead(path: &Path, bytes: u32) {
    let Some(device) = mounted_device(path) else { return };
    let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&file, (bytes / 1024).to_string()) {
        tracing::debug!("cannot set the read-ahead in {file}: {error}");
    }
}

/// Device number of the topmost mount at `path`, as the mount table has it. The file system itself is not
/// asked, which may not be able to answer yet.
pub fn mounted_device(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let wanted = escaped(path.as_os_str().as_bytes());
    let line = table
        .split(|byte| *byte == b'\n')
        .rfind(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&wanted))?;
    let device = line.split(|byte| *byte == b' ').nth(2)?;
    Some(String::from_utf8_lossy(device).into_owned())
}

/// A path as the mount table writes it.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MountOptions {
        MountOptions {
            fsname: "a,b\\c".into(),
            subtype: "test".into(),
            allow_other: false,
            default_permissions: true,
            read_only: true,
            allow_suid: false,
            allow_devices: false,
            max_read_bytes: 4096,
        }
    }

    #[test]
    fn the_helper_gets_commas_quoted() {
        let text = helper_options(&options());
        assert!(text.starts_with("fsname=a\\,b\\\\c,subtype=test,"), "{text}");
        assert!(text.ends_with(",default_permissions,ro"), "{text}");
    }

    #[test]
    fn a_wrong_mountpoint_is_told_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(mount(&file, &options()), Err(MountError::NotDirectory(_))));
        let missing = directory.path().join("missing");
        let error = mount(&missing, &options()).unwrap_err();
        assert!(error.to_string().contains("mkdir -p"), "{error}");
    }

    #[test]
    fn paths_are_escaped_as_in_the_mount_table() {
        assert_eq!(escaped(b"/a b\\c"), b"/a\\040b\\134c");
    }
}
