//! What goes home, as the command line has it: where that is written down, and what people are told of it. How
//! it goes is the business of `azekura_stage`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use azekura_proto::staging::{JobId, MapKind};
use azekura_stage::front::{Front, Manifest, OutOptions, OutReport};
use azekura_stage::job::MapDescription;

use super::args::RunArgs;
use super::desk::Answer;
use crate::host::places;

/// What a manifest says for `resume`: the cache and the launcher's template.
pub(super) const CACHE: &str = "cache";
pub(super) const LAUNCH: &str = "launch";

/// Where a job's stage-out is written down.
pub(super) struct Record {
    /// None if nothing can go home.
    path: Option<PathBuf>,
    /// Whether it stays when all is at home.
    is_asked_for: bool,
}

impl Record {
    /// As the command line says.
    ///
    /// # Errors
    /// If there is no working directory, or no place where a manifest can be written.
    pub(super) fn of(args: &RunArgs, job: JobId, maps: &[MapDescription]) -> Result<Self> {
        let path = match &args.manifest {
            Some(path) => {
                let path = places::absolute(path)?;
                try_to_write(&path).with_context(|| cannot_write(&path))?;
                Some(path)
            }
            None if maps.iter().all(|map| map.kind == MapKind::ReadOnly) => None,
            None => {
                let name = format!("azekura-stage-{}.manifest", &job.to_hex()[..8]);
                Some(usual_place(&name)?)
            }
        };
        Ok(Self { path, is_asked_for: args.manifest.is_some() })
    }

    /// How files go home.
    ///
    /// # Errors
    /// If there is no working directory.
    pub(super) fn options(&self, args: &RunArgs) -> Result<OutOptions> {
        let cache = places::absolute(&args.cache)?.to_string_lossy().into_owned();
        let mut note = BTreeMap::from([(CACHE.to_owned(), cache)]);
        note.extend(args.launch.clone().map(|launch| (LAUNCH.to_owned(), launch)));
        Ok(OutOptions {
            concurrency: usize::from(args.out_concurrency),
            on_close: args.out_on_close,
            manifest: self.path.clone(),
            note,
        })
    }

    /// The job is over. Says what is left to be done, if anything is.
    pub(super) fn close(&self, report: &OutReport) -> Option<String> {
        let path = self.path.as_ref()?;
        if report.failed.is_empty() {
            if !self.is_asked_for {
                // Where nothing was to be sent there is none.
                let _ = std::fs::remove_file(path);
            }
            return None;
        }
        let Ok(manifest) = Manifest::read(path) else {
            let count = report.failed.len();
            return Some(format!(
                "{count} not sent home: there is no whole manifest, so copy it from the caches of the nodes"
            ));
        };
        let unsent = manifest.unsent();
        let resume = (unsent > 0).then(|| {
            let path = path.display();
            format!(
                "{unsent} not sent home, kept on the nodes: 'azekura stage resume {path}' sends it"
            )
        });
        let said: Vec<_> = resume.into_iter().chain(lost(&manifest)).collect();
        (!said.is_empty()).then(|| said.join("\nazekura: "))
    }
}

/// What is to be said of nodes that were lost before they said what they have to send.
pub(super) fn lost(manifest: &Manifest) -> Option<String> {
    let hosts: Vec<_> = manifest.unlisted().map(|(_, host)| format!("'{host}'")).collect();
    if hosts.is_empty() {
        return None;
    }
    let cache = manifest.note.get(CACHE).map_or("its cache", String::as_str);
    let job = manifest.job.socket_name();
    Some(format!(
        "what programs wrote on {} and had not sent is lost with the node, unless it lies there in \
         {cache}/{job}/NODE/tree: nothing else knows of it, and 'azekura stage resume' does not send it",
        hosts.join(", ")
    ))
}

fn cannot_write(path: &Path) -> String {
    format!(
        "cannot write the manifest {}: name another file with --manifest, that is not there yet",
        path.display()
    )
}

/// Whether a manifest can be begun at a path: told now, as it would be too late at the end. Leaves nothing.
fn try_to_write(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).create_new(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = OpenOptions::new().append(true).create(true).open(path)?;
            if there.metadata()?.len() > 0 { Err(error) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

/// Where a manifest is written that nobody has named a place for: here, or where the user's files of that kind
/// are, or where temporary ones are.
fn usual_place(name: &str) -> Result<PathBuf> {
    let here = places::absolute(Path::new(name))?;
    let Err(error) = try_to_write(&here) else { return Ok(here) };
    let state = places::state_dir().and_then(|dir| places::make_private_dir(&dir).map(|()| dir));
    let others = state.ok().into_iter().chain([std::env::temp_dir()]);
    let mut others = others.map(|dir| dir.join(name));
    others.find(|path| try_to_write(path).is_ok()).ok_or(error).with_context(|| cannot_write(&here))
}

/// Sends home what is new on the nodes.
pub(super) fn send_home(front: Option<&Front>) -> OutReport {
    front.map(Front::stage_out).unwrap_or_default()
}

/// What was sent, for whoever asked for it at a desk.
pub(super) fn answer(report: &OutReport) -> Answer {
    let failed = report.failed.iter().map(|failed| format!("{}: {}", failed.path, failed.why));
    let conflicts = report.conflicts.iter().map(|conflict| {
        let kept = conflict.kept.join(", ");
        format!("{}: written on several nodes, kept as {kept}", conflict.path)
    });
    Answer::Sent {
        files: report.files,
        bytes: report.bytes,
        failures: failed.chain(conflicts).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_begun_where_nothing_is_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        try_to_write(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        try_to_write(&path).unwrap();
        std::fs::write(&path, "of another job\n").unwrap();
        assert!(try_to_write(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"of another job\n");
        assert!(try_to_write(&dir.path().join("none/m")).is_err());
        assert!(try_to_write(dir.path()).is_err());
    }
}
