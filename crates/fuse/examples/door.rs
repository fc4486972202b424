use std::path::PathBuf; use std::sync::Arc; use std::time::Duration;
use azekura_client::*; use azekura_engine::*; use azekura_fuse::*; use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use azekura_proto::attr::Inheritance; use azekura_proto::pool_map::*; use azekura_proto::*; use azekura_wire::Secret;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    tracing_subscriber_init();
    let dir = PathBuf::from(&a[2]);
    let address = Address::Unix(dir.join("engine.sock"));
    let entry = EngineEntry { addresses: vec![address.clone()] };
    let map = PoolMap::deal(PoolId([9; 16]), "test".into(), vec![entry], &[4]);
    let sf = dir.join("secret");
    if a[1] == "serve" {
        std::fs::create_dir_all(&dir).unwrap();
        let secret = Secret::generate().unwrap(); secret.save_new(&sf).unwrap();
        let config = EngineConfig { dir: dir.join("engine"), target_dirs: vec![], target_count: 4, listen: vec![address], secret, metrics_listen: None };
        Engine::format(&config, &map, EngineId(0)).unwrap();
        let _e = Engine::start(config).unwrap();
        let file = PoolFile { map, secret: SecretSource::File(sf) };
        let pool = Pool::connect(&file, ClientConfig { request_timeout: Duration::from_secs(20) }).unwrap();
        pool.container_create("default", Inheritance::default()).unwrap();
        drop(pool);
        println!("ready");
        loop { std::thread::sleep(Duration::from_secs(1000)); }
    }
    let file = PoolFile { map, secret: SecretSource::File(sf) };
    let pool = Pool::connect(&file, ClientConfig { request_timeout: Duration::from_secs(20) }).unwrap();
    let ttl = CachePolicy::Auto { ttl: Duration::from_secs(1) };
    let fs: Arc<FileSystem> = FileSystem::mount(pool, "default", FsConfig { cache: if a.get(4).map(|s| s == "none").unwrap_or(false) { CachePolicy::None } else { ttl }, check_permissions: false }).unwrap();
    let m = mount(fs, MountConfig { mountpoint: PathBuf::from(&a[3]), cache: if a.get(4).map(|s| s == "none").unwrap_or(false) { CacheMode::None } else { CacheMode::Auto }, allow_other: true, read_only: false, threads: a.get(5).map(|s| s.parse().unwrap()), fsname: "azekura:test".into() }).unwrap();
    println!("mounted");
    m.wait();
}
fn tracing_subscriber_init() {}
