//! The frame codec: an 8-byte head (two little-endian `u32`: body bytes, bulk bytes), a body in
//! postcard, then raw bulk data. Owns the bounds of both parts. It never allocates for a length
//! that it has not checked.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{FRAME_BODY_BYTES_MAX, FRAME_BULK_BYTES_MAX, READ_BULK_BYTES_MAX};

/// Bytes of the frame head.
pub const HEAD_BYTES: usize = 8;

/// The lengths at the front of each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Length of the body in bytes.
    pub body_bytes: u32,
    /// Length of the bulk data after it in bytes.
    pub bulk_bytes: u32,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// A length in the head passes its bound.
    #[error("a frame announces {body_bytes} body bytes and {bulk_bytes} bulk bytes: too large")]
    TooLarge {
        /// Announced body bytes.
        body_bytes: u32,
        /// Announced bulk bytes.
        bulk_bytes: u32,
    },
    /// The body is not what the receiver expects.
    #[error("a frame's body cannot be decoded")]
    Malformed,
}

impl FrameHead {
    /// Reads and checks a head.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`] if a part passes its bound.
    pub fn decode(bytes: [u8; HEAD_BYTES]) -> Result<Self, FrameError> {
        Self::decode_within(bytes, FRAME_BULK_BYTES_MAX)
    }

    /// The same for a receiver who may have asked for that much bulk data.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`] if a part passes its bound.
    pub fn decode_within(bytes: [u8; HEAD_BYTES], bulk_bytes_max: u32) -> Result<Self, FrameError> {
        let both = u64::from_le_bytes(bytes);
        let head = Self { body_bytes: both as u32, bulk_bytes: (both >> 32) as u32 };
        if head.body_bytes > FRAME_BODY_BYTES_MAX || head.bulk_bytes > bulk_bytes_max {
            return Err(FrameError::TooLarge {
                body_bytes: head.body_bytes,
                bulk_bytes: head.bulk_bytes,
            });
        }
        Ok(head)
    }

    /// The head as bytes.
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        (u64::from(self.bulk_bytes) << 32 | u64::from(self.body_bytes)).to_le_bytes()
    }
}

/// Appends a frame's head and body to `out`. The `bulk_bytes` of bulk data are sent after it.
///
/// # Errors
/// [`FrameError::TooLarge`] if a part passes its bound; `out` is then as it was.
pub fn encode_into<T: Serialize>(
    out: &mut Vec<u8>,
    message: &T,
    bulk_bytes: u32,
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let encoded = postcard::to_extend(message, Appender(out)).is_ok();
    let body_bytes = (out.len() - start - HEAD_BYTES).min(u32::MAX as usize) as u32;
    if !encoded || body_bytes > FRAME_BODY_BYTES_MAX || bulk_bytes > READ_BULK_BYTES_MAX {
        out.truncate(start);
        return Err(FrameError::TooLarge { body_bytes, bulk_bytes });
    }
    let head = FrameHead { body_bytes, bulk_bytes }.encode();
    out[start..start + HEAD_BYTES].copy_from_slice(&head);
    Ok(())
}

/// Decodes a body that owns its data.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|_| FrameError::Malformed)
}

/// Decodes a body that borrows names and values from the buffer it stands in.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode_borrowed<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|_| FrameError::Malformed)
}

/// A message that stands in another one, to be read by [`decode_borrowed`].
///
/// # Errors
/// [`FrameError::TooLarge`] if it does not fit a frame.
pub fn encode_nested<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = Vec::new();
    encode_into(&mut frame, message, 0)?;
    Ok(frame.split_off(HEAD_BYTES))
}

struct Appender<'a>(&'a mut Vec<u8>);

impl Extend<u8> for Appender<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_checked_before_anything_is_allocated() {
        let head = FrameHead { body_bytes: 5, bulk_bytes: 7 };
        assert_eq!(FrameHead::decode(head.encode()), Ok(head));
        let huge = FrameHead { body_bytes: u32::MAX, bulk_bytes: 0 }.encode();
        assert!(FrameHead::decode(huge).is_err());
        let huge = FrameHead { body_bytes: 0, bulk_bytes: u32::MAX }.encode();
        assert!(FrameHead::decode(huge).is_err());
        let long = FrameHead { body_bytes: 0, bulk_bytes: FRAME_BULK_BYTES_MAX + 1 };
        assert!(FrameHead::decode(long.encode()).is_err(), "only for who has asked for it");
        assert_eq!(FrameHead::decode_within(long.encode(), READ_BULK_BYTES_MAX), Ok(long));
    }

    #[test]
    fn a_refused_message_leaves_the_buffer_as_it_was() {
        let mut out = vec![1, 2, 3];
        let message = vec![0u8; FRAME_BODY_BYTES_MAX as usize + 1];
        assert!(encode_into(&mut out, &message, 0).is_err());
        assert_eq!(out, [1, 2, 3]);
    }
}
