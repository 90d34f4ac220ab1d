//! Implements `doctor`: a running sidecar in; faults that break its agent's calls, each with its remedy, out.
//!
//! It asks the sidecar that runs, so that it finds what is in force. With a configuration file it checks the file first, and
//! says why a sidecar of that file does not run. Requirements are proven here as the sidecar proves them.

mod absent;
mod peers;
mod report;
mod requires;

pub(crate) use report::{Check, Report};

use std::path::PathBuf;

use capd::client::Client;
use capd::config::Config;
use capd_proto::message::Takes;

use crate::args::{DoctorArgs, SidecarArgs};
use crate::failure::Exit;
use crate::failure::Failure;
use crate::{Sidecar, configuration, operate};

/// Makes every check and prints what it found; fails as the worst of them does.
pub(crate) async fn run(sidecar: Sidecar, args: DoctorArgs, json: bool) -> Result<(), Failure> {
    let mut report = Report::default();
    match configuration::file(args.config.as_ref()) {
        None => {
            if let Some(client) = linked(&sidecar, None, &mut report).await {
                in_force(&client, true, &mut report).await;
                running(&client, &mut report).await;
            }
        }
        Some(file) => {
            if let Some(config) = files(file, &mut report) {
                let sidecar = beside(sidecar, &args, &config);
                if let Some(client) = linked(&sidecar, Some(&config), &mut report).await {
                    in_force(&client, false, &mut report).await;
                    running(&client, &mut report).await;
                }
            }
        }
    }
    report.print(json)?;
    report.verdict()
}

/// What the sidecar knows of itself, of its peers, and of what its agent requires.
async fn running(client: &Client, report: &mut Report) {
    let found = match client.doctor().await {
        Ok(found) => found,
        Err(error) => return report.add(Check::of("sidecar", String::new(), &error.into())),
    };
    for check in found.checks {
        report.add_new(Check::told(check));
    }
    peers::all(client, &found.peers, report).await;
    requires::all(client, &found.requires, report).await;
}

/// Whether the sidecar runs what its file says.
async fn in_force(client: &Client, says_ok: bool, report: &mut Report) {
    match operate::reloaded(client, true).await {
        Ok(difference) if difference.changes.is_empty() => {
            if says_ok {
                report.add(Check::ok("config", String::new(), "the file is in force"));
            }
        }
        Ok(difference) => {
            let count = difference.changes.len() as u64 + difference.omitted;
            let changes = if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
            let takes = match difference.changes.iter().any(|change| change.takes == Takes::Restart) {
                true => "restart capd",
                false => "run: capctl reload",
            };
            let text = format!("{changes} of the file not in force (capctl config diff)");
            report.add(Check::warning("config", String::new(), text).remedy(takes));
        }
        // One that was started by a program, or that stops.
        Err(failure) if failure.exit != Exit::Usage => {}
        Err(failure) => {
            let remedy = "correct the file, then run: capctl reload";
            for mistake in failure.cause().lines() {
                report.add(Check::failed("config", String::new(), Exit::Usage, mistake).remedy(remedy));
            }
        }
    }
}

/// The configuration, if it can be read.
fn files(file: PathBuf, report: &mut Report) -> Option<Config> {
    let about = file.display().to_string();
    let config = match configuration::load(Some(file)) {
        Ok(config) => config,
        Err(mistakes) => {
            report.add(Check::failed("config", about, Exit::Usage, mistakes.to_string()));
            return None;
        }
    };
    let checked = match capd::daemon::check(&config) {
        Ok(warnings) if warnings.is_empty() => Check::ok("config", about, "no mistake in it"),
        Ok(warnings) => Check::warning("config", about, warnings.join("\n")),
        Err(error) => Check::failed("config", about, Exit::Usage, error.to_string()),
    };
    report.add(checked);
    Some(config)
}

/// The sidecar that the command line names, or else the one of the configuration's file.
fn beside(sidecar: Sidecar, args: &DoctorArgs, config: &Config) -> Sidecar {
    let SidecarArgs { socket, context, address, .. } = &sidecar.0;
    let is_named = socket.is_some() || context.is_some() || address.is_some();
    if is_named || args.config.is_none() {
        return sidecar;
    }
    let socket = config.listen.unix.clone();
    Sidecar(SidecarArgs { socket, ..sidecar.0 })
}

async fn linked(sidecar: &Sidecar, config: Option<&Config>, report: &mut Report) -> Option<Client> {
    match sidecar.connect_for_people().await {
        Ok(client) => {
            report.add(Check::ok("sidecar", client.did().to_string(), "runs"));
            Some(client)
        }
        Err(failure) => {
            let held = config.and_then(absent::held).filter(|_| failure.exit == Exit::Unavailable);
            report.add(held.unwrap_or_else(|| Check::of("sidecar", String::new(), &failure)));
            None
        }
    }
}
