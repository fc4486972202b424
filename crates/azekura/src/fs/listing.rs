//! `ls`, `stat` and `df`: showing what is there.

use anyhow::{Context as _, Result};
use azekura_posix::{Attr, AttrsWanted, FileKind, Timestamp};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::opened::{Opened, OpenedOnce};
use super::paths::join;
use crate::names::{ContainerName, Location};
use crate::reading::ReadArgs;
use crate::report::{self, Table, format_bytes};

/// About how much of a directory one request brings.
const PAGE_BYTES: u32 = 128 << 10;

/// `azekura fs ls`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs ls default:/\n  \
    azekura fs ls -lR default/scratch:/results")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line are independent of each other.
pub(crate) struct LsArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", default_value = "default:/")]
    places: Vec<Location>,
    /// Mode, links, owner, size and time too
    #[arg(short, long)]
    long: bool,
    /// Names that start with a dot too
    #[arg(short, long)]
    all: bool,
    /// Directories below too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `azekura fs stat`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs stat default:/big.bin")]
pub(crate) struct StatArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<Location>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `azekura fs df`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs df default")]
pub(crate) struct DfArgs {
    /// Container: POOL or POOL/CONTAINER
    #[arg(value_name = "POOL", default_value = "default")]
    name: ContainerName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is shown of a file.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks_512: u64,
    mtime: f64,
    inode: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink: Option<String>,
    #[serde(skip)]
    mtime_text: String,
    #[serde(skip)]
    mode_text: String,
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// The mode as `ls -l` writes it.
fn mode_text(kind: FileKind, mode: u16) -> String {
    let letter = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(letter);
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time as `2026-05-09 07:29:33` in UTC.
fn time_text(time: Timestamp) -> String {
    let days = time.secs.div_euclid(86_400);
    let second = time.secs.rem_euclid(86_400);
    // Days to a date of the Gregorian calendar, counted in eras of 400 years from March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
}

impl Shown {
    fn of(name: &[u8], attr: &Attr, symlink: Option<&[u8]>) -> Self {
        Self {
            name: String::from_utf8_lossy(name).into_owned(),
            kind: kind_name(attr.kind),
            mode: format!("{:04o}", attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks_512: attr.blocks_512,
            mtime: attr.mtime.secs as f64 + f64::from(attr.mtime.nanos) / 1e9,
            inode: attr.oid.inode_number(),
            symlink: symlink.map(|text| String::from_utf8_lossy(text).into_owned()),
            mtime_text: time_text(attr.mtime),
            mode_text: mode_text(attr.kind, attr.mode),
        }
    }
}

/// What one place of `ls` shows.
#[derive(Debug, Serialize)]
struct ShownDir {
    place: String,
    entries: Vec<Shown>,
}

/// Runs `azekura fs ls`.
pub(super) fn ls(args: &LsArgs) -> Result<()> {
    let mut opened = OpenedOnce::default();
    let mut all = Vec::new();
    for place in &args.places {
        let container = opened.of(place)?;
        let path = place.path.as_bytes();
        let attr = container
            .names
            .resolve(path, !args.long)
            .with_context(|| format!("cannot list {place}"))?;
        if attr.kind == FileKind::Directory {
            list_dir(&container, path.to_vec(), args, &mut all)?;
        } else {
            let entries = vec![show(&container, path, &attr)?];
            all.push(ShownDir { place: place.to_string(), entries });
        }
    }
    if args.json {
        return report::say_json(&serde_json::json!({ "directories": all }));
    }
    let with_titles = all.len() > 1;
    for (index, dir) in all.iter().enumerate() {
        if with_titles {
            let gap = if index > 0 { "\n" } else { "" };
            report::say(format_args!("{gap}{}:", dir.place));
        }
        print_dir(dir, args.long);
    }
    Ok(())
}

fn show(container: &Opened, name: &[u8], attr: &Attr) -> Result<Shown> {
    let text = match attr.kind {
        FileKind::Symlink => Some(container.fs.readlink(attr.oid)?),
        _ => None,
    };
    Ok(Shown::of(name, attr, text.as_deref()))
}

fn list_dir(
    container: &Opened,
    path: Vec<u8>,
    args: &LsArgs,
    all: &mut Vec<ShownDir>,
) -> Result<()> {
    // Without recursion by call, since directories may be deeper than a stack.
    let mut waiting = vec![path];
    while let Some(path) = waiting.pop() {
        let place = format!("{}:{}", container.name, String::from_utf8_lossy(&path));
        let cannot = || format!("cannot list {place}");
        let dir = container.names.resolve(&path, true).with_context(cannot)?.oid;
        let mut entries = Vec::new();
        let mut below = Vec::new();
        let mut cookie = 0;
        loop {
            let page = container
                .fs
                .readdir(&container.caller, dir, cookie, PAGE_BYTES, AttrsWanted::All)
                .with_context(cannot)?;
            let Some(last) = page.entries.last() else { break };
            cookie = last.cookie;
            for entry in &page.entries {
                let is_dot = entry.name == b"." || entry.name == b"..";
                if is_dot || !args.all && entry.name.starts_with(b".") {
                    continue;
                }
                let attr = match &entry.attr {
                    Some(attr) => attr.clone(),
                    None => match container.fs.getattr(entry.oid) {
                        Ok(attr) => attr,
                        // Removed while it was listed.
                        Err(_) => continue,
                    },
                };
                if args.recursive && attr.kind == FileKind::Directory {
                    below.push(join(&path, &entry.name));
                }
                entries.push(show(container, &entry.name, &attr)?);
            }
            if page.end {
                break;
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        below.sort();
        waiting.extend(below.into_iter().rev());
        all.push(ShownDir { place, entries });
    }
    Ok(())
}

fn print_dir(dir: &ShownDir, long: bool) {
    if !long {
        dir.entries.iter().for_each(|entry| report::say(&entry.name));
        return;
    }
    let mut table =
        Table::new(&["mode", ">links", ">uid", ">gid", ">size", "changed (UTC)", "name"]);
    for entry in &dir.entries {
        let arrow = entry.symlink.as_ref().map(|text| format!(" -> {text}")).unwrap_or_default();
        table.row([
            entry.mode_text.clone(),
            entry.nlink.to_string(),
            entry.uid.to_string(),
            entry.gid.to_string(),
            entry.size.to_string(),
            entry.mtime_text.clone(),
            format!("{}{arrow}", entry.name),
        ]);
    }
    report::say(table);
}

/// Everything about a file, in the order in which it is shown.
fn facts_of(
    place: &Location,
    attr: &Attr,
    shown: Shown,
    shards: u16,
) -> Vec<(&'static str, Value)> {
    let class = attr.oid.class();
    vec![
        ("place", place.to_string().into()),
        ("kind", shown.kind.into()),
        ("size", attr.size.into()),
        ("blocks_512", attr.blocks_512.into()),
        ("mode", shown.mode.into()),
        ("nlink", attr.nlink.into()),
        ("uid", attr.uid.into()),
        ("gid", attr.gid.into()),
        ("rdev", attr.rdev.into()),
        ("symlink", shown.symlink.into()),
        ("atime", time_text(attr.atime).into()),
        ("mtime", time_text(attr.mtime).into()),
        ("ctime", time_text(attr.ctime).into()),
        ("btime", time_text(attr.btime).into()),
        ("object", attr.oid.to_string().into()),
        ("inode", attr.oid.inode_number().into()),
        ("class", class.name().into()),
        ("shards", shards.into()),
        ("home_target", attr.oid.home().0.into()),
        ("chunk_bytes", attr.chunk_bytes.into()),
        ("wide", attr.striped.into()),
    ]
}

/// Runs `azekura fs stat`.
pub(super) fn stat(args: &StatArgs) -> Result<()> {
    let mut opened = OpenedOnce::default();
    let mut all = Vec::new();
    for place in &args.places {
        let container = opened.of(place)?;
        let attr = container
            .names
            .symlink_metadata(&place.path)
            .with_context(|| format!("cannot stat {place}"))?;
        let shown = show(&container, place.path.as_bytes(), &attr)?;
        let shards = container.fs.pool().placement().shards(attr.oid);
        all.push(facts_of(place, &attr, shown, shards));
    }
    if args.json {
        let files: Vec<serde_json::Map<String, Value>> = all
            .into_iter()
            .map(|facts| facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            .collect();
        return report::say_json(&serde_json::json!({ "files": files }));
    }
    for (index, facts) in all.iter().enumerate() {
        if index > 0 {
            report::say("");
        }
        for (name, value) in facts {
            match value {
                Value::Null => {}
                Value::String(text) => report::say(format_args!("{name:<12} {text}")),
                other => report::say(format_args!("{name:<12} {other}")),
            }
        }
    }
    Ok(())
}

/// Runs `azekura fs df`.
pub(super) fn df(args: &DfArgs) -> Result<()> {
    let container = Opened::open(&args.name, &ReadArgs::default())?;
    let space = container.fs.statfs().context("cannot ask for space")?;
    let used = space.total_bytes.saturating_sub(space.available_bytes);
    if args.json {
        return report::say_json(&serde_json::json!({
            "container": args.name.to_string(),
            "total_bytes": space.total_bytes,
            "available_bytes": space.available_bytes,
            "objects": space.objects,
        }));
    }
    let mut table = Table::new(&["container", ">size", ">used", ">free", ">use", ">objects"]);
    table.row([
        args.name.to_string(),
        format_bytes(space.total_bytes),
        format_bytes(used),
        format_bytes(space.available_bytes),
        format!("{}%", used * 100 / space.total_bytes.max(1)),
        space.objects.to_string(),
    ]);
    report::say(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        assert_eq!(mode_text(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileKind::Regular, 0o6744), "-rwsr-Sr--");
        assert_eq!(mode_text(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn times_are_dates_of_the_calendar() {
        let text = |secs| time_text(Timestamp { secs, nanos: 0 });
        assert_eq!(text(0), "1970-01-01 00:00:00");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(text(1_767_225_599), "2025-12-31 23:59:59");
        assert_eq!(text(-1), "1969-12-31 23:59:59");
    }
}
