//! probe
use std::time::Instant;
use azekura_proto::{ContainerId, ObjectClass, Oid, PoolId, TargetId};
use azekura_store::{Batch, Space, Store, StoreConfig};
fn oid(serial: u64) -> Oid { Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial) }
fn main() {
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let dir = tempfile::tempdir_in(std::env::args().nth(1).unwrap()).unwrap();
    let pool = PoolId([1; 16]);
    Store::create(dir.path(), pool, TargetId(0)).unwrap();
    let store = Store::open(dir.path(), pool, TargetId(0), &StoreConfig::default()).unwrap();
    let ek = |s: u64| { let mut k = oid(1).to_bytes().to_vec(); k.extend_from_slice(&s.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()); k.extend_from_slice(b"file.x"); k };
    let t = Instant::now();
    for s in 2..n+2 {
        let mut b = Batch::new();
        b.put(Space::Entry, &ek(s), [7u8; 24]);
        b.put(Space::Inode, &oid(s).to_bytes(), [7u8; 100]);
        b.put(Space::DirShard, &oid(1).to_bytes(), [7u8; 40]);
        b.put(Space::Reply, &(s % 64).to_be_bytes(), [7u8; 60]);
        store.commit(b).unwrap();
    }
    println!("commit4 {} ns", t.elapsed().as_nanos() as u64 / n);
    std::thread::sleep(std::time::Duration::from_secs(3));
    eprintln!("PHASE");
    let m = 1_000_000;
    let t = Instant::now();
    for i in 0..m { store.get(Space::Inode, &oid(2 + i * 0x9e37_79b9 % n).to_bytes()).unwrap(); }
    println!("random inode {} ns", t.elapsed().as_nanos() as u64 / m);
    let t = Instant::now();
    for i in 0..m { store.get(Space::Entry, &ek(10_000_000 + i)).unwrap(); }
    println!("absent entry {} ns", t.elapsed().as_nanos() as u64 / m);
}
