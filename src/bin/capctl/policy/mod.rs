//! Implements `policy`: a configuration, a table of cases, or a caller and a capability in; rules, mistakes and
//! decisions out.

mod cases;
mod grant;
mod why;

use capd::config::Config;
use capd::daemon;
use capd::policy::Rules;
use serde_json::json;

use crate::args::PolicyCommand;
use crate::failure::Failure;
use crate::{Sidecar, configuration, output};

/// Runs one of the subcommands.
pub(crate) fn run(sidecar: &Sidecar, command: &PolicyCommand, json: bool) -> Result<(), Failure> {
    match command {
        PolicyCommand::Show { config } => show(&rules(&configuration(config.as_ref())?)?, json),
        PolicyCommand::Check { config } => check(&configuration(config.as_ref())?, json),
        PolicyCommand::Test { file, config } => cases::run(file, &configuration(config.as_ref())?, json),
        PolicyCommand::Why { caller, capability, provider } => {
            crate::wait_for(why::why(sidecar, caller, capability, provider.as_deref(), json))
        }
        PolicyCommand::Grant(args) => crate::wait_for(grant::grant(sidecar, args, json)),
        PolicyCommand::Revoke(args) => crate::wait_for(grant::revoke(sidecar, args, json)),
        PolicyCommand::Reload => crate::wait_for(why::reload(sidecar, json)),
    }
}

fn configuration(file: Option<&std::path::PathBuf>) -> Result<Config, Failure> {
    configuration::load(configuration::file(file)).map_err(|mistakes| Failure::usage(mistakes.to_string()))
}

/// The rules that the configuration makes. **Errors:** usage, with every mistake.
fn rules(config: &Config) -> Result<Rules, Failure> {
    daemon::rules(config).map_err(|error| Failure::usage(error.to_string()))
}

fn show(rules: &Rules, json: bool) -> Result<(), Failure> {
    if json {
        return rules.shown().iter().try_for_each(|rule| {
            output::print_json(&json!({"id": rule.id, "origin": rule.origin, "policy": rule.text}))
        });
    }
    let policies: Vec<_> =
        rules.shown().iter().map(|rule| format!("// {}\n{}\n", rule.origin, rule.text)).collect();
    output::print(&output::printable(&policies.join("\n")))
}

fn check(config: &Config, json: bool) -> Result<(), Failure> {
    let rules = rules(config)?;
    let count = rules.shown().len();
    let mut warnings = daemon::policy_warnings(config, &rules);
    let declared = cases::declared(config)?;
    let names: Vec<_> = declared.iter().map(|declared| &declared.id.name).collect();
    // Without a declaration, nothing is known of what agents will declare.
    if !names.is_empty() {
        warnings.extend(rules.undeclared(&names).iter().map(ToString::to_string));
    }
    warnings.extend(rules.ungranted(&declared).iter().map(ToString::to_string));
    if json {
        return output::print_json(&json!({"rules": count, "warnings": warnings}));
    }
    for warning in &warnings {
        output::note(&format!("warning: {}", output::printable(warning)));
    }
    output::print(&format!("{count} rules, no mistake in them"))
}
