//! The batch I/O program: one process that reads records from files and writes records to files through
//! buffered streams, as programs do with the C library's. Owns the names and contents of its files, and
//! removes all of them; what is measured with it is the business of others.
//!
//! Each record begins with its number in the order in which it is to be read, so that a file that holds
//! something else is noticed for the price of one comparison.

use anyhow::{Context as _, Result, bail};

use super::order::{BatchOrder, BatchStep, CachesDropped, Spent, Tally, clock_ns};
use super::space::FileSpace;
use super::streams::{Input, Output, Watch};
use crate::report::format_bytes;

/// So much of a record tells its number.
const NUMBER_BYTES: usize = 8;

type Prepared<'a> = Box<dyn FnOnce() -> Result<Tally> + 'a>;

impl BatchOrder {
    /// A file that is read.
    fn input(&self, file: u64) -> String {
        format!("{}/in.{file}", self.dir)
    }

    /// A file that is written.
    fn output(&self, file: u64) -> String {
        format!("{}/out.{file}", self.dir)
    }

    /// The file of a record, among so many.
    fn file_of(&self, record: u64, records: u64, files: u64) -> u64 {
        if self.round_robin {
            record % files
        } else {
            u64::try_from(u128::from(record) * u128::from(files) / u128::from(records.max(1)))
                .unwrap_or(files)
                .min(files - 1)
        }
    }

    /// Bytes of all records together.
    pub(super) fn bytes(&self) -> u64 {
        self.records_in.saturating_add(self.records_out).saturating_mul(self.record_bytes)
    }
}

/// Prepares one step of a batch and gives back the timed part.
///
/// # Errors
/// If there is no room, or something cannot be made.
pub(super) fn prepare<'a, S: FileSpace>(
    space: &'a mut S,
    order: BatchOrder,
    watch: &'a Watch,
) -> Result<Prepared<'a>> {
    match order.step {
        BatchStep::CheckRoom => {
            let bytes = check_room(space, &order)?;
            Ok(Box::new(move || Ok(Tally { bytes, ..Tally::default() })))
        }
        BatchStep::MakeInput => {
            check_memory(&order)?;
            check_room(space, &order)?;
            // By whoever comes first, and with the order that has it removed: no moment leaves one that nobody knows of.
            if let Some(above) = above(&order) {
                space.make_dir(above)?;
            }
            space.make_dir(&order.dir)?;
            Ok(Box::new(move || make_input(space, &order, watch)))
        }
        BatchStep::Run => {
            check_memory(&order)?;
            Ok(Box::new(move || run(space, &order, watch)))
        }
        BatchStep::ClearOutput => Ok(Box::new(move || {
            clear_outputs(space, &order);
            Ok(Tally::default())
        })),
        BatchStep::Forget => Ok(Box::new(move || forget(space, &order))),
        BatchStep::LetGo => Ok(Box::new(|| Ok(Tally::default()))),
        BatchStep::Clear => Ok(Box::new(move || {
            clear(space, &order);
            Ok(Tally::default())
        })),
    }
}

/// How much room there is, if it is enough.
fn check_room<S: FileSpace>(space: &mut S, order: &BatchOrder) -> Result<u64> {
    let room = space.room_bytes()?;
    if room < order.needs_bytes {
        bail!(
            "there is room for {}, and the files take {}: make --size smaller, or free some",
            format_bytes(room),
            format_bytes(order.needs_bytes)
        );
    }
    Ok(room)
}

/// Buffers must not take the machine's memory. All streams are open at once where files are gone round, else one
/// of each side; pages that nothing is moved through are not taken.
fn check_memory(order: &BatchOrder) -> Result<()> {
    let open = if order.round_robin { order.files_in.saturating_add(order.files_out) } else { 2 };
    let buffers = open.saturating_mul(order.buffer_bytes);
    let info = rustix::system::sysinfo();
    let half = info.totalram as u64 * u64::from(info.mem_unit) / 2;
    let all = buffers.min(order.bytes()).saturating_mul(order.processes);
    // One alone is asked for as a whole.
    let most = all.max(order.buffer_bytes);
    if most > half {
        bail!(
            "the buffers of all files take {most} bytes of memory, and there is room for {half}: make --buffer \
             or --files smaller"
        );
    }
    Ok(())
}

fn number_into(record: &mut [u8], number: u64) {
    let length = record.len().min(NUMBER_BYTES);
    record[..length].copy_from_slice(&number.to_le_bytes()[..length]);
}

fn has_number(record: &[u8], number: u64) -> bool {
    let length = record.len().min(NUMBER_BYTES);
    record[..length] == number.to_le_bytes()[..length]
}

fn record_of(order: &BatchOrder) -> Result<Vec<u8>> {
    let length = usize::try_from(order.record_bytes).context("a record is too long")?;
    Ok((0..length).map(|at| (at * 131 % 251) as u8).collect())
}

/// Writes what is to be read, one file after the other, all the way to the storage.
fn make_input<S: FileSpace>(space: &mut S, order: &BatchOrder, watch: &Watch) -> Result<Tally> {
    let mut record = record_of(order)?;
    let mut spent = Spent::default();
    // In the order of the files; `number` is where the run comes to each.
    for file in 0..order.files_in {
        let mut output = Output::create(space, &order.input(file), buffer_of(order)?, &mut spent)?;
        let mut number = first_record(order, file);
        while number < order.records_in && order.input_of(number) == file {
            number_into(&mut record, number);
            output.write(space, &record, watch, &mut spent)?;
            number += if order.round_robin { order.files_in } else { 1 };
        }
        output.close(space, order.files_in == 1, &mut spent)?;
    }
    if order.files_in > 1 {
        // Making each of many files durable by itself takes a file system's log many times as long.
        space.settle()?;
    }
    Ok(Tally { spent, ..Tally::default() })
}

impl BatchOrder {
    fn input_of(&self, record: u64) -> u64 {
        self.file_of(record, self.records_in, self.files_in)
    }

    fn output_of(&self, record: u64) -> u64 {
        self.file_of(record, self.records_out, self.files_out)
    }
}

/// The first record of an input file.
fn first_record(order: &BatchOrder, file: u64) -> u64 {
    if order.round_robin {
        return file;
    }
    let (file, files) = (u128::from(file), u128::from(order.files_in));
    u64::try_from((file * u128::from(order.records_in)).div_ceil(files)).unwrap_or(u64::MAX)
}

fn buffer_of(order: &BatchOrder) -> Result<Vec<u8>> {
    // Zeroed pages come from the kernel as they are used: a small file touches little of its buffer.
    Ok(vec![0; usize::try_from(order.buffer_bytes).context("the buffer is too large")?])
}

/// The streams of one side. In turn there is one, and its buffer goes on to the next; all files that are
/// gone round are open at once.
struct Streams<T> {
    open: Vec<Option<T>>,
    /// How many have been opened.
    opened: u64,
}

impl<T> Streams<T> {
    fn new() -> Self {
        Self { open: Vec::new(), opened: 0 }
    }

    fn get(&mut self, file: u64) -> Result<&mut T> {
        let index = usize::try_from(file)?;
        self.open.get_mut(index).and_then(Option::as_mut).context("a file is not open")
    }

    fn take_last(&mut self) -> Option<T> {
        self.open.last_mut().and_then(Option::take)
    }
}

/// Has an input open, closing the one before where files are read in turn.
fn reach_input<S: FileSpace>(
    space: &mut S,
    order: &BatchOrder,
    inputs: &mut Streams<Input<S::File>>,
    file: u64,
    spent: &mut Spent,
) -> Result<()> {
    while inputs.opened <= file {
        let before = if order.round_robin { None } else { inputs.take_last() };
        let buffer = match before {
            Some(before) => before.close(space, spent)?,
            None => buffer_of(order)?,
        };
        inputs.open.push(Some(Input::open(space, &order.input(inputs.opened), buffer, spent)?));
        inputs.opened += 1;
    }
    Ok(())
}

/// The same for outputs.
fn reach_output<S: FileSpace>(
    space: &mut S,
    order: &BatchOrder,
    outputs: &mut Streams<Output<S::File>>,
    file: u64,
    spent: &mut Spent,
) -> Result<()> {
    while outputs.opened <= file {
        let before = if order.round_robin { None } else { outputs.take_last() };
        let buffer = match before {
            Some(before) => before.close(space, order.fsync, spent)?,
            None => buffer_of(order)?,
        };
        let name = order.output(outputs.opened);
        outputs.open.push(Some(Output::create(space, &name, buffer, spent)?));
        outputs.opened += 1;
    }
    Ok(())
}

/// The program itself.
fn run<S: FileSpace>(space: &mut S, order: &BatchOrder, watch: &Watch) -> Result<Tally> {
    let mut record = record_of(order)?;
    let mut spent = Spent::default();
    let (mut inputs, mut outputs) = (Streams::new(), Streams::new());
    let start_ns = clock_ns();
    if order.round_robin {
        reach_input(space, order, &mut inputs, order.files_in - 1, &mut spent)?;
        reach_output(space, order, &mut outputs, order.files_out - 1, &mut spent)?;
    }
    let mut written = 0;
    for number in 0..order.records_in {
        let file = order.input_of(number);
        reach_input(space, order, &mut inputs, file, &mut spent)?;
        let there = inputs.get(file)?.read(space, &mut record, watch, &mut spent)?;
        if !(there && has_number(&record, number)) {
            bail!("{}: record {number} is not what was written there", order.input(file));
        }
        let due = u128::from(number + 1) * u128::from(order.records_out);
        while u128::from(written + 1) * u128::from(order.records_in) <= due {
            let file = order.output_of(written);
            reach_output(space, order, &mut outputs, file, &mut spent)?;
            outputs.get(file)?.write(space, &record, watch, &mut spent)?;
            written += 1;
        }
    }
    // Files that got no record are made all the same.
    reach_input(space, order, &mut inputs, order.files_in - 1, &mut spent)?;
    reach_output(space, order, &mut outputs, order.files_out - 1, &mut spent)?;
    for input in inputs.open.into_iter().flatten() {
        input.close(space, &mut spent)?;
    }
    for output in outputs.open.into_iter().flatten() {
        output.close(space, order.fsync, &mut spent)?;
    }
    Ok(Tally {
        operations: order.records_in + written,
        bytes: (order.records_in + written) * order.record_bytes,
        start_ns,
        end_ns: clock_ns(),
        spent,
        ..Tally::default()
    })
}

/// Has the input read from the storage again. The first process of a node asks the kernel as well, which
/// also forgets names; that takes the rights for it.
fn forget<S: FileSpace>(space: &mut S, order: &BatchOrder) -> Result<Tally> {
    for file in 0..order.files_in {
        let input = space.open_input(&order.input(file))?;
        space.prepare_read(&input, false)?;
        space.close(input)?;
    }
    let by_kernel =
        order.is_first_of_node && std::fs::write("/proc/sys/vm/drop_caches", b"3").is_ok();
    let dropped = if by_kernel { CachesDropped::ByKernel } else { CachesDropped::ByAdvice };
    Ok(Tally { caches_dropped: Some(dropped), ..Tally::default() })
}

// What is not there need not be removed.

fn clear_outputs<S: FileSpace>(space: &mut S, order: &BatchOrder) {
    for file in 0..order.files_out {
        let _ = space.remove(&order.output(file), false);
    }
}

/// The directory of the batch, in which each process has its own.
fn above(order: &BatchOrder) -> Option<&str> {
    order.dir.rsplit_once('/').map(|(above, _)| above)
}

/// Removes everything.
pub(super) fn clear<S: FileSpace>(space: &mut S, order: &BatchOrder) {
    clear_outputs(space, order);
    for file in 0..order.files_in {
        let _ = space.remove(&order.input(file), false);
    }
    let _ = space.remove(&order.dir, true);
    if let Some(above) = above(order) {
        // Goes with the last of its processes.
        let _ = space.remove(above, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::space_path::PathSpace;

    fn order(step: BatchStep) -> BatchOrder {
        BatchOrder {
            step,
            dir: "job/0".to_owned(),
            files_in: 1,
            files_out: 1,
            round_robin: false,
            records_in: 1000,
            records_out: 1000,
            record_bytes: 100,
            buffer_bytes: 4096,
            fsync: false,
            processes: 1,
            is_first_of_node: true,
            needs_bytes: 0,
        }
    }

    /// Runs a batch and gives the sizes of its outputs.
    fn outputs(change: impl Fn(&mut BatchOrder)) -> Vec<u64> {
        let scratch = tempfile::tempdir().unwrap();
        let mut space = PathSpace::open(scratch.path().to_str().unwrap()).unwrap();
        let watch = Watch::default();
        let mut step = |step| {
            let mut order = order(step);
            change(&mut order);
            let files = order.files_out;
            (prepare(&mut space, order, &watch).unwrap()().unwrap(), files)
        };
        step(BatchStep::MakeInput);
        let (tally, files) = step(BatchStep::Run);
        assert!(tally.end_ns > tally.start_ns && tally.spent.open_ns > 0);
        let out = |file| scratch.path().join(format!("job/0/out.{file}"));
        let sizes = (0..files).map(|file| std::fs::metadata(out(file)).unwrap().len()).collect();
        step(BatchStep::Clear);
        assert!(!scratch.path().join("job").exists());
        sizes
    }

    #[test]
    fn every_pattern_writes_its_files() {
        assert_eq!(outputs(|_| ()), [100_000]);
        assert_eq!(outputs(|order| order.records_out = 0), [0]);
        assert_eq!(outputs(|order| order.records_out = 2500), [250_000]);
        for round_robin in [false, true] {
            let split = outputs(|order| {
                order.files_out = 3;
                order.round_robin = round_robin;
            });
            assert_eq!(split.iter().sum::<u64>(), 100_000, "{round_robin}");
            assert!(split.iter().all(|bytes| (33_300..=33_400).contains(bytes)), "{split:?}");
            for files in [7, 1000] {
                let merged = outputs(|order| {
                    order.files_in = files;
                    order.round_robin = round_robin;
                    order.records_out = 500;
                });
                assert_eq!(merged, [50_000]);
            }
        }
    }

    #[test]
    fn records_may_be_longer_than_the_buffer_or_one_byte() {
        assert_eq!(outputs(|order| order.buffer_bytes = 64), [100_000]);
        assert_eq!(outputs(|order| order.record_bytes = 1), [1000]);
    }

    #[test]
    fn what_was_not_written_there_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut space = PathSpace::open(scratch.path().to_str().unwrap()).unwrap();
        let watch = Watch::default();
        prepare(&mut space, order(BatchStep::MakeInput), &watch).unwrap()().unwrap();
        std::fs::write(scratch.path().join("job/0/in.0"), vec![7; 100_000]).unwrap();
        let error = prepare(&mut space, order(BatchStep::Run), &watch).unwrap()().unwrap_err();
        assert!(error.to_string().contains("record 0"), "{error}");
        watch.end();
        let error =
            prepare(&mut space, order(BatchStep::MakeInput), &watch).unwrap()().unwrap_err();
        assert!(error.to_string().contains("told to end"), "{error}");
    }

    #[test]
    fn too_little_room_and_too_large_buffers_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let mut space = PathSpace::open(scratch.path().to_str().unwrap()).unwrap();
        let watch = Watch::default();
        let large = BatchOrder { needs_bytes: u64::MAX, ..order(BatchStep::MakeInput) };
        let error = prepare(&mut space, large, &watch).err().unwrap();
        assert!(error.to_string().contains("room"), "{error}");
        for step in [BatchStep::MakeInput, BatchStep::Run] {
            let wide = BatchOrder { buffer_bytes: 100 << 40, ..order(step) };
            let many = BatchOrder {
                round_robin: true,
                buffer_bytes: 1 << 40,
                records_in: 1 << 40,
                ..order(step)
            };
            for order in [wide, many] {
                let error = prepare(&mut space, order, &watch).err().unwrap();
                assert!(error.to_string().contains("--buffer"), "{error}");
            }
        }
    }
}
