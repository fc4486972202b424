//! What goes home, as the command line has it: where that is written down, and what people are told of it. How
//! it goes is the business of `azekura_stage`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use azekura_proto::staging::{JobId, MapKind};
use azekura_stage::front::{Front, OutOptions, OutReport};
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
    /// If there is no working directory.
    pub(super) fn of(args: &RunArgs, job: JobId, maps: &[MapDescription]) -> Result<Self> {
        let path = match &args.manifest {
            Some(path) => Some(places::absolute(path)?),
            None if maps.iter().all(|map| map.kind == MapKind::ReadOnly) => None,
            None => {
                let name = format!("azekura-stage-{}.manifest", &job.to_hex()[..8]);
                Some(places::absolute(Path::new(&name))?)
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
        Some(format!(
            "{} not sent home, kept on the nodes: 'azekura stage resume {}' sends it",
            report.failed.len(),
            path.display()
        ))
    }
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
