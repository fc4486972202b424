//! What is kept of a path that an engine has walked, and the walk that comes with a container: a program that comes from
//! far away says with its first request where it is about to look.

use std::sync::Arc;
use std::time::Instant;

use azekura_client::Pool;
use azekura_proto::message::typed::{ContainerWalk, Found, WalkedPath};
use azekura_proto::{Attr, FileKind, Oid, TargetId};

use crate::cache::{AskedAny, Step};
use crate::filesystem::not_mounted;
use crate::walked::{End, Told, names_at_once};
use crate::{FileSystem, FsConfig, MountError};

impl FileSystem {
    /// As [`FileSystem::mount`], for a program that is about to look at a path, from the root on: from far away that
    /// comes along, and the root's attributes. What was told is believed for a moment, as what listings bring is
    /// ([`FsConfig::listed_from_us`]).
    ///
    /// # Errors
    /// Those of [`FileSystem::mount`].
    pub fn mount_towards(
        pool: Arc<Pool>,
        name: &str,
        config: FsConfig,
        path: &[u8],
    ) -> Result<Arc<Self>, MountError> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let path = names_at_once(names);
        let at = config.platform.now();
        let walk = ContainerWalk { name, path: &path };
        let (container, walked) =
            pool.call(TargetId(0), walk).map_err(|error| not_mounted(&pool, name, error))?;
        let fs = Self::of_container(pool, container, config);
        fs.keep_first_walk(at, &path, walked);
        Ok(fs)
    }

    /// Keeps where the names of a path lead from the root on, as was told to a question of that time.
    fn keep_first_walk(&self, at: Instant, path: &[u8], walked: WalkedPath) {
        if !self.keeps_listed() {
            return;
        }
        let answered = self.now();
        let age = answered.saturating_duration_since(at);
        let (asked, asked_any) =
            (self.listed.ask_since(at), self.cache.ask_any_dir().earlier_by(age));
        let mut dir = self.root();
        for (found, name) in walked.steps.iter().zip(path.split(|byte| *byte == b'/')) {
            if let Some(attr) = &found.attr {
                self.listed.keep_told(&asked, (dir, name.into()), Attr::clone(attr));
            }
            dir = found.entry.oid;
        }
        let end = self.keep_walked(asked_any, self.root(), path, walked);
        self.first_walk.keep(end, asked, answered);
    }

    /// What was told of a name with the container, if this is the first one that anybody looks at.
    pub(crate) fn first_end(&self, dir: Oid, name: &[u8]) -> Option<End> {
        let (end, asked) = self.first_walk.take(dir, name, self.now())?;
        let object = match &end.told {
            Told::Absent => None,
            Told::There(found, _) => Some(found.entry.oid),
        };
        let holds = self.newborns.are_none() && self.listed.is_unchanged_since(dir, object, &asked);
        holds.then_some(end)
    }

    /// Keeps what an engine has told of the names of a path from a directory on: the steps, as far as they lead to
    /// directories. Gives where they end, if that is within the path or its last name.
    pub(crate) fn keep_walked(
        &self,
        asked: AskedAny,
        dir: Oid,
        path: &[u8],
        walked: WalkedPath,
    ) -> Option<End> {
        let cache = &self.cache;
        let WalkedPath { dir: above, steps, is_absent } = walked;
        if let Some(attr) = above {
            cache.keep_met_dir(asked, dir, attr);
        }
        let mut names = path.split(|byte| *byte == b'/');
        let (mut at, mut end) = (dir, None);
        for (found, name) in steps.into_iter().zip(names.by_ref()) {
            let (dir, Found { entry, attr }) = (at, &found);
            if entry.kind == FileKind::Directory {
                // Whatever comes next is judged by them.
                if let Some(attr) = attr {
                    cache.keep_met_dir(asked, entry.oid, attr.clone());
                }
                cache.keep_met_step(asked, dir, name, Step::Directory(entry.oid));
                at = entry.oid;
            }
            end = Some(End { dir, name: name.to_vec(), told: Told::There(found, asked) });
        }
        if let Some(name) = names.next().filter(|_| is_absent) {
            end = Some(End { dir: at, name: name.to_vec(), told: Told::Absent });
        }
        end
    }
}
