//! Frames as a TUN device with offloads gives and takes them: a virtio-net header, then an IP packet
//! that may be up to 64 KB of TCP segments in one. Knows where the segments lie and cuts some of
//! them out, as a network card would. Decides nothing about them.

use crate::shape::Burst;

/// Length of the header before every packet.
pub(crate) const VNET_HEADER_BYTES: usize = 10;
/// The longest frame: header and the longest IP packet.
pub(crate) const FRAME_BYTES_MAX: usize = VNET_HEADER_BYTES + 65_536;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_ECN: u8 = 0x80;
const PROTOCOL_TCP: u8 = 6;
const FLAG_FIN: u8 = 0x01;
const FLAG_PUSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Lengths of the IP and TCP headers of a burst of TCP segments.
fn tcp_headers(frame: &[u8]) -> Option<(usize, usize)> {
    let packet = frame.get(VNET_HEADER_BYTES..)?;
    let ip_bytes = usize::from(packet.first()? & 0x0F) * 4;
    if packet[0] >> 4 != 4 || ip_bytes < 20 || *packet.get(9)? != PROTOCOL_TCP {
        return None;
    }
    let tcp_bytes = usize::from(packet.get(ip_bytes + 12)? >> 4) * 4;
    (tcp_bytes >= 20 && packet.len() > ip_bytes + tcp_bytes).then_some((ip_bytes, tcp_bytes))
}

/// The measures of a frame; none if it is too short to be one.
pub(crate) fn burst_of(frame: &[u8]) -> Option<Burst> {
    let packet_bytes = frame.len().checked_sub(VNET_HEADER_BYTES).filter(|bytes| *bytes > 0)?;
    let segment_bytes = u16::from_ne_bytes([frame[4], frame[5]]);
    if frame[1] & !GSO_ECN == GSO_TCPV4
        && segment_bytes > 0
        && let Some((ip_bytes, tcp_bytes)) = tcp_headers(frame)
    {
        let header_bytes = ip_bytes + tcp_bytes;
        let payload_bytes = (packet_bytes - header_bytes) as u32;
        return Some(Burst::segmented(header_bytes as u32, segment_bytes.into(), payload_bytes));
    }
    Some(Burst::single(packet_bytes as u32))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fn sum_of(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(word(pair, 0))).sum()
}

/// A frame with `segments` segments of the burst from `first` on.
pub(crate) fn cut(frame: &[u8], burst: &Burst, first: u32, segments: u32) -> Vec<u8> {
    let Some((ip_bytes, tcp_bytes)) = tcp_headers(frame).filter(|_| segments < burst.segments)
    else {
        return frame.to_vec();
    };
    let header_end = VNET_HEADER_BYTES + ip_bytes + tcp_bytes;
    let from = (first * burst.segment_bytes) as usize;
    let to = from + (segments * burst.segment_bytes) as usize;
    let is_last = to >= burst.payload_bytes as usize;
    let to = to.min(burst.payload_bytes as usize);

    let mut piece = Vec::with_capacity(header_end + to - from);
    piece.extend_from_slice(&frame[..header_end]);
    piece.extend_from_slice(&frame[header_end + from..header_end + to]);
    if segments == 1 {
        piece[1] = GSO_NONE;
        piece[4..6].fill(0);
    }
    let packet = &mut piece[VNET_HEADER_BYTES..];
    let packet_bytes = packet.len();
    put_word(packet, 2, packet_bytes as u16);
    let id = word(packet, 4).wrapping_add(first as u16);
    put_word(packet, 4, id);
    put_word(packet, 10, 0);
    let checksum = !fold(sum_of(&packet[..ip_bytes]));
    put_word(packet, 10, checksum);

    let addresses = sum_of(&packet[12..20]);
    let tcp = &mut packet[ip_bytes..];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(from as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if first > 0 {
        tcp[13] &= !FLAG_CWR;
    }
    if !is_last {
        tcp[13] &= !(FLAG_FIN | FLAG_PUSH);
    }
    // The sum over the pseudo header; whoever needs the whole checksum completes it.
    let pseudo = addresses + u32::from(PROTOCOL_TCP) + (packet_bytes - ip_bytes) as u32;
    put_word(tcp, 16, fold(pseudo));
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of segments of 100 bytes as the kernel hands it over.
    fn frame(payload: usize) -> Vec<u8> {
        let mut frame = vec![0; VNET_HEADER_BYTES + 40];
        frame[0] = 1;
        frame[1] = GSO_TCPV4;
        frame[4..6].copy_from_slice(&100u16.to_ne_bytes());
        let total = 40 + payload;
        let packet = &mut frame[VNET_HEADER_BYTES..];
        packet[0] = 0x45;
        put_word(packet, 2, total as u16);
        put_word(packet, 4, 0xFFFF);
        packet[9] = PROTOCOL_TCP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[24..28].copy_from_slice(&1000u32.to_be_bytes());
        packet[32] = 0x50;
        packet[33] = FLAG_FIN | FLAG_PUSH | FLAG_CWR;
        frame.extend((0..payload).map(|i| i as u8));
        frame
    }

    #[test]
    fn bursts_are_measured() {
        let burst = burst_of(&frame(250)).unwrap();
        assert_eq!(burst, Burst::segmented(40, 100, 250));
        assert_eq!(burst.segments, 3);
        let mut plain = frame(250);
        plain[1] = GSO_NONE;
        assert_eq!(burst_of(&plain), Some(Burst::single(290)));
        assert_eq!(burst_of(&[0; VNET_HEADER_BYTES]), None);
    }

    #[test]
    fn pieces_are_packets_of_their_own() {
        let whole = frame(250);
        let burst = burst_of(&whole).unwrap();
        assert_eq!(cut(&whole, &burst, 0, 3), whole);

        let middle = cut(&whole, &burst, 1, 1);
        assert_eq!(middle[1], GSO_NONE);
        let packet = &middle[VNET_HEADER_BYTES..];
        assert_eq!(word(packet, 2), 140);
        assert_eq!(word(packet, 4), 0);
        assert_eq!(fold(sum_of(&packet[..20])), 0xFFFF, "the IP checksum holds");
        assert_eq!(&packet[24..28], &1100u32.to_be_bytes());
        assert_eq!(packet[33], 0, "neither first nor last");
        assert_eq!(packet[40..], whole[VNET_HEADER_BYTES + 140..VNET_HEADER_BYTES + 240]);

        let tail = cut(&whole, &burst, 1, 2);
        assert_eq!(tail[1], GSO_TCPV4);
        assert_eq!(tail[VNET_HEADER_BYTES + 33], FLAG_FIN | FLAG_PUSH);
        assert_eq!(tail.len(), VNET_HEADER_BYTES + 40 + 150);
        let expected = sum_of(&[10, 0, 0, 1, 10, 0, 0, 2]) + 6 + 170;
        assert_eq!(word(&tail[VNET_HEADER_BYTES..], 36), fold(expected));
    }

    #[test]
    fn nonsense_is_passed_on_as_it_is() {
        for length in VNET_HEADER_BYTES + 1..VNET_HEADER_BYTES + 60 {
            let mut bytes = vec![0xFF; length];
            bytes[1] = GSO_TCPV4;
            let burst = burst_of(&bytes).unwrap();
            assert_eq!(cut(&bytes, &burst, 0, 1), bytes);
        }
    }
}
