//! Writes findings as GitHub's workflow commands, which show them beside the lines that they are about: findings in;
//! `::error file=…,line=…,title=…::…` out.
//!
//! **Source:** GitHub Docs, *Workflow commands for GitHub Actions*.

use std::fmt::Write as _;

use super::needed::{Met, State};
use super::operand::{Held, Place};

/// A declaration that breaks callers of an earlier one.
pub(super) fn check(out: &mut String, new: &Held, findings: &[String]) {
    let title = format!("{} breaks its callers", new.id);
    errors(out, new.place.as_ref(), &title, findings);
}

/// A requirement that is not met: beside the provider's declaration where a file has it, else beside the requirement.
pub(super) fn met(out: &mut String, met: &Met<'_>) {
    let declared = match &met.state {
        State::Compared(held, _) => held.place.as_ref(),
        State::NoVersion(named) => named.first().and_then(|held| held.place.as_ref()),
        State::Gone | State::Elsewhere => None,
    };
    let place = declared.unwrap_or(&met.needed.place);
    let title =
        format!("{} does not meet what {} requires", met.needed.name, met.needed.place.file.display());
    errors(out, Some(place), &title, &met.findings());
}

/// A capability that is not declared any more, at the top of the new declaration.
pub(super) fn gone(out: &mut String, held: &Held, new: &[Held]) {
    let says = format!("{} was declared, and the new declaration does not have it", held.id);
    let top = |place: &Place| Place { file: place.file.clone(), line: 1 };
    let place = new.iter().find_map(|new| new.place.as_ref()).map(top);
    errors(out, place.as_ref(), &format!("{} is gone", held.id.name), &[says]);
}

fn errors(out: &mut String, place: Option<&Place>, title: &str, findings: &[String]) {
    for finding in findings {
        let _ = write!(out, "::error ");
        if let Some(Place { file, line }) = place {
            let _ = write!(out, "file={},line={line},", property(&file.display().to_string()));
        }
        let _ = writeln!(out, "title={}::{}", property(title), data(finding));
    }
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_property_or_a_command_is_escaped() {
        let place = Place { file: "a,b:c.yaml".into(), line: 7 };
        let mut out = String::new();
        errors(&mut out, Some(&place), "50%: x", &["one\ntwo ::error::".to_owned()]);
        assert_eq!(out, "::error file=a%2Cb%3Ac.yaml,line=7,title=50%25%3A x::one%0Atwo ::error::\n");
    }
}
