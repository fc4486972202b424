//! Reading all data of a target to see whether they can be read. Owns how much of that is done for one
//! request. It changes nothing; what is lost altogether is on record, and not looked for here.

use azekura_proto::message::{Answer, Reply, ScanItem};
use azekura_proto::{ContainerId, Oid, Status};
use azekura_store::{ShardFile, Store, StoreError};

use crate::records::stored::store_status;
use crate::target::Target;

/// Read for one request.
const PAGE_BYTES: u64 = 32 * 1024 * 1024;
/// Files that are looked at for one request.
const PAGE_FILES: usize = 1024;
const BUFFER_BYTES: usize = 1024 * 1024;

/// Where a page ended: a part of the store, a file in it, and an offset there.
#[derive(Clone, Copy)]
struct Place {
    part: u16,
    file: Option<(Oid, u16)>,
    offset: u64,
}

impl Place {
    fn encode(self) -> Vec<u8> {
        let mut key = self.part.to_be_bytes().to_vec();
        if let Some((oid, shard)) = self.file {
            key.extend_from_slice(&oid.to_bytes());
            key.extend_from_slice(&shard.to_be_bytes());
            key.extend_from_slice(&self.offset.to_be_bytes());
        }
        key
    }

    fn decode(key: &[u8]) -> Option<Self> {
        let (part, rest) = key.split_first_chunk()?;
        let part = u16::from_be_bytes(*part);
        if rest.is_empty() {
            return Some(Self { part, file: None, offset: 0 });
        }
        let (oid, rest) = rest.split_at_checked(16)?;
        let (shard, offset) = rest.split_first_chunk()?;
        let file = Some((Oid::from_bytes(oid)?, u16::from_be_bytes(*shard)));
        Some(Self { part, file, offset: u64::from_be_bytes(offset.try_into().ok()?) })
    }
}

/// Answer to `Scan` of `ReadData`.
pub(crate) fn scrub(target: &Target, container: ContainerId, after: Option<&[u8]>) -> Answer {
    let mut place = match after {
        None => Place { part: 0, file: None, offset: 0 },
        Some(key) => Place::decode(key).ok_or(Status::Invalid)?,
    };
    let mut page = Page { items: Vec::new(), bytes: 0, files: 0, buffer: Vec::new() };
    while usize::from(place.part) < Store::SHARD_PARTS {
        if let Some(next) = page.read_part(target, container, place)? {
            return Ok(page.answer(Some(next)));
        }
        place = Place { part: place.part + 1, file: None, offset: 0 };
    }
    Ok(page.answer(None))
}

struct Page {
    items: Vec<ScanItem>,
    bytes: u64,
    files: usize,
    buffer: Vec<u8>,
}

impl Page {
    fn answer(mut self, next: Option<Place>) -> Reply {
        self.items.push(ScanItem::ReadData { bytes: self.bytes });
        Reply::Scanned { items: self.items, next: next.map(Place::encode) }
    }

    /// Reads the files of one part from a place on; gives the place where the page is full.
    fn read_part(
        &mut self,
        target: &Target,
        container: ContainerId,
        from: Place,
    ) -> Result<Option<Place>, Status> {
        let mut files = Vec::new();
        let mut visit = |oid: Oid, shard, _| {
            if oid.container() == container && from.file.is_none_or(|file| (oid, shard) >= file) {
                files.push((oid, shard));
            }
        };
        let listed = target.store.shard_list_part(usize::from(from.part), &mut visit);
        listed.map_err(store_status)?;
        files.sort_unstable();
        for key in files {
            let offset = if from.file == Some(key) { from.offset } else { 0 };
            let here = |offset| Some(Place { part: from.part, file: Some(key), offset });
            if self.files == PAGE_FILES || self.bytes >= PAGE_BYTES {
                return Ok(here(offset));
            }
            self.files += 1;
            let read = match target.store.shard(key.0, key.1) {
                Ok(Some(file)) => self.read_file(&file, offset),
                // Removed meanwhile.
                Ok(None) => Ok(None),
                Err(error) => Err((offset, error)),
            };
            match read {
                Ok(Some(offset)) => return Ok(here(offset)),
                Ok(None) | Err((_, StoreError::Lost { .. })) => {}
                Err((offset, error)) => {
                    let ((oid, shard), cause) = (key, error.to_string());
                    tracing::error!(target = target.id.0, %oid, shard, "{error}");
                    self.items.push(ScanItem::UnreadableData { oid, shard, offset, cause });
                }
            }
        }
        Ok(None)
    }

    /// Reads what is not a hole; gives the offset where the page is full.
    fn read_file(
        &mut self,
        file: &ShardFile,
        mut offset: u64,
    ) -> Result<Option<u64>, (u64, StoreError)> {
        while self.bytes < PAGE_BYTES {
            let data = file.seek_data(offset).map_err(|error| (offset, error))?;
            let Some(data) = data else { return Ok(None) };
            self.buffer.resize(BUFFER_BYTES, 0);
            let read = file.read_at(&mut self.buffer, data).map_err(|error| (data, error))?;
            if read == 0 {
                return Ok(None);
            }
            offset = data + read as u64;
            self.bytes += read as u64;
        }
        Ok(Some(offset))
    }
}
