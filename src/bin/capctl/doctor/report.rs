//! Collects checks: each with its outcome and remedy in; a table or lines of JSON, and the exit code, out.

use capd::schema::drift::Finding;
use capd_proto::code::Code;
use capd_proto::message::{CheckState, DoctorCheck};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::output;

/// What was found, in the order in which it was looked at.
#[derive(Default)]
pub(crate) struct Report {
    checks: Vec<Check>,
}

/// One check and what came of it.
pub(crate) struct Check {
    check: String,
    about: String,
    state: CheckState,
    text: String,
    /// How to repair it.
    remedy: Option<String>,
    exit: Exit,
    code: Option<Code>,
    findings: Vec<Finding>,
}

impl Check {
    fn new(check: &str, about: String, state: CheckState, exit: Exit, text: String) -> Self {
        let check = check.to_owned();
        Self { check, about, state, text, remedy: None, exit, code: None, findings: Vec::new() }
    }

    /// What a sidecar found by itself.
    pub(crate) fn told(found: DoctorCheck<'_>) -> Self {
        let (check, about) = (found.check.into_owned(), found.about.into_owned());
        let remedy = found.remedy.map(std::borrow::Cow::into_owned);
        let check = Self::new(&check, about, found.state, Exit::Unavailable, found.text.into_owned());
        Self { remedy, ..check }
    }

    /// A verb that failed, with its hint as the remedy.
    pub(crate) fn of(check: &str, about: String, failure: &Failure) -> Self {
        let remedy = failure.next_step().map(str::to_owned);
        Self { remedy, ..Self::failed(check, about, failure.exit, failure.cause()) }
    }

    /// The same check with the code and the findings that calls get.
    pub(crate) fn broken(self, code: Code, findings: Vec<Finding>) -> Self {
        Self { code: Some(code), findings, ..self }
    }

    /// The same check with how to repair it.
    pub(crate) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    pub(crate) fn ok(check: &str, about: String, text: impl Into<String>) -> Self {
        Self::new(check, about, CheckState::Ok, Exit::OutputClosed, text.into())
    }

    pub(crate) fn warning(check: &str, about: String, text: impl Into<String>) -> Self {
        Self::new(check, about, CheckState::Warning, Exit::OutputClosed, text.into())
    }

    pub(crate) fn failed(check: &str, about: String, exit: Exit, text: impl Into<String>) -> Self {
        Self::new(check, about, CheckState::Failed, exit, text.into())
    }

    pub(crate) fn json(&self) -> Value {
        let mut line = json!({
            "check": self.check, "about": self.about, "state": self.state.as_str(), "text": self.text,
        });
        if let Some(remedy) = &self.remedy {
            line["remedy"] = json!(remedy);
        }
        if let Some(code) = self.code {
            line["code"] = json!(code.0);
            line["findings"] = self.findings.iter().map(Finding::json).collect();
        }
        line
    }
}

impl Report {
    pub(crate) fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// The same, unless another check has said so.
    pub(crate) fn add_new(&mut self, check: Check) {
        if check.state == CheckState::Ok || !self.checks.iter().any(|known| known.text.contains(&check.text))
        {
            self.checks.push(check);
        }
    }

    pub(crate) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            return self.checks.iter().try_for_each(|check| output::print_json(&check.json()));
        }
        let rows = self.checks.iter().flat_map(|check| {
            let mut cells = [check.state.as_str(), &check.check, &check.about];
            let text = match &check.remedy {
                Some(remedy) => format!("{}; to repair: {remedy}", check.text),
                None => check.text.clone(),
            };
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let lines = lines.into_iter().map(move |line| {
                let row = cells.iter().map(|cell| (*cell).to_owned()).chain([line]).collect();
                // Further lines of the same check stand under its first.
                cells = ["", "", ""];
                row
            });
            lines.collect::<Vec<Vec<String>>>()
        });
        output::print_table(&output::table(&["STATE", "CHECK", "ABOUT", "FOUND"], &rows.collect::<Vec<_>>()))
    }

    /// The worst failure: of the files, of a contract, of anything else, of what is not there.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let failed: Vec<_> = self.checks.iter().filter(|check| check.state == CheckState::Failed).collect();
        let worst = [Exit::Usage, Exit::SchemaViolation, Exit::Refused, Exit::Unexpected, Exit::Unavailable];
        let exit = worst.into_iter().find(|exit| failed.iter().any(|check| check.exit == *exit));
        match exit.or_else(|| failed.first().map(|check| check.exit)) {
            None => Ok(()),
            Some(exit) => {
                let text = format!("{} of {} checks failed", failed.len(), self.checks.len());
                Err(Failure::unexpected(text).exit(exit))
            }
        }
    }
}
