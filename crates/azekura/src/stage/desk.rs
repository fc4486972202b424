//! Where a job takes questions of commands that are run beside it: `in`, `sync`, `status`. The front has a
//! desk on its host; each agent has one on its node that hands questions on to the front, over the pipes
//! that hold its life line. Abstract sockets, so that nothing stays of them, open to the same user only.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azekura_proto::staging::JobId;
use azekura_stage::peer::is_own_user;
use serde::{Deserialize, Serialize};

use super::launch::{LifeLine, MESSAGE_BYTES_MAX};
use super::tally::JobStatus;

/// What stands before an agent's question on its way to the front: a number and the question follow.
const ASK: &str = "ask ";
/// What stands before the answer on its way back.
const ANSWER: &str = "answer ";
/// Questions under way at once, at one desk.
const QUESTIONS_MAX: usize = 64;
/// Whoever has dialled is to say what it wants within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Question {
    /// How the job is.
    Status,
    /// Send home what is new.
    Sync,
    /// Bring files: absolute paths.
    In(Vec<Vec<u8>>),
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// How the job is.
    Status(Box<JobStatus>),
    /// It is done.
    Done,
    /// So many files were sent home, so many bytes, and these lines say what was not.
    Sent { files: u64, bytes: u64, failures: Vec<String> },
    /// It cannot be done, for this reason.
    Failed(String),
}

/// Who answers at the front.
pub(super) type Clerk = Arc<dyn Fn(Question) -> Answer + Send + Sync>;

/// The name of a job's desk.
fn name_of(job: JobId) -> String {
    format!("{}/desk", job.socket_name())
}

fn address(job: JobId) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name_of(job))
}

/// Jobs that have a desk on this host, sorted.
///
/// # Errors
/// If the kernel's list of sockets cannot be read.
pub(super) fn jobs_here() -> io::Result<Vec<JobId>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let of_line = |line: &str| {
        let name = line.split_whitespace().last()?;
        JobId::from_hex(name.strip_prefix("@azekura-stage-")?.strip_suffix("/desk")?)
    };
    let mut jobs: Vec<JobId> = sockets.lines().filter_map(of_line).collect();
    jobs.sort_by_key(|job| job.0);
    jobs.dedup();
    Ok(jobs)
}

/// Asks the desk of a job on this host.
///
/// # Errors
/// If there is none, or it does not answer.
pub(super) fn ask(job: JobId, question: &Question) -> io::Result<Answer> {
    let mut stream = UnixStream::connect_addr(&address(job)?)?;
    if !is_own_user(&stream) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the job is another user's"));
    }
    stream.write_all(&line_of(question)?)?;
    let mut line = String::new();
    BufReader::new((&stream).take(MESSAGE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the job has ended"));
    }
    Ok(serde_json::from_str(&line)?)
}

fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Counts what is under way; `None` if it is too much.
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let turn = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < QUESTIONS_MAX).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes in whoever dials, each in a thread of its own.
fn admit(
    listener: UnixListener,
    serve: impl Fn(UnixStream, String) + Clone + Send + 'static,
) -> io::Result<()> {
    let count = Arc::new(AtomicUsize::new(0));
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    spawn("desk").spawn(move || {
        for stream in listener.incoming().flatten().filter(|caller| is_own_user(caller)) {
            let Some(turn) = Turn::take(&count) else { continue };
            let serve = serve.clone();
            // A thread that cannot be started closes the connection, which tells the caller.
            let _ = spawn("desk").spawn(move || {
                let _turn = turn;
                if let Some(line) = first_line(&stream) {
                    serve(stream, line);
                }
            });
        }
    })?;
    Ok(())
}

fn first_line(stream: &UnixStream) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(MESSAGE_BYTES_MAX)).read_line(&mut line).ok()?;
    (!line.is_empty()).then_some(line)
}

fn answer_to(clerk: &Clerk, line: &str) -> Answer {
    match serde_json::from_str(line) {
        Ok(question) => clerk(question),
        Err(_) => Answer::Failed("the question is of another version of azekura".to_owned()),
    }
}

/// Opens the front's desk.
///
/// # Errors
/// If the socket or the thread cannot be made.
pub(super) fn open(job: JobId, clerk: Clerk) -> io::Result<()> {
    admit(UnixListener::bind_addr(&address(job)?)?, move |mut stream, line| {
        if let Ok(line) = line_of(&answer_to(&clerk, &line)) {
            // Whoever asked may have gone.
            let _ = stream.write_all(&line);
        }
    })
}

/// The front's side of the agents' desks.
pub(super) struct FarDesks {
    clerk: Clerk,
    life_lines: Vec<LifeLine>,
    count: Arc<AtomicUsize>,
}

impl FarDesks {
    pub(super) fn new(clerk: Clerk, life_lines: Vec<LifeLine>) -> Self {
        Self { clerk, life_lines, count: Arc::default() }
    }

    /// Takes a line that the agent of a node has said, and answers if it is a question.
    pub(super) fn hear(&self, node: usize, line: &str) {
        let Some((number, question)) = line.strip_prefix(ASK).and_then(|rest| rest.split_once(' '))
        else {
            return;
        };
        let (Some(life_line), Some(turn)) =
            (self.life_lines.get(node).cloned(), Turn::take(&self.count))
        else {
            return;
        };
        let (clerk, number, question) =
            (Arc::clone(&self.clerk), number.to_owned(), question.to_owned());
        let answers = std::thread::Builder::new().name("desk".to_owned());
        let _ = answers.spawn(move || {
            let _turn = turn;
            let Ok(answer) = line_of(&answer_to(&clerk, &question)) else { return };
            let mut text = format!("{ANSWER}{number} ").into_bytes();
            text.extend(answer);
            let mut line = life_line.lock().unwrap_or_else(PoisonError::into_inner);
            // The agent may have ended.
            let _ = line.as_mut().map(|line| line.write_all(&text));
        });
    }
}

/// The desk of an agent. Where the front stands on the same host the job has its desk there already.
pub(super) struct Relay {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    callers: HashMap<u64, UnixStream>,
}

impl Relay {
    /// Opens the desk; does without it where that cannot be.
    pub(super) fn open(job: JobId) -> Self {
        let waiting: Arc<Mutex<Waiting>> = Arc::default();
        let asked = Arc::clone(&waiting);
        let opened = address(job).and_then(|address| UnixListener::bind_addr(&address));
        let opened = opened.and_then(|listener| {
            admit(listener, move |stream, line| {
                let mut waiting = asked.lock().unwrap_or_else(PoisonError::into_inner);
                if waiting.callers.len() >= QUESTIONS_MAX {
                    return;
                }
                waiting.last += 1;
                let number = waiting.last;
                waiting.callers.insert(number, stream);
                // If the front hears nothing any more, the agent is told to end.
                let _ = writeln!(io::stdout(), "{ASK}{number} {}", line.trim_end());
            })
        });
        if let Err(error) = opened {
            tracing::debug!("no desk on this node: {error}");
        }
        Self { waiting }
    }

    /// Hands an answer of the front to whoever asked.
    pub(super) fn answer(&self, line: &str) {
        let answer = line.strip_prefix(ANSWER).and_then(|rest| rest.split_once(' '));
        let Some((Ok(number), answer)) = answer.map(|(number, text)| (number.parse(), text)) else {
            return;
        };
        let caller =
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).callers.remove(&number);
        if let Some(mut caller) = caller {
            // Whoever asked may have gone.
            let _ = writeln!(caller, "{answer}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_at_the_desk() {
        let job = JobId(*b"desk of one test");
        let clerk: Clerk = Arc::new(|question| match question {
            Question::In(paths) => Answer::Failed(format!("{} paths", paths.len())),
            _ => Answer::Done,
        });
        assert!(ask(job, &Question::Sync).is_err());
        open(job, clerk).unwrap();
        assert!(jobs_here().unwrap().contains(&job));
        assert!(matches!(ask(job, &Question::Sync).unwrap(), Answer::Done));
        let paths = vec![b"/a\xff\n".to_vec(); 3];
        let answer = ask(job, &Question::In(paths)).unwrap();
        assert!(matches!(answer, Answer::Failed(why) if why == "3 paths"));
    }

    #[test]
    fn an_answer_finds_who_asked() {
        let relay = Relay { waiting: Arc::default() };
        let (ours, theirs) = UnixStream::pair().unwrap();
        relay.waiting.lock().unwrap().callers.insert(7, theirs);
        for line in ["", "answer", "answer x y", "answer 8 \"done\"", "answer 7 \"done\""] {
            relay.answer(line);
        }
        let mut line = String::new();
        BufReader::new(ours).read_line(&mut line).unwrap();
        assert_eq!(line, "\"done\"\n");
    }
}
