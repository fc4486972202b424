//! Which program listens where. Owns nothing but the list, which stands still while a gateway serves.

use crate::procedures::Program;

/// Where port mappers listen.
pub(crate) const PORT: u16 = 111;

/// The transports of RFC 1833, by their protocol numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Protocol {
    Tcp = 6,
    Udp = 17,
}

/// A program at a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) program: &'static Program,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// All programs of a gateway at their ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mappings(pub(crate) Vec<Mapping>);

impl Mappings {
    /// The port of a program, 0 if it is not there. Of which version is no matter: who asks for one that
    /// there is not learns from the program itself which one there is.
    pub(crate) fn port_of(&self, program: u32, protocol: u32) -> u16 {
        let is_meant = |mapping: &&Mapping| {
            mapping.program.number == program && mapping.protocol as u32 == protocol
        };
        self.0.iter().find(is_meant).map_or(0, |mapping| mapping.port)
    }
}
