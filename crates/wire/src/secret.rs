//! The pool secret: 32 random bytes in a file that only its owner may read. Owns its file format.
//! It never prints the secret and never sends it.

use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// The secret of a pool.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Bytes that nobody can guess.
pub(crate) fn draw() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Why a secret file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or written.
    #[error("secret file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// Others than the owner may read it.
    #[error("secret file {} can be read by others (mode {mode:03o}): run 'chmod 600 {}' and make a new pool if it may have leaked", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not 64 hex digits.
    #[error("secret file {} is damaged: it must hold 64 hex digits", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

impl Secret {
    /// A new secret from the system's random source.
    ///
    /// # Errors
    /// If the system has no random bytes to give.
    pub fn generate() -> io::Result<Self> {
        Ok(Self(draw()?))
    }

    /// Reads a secret from hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Reads the secret in `path`.
    ///
    /// # Errors
    /// If the file is missing, damaged, or open to others.
    pub fn load(path: &Path) -> Result<Self, SecretError> {
        let io = |source| SecretError::Io { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(io)?;
        let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        Self::from_hex(&text).ok_or_else(|| SecretError::Damaged { path: path.to_owned() })
    }

    /// Writes the secret to a new file with mode 0600.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn save_new(&self, path: &Path) -> Result<(), SecretError> {
        let io = |source| SecretError::Io { path: path.to_owned(), source };
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let mut hex = String::with_capacity(65);
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                hex.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        hex.push('\n');
        file.write_all(hex.as_bytes()).and_then(|()| file.sync_all()).map_err(io)
    }

    /// A key for another use, which nothing of the secret can be learnt from.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        self.sign(&[b"derived key", purpose.as_bytes()])
    }

    /// HMAC-SHA-256 (RFC 2104) over the parts, each with its length in front.
    pub(crate) fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Checks a proof in constant time.
    pub(crate) fn verify(&self, parts: &[&[u8]], proof: &[u8; 32]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC takes keys of any length, so this cannot fail.
        #[allow(clippy::expect_used)]
        let mut mac =
            <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.0).expect("HMAC takes any key");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_is_private_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.save_new(&path).unwrap();
        assert_eq!(Secret::load(&path).unwrap().0, secret.0);
        assert!(secret.save_new(&path).is_err(), "an existing secret is never overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Secret::load(&path), Err(SecretError::Exposed { .. })));
    }
}
