//! Who is at the other end of a connection within this host, by the kernel's word. A client over NFS can
//! say that it is anybody; of a socket on the same host the kernel knows which user has made it
//! (`/proc/net/tcp`, see proc(5)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;

/// The user at the other end, looked up when it first counts.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The client's end of the connection, and this one.
    ends: Option<(SocketAddr, SocketAddr)>,
    uid: OnceLock<Option<u32>>,
}

impl Owner {
    /// Of a connection that a client has made from `client` to `here`.
    pub(crate) fn of(client: SocketAddr, here: SocketAddr) -> Self {
        Self { ends: Some((canonical(client), canonical(here))), uid: OnceLock::new() }
    }

    /// Of something that is no connection.
    pub(crate) fn unknown() -> Self {
        Self { ends: None, uid: OnceLock::from(None) }
    }

    /// The address of this host that the client has connected to.
    pub(crate) fn here(&self) -> Option<IpAddr> {
        self.ends.map(|(_, here)| here.ip())
    }

    /// The user; `None` if the client is on another host, or has closed its end already.
    pub(crate) fn uid(&self) -> Option<u32> {
        *self.uid.get_or_init(|| {
            let (client, here) = self.ends?;
            ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
                let table = std::fs::read_to_string(table).ok()?;
                table.lines().skip(1).find_map(|line| uid_in(line, client, here))
            })
        })
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The user of a socket, if the line is about the one with these two ends, seen from the client's.
fn uid_in(line: &str, client: SocketAddr, here: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if address(fields.next()?)? != client || address(fields.next()?)? != here {
        return None;
    }
    // State, queues, timer and retransmissions come before.
    let uid = fields.nth(4)?.parse().ok()?;
    // A socket that its process has closed belongs to nobody: it has no inode, and the kernel shows root as
    // its user. Whoever writes and closes at once would be root.
    let inode = fields.nth(1)?;
    (inode != "0").then_some(uid)
}

/// An address as the kernel writes it: words of four bytes, each in the byte order of this machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * index)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_of_a_local_connection_is_known() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let here = listener.local_addr().unwrap();
            let client = TcpStream::connect(here).unwrap();
            let owner = Owner::of(client.local_addr().unwrap(), here);
            assert_eq!(owner.uid(), Some(rustix::process::geteuid().as_raw()), "{any}");
            let other = SocketAddr::new(here.ip(), here.port() ^ 1);
            assert_eq!(Owner::of(client.local_addr().unwrap(), other).uid(), None);
        }
        assert_eq!(Owner::unknown().uid(), None);
    }

    #[test]
    fn nobody_is_believed_who_has_closed_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let client = TcpStream::connect(here).unwrap();
        let owner = Owner::of(client.local_addr().unwrap(), here);
        let (_accepted, _) = listener.accept().unwrap();
        drop(client);
        assert_eq!(owner.uid(), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   1: 0100007F:8D2C 0100007F:0801 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1";
        let client = "127.0.0.1:36140".parse().unwrap();
        let here = "127.0.0.1:2049".parse().unwrap();
        assert_eq!(uid_in(line, client, here), Some(1000));
        assert_eq!(uid_in(line, here, client), None);
        let closed = "   1: 0100007F:8D2C 0100007F:0801 06 00000000:00000000 03:00000F5B 00000000     0        0 0 3";
        assert_eq!(uid_in(closed, client, here), None, "nobody holds it");
        let mapped = "0000000000000000FFFF00000100007F:0801";
        assert_eq!(address(mapped), Some(here));
        assert_eq!(address("01:02"), None);
    }
}
