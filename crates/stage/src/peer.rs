//! Whether a process at the other end of a local socket may speak for this job: only its own user's may.

use std::os::fd::AsFd;

use crate::sys;

/// Whether the other end is a process of this user, whatever process ids it stands in.
pub fn is_own_user(socket: impl AsFd) -> bool {
    sys::peer::user(socket).is_ok_and(|user| user == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_of_this_user_is_known() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(is_own_user(&ours) && is_own_user(&theirs));
        assert!(!is_own_user(std::fs::File::open("/dev/null").unwrap()));
    }

    #[test]
    fn a_process_outside_of_the_callers_process_ids_is_known() {
        // The test calls itself among process ids of its own, and there is called by the first test.
        const NAME: &str = "AZEKURA_TEST_PEER";
        if let Ok(name) = std::env::var(NAME) {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let mut stream = UnixStream::connect_addr(&address).unwrap();
            let answer: &[u8] = if is_own_user(&stream) { b"y" } else { b"n" };
            return stream.write_all(answer).unwrap();
        }
        let name = format!("azekura-test-peer-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let this = std::thread::current().name().unwrap().to_owned();
        let child = Command::new("unshare")
            .args(["--user", "--map-current-user", "--pid", "--fork", "--kill-child"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &this])
            .env(NAME, &name)
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { return eprintln!("skipped: there is no unshare") };
        listener.set_nonblocking(true).unwrap();
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if child.try_wait().unwrap().is_some() => {
                    return eprintln!("skipped: unshare is not allowed");
                }
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        stream.set_nonblocking(false).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "y");
        assert!(child.wait().unwrap().success());
    }
}
