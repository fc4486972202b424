//! Rings between two ends of one process, over a pair of sockets.

use std::os::fd::AsFd as _;
use std::time::Duration;

use azekura_proto::frame::{self, HEAD_BYTES};

use super::*;
use crate::connection::Connection;
use crate::frames::RecvError;
use crate::source::RECORDS_BETWEEN_LOOKS;

fn pair() -> (Connection, Connection) {
    let (one, other, _) = pair_over_memory();
    (one, other)
}

/// Two ends, of which the first reads from the first half of the memory.
fn pair_over_memory() -> (Connection, Connection, Arc<SharedMemory>) {
    let (one, other) = Socket::pair().unwrap();
    let (mut one, mut other) = (Connection::new(one), Connection::new(other));
    let (rings, descriptor) = Rings::create().unwrap();
    let memory = Arc::clone(&rings.incoming.ring.memory);
    other.use_rings(Rings::open(&descriptor).unwrap());
    one.use_rings(rings);
    (one, other, memory)
}

fn say(to: &mut Connection, text: &str) {
    to.queue(&text, 0).unwrap();
    to.flush(&[]).unwrap();
}

fn hear(from: &mut Connection) -> String {
    frame::decode(from.recv().unwrap().1).unwrap()
}

/// How many bytes lie on a socket.
fn on_socket(connection: &Connection) -> u64 {
    rustix::io::ioctl_fionread(connection.as_fd()).unwrap()
}

#[test]
fn what_is_small_does_not_touch_the_socket() {
    let (mut one, mut other) = pair();
    // More than a ring holds at once.
    for round in 0..5_000 {
        let text = "x".repeat(round % 300);
        say(&mut one, &text);
        assert!(other.has_buffered_input());
        assert_eq!(hear(&mut other), text);
        say(&mut other, "answer");
        assert_eq!(hear(&mut one), "answer");
    }
    assert_eq!((on_socket(&one), on_socket(&other)), (0, 0));
    assert!(!one.has_buffered_input() && !other.has_buffered_input());
}

#[test]
fn sizes_of_all_kinds_come_in_order() {
    let (mut one, mut other) = pair();
    let sizes = [0, 1, 7, 8, 9, 4096, 16_300, 16_376, 16_384, 16_385, 40_000, 1 << 20];
    let bulk_of = |number: usize, bytes: usize| {
        (0..bytes).map(|at| (at * 31 + number) as u8).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..600 {
                let bulk = bulk_of(number, sizes[number * 7 % sizes.len()]);
                if number % 5 == 0 {
                    // Several frames at a time, the first with its data in the middle.
                    one.queue(&number, bulk.len() as u32).unwrap();
                    one.queue_bulk(&bulk);
                    one.queue(&"between", 0).unwrap();
                    one.flush(&[]).unwrap();
                } else if number % 5 == 1 {
                    // As out of a file.
                    one.queue(&number, bulk.len() as u32).unwrap();
                    one.flush_before_bulk(bulk.len()).unwrap();
                    let (first, rest) = bulk.split_at(bulk.len() / 3);
                    one.continue_bulk(first).unwrap();
                    one.continue_bulk(rest).unwrap();
                } else {
                    one.queue(&number, bulk.len() as u32).unwrap();
                    one.flush(&bulk).unwrap();
                }
            }
        });
        for number in 0..600 {
            let (head, body) = other.recv().unwrap();
            assert_eq!(frame::decode::<usize>(body).unwrap(), number);
            let mut bulk = vec![0; head.bulk_bytes as usize];
            other.read_bulk(&mut bulk).unwrap();
            assert!(bulk == bulk_of(number, sizes[number * 7 % sizes.len()]), "{number}");
            if number % 5 == 0 {
                assert_eq!(hear(&mut other), "between");
            }
        }
    });
}

#[test]
fn a_sleeper_is_woken_each_time() {
    let (mut one, mut other) = pair();
    other.set_patience(Duration::from_micros(20));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..2_000u32 {
                assert_eq!(frame::decode::<u32>(other.recv().unwrap().1).unwrap(), number);
                other.queue(&number, 0).unwrap();
                other.flush(&[]).unwrap();
            }
        });
        for number in 0..2_000u32 {
            if number % 10 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            one.queue(&number, 0).unwrap();
            one.flush(&[]).unwrap();
            assert_eq!(frame::decode::<u32>(one.recv().unwrap().1).unwrap(), number);
        }
    });
}

#[test]
fn one_direction_fills_up_and_goes_on_over_the_socket() {
    let (mut one, mut other) = pair();
    // More than the ring holds, and none is read before all are sent.
    let text = "x".repeat(200);
    for number in 0..WORDS_FOR_SOCKET / 2 {
        one.queue(&(number, &text), 0).unwrap();
        one.flush(&[]).unwrap();
    }
    for number in 0..WORDS_FOR_SOCKET / 2 {
        let (_, body) = other.recv().unwrap();
        assert_eq!(frame::decode::<(u64, String)>(body).unwrap(), (number, text.clone()));
    }
}

#[test]
fn who_polls_sees_what_comes_and_the_end() {
    let (mut one, other) = pair();
    let (_writer, mut reader) = other.split();
    for round in 0..100 {
        assert!(reader.try_recv().unwrap().is_none());
        say(&mut one, "here");
        let line = std::slice::from_ref(reader.socket());
        assert_eq!(crate::socket::wait_for_any(line, Duration::from_secs(10)), [true], "{round}");
        let (_, body) = reader.try_recv().unwrap().unwrap();
        assert_eq!(frame::decode::<String>(body).unwrap(), "here");
    }
    say(&mut one, "last");
    drop(one);
    assert!(reader.try_recv().unwrap().is_some());
    assert!(matches!(reader.try_recv(), Err(RecvError::Closed)));
}

#[test]
fn a_look_says_that_something_has_come_or_lets_the_socket_say_it() {
    let (mut one, mut other, memory) = pair_over_memory();
    let look = Look { ring: Ring { memory, first: 0 } };
    for _ in 0..100 {
        assert!(!look.is_ready());
        say(&mut other, "here");
        assert!(look.is_ready());
        assert_eq!(on_socket(&one), 1, "who said that it sleeps is woken");
        assert_eq!(hear(&mut one), "here");
        say(&mut one, "yes");
        assert_eq!(hear(&mut other), "yes");
        // The nudge is passed over by the next one who waits.
        one.socket().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(one.recv(), Err(RecvError::Idle)));
        assert_eq!(on_socket(&one), 0);
        // It has said that it sleeps, so there is another one.
        say(&mut other, "again");
        assert_eq!(hear(&mut one), "again");
        assert!(matches!(one.recv(), Err(RecvError::Idle)));
        say(&mut other, "and again");
        assert_eq!(hear(&mut one), "and again");
        while on_socket(&one) > 0 {
            assert!(matches!(one.recv(), Err(RecvError::Idle)));
        }
    }
}

#[test]
fn a_descriptor_arrives_with_its_frame() {
    let (mut one, other) = pair();
    let (_writer, mut reader) = other.split();
    let file = rustix::fs::memfd_create("text", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, b"inside", 0).unwrap();
    for round in 0..10 {
        for _ in 0..round {
            say(&mut one, "before");
            let (_, body, descriptor) = reader.recv_with_descriptor().unwrap();
            assert_eq!(frame::decode::<String>(body).unwrap(), "before");
            assert!(descriptor.is_none());
        }
        one.queue(&"with", 0).unwrap();
        one.flush_with_descriptor(file.as_fd()).unwrap();
        let (_, body, descriptor) = reader.recv_with_descriptor().unwrap();
        assert_eq!(frame::decode::<String>(body).unwrap(), "with");
        let mut text = [0; 6];
        assert_eq!(rustix::io::pread(descriptor.unwrap(), &mut text, 0), Ok(6));
        assert_eq!(&text, b"inside");
    }
}

#[test]
fn who_waits_gives_up_in_time_and_sees_the_end() {
    let (one, mut other) = pair();
    other.socket().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    for _ in 0..3 {
        assert!(matches!(other.recv(), Err(RecvError::Idle)));
    }
    let waiting = std::thread::spawn(move || {
        other.socket().set_read_timeout(None).unwrap();
        matches!(other.recv(), Err(RecvError::Closed))
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(one);
    assert!(waiting.join().unwrap());
}

#[test]
fn an_end_that_takes_nothing_more_stops_though_more_comes() {
    let (mut one, mut other) = pair();
    say(&mut one, "first");
    assert_eq!(hear(&mut other), "first");
    rustix::net::shutdown(other.as_fd(), rustix::net::Shutdown::Read).unwrap();
    let mut taken = 0;
    loop {
        say(&mut one, "more");
        match other.recv() {
            Ok(_) => taken += 1,
            Err(RecvError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
        // What is under way is still answered.
        say(&mut other, "answer");
        assert_eq!(hear(&mut one), "answer");
    }
    assert!(taken <= RECORDS_BETWEEN_LOOKS);
}

#[test]
fn a_peer_that_breaks_its_ring_ends_the_connection_and_nothing_else() {
    let headers = [
        BYTES << 32,
        BYTES << 32 | 0xffff_ffff,
        (BYTES << 32) | (8 * RING_WORDS),
        ON_SOCKET << 32,
        7 << 32 | 8,
        u64::MAX,
    ];
    for header in headers {
        for tail in [1, 2, RING_WORDS, RING_WORDS + 1, u64::MAX] {
            let (_one, mut other, memory) = pair_over_memory();
            other.socket().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            memory.words()[WORDS_EACH + RECORDS].store(header, Ordering::Relaxed);
            memory.words()[WORDS_EACH + TAIL].store(tail, Ordering::Release);
            assert!(matches!(other.recv(), Err(RecvError::Io(_))), "{header:x} {tail}");
        }
    }
    // Nudges that were never sent, and a head beyond the end.
    let (mut one, mut other, memory) = pair_over_memory();
    other.socket().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    memory.words()[WORDS_EACH + RECORDS].store(ON_SOCKET << 32 | 8, Ordering::Relaxed);
    memory.words()[WORDS_EACH + RECORDS + 1].store(3, Ordering::Relaxed);
    memory.words()[WORDS_EACH + TAIL].store(2, Ordering::Release);
    assert!(matches!(other.recv(), Err(RecvError::Io(_) | RecvError::Idle)));
    memory.words()[WORDS_EACH + HEAD].store(99, Ordering::Release);
    one.queue(&"into a broken ring", 0).unwrap();
    assert!(one.flush(&[]).is_err());
}

#[test]
fn a_frame_that_is_cut_off_inside_a_ring_is_waited_for_in_bounds() {
    let (one, mut other, memory) = pair_over_memory();
    let mut frame = Vec::new();
    frame::encode_into(&mut frame, &"whole", 0).unwrap();
    let mut outgoing = Outgoing { ring: Ring { memory, first: WORDS_EACH }, tail: 0, nudges: 0 };
    outgoing.send(one.socket(), [&frame[..=HEAD_BYTES], &[]]).unwrap();
    other.socket().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert!(matches!(other.recv(), Err(RecvError::Io(_))));
}
