//! Programs that have just come are run at once: nobody has them open for writing any more when they have their
//! names.

#![allow(clippy::unwrap_used)]

mod fixture;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

use azekura_stage::front::Recipients;
use fixture::{LARGE, Setting};

const PROGRAMS: usize = 200;
const PROCESSES: usize = 4;

/// Runs each program as soon as it has its name, as whoever looks into the tree without asking may do.
const RUN: &str =
    r#"while read -r path; do until [ -e "$path" ]; do :; done; "$path"; echo $?; done"#;

/// A process that runs programs: another one than that of the agent, whose children would have the agent's
/// open files for a moment.
struct Runner {
    child: Child,
    paths: ChildStdin,
    codes: BufReader<ChildStdout>,
}

impl Runner {
    fn start() -> Self {
        let mut child = Command::new("bash")
            .args(["-c", RUN])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (paths, codes) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, paths, codes: BufReader::new(codes) }
    }

    fn run(&mut self, path: &Path, bring: impl FnOnce()) -> String {
        writeln!(self.paths, "{}", path.display()).unwrap();
        bring();
        let mut code = String::new();
        self.codes.read_line(&mut code).unwrap();
        code.trim().to_owned()
    }
}

#[test]
fn programs_run_as_soon_as_they_have_come() {
    let runners: Vec<_> = (0..PROCESSES).map(|_| Runner::start()).collect();
    let job = Setting::read_only(1, Recipients::Requesters).start();
    let program = fs::read("/bin/true").unwrap();
    let name = |number: usize| format!("data/{number}");
    for number in 0..PROGRAMS {
        // Small ones come together; what is behind a program's end is nobody's.
        let bytes = if number % 2 == 0 { program.len() } else { LARGE / 10 };
        let mut program = program.clone();
        program.resize(bytes.max(program.len()), 0);
        let path = job.write(&name(number), &program);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let paths = (0..PROGRAMS).map(|number| job.home(&name(number))).collect::<Vec<_>>();
    let left = &Mutex::new(paths);
    thread::scope(|scope| {
        for mut runner in runners {
            let asks = job.program(0);
            scope.spawn(move || {
                loop {
                    let next = left.lock().unwrap().pop();
                    let Some(path) = next else { break };
                    let tree = Path::new(OsStr::from_bytes(&asks.maps[0].tree));
                    let here = tree.join(path.file_name().unwrap());
                    let code = runner.run(&here, || assert_eq!(asks.stage(&path), here));
                    assert_eq!(code, "0", "{}", path.display());
                }
                drop(runner.paths);
                runner.child.wait().unwrap();
            });
        }
    });
    job.end();
}
