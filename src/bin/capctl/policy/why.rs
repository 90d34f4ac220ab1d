//! Implements `policy why` and `policy reload`: asks the running sidecar for a decision, or makes it reload its rules.

use serde_json::json;

use crate::capability::Wanted;
use crate::failure::Failure;
use crate::{Sidecar, names, operate, output};

/// Shows what a caller may do with a capability, and which rules say so.
pub(super) async fn why(
    sidecar: &Sidecar,
    caller: &str,
    capability: &str,
    provider: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let wanted = Wanted::read(capability, None)?;
    let client = sidecar.connect_for_people().await?;
    let caller = names::find(&client, caller).await?;
    let provider = match provider {
        Some(provider) => Some(names::find(&client, provider).await?),
        None => None,
    };
    let capability = wanted.name(&client).await?;
    let mut why = client.policy_why(&caller, &capability, provider.as_ref()).await?;
    why.decisions.retain(|decision| wanted.admits(&decision.capability));
    if json {
        return why.decisions.iter().try_for_each(|decision| {
            output::print_json(&json!({
                "caller": caller.as_str(),
                "capability": decision.capability,
                "action": decision.action,
                "allowed": decision.allowed,
                "rules": decision.rules,
                "missing": decision.missing,
                "decision": decision.reason,
            }))
        });
    }
    let rows: Vec<_> = why
        .decisions
        .iter()
        .map(|decision| {
            [&decision.capability, &decision.action, &decision.reason].map(ToString::to_string).to_vec()
        })
        .collect();
    output::print_table(&output::table(&["CAPABILITY", "ACTION", "DECISION"], &rows))
}

/// Has the sidecar read its policy anew.
pub(super) async fn reload(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let reloaded = operate::reloaded(&sidecar.connect().await?, false).await?;
    if !reloaded.applied {
        return Err(operate::needs_restart(&reloaded));
    }
    if json {
        return output::print_json(&json!({"rules": reloaded.rules}));
    }
    output::print(&operate::rules(reloaded.rules))
}
