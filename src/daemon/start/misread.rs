//! Turns the mistakes of a configuration and its files into what a reload tells: each with its file, line and key.

use std::path::Path;

use super::StartError;
use crate::config::{Mistakes, Origin};
use crate::daemon::sidecar::operate::{Misread, ReloadError};

/// The mistakes of the configuration's own file, its variables and flags.
pub(super) fn config(mistakes: &Mistakes) -> ReloadError {
    let each = mistakes.0.iter().map(|mistake| {
        let (file, line) = match &mistake.origin {
            Origin::File { path, line } => (name(path), *line),
            origin @ (Origin::Default | Origin::Environment(_) | Origin::Flag(_)) => (origin.to_string(), 0),
        };
        let problem = format!("{}; accepted: {}", mistake.problem, mistake.accepted);
        Misread { file, line, key: mistake.key.clone(), problem }
    });
    ReloadError::Mistakes { text: mistakes.to_string(), mistakes: each.collect() }
}

/// The mistakes of what it names: the declaration, its schemas, policies, documents.
pub(super) fn start(error: &StartError) -> ReloadError {
    let mistakes = match error {
        StartError::Declaration(mistakes) => {
            let each = mistakes.0.iter().map(|mistake| Misread {
                file: name(&mistake.file),
                line: mistake.line,
                key: mistake.at.clone(),
                problem: format!("{}; accepted: {}", mistake.problem, mistake.accepted),
            });
            each.collect()
        }
        StartError::Policy(mistakes) => {
            let each = mistakes.0.iter().map(|mistake| Misread {
                file: name(&mistake.file),
                line: mistake.line,
                key: "policy.files".to_owned(),
                problem: mistake.problem.clone(),
            });
            each.collect()
        }
        StartError::Schema { file, line, id, error } => {
            vec![Misread { file: name(file), line: *line, key: id.clone(), problem: error.clone() }]
        }
        StartError::Document { path, error } => {
            let key = "agent.did_documents".to_owned();
            vec![Misread { file: name(path), line: 0, key, problem: error.clone() }]
        }
        StartError::Exposed(_) => {
            let problem =
                "another user may write a file that controls the sidecar; the log names it".to_owned();
            vec![Misread { file: "files".to_owned(), key: "agent.check_files".to_owned(), problem, line: 0 }]
        }
        StartError::File { path, error } => {
            vec![Misread { file: name(path), problem: error.to_string(), ..Misread::default() }]
        }
        StartError::Peer { did, error } => {
            let problem = format!("{did:?}: {error}; accepted: did:key:z6Mk…");
            vec![Misread { file: "configuration".to_owned(), key: "peers".to_owned(), problem, line: 0 }]
        }
        StartError::Setting(problem) | StartError::System(problem) => {
            vec![Misread { file: "configuration".to_owned(), problem: problem.clone(), ..Misread::default() }]
        }
        StartError::Key(_)
        | StartError::NewIdentity { .. }
        | StartError::Journal(_)
        | StartError::Listen { .. } => {
            vec![Misread {
                file: "configuration".to_owned(),
                problem: error.to_string(),
                ..Misread::default()
            }]
        }
    };
    ReloadError::Mistakes { text: error.to_string(), mistakes }
}

/// A file's name without its folder.
fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
