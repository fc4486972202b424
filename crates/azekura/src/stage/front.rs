//! `azekura stage run`: the front of a job, from its command line to its exit code. Owns the order of things:
//! agents, front, command, sending home, end; whatever fails on the way, nothing of the job stays.

use std::sync::mpsc;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use anyhow::{Context as _, Result};
use azekura_proto::staging::{JobId, MapKind, NodeId};
use azekura_stage::front::{Event, Front, FrontOptions, OutOptions, Recipients};
use azekura_stage::job::{self, AgentDescription, Keeping, MapDescription};
use azekura_stage::source::Source;

use super::args::{RunArgs, To};
use super::command::{self, Signals};
use super::desk::{self, Answer, Clerk, FarDesks, Question};
use super::homes::Home;
use super::journal::{Counts, EventFile, Journal};
use super::launch::{Agents, Heard, Needed};
use super::out::{self, Record};
use super::screen::Screen;
use super::summary::{self, OUT_FAILED};
use super::tally::Tally;
use super::words::Launcher;
use super::{addresses, homes, hosts, maps, sweeping};
use crate::host::{places, programs};
use crate::outcome::Verdict;

/// The front while the job runs; `None` before and afterwards.
type Shared = Arc<RwLock<Option<Front>>>;

/// Runs a job.
///
/// # Errors
/// If it cannot begin: no hosts, no maps, an agent that does not come up. The command was not started then.
pub(super) fn run(args: &RunArgs, verbose: u8) -> Result<Verdict> {
    let plan = Plan::of(args)?;
    let sources = homes::sources(&plan.maps, &plan.homes)?;
    let variables = command::environment(plan.job)?;
    let program = command::by_its_way(&args.command, args.via, verbose)?;
    let record = Record::of(args, plan.job, &plan.maps)?;
    let events = EventFile::create(args.json.as_deref())?;
    let screen = Arc::new(Screen::new());
    let tally = Tally::new(plan.job, &plan.hosts);
    let (mut journal, tell) = Journal::listen(tally, plan.hosts.clone(), events, &screen)?;
    let front = Shared::default();
    let clerk = clerk(&front, journal.counts());
    // Before the agents: one on this host leaves the desk to the front.
    desk::open(plan.job, Arc::clone(&clerk)).context("cannot take questions of other commands")?;
    let descriptions = plan.descriptions(args, &sources)?;
    let command = [programs::own()?.into(), "stage".into(), "agent".into()];
    let mut agents = Agents::start(&plan.launcher, &command, &descriptions, Needed::All, &screen)?;
    let mut out = record.options(args)?;
    out.note.extend(homes::notes(&plan.homes));
    let started = plan.start_front(args, sources, out, &agents, tell)?;
    *front.write().unwrap_or_else(PoisonError::into_inner) = Some(started);
    if let Some(heard) = agents.take_heard() {
        let desks = FarDesks::new(clerk, agents.life_lines());
        let front = Arc::clone(&front);
        let ears = std::thread::Builder::new().name("agents".to_owned());
        ears.spawn(move || hear_agents(&heard, &desks, &front))?;
    }
    let signals = Signals::take(Arc::clone(&screen))?;
    let code = command::run_to_end(&program, &variables, &signals, &screen)?;
    let sent = out::send_home(lock(&front).as_ref());
    let code = if code == 0 && !sent.is_right() { OUT_FAILED } else { code };
    // Before the end, which is none of a node's faults.
    let status = journal.close(code);
    let front = front.write().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(front) = front {
        front.end();
    }
    agents.end();
    // What a node that is lost has written is nowhere else.
    if !args.keep_cache && plan.maps.iter().all(|map| map.kind == MapKind::ReadOnly) {
        let is_lost = |agent: &&AgentDescription| !status.nodes[usize::from(agent.node.0)].up;
        let lost: Vec<_> = descriptions.iter().filter(is_lost).cloned().collect();
        sweeping::sweep(&plan.launcher, &command, &lost, &screen);
    }
    screen.note(&summary::line(&status));
    if let Some(line) = record.close(&sent) {
        screen.note(&format!("azekura: {line}"));
    }
    Ok(Verdict::Ended(code))
}

/// What the command line means, as far as can be told before anything is started.
struct Plan {
    hosts: Vec<String>,
    maps: Vec<MapDescription>,
    /// In the order of the maps.
    homes: Vec<Home>,
    launcher: Launcher,
    job: JobId,
    secret: String,
}

impl Plan {
    fn of(args: &RunArgs) -> Result<Self> {
        let hosts = hosts::find(args.hosts.as_deref(), args.hostfile.as_deref())?;
        let maps = maps::parse(&args.maps)?;
        maps::refuse_cache(&maps, &places::absolute(&args.cache)?)?;
        let (maps, homes) = maps.into_iter().unzip();
        let launcher = Launcher::choose(args.launch.as_deref())?;
        let (job, secret) = job::draw().context("cannot draw the job's secret")?;
        Ok(Self { hosts, maps, homes, launcher, job, secret })
    }

    /// What the agents have to know, in the order of nodes.
    fn descriptions(
        &self,
        args: &RunArgs,
        sources: &[(MapDescription, Arc<dyn Source>)],
    ) -> Result<Vec<AgentDescription>> {
        let cache = places::absolute(&args.cache)?;
        // What programs are to read while it comes is looked at again after each piece.
        let dear = sources.iter().any(|(_, source)| !source.tells_changes_at_once());
        let keeping = Keeping { whole: args.whole || dear, direct: args.direct };
        let describe = |(index, host): (usize, &String)| AgentDescription {
            job: self.job,
            secret: self.secret.clone(),
            node: NodeId(index as u16),
            host: host.clone(),
            cache: cache.clone(),
            maps: self.maps.clone(),
            keeps_cache: args.keep_cache,
            keeping,
            socket_suffix: String::new(),
        };
        Ok(self.hosts.iter().enumerate().map(describe).collect())
    }

    fn start_front(
        &self,
        args: &RunArgs,
        maps: Vec<(MapDescription, Arc<dyn Source>)>,
        out: OutOptions,
        agents: &Agents,
        tell: mpsc::Sender<Event>,
    ) -> Result<Front> {
        let options = FrontOptions {
            job: self.job,
            secret: self.secret.clone(),
            maps,
            out,
            recipients: match args.to {
                To::All => Recipients::All,
                To::Requesters => Recipients::Requesters,
            },
        };
        Ok(Front::start(options, addresses::of(agents.ports())?, tell)?)
    }
}

fn lock(front: &Shared) -> RwLockReadGuard<'_, Option<Front>> {
    front.read().unwrap_or_else(PoisonError::into_inner)
}

/// Hears the agents until the last is gone: their processes end before their connections are missed.
fn hear_agents(heard: &mpsc::Receiver<(NodeId, Heard)>, desks: &FarDesks, front: &Shared) {
    for (node, heard) in heard {
        match heard {
            Heard::Line(line) => desks.hear(usize::from(node.0), &line),
            Heard::Gone => {
                if let Some(front) = lock(front).as_ref() {
                    front.node_is_gone(node);
                }
            }
            Heard::Listens(_) => {}
        }
    }
}

/// Who answers questions of commands.
fn clerk(front: &Shared, counts: &Counts) -> Clerk {
    let (front, counts) = (Arc::clone(front), counts.clone());
    Arc::new(move |question| match question {
        Question::Status => Answer::Status(Box::new(counts.status())),
        Question::Sync => out::answer(&out::send_home(lock(&front).as_ref())),
        Question::In(paths) => match lock(&front).as_ref() {
            Some(front) => {
                front.prefetch(paths);
                Answer::Done
            }
            None => Answer::Failed("the job has not begun, or is over".to_owned()),
        },
    })
}
