//! Says what an outcome loses or refuses: an outcome in; sentences for people out.

use super::{Outcome, Refutation};

impl Outcome {
    /// A sentence for each thing that is not full, about `what` is sent: `requests` or `results`. None when it is full.
    ///
    /// Names and values in it are the schemas' own text, not escaped; a long witness is cut.
    pub fn sentences(&self, what: &str) -> Vec<String> {
        match self {
            Self::Full => Vec::new(),
            Self::Unknown { path, reason, .. } => vec![format!("{what}, at {path}: {reason}")],
            Self::Incompatible(refutation) => {
                let Refutation { path, rule, .. } = refutation;
                vec![format!("{what} are refused at {path} ({rule}){}", witness(refutation))]
            }
            Self::Partial(lost) => {
                let sentence = |lost: &super::Lost| {
                    let shown = lost.refutation.as_ref().map(witness).unwrap_or_default();
                    format!("{what} lose {}: {}{shown}", lost.path, lost.feature)
                };
                lost.iter().map(sentence).collect()
            }
        }
    }
}

fn witness(refutation: &Refutation) -> String {
    let mut text = refutation.witness.to_string();
    if text.len() > WITNESS_BYTES_MAX {
        text.truncate(text.floor_char_boundary(WITNESS_BYTES_MAX));
        text.push('…');
    }
    format!(", such as {text}")
}

/// Longest witness in a sentence.
const WITNESS_BYTES_MAX: usize = 240;
