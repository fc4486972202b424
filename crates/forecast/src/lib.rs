//! How long a batch of processes that read and write files will take. Pure: texts and numbers in, numbers
//! and texts out; this crate opens no file, asks no clock, and starts nothing. [`Job`] says what is to be
//! done, [`Calibration`] what the file system was measured to be, [`forecast`] what follows from both, by
//! the published equations ([`paper`]) or by the project's own model, and [`verify()`] holds that against
//! what was measured.
//!
//! # What a calibration holds, and which runs give it
//!
//! All runs are of the batch I/O program (records of one size, an application buffer for each file, all
//! processes starting at a barrier), of the [`Made::record_bytes`](calibration::Made) and `buffer_bytes`
//! that the file names, caches dropped before each unless it says otherwise, three times or more. A value's
//! spread is that between repetitions ([`Measured::of`]), or the standard error of a fitted line
//! ([`fit::Line::measured_slope`]).
//!
//! | key | runs | value |
//! |---|---|---|
//! | `sequential.read` (`T_SR`) | simple, ratio 0, one process | bytes / time |
//! | `sequential.write` (`T_SW`) | simple, ratios 0 and 1 | bytes out / difference of the times |
//! | `random.read`, `random.write` (`T_RR`, `T_RW`) | one buffer at a time at random places, one process | bytes / time |
//! | `metadata.split_s_per_file` (`C_C`) | split, sequential, N = 1, 16, 64.., same bytes | slope of the line time over N |
//! | `metadata.merge_s_per_file` (`C_O`) | merge, sequential, the same | slope |
//! | `metadata.start_s` | simple, ratio 1, sizes small to usual | intercept of the line time over bytes |
//! | `metadata.create_s` .. `unlink_s` | loops of each operation over many files | time / operations |
//! | `path.*` (`B_P`, `B_CP`, `B_SP`) | what the devices' or links' makers say, or streams from memory to memory | taken as it is |
//! | `parallel` | simple (split, merge) with x = 2, 4, 8.. processes, throughput y | [`fit::Line::over_inverse`] |
//! | `streams.read` | simple, ratio 0, n processes | bytes / time, less `start_s` |
//! | `streams.write` | simple of a high ratio (8 or more), n processes, no more bytes than `write_back` takes | bytes out / (time less reading and `start_s`) |
//! | `streams.mixed` | simple, ratio 1, n processes | bytes in and out / (time less `start_s`) |
//! | `streams.cached_read`, `.cached_mixed` | the same, the input just written or read, caches not dropped | the same |
//! | `streams.create`, `.open` | n processes, each over files of its own | operations / time |
//! | `files` | split and merge, sequential, N files, n processes, less simple with the same data | difference / further files, by their size |
//! | `interleaved` | split and merge, round-robin, N files, less N times `create_s` or `open_s` | bytes / time |
//! | `cpu.record_*` | warm caches, record sizes from small to a buffer | slope of time over records |
//! | `cpu.request_*` | warm caches, records as large as the buffer, buffer sizes varied | slope of time over requests |
//! | `overlap.compute` | records far smaller than usual, cold and from memory | [`fit::overlap`] of computing and moving |
//! | `overlap.metadata` | none where there are `files`, which have it in them; else split over many files, n processes | [`fit::overlap`] of metadata and data |
//! | `overlap.write_back` | simple, ratio 1, several times what memory takes in | [`fit::overlap`] of reading and draining |
//! | `write_back` | writing far more than memory takes in | where the time's slope over bytes changes, and its later slope; or what the system says that memory takes in, and bytes / time of making files durable |
//! | `cache.node_bytes` | reading again what was just read, ever more | the most that came from memory |
//! | `model.residual` | none: all of the above | [`residual`] over the calibration's own runs |
//!
//! What is left out of a file is not guessed: a forecast that needs it lists it as outside of what was
//! measured, with a wider interval, or is refused where nothing stands in for it. Without `write_back`
//! writes have the same throughput whatever their size; without `cache` nothing comes from memory; without
//! `cpu` and `overlap` the application's sizes and computing add to the time.
//!
//! # Intervals
//!
//! An interval is to hold 90 % of single runs: 5 % take less, 5 % more. It is made of the spread of each
//! value that the forecast depends on, of [`calibration::Model::residual`] (what the model does not
//! describe), and, outside of the calibrated range, of an allowance for each doubling beyond it. Such a
//! forecast is widened and not refused, since the laws of the model carry on (twice the data take twice the
//! time once no memory holds them); but what it takes for granted is listed in [`Forecast::outside`], and no
//! choice of processes and nodes is made there unless it is asked for.

mod bottleneck; //      what binds, or why nothing follows
pub mod calibration; // FS.toml: what was measured of a file system
mod complaint; //       what is wrong with a file, and where
mod derive; //          a calibration from measured runs
pub mod fit; //         straight lines, y = a/x + b, Student's distribution
mod forecasting; //     the time of a job, its interval, what binds it
mod full; //            the project's own model
pub mod job; //         JOB.toml: what is to be done
mod measured; //        values with their spread
pub mod paper; //       equations (1) to (9)
mod runs; //            RUN.json: what was measured of jobs
#[cfg(test)]
mod samples; //         a calibration and a job for tests
mod spread; //          from the spread of values to intervals
mod sweep; //           the best number of processes and nodes
mod toml_text; //       strings as TOML writes them
pub mod units; //       seconds, bytes, throughputs
mod verify; //          forecasts held against measured runs

pub use bottleneck::{Bottleneck, Unforeseen};
pub use calibration::Calibration;
pub use complaint::{Contradiction, FileError};
pub use derive::{Beside, Loops, derive};
pub use forecasting::{Forecast, Model, Outside, PhaseForecast, Terms, forecast, remarks};
pub use job::Job;
pub use measured::Measured;
pub use runs::{Run, Runs, Spent};
pub use sweep::{Best, Candidates, Deadline, Sweep, sweep};
pub use verify::{Checked, Culprit, Verdict, residual, verify};
