//! `azekura logs`: what an engine or a mount that runs in the background has written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::host::{mounts, places};
use crate::names::check_name;
use crate::report;

/// How often a log is looked at for more.
const INTERVAL: Duration = Duration::from_millis(200);
/// As much of the end of a log is looked through for its last lines.
const END_BYTES: u64 = 4 << 20;

/// `azekura logs`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura logs                     of the pool 'default'\n  \
    azekura logs big -n 200 -f       the last lines, and what comes\n  \
    azekura logs --mount ./mnt       of a mount\n  \
    less \"$(azekura logs --path)\"\n\n\
    An engine of 'azekura serve' writes to its standard error: 'journalctl --user -u UNIT' shows that of \
    a unit.")]
pub(crate) struct LogsArgs {
    /// Name of the pool
    #[arg(value_name = "POOL", default_value = "default", value_parser = check_name)]
    pool: String,
    /// Of the mount at this directory instead
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// How many of the last lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// Print the name of the log file instead
    #[arg(long, conflicts_with_all = ["lines", "follow"])]
    path: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such log.
pub(crate) fn run(args: &LogsArgs) -> Result<()> {
    let path = match &args.mount {
        Some(dir) => places::mount_log(&mounts::canonical_mount_point(dir)?)?,
        None => places::log_file(&args.pool)?,
    };
    if args.path {
        report::say(path.display());
        return Ok(());
    }
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "there is no log {}: was it started here, in the background? ('azekura up', 'azekura \
             mount')",
            path.display()
        ),
        other => other.with_context(|| format!("cannot open {}", path.display()))?,
    };
    let cannot = || format!("cannot read {}", path.display());
    let bytes = file.metadata().with_context(cannot)?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES))).with_context(cannot)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).with_context(cannot)?;
    report::say_bytes(last_lines(&text, args.lines));
    if !args.follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(INTERVAL);
        file = same_or_new(file, &path).with_context(cannot)?;
        text.clear();
        file.read_to_end(&mut text).with_context(cannot)?;
        report::say_bytes(&text);
    }
}

/// The file to go on with: another one stands under the name when the log was set aside for its size.
fn same_or_new(file: File, path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        Ok(found) if found.ino() != file.metadata()?.ino() => File::open(path),
        _ => Ok(file),
    }
}

fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1).map(|above| ends.nth(above)) {
        None => &[],
        Some(None) => text,
        Some(Some((at, _))) => &text[at + 1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_text() {
        for (lines, wanted) in
            [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (9, "a\nb\nc\n")]
        {
            assert_eq!(last_lines(b"a\nb\nc\n", lines), wanted.as_bytes());
        }
        assert_eq!(last_lines(b"a\nb", 1), b"b");
        assert_eq!(last_lines(b"", 5), b"");
    }
}
