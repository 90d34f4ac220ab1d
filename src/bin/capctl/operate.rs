//! Implements `reload` and `config diff`: the sidecar's configuration file against what runs, entry by entry.

use capd::client::{Client, ClientError};
use capd_proto::message::{ConfigChange, Reloaded, Takes};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::one_line;
use crate::{Sidecar, output};

/// Applies the file, and prints what that changed.
pub(crate) async fn reload(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let reloaded = ask(sidecar, false).await?;
    warn(&reloaded);
    if json {
        output::print_json(&document(&reloaded))?;
    } else {
        let lines = lines(&reloaded);
        if !lines.is_empty() {
            output::print(&lines)?;
        }
    }
    if reloaded.applied {
        if !json {
            let count = all(&reloaded);
            let changes = if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
            output::print(&format!("{changes} applied, {}", rules(reloaded.rules)))?;
        }
        return Ok(());
    }
    if json {
        return Err(Failure::told(crate::failure::Exit::Unexpected));
    }
    Err(needs_restart(&reloaded))
}

/// How many rules are in force.
pub(crate) fn rules(count: u64) -> String {
    if count == 1 { "1 rule in force".to_owned() } else { format!("{count} rules in force") }
}

/// Names the keys that keep the sidecar from applying its file.
pub(crate) fn needs_restart(reloaded: &Reloaded<'_>) -> Failure {
    let mut keys: Vec<_> = reloaded.changes.iter().filter(|change| change.takes == Takes::Restart).collect();
    keys.dedup_by(|one, other| one.key == other.key);
    let keys = keys.into_iter().map(|change| one_line(&change.key)).collect::<Vec<_>>().join(", ");
    let failure = Failure::unexpected(format!("nothing is changed: {keys} can change only with a restart"));
    failure.hint("restart capd, or set these keys back and reload again")
}

/// Prints what the file would change.
pub(crate) async fn diff(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let reloaded = ask(sidecar, true).await?;
    warn(&reloaded);
    if json {
        return output::print_json(&document(&reloaded));
    }
    if reloaded.changes.is_empty() {
        return output::print("the file and the running configuration are the same");
    }
    output::print(&lines(&reloaded))
}

async fn ask(sidecar: &Sidecar, dry_run: bool) -> Result<Reloaded<'static>, Failure> {
    reloaded(&sidecar.connect().await?, dry_run).await
}

/// What a reload changes. **Errors:** usage, with every mistake of the file.
pub(crate) async fn reloaded(client: &Client, dry_run: bool) -> Result<Reloaded<'static>, Failure> {
    client.reload(dry_run).await.map_err(|error| {
        let mistakes = match &error {
            ClientError::Refused(wire) => wire.details_json().map(|details| details["mistakes"].clone()),
            _ => None,
        };
        let Some(Value::Array(mistakes)) = mistakes else { return Failure::from(error) };
        Failure::usage(told(&mistakes)).hint("nothing is changed; `capd config check` reports the same")
    })
}

/// Every mistake with its place.
fn told(mistakes: &[Value]) -> String {
    let text = |value: &Value| value.as_str().map(one_line).unwrap_or_default();
    let each = mistakes.iter().map(|mistake| {
        let mut line = text(&mistake["file"]);
        if let Some(number) = mistake["line"].as_u64().filter(|number| *number > 0) {
            line += &format!(":{number}");
        }
        let key = text(&mistake["key"]);
        if !key.is_empty() {
            line += &format!(": {key}");
        }
        format!("{line}: {}", text(&mistake["problem"]))
    });
    each.collect::<Vec<_>>().join("\n")
}

fn warn(reloaded: &Reloaded<'_>) {
    for warning in &reloaded.warnings {
        output::note(&format!("warning: {}", output::printable(warning)));
    }
}

fn all(reloaded: &Reloaded<'_>) -> u64 {
    reloaded.changes.len() as u64 + reloaded.omitted
}

/// One line for each change, as `diff` marks them.
fn lines(reloaded: &Reloaded<'_>) -> String {
    let mut lines: Vec<_> = reloaded.changes.iter().map(line).collect();
    if reloaded.omitted > 0 {
        lines.push(format!("… and {} more", reloaded.omitted));
    }
    lines.join("\n")
}

fn line(change: &ConfigChange<'_>) -> String {
    let (key, takes) = (one_line(&change.key), when(change.takes));
    match (change.from.as_deref().map(one_line), change.to.as_deref().map(one_line)) {
        (Some(from), Some(to)) => format!("~ {key}: {from} -> {to}{takes}"),
        (None, Some(to)) => format!("+ {key}: {to}{takes}"),
        (Some(from), None) => format!("- {key}: {from}{takes}"),
        (None, None) => format!("~ {key}{takes}"),
    }
}

const fn when(takes: Takes) -> &'static str {
    match takes {
        Takes::Now => "",
        Takes::NewLinks => "  (for new links)",
        Takes::Restart => "  (needs a restart)",
    }
}

fn document(reloaded: &Reloaded<'_>) -> Value {
    let changes = reloaded.changes.iter().map(|change| {
        json!({"key": change.key, "from": change.from, "to": change.to, "takes": change.takes.as_str()})
    });
    json!({
        "applied": reloaded.applied,
        "changes": changes.collect::<Vec<_>>(),
        "omitted": reloaded.omitted,
        "rules": reloaded.rules,
        "warnings": reloaded.warnings,
    })
}
