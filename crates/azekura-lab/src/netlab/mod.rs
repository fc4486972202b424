//! `azekura-lab netlab`: hosts and links on this machine. The lab lives in a process of its own; all
//! other commands talk to that one. What a lab is and does stands in the crate under it.

mod args;
mod exec;
mod show;
mod up;
mod which;

use anyhow::Result;
use azekura::outcome::{Verdict, usage};
use azekura::report;
use azekura_netlab::Change;
use azekura_netlab::control::{self, Request};

pub(crate) use args::NetlabCommand;
use args::{HostArgs, SetArgs};
pub(crate) use which::scope;
use which::{find, tell};

fn set(args: &SetArgs) -> Result<()> {
    Change::parse(&args.changes).map_err(|error| usage(error.to_string()))?;
    let request = Request::Set { link: args.link.clone(), words: args.changes.clone() };
    tell(args.which.lab.as_deref(), &request).map(|_| ())
}

fn about_host(args: &HostArgs, request: fn(String) -> Request) -> Result<()> {
    tell(args.which.lab.as_deref(), &request(args.host.clone())).map(|_| ())
}

/// Runs the command.
///
/// # Errors
/// If there is no such lab, or it cannot do what it is told.
pub(crate) fn run(command: &NetlabCommand) -> Result<Verdict> {
    match command {
        NetlabCommand::Up(args) => up::up(args),
        NetlabCommand::Exec(args) => return exec::exec(args),
        NetlabCommand::Set(args) => set(args),
        NetlabCommand::Cut(args) => about_host(args, Request::Cut),
        NetlabCommand::Mend(args) => about_host(args, Request::Mend),
        NetlabCommand::Freeze(args) => about_host(args, Request::Freeze),
        NetlabCommand::Thaw(args) => about_host(args, Request::Thaw),
        NetlabCommand::Kill(args) => about_host(args, Request::Kill),
        NetlabCommand::Status(args) => show::status(args),
        NetlabCommand::Down(args) => {
            let (scope, name) = find(args.lab.as_deref())?;
            control::ask(&scope, &name, &Request::Down)?;
            report::say(format_args!("lab '{name}' is removed"));
            Ok(())
        }
        NetlabCommand::Selftest(args) => return show::selftest(args),
    }
    .map(|()| Verdict::Good)
}
