//! Simulated pools, seed after seed. `AZEKURA_SEED` plays one history and shows it;
//! `AZEKURA_SIM_SEEDS` and `AZEKURA_SIM_SECONDS` bound how many are played, for a longer soak.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::time::{Duration, Instant};

use azekura_testkit::simulation::{Faults, KnownDefect, Series, Setting, run, run_series};

const FIRST_SEED: u64 = 1;
/// Histories that `make test` plays, if that takes no longer than [`TIME_S`]: two processors that have
/// nothing else to do play most of them. On a busy machine it is only the first part.
const SEEDS: u64 = 10_000;
const TIME_S: u64 = 60;
/// Histories of each kind that are played twice.
const SAME_SEEDS: u64 = 12;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn histories_under_the_usual_faults_are_right() {
    if let Some(seed) = number_from_env("AZEKURA_SEED") {
        let history = run(seed, &Setting::SHORT).unwrap_or_else(|violation| panic!("{violation}"));
        return println!("{history}");
    }
    let series = Series {
        first: FIRST_SEED,
        count: number_from_env("AZEKURA_SIM_SEEDS").unwrap_or(SEEDS),
        time: Duration::from_secs(number_from_env("AZEKURA_SIM_SECONDS").unwrap_or(TIME_S)),
    };
    let began = Instant::now();
    let (right, violation) = run_series(series, &Setting::SHORT);
    println!(
        "{right} histories from seed {FIRST_SEED} on in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if let Some(violation) = violation {
        panic!("{violation}");
    }
    assert!(right > 0);
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for setting in [
        Setting::SHORT,
        Setting::STRIPED,
        Setting::FAR,
        Setting::FAR_FROM_SEVERAL,
        Setting::POWER,
        Setting::POWER_OF_THREE,
    ] {
        for seed in 1..SAME_SEEDS {
            let [one, other] = [(); 2].map(|()| run(seed, &setting).unwrap());
            assert_eq!(one.to_string(), other.to_string());
        }
    }
}

/// A short series is right.
fn are_right(setting: &Setting) {
    let series = Series {
        first: number_from_env("AZEKURA_SEED").unwrap_or(FIRST_SEED),
        count: number_from_env("AZEKURA_SIM_SEEDS").unwrap_or(2000),
        time: Duration::from_secs(30),
    };
    let (right, violation) = run_series(series, setting);
    println!("{right} histories were right");
    if let Some(violation) = violation {
        panic!("{violation}");
    }
    assert!(right > 0);
}

#[test]
fn histories_with_striped_files_are_right() {
    are_right(&Setting::STRIPED);
}

#[test]
fn far_clients_are_right_about_all_that_they_answer_early() {
    are_right(&Setting::FAR);
}

#[test]
fn far_clients_of_several_engines_are_right_about_all_that_they_answer_early() {
    are_right(&Setting::FAR_FROM_SEVERAL);
    // What they have in flight is handed on from one engine to the other, and that is what goes wrong at times.
    let goes_wrong = |what: &str| {
        let history = |seed| run(seed, &Setting::FAR_FROM_SEVERAL).unwrap().to_string();
        (FIRST_SEED..400).any(|seed| history(seed).contains(what))
    };
    for what in ["lost: relay", "lost: on_behalf"] {
        assert!(goes_wrong(what), "{what}");
    }
}

#[test]
fn what_was_synced_survives_a_loss_of_power_and_the_rest_is_whole() {
    are_right(&Setting::POWER);
}

/// Losses of power in the midst of everything that programs do: what was synced is there, no data are
/// missed that may be gone, and none are gone that must be there.
fn stands_losses_of_power(setting: &Setting, cuts: u64, time: Duration) {
    let began = Instant::now();
    let first = number_from_env("AZEKURA_SEED").unwrap_or(FIRST_SEED);
    let (mut histories, mut cut, mut wrong) = (0, 0, Vec::new());
    while cut < cuts && began.elapsed() < time {
        match run(first + histories, setting) {
            Ok(history) => cut += u64::from(history.to_string().contains("has gone")),
            Err(found) => {
                wrong.push(format!("{}: {}", found.seed, found.what));
                println!("{found}");
                cut += 1;
            }
        }
        histories += 1;
    }
    println!("{cut} losses of power in {histories} histories from seed {first} on");
    assert!(wrong.is_empty(), "{} of {cut}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cut > 0);
}

#[test]
fn one_engine_stands_losses_of_power() {
    stands_losses_of_power(&Setting::POWER_OF_ONE, 300, Duration::from_secs(30));
}

#[test]
fn three_engines_stand_losses_of_power() {
    stands_losses_of_power(&Setting::POWER_OF_THREE, 300, Duration::from_secs(30));
}

#[test]
#[ignore = "takes minutes; the first of the two above is its short form"]
fn one_engine_stands_two_thousand_losses_of_power() {
    stands_losses_of_power(&Setting::POWER_OF_ONE, 2000, Duration::from_secs(3600));
}

#[test]
#[ignore = "takes minutes; the second of the two above is its short form"]
fn three_engines_stand_two_thousand_losses_of_power() {
    stands_losses_of_power(&Setting::POWER_OF_THREE, 2000, Duration::from_secs(3600));
}

#[test]
fn a_loss_of_power_alone_leaves_wholes() {
    are_right(&Setting { faults: Faults { power_cut: 40, ..Faults::NONE }, ..Setting::SHORT });
}

/// Nothing goes wrong but what is added.
const QUIET: Setting = Setting { faults: Faults::NONE, ..Setting::SHORT };

/// A defect that is known shows in a short series, so that one that is not known would.
fn is_found(setting: &Setting, defect: KnownDefect) {
    let setting = Setting { faults: setting.faults.with(defect), ..*setting };
    let series = Series { first: FIRST_SEED, count: 4000, time: Duration::from_secs(300) };
    let (right, violation) = run_series(series, &setting);
    let violation = violation.unwrap_or_else(|| panic!("not found in {right} histories"));
    println!("found after {right} histories: {}", violation.what);
    let again = run(violation.seed, &setting).unwrap_err();
    assert_eq!(again.what, violation.what, "seed {}", violation.seed);
}

#[test]
fn what_a_given_up_connection_still_brings_is_not_carried_out() {
    let faults = Faults { request_late: 3, ..Faults::NONE };
    are_right(&Setting { faults, ..Setting::SHORT });
    are_right(&Setting { faults, ..Setting::STRIPED });
}

#[test]
fn reads_before_a_commit_are_found() {
    is_found(&QUIET, KnownDefect::ReadBeforeCommit);
}

#[test]
fn open_files_outlive_restarts_of_engines() {
    are_right(&Setting { faults: Faults { killed: 6, ..Faults::NONE }, ..Setting::SHORT });
}

#[test]
fn appends_that_leave_a_gap_are_found() {
    is_found(&Setting::STRIPED, KnownDefect::AppendLeavesGap);
}
