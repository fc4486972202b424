//! File handles (RFC 1813, section 2.3.3). Owns their bytes: which object of which export, and a code
//! that only who has the pool's secret can compute. Every gateway of a pool reads what any other has
//! written, before and after restarts, so nothing of a process or of a moment may ever be in one.

use std::fmt;

use azekura_proto::{ContainerId, Oid};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The longest handle that the protocol allows (`NFS3_FHSIZE`).
pub const HANDLE_BYTES_MAX: usize = 64;
/// The length of a handle in bytes.
pub const HANDLE_BYTES: usize = AUTHENTICATED_BYTES + CODE_BYTES;

const _: () = assert!(HANDLE_BYTES <= HANDLE_BYTES_MAX);
const VERSION: u8 = 1;
const AUTHENTICATED_BYTES: usize = 1 + 8 + 16;
/// RFC 2104 allows half of the hash; what is cut off only the owner of the key could use.
const CODE_BYTES: usize = 16;
/// Tells this use of the secret from every other, so that no code made here proves anything there.
const LABEL: &[u8] = b"azekura nfs file handle";

/// An export of a container, by what it is and not by its place in a file: a line more in
/// `exports.toml` must not make handles stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExportId(pub u64);

impl ExportId {
    /// The export of `path` (normalised) in a container.
    pub fn of(container: ContainerId, path: &str) -> Self {
        Self(xxh3_64_with_seed(path.as_bytes(), u64::from(container.0)))
    }
}

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileHandle {
    /// The export through which the client has found the object; its rules hold for every use.
    pub export: ExportId,
    /// The object.
    pub oid: Oid,
}

/// These bytes are no handle of this pool: `NFS3ERR_BADHANDLE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no file handle of this pool")]
pub struct BadHandle;

/// What seals and opens handles.
#[derive(Clone)]
pub struct HandleKey(Hmac<Sha256>);

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

impl HandleKey {
    /// The key that follows from the pool's secret.
    pub fn derive(secret: &[u8]) -> Self {
        let derived = keyed(secret).chain_update(LABEL).finalize().into_bytes();
        Self(keyed(&derived))
    }

    /// The bytes that a client gets.
    pub fn seal(&self, handle: FileHandle) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        let (said, code) = bytes.split_at_mut(AUTHENTICATED_BYTES);
        said[0] = VERSION;
        said[1..9].copy_from_slice(&handle.export.0.to_be_bytes());
        said[9..].copy_from_slice(&handle.oid.to_bytes());
        let computed = self.0.clone().chain_update(&*said).finalize().into_bytes();
        code.copy_from_slice(&computed[..CODE_BYTES]);
        bytes
    }

    /// What a client's bytes name. Whether the object is still there is another question.
    ///
    /// # Errors
    /// If they were not made by [`HandleKey::seal`] under this secret.
    pub fn open(&self, bytes: &[u8]) -> Result<FileHandle, BadHandle> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().map_err(|_| BadHandle)?;
        let (said, code) = bytes.split_at(AUTHENTICATED_BYTES);
        // In constant time: how far a forged code is right must not show.
        self.0.clone().chain_update(said).verify_truncated_left(code).map_err(|_| BadHandle)?;
        let ([VERSION, export @ ..], oid) = said.split_at(9) else { return Err(BadHandle) };
        let export = u64::from_be_bytes(export.try_into().map_err(|_| BadHandle)?);
        let oid = Oid::from_bytes(oid).ok_or(BadHandle)?;
        Ok(FileHandle { export: ExportId(export), oid })
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length, so this cannot fail.
    #[allow(clippy::expect_used)]
    <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes any key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{ObjectClass, TargetId};

    const SECRET: [u8; 32] = [7; 32];

    fn handle(path: &str, serial: u64) -> FileHandle {
        let container = ContainerId(3);
        let oid = Oid::new(container, ObjectClass::S1, TargetId(2), serial);
        FileHandle { export: ExportId::of(container, path), oid }
    }

    #[test]
    fn a_handle_opens_on_every_gateway_of_the_pool() {
        let sealed = HandleKey::derive(&SECRET).seal(handle("/data", 9));
        assert_eq!(HandleKey::derive(&SECRET).open(&sealed), Ok(handle("/data", 9)));
    }

    /// Clients keep handles over an upgrade of the gateway: these bytes must never change.
    #[test]
    fn the_bytes_of_a_handle_stay_what_they_are() {
        let sealed = HandleKey::derive(&SECRET).seal(handle("/data", 9));
        let hex = sealed.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!(
            hex,
            "01904c835ccef8d17500000003000000000100020000000009da7452d295d245f42ff132d0e71e97e6"
        );
    }

    #[test]
    fn a_handle_cannot_be_forged_into_another_export_or_object() {
        let key = HandleKey::derive(&SECRET);
        let (data, other) = (key.seal(handle("/data", 9)), key.seal(handle("/other", 9)));
        let mut mixed = data;
        mixed[1..9].copy_from_slice(&other[1..9]);
        assert_eq!(key.open(&mixed), Err(BadHandle));
        for bit in 0..HANDLE_BYTES * 8 {
            let mut forged = data;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&forged), Err(BadHandle), "bit {bit}");
        }
    }

    #[test]
    fn handles_of_another_pool_and_of_another_length_are_refused() {
        let key = HandleKey::derive(&SECRET);
        let sealed = key.seal(handle("/", 1));
        assert_eq!(HandleKey::derive(&[8; 32]).open(&sealed), Err(BadHandle));
        assert_eq!(key.open(&[]), Err(BadHandle));
        assert_eq!(key.open(&sealed[..HANDLE_BYTES - 1]), Err(BadHandle));
        assert_eq!(key.open(&[&sealed[..], &[0]].concat()), Err(BadHandle));
    }

    #[test]
    fn exports_differ_by_path_and_container() {
        let id = |container, path| ExportId::of(ContainerId(container), path);
        assert_ne!(id(0, "/a"), id(0, "/b"));
        assert_ne!(id(0, "/a"), id(1, "/a"));
    }
}
