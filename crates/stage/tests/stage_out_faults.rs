//! What goes wrong while files go home, and how the rest is sent later.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use azekura_proto::staging::local::Change;
use azekura_proto::staging::{MapKind, NodeId};
use azekura_stage::agent::Agent;
use azekura_stage::front::{Event, Manifest, ManifestError, OutReport, Recipients};
use azekura_stage::job::{AgentDescription, Keeping, draw};
use fixture::hooked::Step;
use fixture::{Agents, Job, LARGE, Setting, local, noise, partial_names};

const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

fn setting(nodes: u16) -> Setting {
    let maps = vec![("data", MapKind::ReadWrite), ("out", MapKind::Out)];
    Setting { maps, ..Setting::read_only(nodes, Recipients::Requesters) }
}

fn names(failed: &[azekura_stage::front::NotSent]) -> Vec<&str> {
    failed.iter().map(|failed| failed.path.rsplit('/').next().unwrap()).collect()
}

fn error(number: i32) -> std::io::Result<()> {
    Err(std::io::Error::from_raw_os_error(number))
}

#[test]
fn a_file_that_is_deleted_before_it_is_sent_is_left_out() {
    let (job, hook) = setting(1).start_agents().start_hooked();
    let program = job.program(0);
    let here: Vec<_> = (0..8)
        .map(|number| program.write(&job.home(&format!("out/{number}")), noise(LARGE / 8, number)))
        .collect();
    // More than are asked for at once come before it.
    let last = here[7].clone();
    hook.set(move |path, step| match (path, step) {
        ("0", Step::Create) => fs::remove_file(&last),
        _ => Ok(()),
    });
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert_eq!((report.files, names(&report.deleted)), (7, vec!["7"]));
    assert!(!job.home("out/7").exists());
    job.end();
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_sent_again() {
    let (job, hook) = setting(1).start_agents().start_hooked();
    let home = job.home("out/file");
    let here = job.program(0).write(&home, noise(LARGE, 1));
    let tries = Arc::new(AtomicU32::new(0));
    let (begun, changed) = (Arc::clone(&tries), here.clone());
    hook.set(move |_, step| {
        if step == (Step::Write { offset: 0 }) && begun.fetch_add(1, Ordering::AcqRel) == 0 {
            let mut file = fs::File::options().append(true).open(&changed)?;
            file.write_all(b"and more")?;
        }
        Ok(())
    });
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert_eq!(tries.load(Ordering::Acquire), 2);
    assert!(fs::read(&home).unwrap() == fs::read(&here).unwrap());
    assert_eq!(fs::metadata(&home).unwrap().len(), LARGE as u64 + 8);
    job.end();
}

#[test]
fn a_file_that_always_changes_is_given_up_and_the_others_come() {
    let (job, hook) = setting(1).start_agents().start_hooked();
    let program = job.program(0);
    let here = program.write(&job.home("out/busy"), noise(LARGE, 1));
    program.write(&job.home("out/calm"), "calm");
    let tries = Arc::new(AtomicU32::new(0));
    let begun = Arc::clone(&tries);
    hook.set(move |path, step| {
        if path == "busy" && step == (Step::Write { offset: 0 }) {
            begun.fetch_add(1, Ordering::AcqRel);
            fs::File::options().append(true).open(&here)?.write_all(b"x")?;
        }
        Ok(())
    });
    let report = job.stage_out();
    assert_eq!((report.files, names(&report.failed)), (1, vec!["busy"]));
    assert!(report.failed[0].why.contains("changes"), "{report:?}");
    assert_eq!(tries.load(Ordering::Acquire), 3);
    assert!(!job.home("out/busy").exists());
    job.end();
}

#[test]
fn a_name_of_a_file_that_did_not_come_is_none_of_what_stood_there() {
    let job = setting(1).start();
    job.write("out/a", "of an earlier job");
    let program = job.program(0);
    let here = program.write(&job.home("out/a"), noise(LARGE, 1));
    fs::hard_link(&here, local(program.change(&job.home("out/b"), Change::Create))).unwrap();
    // It changes all the time, so that it is given up.
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, busy) = (Arc::clone(&is_over), here.clone());
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::options().append(true).open(busy).unwrap();
        while !over.load(Ordering::Acquire) {
            file.write_all(b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let report = job.stage_out();
    is_over.store(true, Ordering::Release);
    writer.join().unwrap();
    assert!(names(&report.failed).contains(&"a"), "{report:?}");
    assert_eq!(fs::read(job.home("out/a")).unwrap(), b"of an earlier job");
    assert!(!job.home("out/b").exists());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(job.stage_out().is_right());
    for name in ["out/a", "out/b"] {
        assert!(fs::read(job.home(name)).unwrap() == fs::read(&here).unwrap(), "{name}");
    }
    job.end();
}

#[test]
fn a_node_that_dies_does_not_hold_up_the_others() {
    let mut agents = setting(3).start_agents();
    let link = agents.proxy(1);
    let (job, hook) = agents.start_hooked();
    for node in 0..3u16 {
        let program = job.program(node);
        for name in ["a", "b"] {
            let path = job.home(&format!("out/{name}{node}"));
            program.write(&path, noise(LARGE, u64::from(node) + 1));
        }
        program.write(&job.home(&format!("out/small{node}")), "small");
    }
    hook.set(move |path, step| {
        if path == "b1" && matches!(step, Step::Write { offset } if offset > 1_000_000) {
            link.cut();
        }
        Ok(())
    });
    let report = job.stage_out();
    assert!(names(&report.failed).contains(&"b1"), "{report:?}");
    assert!(report.failed.iter().all(|failed| failed.node == Some(NodeId(1))), "{report:?}");
    for name in ["a0", "b0", "small0", "a2", "b2", "small2"] {
        assert!(job.home("out").join(name).exists(), "{name}");
    }
    assert!(!job.home("out/b1").exists());
    job.agents.running[1].wait();
    let report = job.stage_out();
    assert_eq!((report.files, report.failed.len()), (0, 1), "{report:?}");
    assert_eq!((&report.failed[0].path[..], report.failed[0].node), ("", Some(NodeId(1))));
    job.end();
}

#[test]
fn what_cannot_be_written_at_home_is_named_and_the_others_come() {
    let (job, hook) = setting(1).start_agents().start_hooked();
    let program = job.program(0);
    for directory in ["out/closed", "out/open"] {
        program.make_dir(&job.home(directory));
        program.write(&job.home(directory).join("small"), "small");
        program.write(&job.home(directory).join("large"), noise(LARGE, 3));
    }
    program.write(&job.home("out/full-small"), "small");
    program.write(&job.home("out/full-large"), noise(LARGE, 3));
    // Somebody has put a directory there.
    program.write(&job.home("out/taken"), "mine");
    fs::create_dir(job.home("out/taken")).unwrap();
    hook.set(|path, step| match step {
        Step::Create if path.starts_with("closed/") => error(EACCES),
        Step::Write { offset } if path == "full-large" && offset > 3_000_000 => error(ENOSPC),
        Step::Write { .. } if path == "full-small" => error(ENOSPC),
        _ => Ok(()),
    });
    let report = job.stage_out();
    assert_eq!(report.files, 2);
    let failed = ["large", "small", "full-large", "full-small", "taken"];
    assert_eq!(names(&report.failed), failed, "{report:?}");
    assert!(!job.home("out/full-large").exists() && !job.home("out/full-small").exists());
    assert_eq!(fs::read(job.home("out/open/small")).unwrap(), b"small");
    // Once there is room again, it comes.
    hook.set(|_, _| Ok(()));
    fs::remove_dir(job.home("out/taken")).unwrap();
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert_eq!(report.files, 5);
    job.end();
}

#[test]
fn a_wrong_piece_is_asked_for_again_and_its_sender_named() {
    let mut agents = setting(2).start_agents();
    let link = agents.proxy(1);
    let job = agents.start_front();
    let home = job.home("out/file");
    job.program(1).write(&home, noise(LARGE, 9));
    link.spoil(2);
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert!(fs::read(&home).unwrap() == noise(LARGE, 9));
    let is_it = |event: &Event| matches!(event, Event::WrongPieceHome { node: NodeId(1), .. });
    assert!(job.events_so_far().iter().any(is_it));
    job.end();
}

#[test]
fn nothing_is_removed_for_a_node_whose_files_do_not_all_come() {
    let (job, hook) = setting(1).start_agents().start_hooked();
    job.write("data/old", "content");
    job.program(0).rename(&job.home("data/old"), &job.home("data/new"));
    hook.set(|_, step| if step == Step::Commit { error(ENOSPC) } else { Ok(()) });
    let report = job.stage_out();
    assert_eq!(names(&report.failed), ["new", "old"], "{report:?}");
    assert_eq!(fs::read(job.home("data/old")).unwrap(), b"content");
    hook.set(|_, _| Ok(()));
    assert!(job.stage_out().is_right());
    assert!(!job.home("data/old").exists());
    assert_eq!(fs::read(job.home("data/new")).unwrap(), b"content");
    job.end();
}

/// A job with a manifest.
fn start_with_manifest(nodes: u16) -> (Job, fixture::hooked::Hook, PathBuf) {
    let mut agents = setting(nodes).start_agents();
    let manifest = agents.dir.path().join("manifest");
    agents.out.manifest = Some(manifest.clone());
    agents.out.note.insert("cache".to_owned(), "here".to_owned());
    let (job, hook) = agents.start_hooked();
    (job, hook, manifest)
}

/// Ends a job of which files are left on its nodes, and starts it again there.
fn start_again(mut job: Job) -> Job {
    job.front.take().unwrap().end();
    job.agents.running.iter().for_each(Agent::wait);
    let (_, secret) = draw().unwrap();
    let start = |node: usize| {
        let description = AgentDescription {
            job: job.agents.job,
            secret: secret.clone(),
            node: NodeId(node as u16),
            host: format!("host-{node}"),
            cache: job.agents.cache.clone(),
            maps: job.agents.maps.clone(),
            keeps_cache: false,
            keeping: Keeping::default(),
            socket_suffix: format!("-{node}"),
        };
        Agent::start(description).unwrap()
    };
    let running: Vec<_> = (0..job.agents.running.len()).map(start).collect();
    let address = |agent: &Agent| ([127, 0, 0, 1], agent.port()).into();
    let empty = tempfile::tempdir().unwrap();
    let agents = Agents {
        job: job.agents.job,
        secret,
        dir: std::mem::replace(&mut job.agents.dir, empty),
        cache: job.agents.cache.clone(),
        maps: job.agents.maps.clone(),
        addresses: running.iter().map(address).collect(),
        running,
        recipients: job.agents.recipients,
        out: job.agents.out.clone(),
    };
    agents.start_front()
}

fn resume(job: &Job, manifest: &Path) -> Result<OutReport, ManifestError> {
    let report = job.front.as_ref().unwrap().resume(manifest);
    assert!(partial_names(&job.agents.dir.path().join("home")).is_empty());
    report
}

#[test]
fn what_did_not_come_is_sent_by_another_run_over_the_same_caches() {
    let (job, hook, manifest) = start_with_manifest(2);
    job.write("data/staged", "as it was");
    job.write("data/removed", "at home");
    let (one, other) = (job.program(0), job.program(1));
    one.stage(&job.home("data/staged"));
    one.remove_file(&job.home("data/removed"));
    one.make_dir(&job.home("out/a\n\u{1}%"));
    one.write(&job.home("out/a\n\u{1}%/file"), "odd");
    one.write(&job.home("out/bad"), noise(LARGE, 1));
    symlink("bad", local(one.change(&job.home("out/link"), Change::Create))).unwrap();
    for program in [&one, &other] {
        program.write(&job.home("out/both"), noise(1000, u64::from(program.maps[0].tree[0])));
    }
    other.write(&job.home("out/good"), "good");
    hook.set(|path, step| match step {
        Step::Create if path == "bad" || path == "both.host-0" => error(ENOSPC),
        _ => Ok(()),
    });
    let report = job.stage_out();
    assert_eq!((report.files, report.conflicts.len()), (3, 1), "{report:?}");
    assert_eq!(names(&report.failed), ["removed", "bad", "both"], "{report:?}");
    drop((one, other));

    let read = Manifest::read(&manifest).unwrap();
    assert_eq!((read.job, read.unsent()), (job.agents.job, 3));
    assert_eq!(read.note["cache"], "here");
    let job = start_again(job);
    let report = resume(&job, &manifest).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.removed), (2, 1));
    assert!(fs::read(job.home("out/bad")).unwrap() == noise(LARGE, 1));
    assert!(job.home("out/both.host-0").exists() && job.home("out/both.host-1").exists());
    assert!(!job.home("data/removed").exists());
    assert_eq!(Manifest::read(&manifest).unwrap().unsent(), 0);
    assert_eq!(resume(&job, &manifest).unwrap().files, 0);
    job.end();
}

#[test]
fn a_node_that_is_lost_before_it_says_what_it_has_is_in_the_manifest() {
    let (job, _, manifest) = start_with_manifest(2);
    job.program(0).write(&job.home("out/good"), "good");
    job.program(1).write(&job.home("out/lost"), "lost");
    job.agents.running[1].stop();
    job.event(|event| matches!(event, Event::NodeGone { .. }));
    for _ in 0..2 {
        let report = job.stage_out();
        assert_eq!(names(&report.failed), [""], "{report:?}");
        assert_eq!(report.failed[0].node, Some(NodeId(1)));
        let read = Manifest::read(&manifest).unwrap();
        let unlisted: Vec<_> = read.unlisted().map(|(node, _)| *node).collect();
        assert_eq!((read.unsent(), unlisted), (0, vec![NodeId(1)]));
    }
    assert_eq!(fs::read(job.home("out/good")).unwrap(), b"good");
    // What is sent later does not make it known what that node had.
    resume(&job, &manifest).unwrap();
    assert_eq!(Manifest::read(&manifest).unwrap().unlisted().count(), 1);
    job.end();
}

#[test]
fn files_go_home_without_a_manifest_and_none_counts_as_not_sent() {
    let mut agents = setting(1).start_agents();
    agents.out.manifest = Some(agents.dir.path().join("nowhere/manifest"));
    let job = agents.start_front();
    job.program(0).write(&job.home("out/good"), "good");
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert!(report.manifest_fault.is_some_and(|why| why.contains("nowhere/manifest")));
    job.event(|event| matches!(event, Event::ManifestFailed { .. }));
    assert_eq!(fs::read(job.home("out/good")).unwrap(), b"good");
    job.end();
}

#[test]
fn a_manifest_that_was_cut_is_resumed_from_where_it_is_whole() {
    let (job, _, manifest) = start_with_manifest(1);
    let program = job.program(0);
    for number in 0..20 {
        program.write(&job.home(&format!("out/{number:02}")), format!("{number}"));
    }
    assert!(job.stage_out().is_right());
    // As if the front had been killed after some of them: its agents keep what they have.
    let text = fs::read_to_string(&manifest).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 20 + 20 + 1);
    let whole = lines[..30].join("\n") + "\n";
    fs::write(&manifest, format!("{whole}{}", &lines[30][..40])).unwrap();
    assert_eq!(Manifest::read(&manifest).unwrap().unsent(), 11);
    for number in 9..20 {
        fs::remove_file(job.home(&format!("out/{number:02}"))).unwrap();
    }
    let report = resume(&job, &manifest).unwrap();
    assert!(report.is_right(), "{report:?}");
    assert_eq!(report.files, 11);
    let home = fs::read_dir(job.home("out")).unwrap();
    assert_eq!(home.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(Manifest::read(&manifest).unwrap().unsent(), 0);
    job.end();
}

#[test]
fn what_is_no_manifest_of_the_job_is_refused() {
    let (job, _, manifest) = start_with_manifest(1);
    job.program(0).write(&job.home("out/file"), "content");
    assert!(job.stage_out().is_right());
    let text = fs::read_to_string(&manifest).unwrap();
    let try_with = |text: &str| {
        fs::write(&manifest, text).unwrap();
        resume(&job, &manifest).unwrap_err().to_string()
    };
    let first = text.lines().next().unwrap();
    let none = "does not begin";
    for (wrong, why) in [
        ("", none),
        ("something else\n", none),
        (first, none),
        (&text.replacen("\"format\":1", "\"format\":7", 1), "format 7 is not known"),
        (&text.replace("\"path\":\"file", "\"path\":\"../file"), "no path below a map"),
        (&text.replace("\"node\":0", "\"node\":9"), "node 9"),
        (&text.replace("to-send", "sent"), "never to be sent"),
        (&text.replacen("{\"line\":\"to-send\"", "{\"line\":\"to-s", 1), "line 2"),
        (&text.replacen(&job.agents.job.to_hex(), &"0".repeat(32), 1), "of another job"),
    ] {
        let said = try_with(wrong);
        assert!(said.contains(why) && said.contains("manifest"), "{why}: {said}");
    }
    // A stage-out does not write into what is none either, and files come all the same.
    job.program(0).write(&job.home("out/more"), "content");
    let wrong = fs::read(&manifest).unwrap();
    let report = job.stage_out();
    assert_eq!((report.files, report.failed.len()), (1, 0), "{report:?}");
    assert!(report.manifest_fault.is_some(), "{report:?}");
    assert_eq!(fs::read(&manifest).unwrap(), wrong);
    job.end();
}

#[test]
fn files_that_are_written_all_the_time_do_not_hold_up_a_stage_out_between() {
    let job = setting(1).start();
    let program = job.program(0);
    let here = program.write(&job.home("out/log"), "");
    program.write(&job.home("out/done"), noise(300_000, 2));
    let stop = Arc::new(AtomicU32::new(0));
    let stopped = Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        let mut file = fs::File::options().append(true).open(here).unwrap();
        while stopped.load(Ordering::Acquire) == 0 {
            file.write_all(b"line\n").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        file.write_all(b"end\n").unwrap();
    });
    for _ in 0..3 {
        job.stage_out();
        assert!(fs::read(job.home("out/done")).unwrap() == noise(300_000, 2));
    }
    stop.store(1, Ordering::Release);
    writing.join().unwrap();
    let report = job.stage_out();
    assert!(report.is_right(), "{report:?}");
    assert!(fs::read_to_string(job.home("out/log")).unwrap().ends_with("line\nend\n"));
    job.end();
}
