//! How exact this machine's labs are: round trips, rates, loss, and what the relay costs. Measures
//! with sockets of its own in a small lab, and holds each figure against its bound.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::lab::Lab;
use crate::quantity;
use crate::sys;
use crate::topology::{Change, Topology, TopologyError};

const PORT: u16 = 7;
const PINGS: u32 = 100;
const PING_EVERY: Duration = Duration::from_millis(5);
const WARM_UP_MAX: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_secs(4);
const LOSS_PACKETS: u64 = 20_000;
/// TCP payload per byte on the wire: 1448 of 1538.
const GOODPUT_SHARE: f64 = 1448.0 / 1538.0;
/// A figure may be off by this share, round trips also by [`RTT_SLACK_MS`].
const ERROR_MAX: f64 = 0.02;
const RTT_SLACK_MS: f64 = 0.2;
const CPU_MAX: f64 = 0.5;

const LAB: &str = "hosts = ['near', 'far']
    links = [{ name = 'link', between = ['near', 'far'] }]";

/// The self-test could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// No lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A mistake in the test's own words.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Its sockets failed.
    #[error("the self-test's sockets failed: {0}")]
    Io(#[from] io::Error),
}

/// One figure.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Figure {
    /// What was measured, on what link.
    pub what: String,
    /// What it should be.
    pub expected: f64,
    /// What it is.
    pub measured: f64,
    /// Their unit.
    pub unit: &'static str,
    /// By how much it may be off, in the same unit.
    pub tolerance: f64,
    /// Whether only too much is wrong, not too little.
    pub at_most: bool,
}

impl Figure {
    /// Whether the figure is within its bound.
    pub fn is_good(&self) -> bool {
        let error = self.measured - self.expected;
        error <= self.tolerance && (self.at_most || error >= -self.tolerance)
    }
}

fn change(lab: &Lab, words: &[&str]) -> Result<(), SelftestError> {
    Ok(lab.set("link", &Change::parse(words)?)?)
}

fn far(lab: &Lab) -> Result<SocketAddr, LabError> {
    Ok(SocketAddr::from((lab.address("far")?, PORT)))
}

/// What waits for a processor behind other programs measures those, not the link.
fn go_first() {
    // Where the kernel says no, the figures are worse, and say so.
    let _ = sys::run_in_real_time();
}

/// Answers every packet until told to stop.
fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    go_first();
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..bytes], from);
        }
    }
}

/// Round trips in milliseconds, sorted.
fn ping(socket: &UdpSocket, to: SocketAddr, longest: Duration) -> io::Result<Vec<f64>> {
    let start = Instant::now();
    let mut sent = Vec::new();
    let mut trips = Vec::new();
    let end = start + PING_EVERY * PINGS + longest;
    while trips.len() < PINGS as usize && Instant::now() < end {
        let next = start + PING_EVERY * sent.len() as u32;
        if sent.len() < PINGS as usize && Instant::now() >= next {
            let number = sent.len() as u32;
            sent.push(Instant::now());
            socket.send_to(&number.to_ne_bytes(), to)?;
            continue;
        }
        let until = if sent.len() < PINGS as usize { next } else { end };
        let pause = until.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        socket.set_read_timeout(Some(pause))?;
        let mut buffer = [0; 4];
        if socket.recv(&mut buffer).is_ok()
            && let Some(at) = sent.get(u32::from_ne_bytes(buffer) as usize)
        {
            trips.push(at.elapsed().as_secs_f64() * 1e3);
        }
    }
    trips.sort_by(f64::total_cmp);
    Ok(trips)
}

fn round_trips(lab: &Lab, figures: &mut impl FnMut(Figure)) -> Result<(), SelftestError> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT));
    let (near, answering) = (lab.within("near", bind)??, lab.within("far", bind)??);
    answering.set_read_timeout(Some(Duration::from_millis(50)))?;
    let stop = AtomicBool::new(false);
    let to = far(lab)?;
    thread::scope(|scope| {
        scope.spawn(|| echo(&answering, &stop));
        let measured = [0u64, 1, 5, 25, 100, 200].into_iter().try_for_each(|delay_ms| {
            change(lab, &[&format!("delay={delay_ms}ms"), "rate=1gbit"])?;
            let longest = Duration::from_millis(2 * delay_ms + 500);
            let near = &near;
            let pinger = scope.spawn(move || {
                go_first();
                ping(near, to, longest)
            });
            let trips = pinger.join().map_err(|_| io::Error::other("the pinger ended early"))??;
            let median = trips.get(trips.len() / 2).copied().unwrap_or(f64::INFINITY);
            let expected = 2.0 * delay_ms as f64;
            figures(Figure {
                what: format!("round trip, one-way delay {delay_ms} ms"),
                expected,
                measured: median,
                unit: "ms",
                tolerance: (expected * ERROR_MAX).max(RTT_SLACK_MS),
                at_most: false,
            });
            Ok::<_, SelftestError>(())
        });
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn fill(mut stream: &TcpStream, stop: &AtomicBool) {
    go_first();
    let block = vec![0x5A; 1 << 20];
    while !stop.load(Ordering::Relaxed) && stream.write(&block).is_ok() {}
}

fn drain(mut stream: &TcpStream, bytes: &AtomicU64) {
    go_first();
    let mut block = vec![0; 1 << 20];
    while let Ok(count) = stream.read(&mut block)
        && count > 0
    {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Bytes per second and the relay's share of a core, over a while.
fn observe(lab: &Lab, bytes: &AtomicU64, time: Duration) -> Result<(f64, f64), LabError> {
    let (before, cpu_before) = (bytes.load(Ordering::Relaxed), lab.status()?.relay_cpu_s);
    let start = Instant::now();
    thread::sleep(time);
    let passed = start.elapsed().as_secs_f64();
    let moved = bytes.load(Ordering::Relaxed) - before;
    Ok((moved as f64 / passed, (lab.status()?.relay_cpu_s - cpu_before) / passed))
}

fn rate(
    lab: &Lab,
    rate: &str,
    delay: &str,
    figures: &mut impl FnMut(Figure),
) -> Result<(), SelftestError> {
    change(lab, &[&format!("delay={delay}"), &format!("rate={rate}")])?;
    let bits_per_s =
        quantity::parse_rate_bits_per_s(rate).ok().flatten().unwrap_or_default() as f64;
    let expected = bits_per_s / 8.0 * GOODPUT_SHARE;
    let listener = lab.within("far", || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)))??;
    let to = far(lab)?;
    let sender = lab.within("near", || TcpStream::connect(to))??;
    let receiver = listener.accept()?.0;
    let (stop, bytes) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    let (goodput, cpu) = thread::scope(|scope| {
        scope.spawn(|| fill(&sender, &stop));
        scope.spawn(|| drain(&receiver, &bytes));
        // TCP needs some round trips to find the rate.
        let start = Instant::now();
        let measured = loop {
            let observed = observe(lab, &bytes, WINDOW);
            let warm = observed.as_ref().is_ok_and(|(rate, _)| *rate > expected * 0.97);
            if warm || observed.is_err() || start.elapsed() > WARM_UP_MAX {
                break observed.and_then(|_| observe(lab, &bytes, MEASURE));
            }
        };
        stop.store(true, Ordering::Relaxed);
        let _ = sender.shutdown(std::net::Shutdown::Both);
        let _ = receiver.shutdown(std::net::Shutdown::Both);
        measured
    })?;
    let link = format!("{rate}, one-way delay {delay}");
    figures(Figure {
        what: format!("TCP goodput, {link}"),
        expected: expected / 1e6,
        measured: goodput / 1e6,
        unit: "MB/s",
        tolerance: expected / 1e6 * ERROR_MAX,
        at_most: false,
    });
    figures(Figure {
        what: format!("relay's share of a core, {link}"),
        expected: 0.0,
        measured: cpu,
        unit: "cores",
        tolerance: CPU_MAX,
        at_most: true,
    });
    Ok(())
}

fn loss(lab: &Lab, figures: &mut impl FnMut(Figure)) -> Result<(), SelftestError> {
    change(lab, &["delay=1ms", "rate=unlimited", "loss=1%", "from=near"])?;
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT));
    let (near, receiving) = (lab.within("near", bind)??, lab.within("far", bind)??);
    receiving.set_read_timeout(Some(Duration::from_millis(500)))?;
    let to = far(lab)?;
    let received = thread::scope(|scope| {
        let count = scope.spawn(|| {
            go_first();
            let mut buffer = [0; 64];
            std::iter::from_fn(|| receiving.recv(&mut buffer).ok()).count() as u64
        });
        for number in 0..LOSS_PACKETS {
            near.send_to(&[0; 32], to)?;
            // The receiver's buffer must not be what loses packets.
            if number % 50 == 49 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        count.join().map_err(|_| io::Error::other("the receiver ended early"))
    })?;
    change(lab, &["loss=0"])?;
    figures(Figure {
        what: "loss of 1 %".to_owned(),
        expected: 1.0,
        measured: 100.0 * (1.0 - received as f64 / LOSS_PACKETS as f64),
        unit: "%",
        // Four standard deviations of so many chances.
        tolerance: 0.3,
        at_most: false,
    });
    Ok(())
}

/// Measures, and gives each figure as it comes. Takes about half a minute.
///
/// # Errors
/// If there can be no lab, or its sockets fail.
pub fn run(mut figures: impl FnMut(Figure)) -> Result<(), SelftestError> {
    let lab = Lab::up(&Topology::parse(LAB, "selftest")?)?;
    round_trips(&lab, &mut figures)?;
    for delay in ["0ms", "50ms", "200ms"] {
        rate(&lab, "1gbit", delay, &mut figures)?;
    }
    rate(&lab, "100mbit", "10ms", &mut figures)?;
    loss(&lab, &mut figures)
}
