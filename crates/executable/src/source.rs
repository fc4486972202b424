//! The bytes of a file. Owns how much of one is read: the head once, and pieces of a bounded size.

/// As much as is read at first: in most files all that is asked for lies there.
const HEAD_BYTES: usize = 4096;

/// Reads at an offset of the file; fewer bytes only at its end.
pub type Reader<'a, E> = dyn Fn(u64, &mut [u8]) -> Result<usize, E> + 'a;

pub(crate) struct Source<'a, E> {
    read: &'a Reader<'a, E>,
    head: Vec<u8>,
}

impl<'a, E> Source<'a, E> {
    pub(crate) fn new(read: &'a Reader<'a, E>) -> Result<Self, E> {
        let mut source = Self { read, head: Vec::new() };
        source.head = source.piece(0, HEAD_BYTES)?;
        Ok(source)
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes from `offset` on; fewer only at the end of the file.
    pub(crate) fn piece(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, E> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(known) = self.head.get(start..start.saturating_add(bytes)) {
            return Ok(known.to_vec());
        }
        let mut piece = vec![0; bytes];
        let mut done = 0;
        while done < bytes {
            let at = offset.saturating_add(done as u64);
            // No file reaches further, and the kernel would call it an error to ask.
            if i64::try_from(at).is_err() {
                break;
            }
            match (self.read)(at, &mut piece[done..])? {
                0 => break,
                got => done += got,
            }
        }
        piece.truncate(done);
        Ok(piece)
    }
}
