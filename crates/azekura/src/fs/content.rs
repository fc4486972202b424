//! `cat`: file contents on standard output.

use anyhow::{Context as _, Result};
use azekura_posix::OpenOptions;
use clap::Args;

use super::opened::OpenedOnce;
use crate::names::Location;
use crate::reading::ReadArgs;
use crate::report;

const PIECE_BYTES: usize = 4 << 20;

/// `azekura fs cat`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs cat default:/notes.txt")]
pub(crate) struct CatArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<Location>,
    #[command(flatten)]
    reading: ReadArgs,
}

/// Runs `azekura fs cat`.
pub(super) fn cat(args: &CatArgs) -> Result<()> {
    print(&args.places, &args.reading)
}

/// Prints files on standard output, one after the other.
pub(super) fn print(places: &[Location], reading: &ReadArgs) -> Result<()> {
    let mut opened = OpenedOnce::reading(reading);
    let mut buffer = vec![0; PIECE_BYTES];
    for place in places {
        let cannot = || format!("cannot read {place}");
        let file = opened
            .of(place)?
            .names
            .open(&place.path, &OpenOptions::read_only())
            .with_context(cannot)?;
        let mut offset = 0;
        loop {
            let bytes = file.read_at(&mut buffer, offset).with_context(cannot)?;
            if bytes == 0 {
                break;
            }
            report::say_bytes(&buffer[..bytes]);
            offset += bytes as u64;
        }
    }
    Ok(())
}
