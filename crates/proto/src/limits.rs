//! Every bound in one place. A queue, frame, name, path or cache without a bound here is a mistake.

/// Longest name of a directory entry, in bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path or symlink text, in bytes (`PATH_MAX`, with its final zero).
pub const PATH_BYTES_MAX: usize = 4096;
/// Most symlinks followed in one path walk (Linux follows 40).
pub const SYMLINKS_MAX: u32 = 40;
/// Most names that are looked up by one request.
pub const WALK_NAMES_MAX: usize = 64;
/// Most links to one inode.
pub const LINKS_MAX: u32 = 1_000_000;

/// Largest extended attribute value, in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Longest extended attribute name, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest sum of the names of one object's extended attributes, in bytes.
pub const XATTR_LIST_BYTES_MAX: usize = 64 * 1024;

/// Largest dkey or akey, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Largest single value, in bytes.
pub const VALUE_BYTES_MAX: usize = 128 * 1024;
/// Most updates in one atomic batch of the object API.
pub const BATCH_UPDATES_MAX: usize = 256;

/// Largest message body in a frame, in bytes. Holds a full batch page or listing page.
pub const FRAME_BODY_BYTES_MAX: u32 = 512 * 1024;
/// Largest bulk part of a frame, in bytes: what one read or write request moves.
pub const FRAME_BULK_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Most bytes of one shard that a client may read by one request, where it wants a long answer: an
/// engine sends them from the file, and the client has asked for them, so that nobody is made to keep
/// what he has not planned for.
pub const READ_BULK_BYTES_MAX: u32 = 1024 * 1024 * 1024;
/// Most bytes of a file that come with the answer to its opening: what a young connection carries in one
/// round trip (RFC 6928: ten segments) beside the answer itself.
pub const BROUGHT_BYTES_MAX: u32 = 12 * 1024;
/// The longest file that comes whole with the answer to its opening, where the client asks for as much, in bytes.
pub const BROUGHT_FILE_BYTES_MAX: u32 = 64 * 1024;
/// Largest listing page an engine sends, in bytes. Stays below the body's bound with its head.
pub const PAGE_BYTES_MAX: u32 = 256 * 1024;

/// What a directory shows as its size, whatever is in it, as on other file systems.
pub const DIRECTORY_BYTES: u64 = 4096;
/// Largest file, in bytes (`off_t` is signed).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Smallest chunk size, in bytes.
pub const CHUNK_BYTES_MIN: u32 = 4 * 1024;
/// Largest chunk size, in bytes.
pub const CHUNK_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Chunk size where nothing else was said, in bytes.
pub const CHUNK_BYTES_DEFAULT: u32 = 1024 * 1024;

/// Most targets in a pool: what the readdir cookie and object ids have bits for.
pub const TARGETS_MAX: u16 = 4096;
/// Most engines in a pool.
pub const ENGINES_MAX: u16 = 1024;
/// Most containers in a pool.
pub const CONTAINERS_MAX: usize = 1024;

/// Most connections that a client reads over from one far engine: what a young connection carries doubles
/// each round trip, so several reach the rate of the link sooner than one.
pub const READ_CONNECTIONS_MAX: usize = 8;
/// Most connections that a client keeps writes in flight over to one engine: fewer, since each takes a
/// share of the files, and one fills a link if the system lets it carry that much.
pub const WRITE_CONNECTIONS_MAX: u64 = 4;
/// Most descriptors of engines' files that one process keeps, and no more than this part of those that it may
/// have open.
pub const LOCAL_DESCRIPTORS_MAX: u64 = 512;
/// See [`LOCAL_DESCRIPTORS_MAX`].
pub const LOCAL_DESCRIPTORS_PART: u64 = 4;
/// Most connections an engine serves at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Most sessions an engine remembers at once.
pub const SESSIONS_MAX: usize = 4096;
/// Most slots (requests in flight that need an exact retry) of one session at one engine.
pub const SLOTS_MAX: u16 = 256;
/// Stands for the streams of changes that reach an engine through another one where connections of a slot are
/// fenced.
pub const RELAY_SLOT: u16 = SLOTS_MAX;
/// Most objects that one session may hold open at one engine.
pub const OPEN_REFERENCES_MAX: usize = 1 << 20;
/// Most lock ranges at one engine.
pub const LOCKS_MAX: usize = 1 << 20;
/// Most object ids in one release request.
pub const RELEASES_MAX: usize = 1024;
/// Most numbers of objects that a client is given at once.
pub const SERIALS_MAX: u32 = 4096;
/// Most actions in one part of a transaction.
pub const ACTIONS_MAX: usize = 64;

/// Largest body of a frame of the handshake, in bytes: what comes before the proof costs nobody memory.
pub const HANDSHAKE_BODY_BYTES_MAX: u32 = 512;
/// Most connections at one engine that are in the middle of the handshake; further ones wait their turn.
pub const HANDSHAKES_MAX: usize = 512;
/// A peer must finish the handshake within this time, in milliseconds, however it spreads its bytes.
pub const HANDSHAKE_MS: u64 = 5_000;
/// How long a caller whose first request was answered by a ticket may take to prove who it is, in milliseconds: it has
/// shown already that it knows the secret, and may be at work on something else before it reads what has come.
pub const EARLY_PROOF_MS: u64 = 60_000;
/// An engine waits this long in all for the rest of a frame that has begun, in milliseconds, beside what
/// a slow link needs for its size.
pub const FRAME_MS: u64 = 30_000;
/// A session whose last connection is gone keeps its open files and locks for this long, in
/// milliseconds.
pub const LEASE_MS: u64 = 30_000;
/// How long a read lease holds, counted by the client from when it asked, in milliseconds. A write by
/// another client may wait that long.
pub const READ_LEASE_MS: u64 = 1_000;
/// How long a write lease holds, counted by the client from when it asked or sent the write that renewed
/// it, in milliseconds. Another client may wait that long.
pub const WRITE_LEASE_MS: u64 = 2_000;
/// Largest write under a write lease, in bytes: an engine has all of it before it writes any of it.
pub const LEASED_WRITE_BYTES_MAX: u32 = 1024 * 1024;
/// A client asks again after this time while it waits for a lock, in milliseconds.
pub const LOCK_WAIT_SLICE_MS: u64 = 500;
/// A client of the engine's own host is cut off by nothing but its own end, so its session keeps its open
/// files and locks for this long only, in milliseconds.
pub const LOCAL_LEASE_MS: u64 = 1_000;
/// For this long after somebody else had to wait for a lease none is given, in milliseconds.
pub const LEASE_REFUSAL_MS: u64 = 5_000;
/// Most shards of one target with a lease at once; more are refused.
pub const LEASES_MAX: usize = 64 * 1024;
/// Whoever had locks before an engine started again may claim them for this long before others get them,
/// in milliseconds.
pub const LOCKS_GRACE_MS: u64 = 5_000;
/// An operation waits this long for a transaction to let go of a record, in milliseconds; then the engine
/// says that it is busy, and is asked again.
pub const RECORD_WAIT_MS: u64 = 3_000;
/// An engine waits this long for the answers of other engines, in milliseconds.
pub const PEER_ANSWER_MS: u64 = 5_000;
/// A transaction that others are in the way of is tried again for this long, in milliseconds.
pub const TRANSACTION_TRIES_MS: u64 = 3_000;
/// A prepared part of a transaction that has waited this long asks its coordinator, in milliseconds.
pub const OUTCOME_WAIT_MS: u64 = 500;
/// Directories nest at most this deep below the root where one of them is moved.
pub const DIRECTORY_DEPTH_MAX: u32 = 65_536;
/// An engine that drains waits this long for requests under way, in milliseconds.
pub const DRAIN_MS: u64 = 20_000;
/// From this time for a request and its answer on, a link is worth writes that are kept in flight, in
/// microseconds: below it waiting costs less than a lease.
pub const WRITES_IN_FLIGHT_FROM_US: u64 = 150;
/// From this round trip on, changes of names are worth a lease of the names, in microseconds: others wait for
/// it.
pub const CHANGES_IN_FLIGHT_FROM_US: u64 = 1_000;
/// From this round trip on, connections for reading ahead are made before they are needed, in
/// microseconds: making one takes three round trips.
pub const CONNECT_EARLY_FROM_US: u64 = 5_000;

// A peer that waits for a record is not taken for one that is silent, nor an engine that waits for a
// peer: a client's default time-out is twice as long.
const _: () = assert!(RECORD_WAIT_MS < PEER_ANSWER_MS && TRANSACTION_TRIES_MS < PEER_ANSWER_MS);
