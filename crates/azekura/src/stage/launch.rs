//! Starts the agents of a job and holds their life lines: the standard input of each, at whose end it ends.
//! Owns what is said to and heard from them until they listen, and everything that is told of a start that
//! went wrong: the host, what was run, what it said. Nothing secret goes on a command line.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_proto::staging::NodeId;
use azekura_stage::job::AgentDescription;
use rustix::process::{Pid, Signal, kill_process_group};

use super::screen::Screen;
use super::words::{self, Launcher};

/// What an agent says when it listens, with the version of this line and the port.
pub(super) const GREETING: &str = "azekura-stage-agent 1 ";
/// So long a host may take until its agent listens.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// So long agents may take to end; they remove what they have.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// So long those that did not come up: they may be about to, and then have something to remove.
const UNSTARTED_TIMEOUT: Duration = Duration::from_secs(2);
/// What may lie between an agent's last word, the end of its process, and that both are seen.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Longest line of standard error that is passed on in one.
const LINE_BYTES_MAX: u64 = 8 * 1024;
/// Longest line of an agent's standard output: an answer or question of a command on its node.
pub(super) const MESSAGE_BYTES_MAX: u64 = 8 << 20;
/// Lines that are kept of what a host says until its agent listens.
const SAID_LINES_MAX: usize = 20;

/// What comes from the agents.
#[derive(Debug)]
pub(super) enum Heard {
    /// It listens at this port.
    Listens(u16),
    /// A line that it says afterwards.
    Line(String),
    /// It is gone.
    Gone,
}

/// Which agents have to come up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needed {
    /// Each.
    All,
    /// One at least.
    Some,
}

/// A way to say a line to an agent.
pub(super) type LifeLine = Arc<Mutex<Option<ChildStdin>>>;

/// What a host has said before its agent listened; `None` afterwards.
type Said = Arc<Mutex<Option<VecDeque<String>>>>;

/// One agent, as the front sees its process.
#[derive(Debug)]
struct Launched {
    host: String,
    /// What was run, for messages.
    shown: String,
    child: Child,
    life_line: LifeLine,
    said: Said,
    /// Reads its standard error.
    words: JoinHandle<()>,
    /// Where it listens; `None` before.
    port: Option<u16>,
}

/// The agents of a job. Ends them when dropped.
#[derive(Debug)]
pub(super) struct Agents {
    launched: Vec<Launched>,
    heard: Option<mpsc::Receiver<(NodeId, Heard)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agents {
    /// Starts all agents at once, and waits until all of them listen.
    ///
    /// # Errors
    /// If one does not: with the names of all that do not. The others are ended. Where not all are `needed`,
    /// only if there is none.
    pub(super) fn start(
        launcher: &Launcher,
        command: &[OsString],
        descriptions: &[AgentDescription],
        needed: Needed,
        screen: &Arc<Screen>,
    ) -> Result<Self> {
        let (tell, heard) = mpsc::channel();
        let mut agents = Self { launched: Vec::new(), heard: None };
        for description in descriptions {
            let words = launcher.words(&description.host, command);
            agents.launched.push(launch(description, &words, &tell, screen)?);
        }
        drop(tell);
        agents.wait_until_they_listen(&heard, needed, screen)?;
        agents.heard = Some(heard);
        Ok(agents)
    }

    fn wait_until_they_listen(
        &mut self,
        heard: &mpsc::Receiver<(NodeId, Heard)>,
        needed: Needed,
        screen: &Screen,
    ) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut missing = self.launched.len();
        while missing > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((node, heard)) = heard.recv_timeout(left) else { break };
            let agent = &mut self.launched[usize::from(node.0)];
            match heard {
                Heard::Listens(port) => {
                    agent.port = Some(port);
                    missing -= 1;
                    for line in lock(&agent.said).take().unwrap_or_default() {
                        screen.note(&format!("{}: {line}", agent.host));
                    }
                }
                // One that does not come up makes the others useless.
                Heard::Gone if needed == Needed::All => break,
                Heard::Gone => missing -= 1,
                Heard::Line(_) => {}
            }
        }
        if self.launched.iter().all(|agent| agent.port.is_some()) {
            return Ok(());
        }
        let mut faults: Vec<String> = Vec::new();
        for agent in self.launched.iter_mut().filter(|agent| agent.port.is_none()) {
            if let Some(fault) = agent.fault(Instant::now() >= deadline) {
                faults.push(fault);
            }
        }
        if needed == Needed::Some && self.launched.iter().any(|agent| agent.port.is_some()) {
            for fault in &faults {
                screen.note(&format!("azekura: {fault}"));
            }
            return Ok(());
        }
        if faults.is_empty() {
            bail!("the agents did not all start");
        }
        bail!(faults.join("\n"))
    }

    /// The nodes whose agents listen, with their hosts and ports.
    pub(super) fn ports(&self) -> Vec<(NodeId, String, u16)> {
        let agents = self.launched.iter().enumerate();
        agents
            .filter_map(|(index, agent)| {
                Some((NodeId(index as u16), agent.host.clone(), agent.port?))
            })
            .collect()
    }

    /// What agents say from now on. To be taken once.
    pub(super) fn take_heard(&mut self) -> Option<mpsc::Receiver<(NodeId, Heard)>> {
        self.heard.take()
    }

    /// Ways to say something to the agents, in the order of nodes.
    pub(super) fn life_lines(&self) -> Vec<LifeLine> {
        self.launched.iter().map(|agent| Arc::clone(&agent.life_line)).collect()
    }

    /// Ends all agents, and waits for them.
    pub(super) fn end(&mut self) {
        for agent in &self.launched {
            // A thread that still writes lets go when the process is killed below.
            if let Ok(mut line) = agent.life_line.try_lock() {
                line.take();
            }
        }
        let begun = Instant::now();
        for agent in &mut self.launched {
            let patience = if agent.port.is_some() { END_TIMEOUT } else { UNSTARTED_TIMEOUT };
            while matches!(agent.child.try_wait(), Ok(None)) {
                if begun.elapsed() > patience {
                    kill_group(&mut agent.child);
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.launched.clear();
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.end();
    }
}

impl Launched {
    /// What went wrong with this one; `None` if it may only have been too slow for another's failure.
    fn fault(&mut self, is_late: bool) -> Option<String> {
        // The end of its output may come before the end of the process.
        let ended = self.ended_within(LAST_WORDS);
        let what = match ended {
            Some(status) => format!("ended with {}", shown_status(status)),
            None if is_late => {
                format!("did not say that it listens within {} s", READY_TIMEOUT.as_secs())
            }
            None => return None,
        };
        let mut text = format!("host '{}': the agent {what}; '{}' was run", self.host, self.shown);
        // What it has said may not have been read yet; who else has its standard error is not waited for.
        let since = Instant::now();
        while ended.is_some() && !self.words.is_finished() && since.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = lock(&self.said).take().unwrap_or_default();
        if said.is_empty() {
            text.push_str(", and said nothing");
        } else {
            let said: Vec<String> = said.into();
            text.push_str(", and said: ");
            text.push_str(&said.join(" | "));
        }
        Some(text)
    }

    fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let since = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if since.elapsed() > patience {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Kills a process that leads a group of its own, and what it has started, as launchers start the agent; it has not
/// been waited for.
pub(super) fn kill_group(leader: &mut Child) {
    // It may have ended by itself.
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
    let _ = leader.wait();
}

fn shown_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

fn launch(
    description: &AgentDescription,
    words: &[OsString],
    tell: &mpsc::Sender<(NodeId, Heard)>,
    screen: &Arc<Screen>,
) -> Result<Launched> {
    let host = description.host.clone();
    let shown = words::quoted(words).to_string_lossy().into_owned();
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What a terminal sends is for the job's command; agents end by their life line.
    command.process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("host '{host}': cannot run '{shown}' to start the agent"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        bail!("host '{host}': the agent has no pipes");
    };
    let mut first = serde_json::to_vec(description)?;
    first.push(b'\n');
    let life_line: LifeLine = Arc::new(Mutex::new(Some(stdin)));
    let said: Said = Arc::new(Mutex::new(Some(VecDeque::new())));
    let (line, tell, node) = (Arc::clone(&life_line), tell.clone(), description.node);
    let strange = Arc::clone(&said);
    let thread = |name: &str| std::thread::Builder::new().name(format!("{name} {host}"));
    thread("agent").spawn(move || listen(&line, &first, stdout, &strange, node, &tell))?;
    let (name, kept, screen) = (host.clone(), Arc::clone(&said), Arc::clone(screen));
    let words = thread("words").spawn(move || pass_on(stderr, &name, &kept, &screen))?;
    Ok(Launched { host, shown, child, life_line, said, words, port: None })
}

/// Says who the agent is, and hears it to its end.
fn listen(
    line: &LifeLine,
    first: &[u8],
    stdout: ChildStdout,
    said: &Said,
    node: NodeId,
    tell: &mpsc::Sender<(NodeId, Heard)>,
) {
    let written = lock(line).as_mut().map(|line| line.write_all(first));
    let mut greeted = false;
    if matches!(written, Some(Ok(()))) {
        for text in lines(stdout, MESSAGE_BYTES_MAX) {
            let port = text.strip_prefix(GREETING).and_then(|port| port.trim().parse().ok());
            let heard = match port {
                Some(port) if !greeted => {
                    greeted = true;
                    Heard::Listens(port)
                }
                _ if greeted => Heard::Line(text),
                // What shells of the host say when somebody logs in.
                _ => {
                    keep(said, text);
                    continue;
                }
            };
            if tell.send((node, heard)).is_err() {
                break;
            }
        }
    }
    let _ = tell.send((node, Heard::Gone));
}

/// Keeps a line of one that does not listen yet. Gives it back otherwise.
fn keep(said: &Said, line: String) -> Option<String> {
    let mut said = lock(said);
    let Some(lines) = said.as_mut() else { return Some(line) };
    if lines.len() == SAID_LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(line);
    None
}

/// Passes standard error on, with the host's name in front.
fn pass_on(stderr: ChildStderr, host: &str, said: &Said, screen: &Screen) {
    for line in lines(stderr, LINE_BYTES_MAX) {
        if let Some(line) = keep(said, line) {
            screen.note(&format!("{host}: {line}"));
        }
    }
}

/// Lines of a stream; one that is longer than `bytes_max` comes as several.
pub(super) fn lines(stream: impl io::Read, bytes_max: u64) -> impl Iterator<Item = String> {
    let mut stream = BufReader::new(stream);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match stream.by_ref().take(bytes_max).read_until(b'\n', &mut line) {
            Ok(bytes) if bytes > 0 => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Some(String::from_utf8_lossy(&line).into_owned())
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use azekura_proto::staging::JobId;

    use super::*;

    fn descriptions(hosts: &[&str]) -> Vec<AgentDescription> {
        let describe = |(index, host): (usize, &&str)| AgentDescription {
            job: JobId([1; 16]),
            secret: "s".to_owned(),
            node: NodeId(index as u16),
            host: (*host).to_owned(),
            cache: "/tmp".into(),
            maps: Vec::new(),
            keeps_cache: false,
            keeping: azekura_stage::job::Keeping::default(),
            socket_suffix: String::new(),
        };
        hosts.iter().enumerate().map(describe).collect()
    }

    fn start(hosts: &[&str], script: &str) -> Result<Agents> {
        start_needed(hosts, script, Needed::All)
    }

    fn start_needed(hosts: &[&str], script: &str, needed: Needed) -> Result<Agents> {
        let template = "sh -c 'host={host}; eval \"$1\"; : {command}' --";
        let launcher = Launcher::choose(Some(template)).unwrap();
        let Launcher::Template(mut words) = launcher else { panic!("a template") };
        words.push(script.to_owned());
        let launcher = Launcher::Template(words);
        Agents::start(
            &launcher,
            &["agent".into()],
            &descriptions(hosts),
            needed,
            &Arc::new(Screen::hidden()),
        )
    }

    #[test]
    fn agents_that_listen_have_ports_and_end_with_their_life_line() {
        let script =
            "read line; echo welcome to $host; echo 'azekura-stage-agent 1 '70${host#n}; cat";
        let mut agents = start(&["n1", "n2"], script).unwrap();
        assert_eq!(
            agents.ports(),
            [(NodeId(0), "n1".to_owned(), 701), (NodeId(1), "n2".to_owned(), 702)]
        );
        let heard = agents.take_heard().unwrap();
        lock(&agents.life_lines()[1]).as_mut().unwrap().write_all(b"hello\n").unwrap();
        assert!(matches!(heard.recv().unwrap(), (NodeId(1), Heard::Line(line)) if line == "hello"));
        let since = Instant::now();
        agents.end();
        assert!(since.elapsed() < Duration::from_secs(5));
        assert!(matches!(heard.recv().unwrap().1, Heard::Gone));
    }

    #[test]
    fn all_agents_start_at_the_same_time() {
        let hosts: Vec<String> = (0..16).map(|number| format!("n{number}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let since = Instant::now();
        start(&hosts, "sleep 0.5; echo 'azekura-stage-agent 1 7'; cat").unwrap();
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    }

    #[test]
    fn what_went_wrong_is_told_with_host_and_command() {
        let script = "test $host = n1 && { echo no such file >&2; exit 3; }; sleep 0.1; \
                      echo 'azekura-stage-agent 1 7'; cat";
        let error = start(&["n1", "n2"], script).unwrap_err().to_string();
        for part in ["host 'n1'", "exit code 3", "sh -c", "no such file"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("'n2'"), "{error}");
        let agents = start_needed(&["n1", "n2"], script, Needed::Some).unwrap();
        assert_eq!(agents.ports(), [(NodeId(1), "n2".to_owned(), 7)]);
        assert!(start_needed(&["n1"], script, Needed::Some).is_err());
        let words = Launcher::Template(vec!["no-such-{host}".into()]);
        let command = ["agent".into()];
        let screen = Arc::new(Screen::hidden());
        let error = Agents::start(&words, &command, &descriptions(&["n1"]), Needed::All, &screen)
            .unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("no-such-n1") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn what_an_agent_was_started_by_ends_with_all_that_it_has_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("started");
        let script = format!(
            "test $host = n2 && exit 3; sleep 300 & echo $! >{0}.new; mv {0}.new {0}; wait",
            path.display()
        );
        let script = script.replace(
            "exit 3",
            &format!("{{ while ! test -e {}; do sleep 0.01; done; exit 3; }}", path.display()),
        );
        assert!(start(&["n1", "n2"], &script).is_err());
        let started = std::fs::read_to_string(&path).unwrap();
        let status = format!("/proc/{}/status", started.trim());
        let lives =
            || std::fs::read_to_string(&status).is_ok_and(|text| !text.contains("Z (zombie)"));
        let since = Instant::now();
        while lives() {
            assert!(since.elapsed() < Duration::from_secs(5), "{started} lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn long_lines_come_in_parts() {
        let text = [&[b'x'; 10][..], b"\n\nab\xff"].concat();
        let found: Vec<String> = lines(&text[..], 6).collect();
        assert_eq!(found, ["xxxxxx", "xxxx", "", "ab\u{fffd}"]);
    }
}
