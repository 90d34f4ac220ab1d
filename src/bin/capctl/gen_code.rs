//! Implements `gen`: a declaration, from a file or the sidecar, in; source files for its callers, or their differences,
//! out.

mod agents;
mod diff;
mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use capd::codegen::{self, Agent, Language};
use serde_json::json;

use crate::args::GenArgs;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, output};

/// One file, as it is and as it is to be.
struct Outcome {
    agent: Option<String>,
    ids: Vec<String>,
    /// Below the folder for generated code.
    path: PathBuf,
    text: String,
    /// What stands there; `None` where there is no file.
    before: Option<String>,
}

/// Writes one file for each agent, or shows what would change.
///
/// **Errors:** usage, for the declaration and the folder; those of asking the sidecar; with `--check`, exit code 1 when a
/// file would change.
pub(crate) async fn run(sidecar: &Sidecar, args: GenArgs, json: bool) -> Result<(), Failure> {
    let agents = agents::find(sidecar, &args).await?;
    let language = Language::from(args.lang);
    let outcomes: Vec<_> =
        agents.iter().map(|agent| outcome(agent, language, &args.out)).collect::<Result<_, _>>()?;
    if !args.check {
        for outcome in outcomes.iter().filter(|outcome| outcome.is_changed()) {
            write::file(&args.out, &outcome.path, &outcome.text)
                .map_err(|error| cannot("written", &args.out.join(&outcome.path), &error))?;
        }
    }
    if json {
        let files: Vec<_> = outcomes.iter().map(|outcome| outcome.json(&args)).collect();
        output::print_json(&json!({ "language": language.as_str(), "files": files }))?;
    } else {
        outcomes.iter().try_for_each(|outcome| outcome.print(&args))?;
    }
    let is_stale = args.check && outcomes.iter().any(Outcome::is_changed);
    if is_stale { Err(Failure::told(Exit::Unexpected)) } else { Ok(()) }
}

fn outcome(agent: &Agent, language: Language, out: &Path) -> Result<Outcome, Failure> {
    let generated = codegen::generate(language, agent);
    let mut ids: Vec<_> = agent.capabilities.iter().map(|capability| capability.id.to_string()).collect();
    ids.sort_unstable();
    let place = out.join(&generated.path);
    let before = match fs::read(&place) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read", &place, &error)),
    };
    Ok(Outcome { agent: agent.name.clone(), ids, path: generated.path, text: generated.text, before })
}

impl Outcome {
    fn is_changed(&self) -> bool {
        self.before.as_deref() != Some(&self.text)
    }

    fn json(&self, args: &GenArgs) -> serde_json::Value {
        let mut document = json!({
            "path": args.out.join(&self.path).display().to_string(),
            "agent": self.agent,
            "capabilities": self.ids,
            "changed": self.is_changed(),
        });
        if args.check && self.is_changed() {
            document["diff"] = self.diff(args).into();
        }
        document
    }

    fn print(&self, args: &GenArgs) -> Result<(), Failure> {
        let place = args.out.join(&self.path);
        let what = match self.ids.len() {
            1 => "1 capability".to_owned(),
            count => format!("{count} capabilities"),
        };
        match (args.check, self.is_changed()) {
            (true, true) => output::print(&self.diff(args)),
            (false, true) => output::print(&format!("✓ wrote {} ({what})", place.display())),
            (_, false) => output::print(&format!("✓ {} is up to date ({what})", place.display())),
        }
    }

    fn diff(&self, args: &GenArgs) -> String {
        let name = args.out.join(&self.path).display().to_string();
        diff::unified(&name, self.before.as_deref(), &self.text)
    }
}

fn cannot(what: &str, place: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: cannot be {what}: {error}", place.display()))
        .hint("--out names another folder")
}
