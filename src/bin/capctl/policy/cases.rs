//! Implements `policy test`: a table of cases in; decisions, and which of them differ from the expected ones, out.

use std::path::Path;

use capd::config::Config;
use capd::declaration::Declaration;
use capd::policy::cases::{Case, Declared, read};
use capd::policy::{Rules, Verdict};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::output;

/// Decides each case of a table. **Errors:** usage for a file that is none; exit code 4 when a case is decided otherwise.
pub(crate) fn run(file: &Path, config: &Config, json: bool) -> Result<(), Failure> {
    let rules = super::rules(config)?;
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    let cases = read(&text, &declared(config)?).map_err(|mistakes| {
        let lines: Vec<_> =
            mistakes.iter().map(|(line, problem)| format!("{}:{line}: {problem}", file.display())).collect();
        Failure::usage(lines.join("\n"))
    })?;
    let decided: Vec<_> = cases.iter().map(|case| Decided::of(case, &rules)).collect();
    if json {
        decided.iter().try_for_each(|decided| output::print_json(&decided.json()))?;
    } else {
        let rows: Vec<_> = decided.iter().map(Decided::row).collect();
        output::print_table(&output::table(
            &["STATE", "LINE", "CALLER", "ACTION", "CAPABILITY", "DECISION"],
            &rows,
        ))?;
    }
    match decided.iter().filter(|decided| !decided.holds).count() {
        0 => Ok(()),
        wrong => {
            let told = format!("{wrong} of {} cases are decided otherwise than expected", decided.len());
            Err(Failure::unexpected(told).exit(Exit::SchemaViolation))
        }
    }
}

/// What `capabilities.yaml` says of its capabilities; nothing without one.
pub(super) fn declared(config: &Config) -> Result<Vec<Declared>, Failure> {
    let Some(path) = &config.agent.capabilities else { return Ok(Vec::new()) };
    let declaration = Declaration::load(path).map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
    let declared = declaration.capabilities.into_iter().map(|declared| Declared {
        id: declared.id,
        category: declared.category.unwrap_or_default(),
        permissions: declared.permissions,
    });
    Ok(declared.collect())
}

struct Decided<'a> {
    case: &'a Case,
    verdict: Verdict,
    holds: bool,
}

impl<'a> Decided<'a> {
    fn of(case: &'a Case, rules: &Rules) -> Self {
        let verdict = case.decide(rules);
        Self { case, holds: verdict.is_permitted() == case.is_expected, verdict }
    }

    fn capability(&self) -> String {
        let Case { name, version, .. } = self.case;
        version.as_ref().map_or_else(|| name.to_string(), |version| format!("{name}:{version}"))
    }

    const fn state(&self) -> &'static str {
        if self.holds { "ok" } else { "failed" }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.state().to_owned(),
            self.case.line.to_string(),
            self.case.caller.to_string(),
            self.case.action.as_str().to_owned(),
            self.capability(),
            self.verdict.to_string(),
        ]
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "line": self.case.line,
            "state": self.state(),
            "caller": self.case.caller.as_str(),
            "action": self.case.action.as_str(),
            "capability": self.capability(),
            "allowed": self.verdict.is_permitted(),
            "expected": self.case.is_expected,
            "rules": self.verdict.rules(),
            "decision": self.verdict.to_string(),
        })
    }
}
