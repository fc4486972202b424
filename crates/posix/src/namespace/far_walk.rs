//! The walk of a path whose engines are far away: as many of its names as an engine knows are looked up by
//! one request. Owns how what such an answer leaves is used by the steps of a walk, whose rules stand in [`super::walk`].

use azekura_proto::Oid;
use azekura_proto::message::typed::{Found, Walk};

use super::Namespace;
use crate::cache::Step;
use crate::walked::{End, Told};
use crate::{Errno, Result};

impl Namespace {
    /// Looks up the names of a path from a directory on; see [`crate::FileSystem::keep_walked`].
    pub(super) fn look_along(&self, dir: Oid, path: &[u8]) -> Result<Option<End>> {
        let cache = &self.fs.cache;
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        let with_dir = self.fs.checks() && !self.caller.is_root() && cache.dir(dir).is_none();
        let asked = cache.ask_any_dir();
        let walked = self.fs.call_entry(dir, first, Walk { dir, path, with_dir })?;
        Ok(self.fs.keep_walked(asked, dir, path, walked))
    }

    /// Where the next name leads by which a walk goes on, by what its end was last time or by another one from
    /// there. `path`: the names from that one on.
    pub(super) fn step_along(
        &self,
        (dir, name): (Oid, &[u8]),
        path: &[u8],
        end: &mut Option<End>,
    ) -> Result<Step> {
        let mut told = end.take().and_then(|end| end.of(dir, name));
        if told.is_none() {
            *end = self.look_along(dir, path)?;
            if let Some(step) = self.known_step(dir, name) {
                return Ok(step);
            }
            told = end.take().and_then(|end| end.of(dir, name));
        }
        match told {
            Some(Told::There(Found { entry, .. }, asked)) => {
                let step = self.step_of(entry)?;
                self.fs.cache.keep_met_step(asked, dir, name, step.clone());
                Ok(step)
            }
            Some(Told::Absent) => Err(Errno::NOENT),
            None => self.look(dir, name),
        }
    }
}
