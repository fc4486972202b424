//! Where the agents are reached: by the front, and by each other, which get the addresses from the front. So
//! an address that means this host only, as its own name often does, will not do where there are others.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, Result};
use azekura_proto::staging::NodeId;
use azekura_stage::front::AgentAt;

use super::hosts;

/// The addresses of agents on these hosts at these ports.
///
/// # Errors
/// If a host's name leads to no address.
pub(super) fn of(agents: Vec<(NodeId, String, u16)>) -> Result<Vec<AgentAt>> {
    let mut found = Vec::with_capacity(agents.len());
    for (node, host, port) in agents {
        let address = resolve(&host, port)?;
        found.push(AgentAt { node, host, address });
    }
    reach_from_outside(&mut found);
    Ok(found)
}

/// Gives those on this host an address that others know, if there are others.
fn reach_from_outside(agents: &mut [AgentAt]) {
    let addresses = || agents.iter().map(|agent| agent.address);
    let other = addresses().find(|address| !address.ip().is_loopback());
    if let Some(outward) = other.and_then(own_address_towards) {
        for agent in agents.iter_mut().filter(|agent| agent.address.ip().is_loopback()) {
            agent.address.set_ip(outward);
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let name = hosts::bare(host);
    let found: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .with_context(|| format!("host '{host}': '{name}' leads to no address"))?
        .collect();
    // Agents listen at both kinds; the older one is the one that every cluster has.
    let older = found.iter().find(|address| address.is_ipv4());
    older.or(found.first()).copied().with_context(|| format!("host '{host}' has no address"))
}

/// The address by which this host would reach another: nothing is sent.
fn own_address_towards(other: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(hosts: &[&str]) -> Result<Vec<SocketAddr>> {
        let agents = hosts.iter().enumerate();
        let agents = agents.map(|(index, host)| (NodeId(index as u16), (*host).to_owned(), 7));
        Ok(of(agents.collect())?.iter().map(|agent| agent.address).collect())
    }

    #[test]
    fn this_host_alone_is_reached_inside() {
        let found = addresses(&["localhost"]).unwrap();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 7))]);
        assert!(addresses(&["no.such.host.invalid"]).is_err());
    }

    #[test]
    fn this_host_among_others_is_reached_from_outside() {
        let found = addresses(&["localhost", "me@192.0.2.1"]).unwrap();
        assert_eq!(found[1], SocketAddr::from(([192, 0, 2, 1], 7)));
        // Where there is a way out at all.
        if own_address_towards(found[1]).is_some() {
            assert!(!found[0].ip().is_loopback(), "{found:?}");
        }
        assert_eq!(found[0].port(), 7);
    }
}
