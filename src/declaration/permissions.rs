//! Checks a capability's `permissions`: reports each that is almost, but not quite, a known one.

use super::fields::{Fields, Report, text};
use super::read::WORDS_MAX;
use super::yaml::quoted;

/// Reads the list. An owner may have permissions of their own, so what is like none of ours is taken as it is.
pub(super) fn of(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (node, at) in fields.items("permissions", WORDS_MAX, report) {
        let Some(permission) = text(node, &at, report) else { continue };
        match judged(permission) {
            Judged::Taken => {}
            Judged::Odd(sentence) => report.warning(node.line, &at, &sentence),
            Judged::Near(nearest) => {
                let problem = format!("{} is no permission; did you mean {nearest:?}?", quoted(permission));
                report.mistake(node.line, &at, problem, &accepted());
            }
        }
        all.push(permission.to_owned());
    }
    all
}

enum Judged {
    /// Ours, or its owner's.
    Taken,
    /// It may well not do what was meant.
    Odd(String),
    /// This was meant.
    Near(String),
}

fn judged(permission: &str) -> Judged {
    let Some((scope, verb)) = permission.split_once(':') else {
        return Judged::Odd(format!(
            "{} is not scope:verb: a grant of \"*\" alone covers it",
            quoted(permission)
        ));
    };
    match KNOWN.iter().find(|known| is_near(scope, known.scope)) {
        None => Judged::Taken,
        Some(known) if known.scope == scope && known.verbs.contains(&verb) => Judged::Taken,
        Some(known) => match known.verbs.iter().find(|known| is_near(verb, known)) {
            Some(nearest) => Judged::Near(format!("{}:{nearest}", known.scope)),
            None if known.scope != scope => Judged::Near(format!("{}:{verb}", known.scope)),
            None if known.is_enforced => {
                let rights: Vec<_> = known.verbs.iter().map(|verb| format!("{scope}:{verb}")).collect();
                Judged::Odd(format!("{permission} grants a command no right; {} do", rights.join(", ")))
            }
            None => Judged::Taken,
        },
    }
}

/// Whether one is the other, or a slip of the fingers away: a letter more, less, another, two swapped, or capitals.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    match (one, other) {
        ([], []) | ([_], []) | ([], [_]) => true,
        ([a, b, one @ ..], [c, d, other @ ..]) if a == d && b == c && one == other => true,
        (one, other) => {
            let (tail_of_one, tail_of_other) = (one.get(1..), other.get(1..));
            tail_of_one == Some(other) || Some(one) == tail_of_other || tail_of_one == tail_of_other
        }
    }
}

fn accepted() -> String {
    let known =
        KNOWN.iter().flat_map(|known| known.verbs.iter().map(|verb| format!("{}:{verb}", known.scope)));
    format!(
        "{}, or a scope:verb of your own that resembles none of these",
        known.collect::<Vec<_>>().join(", ")
    )
}

/// Permissions that have a meaning here (docs/concepts.md, *Permissions*).
struct Known {
    scope: &'static str,
    verbs: &'static [&'static str],
    /// Whether a command is held to them.
    is_enforced: bool,
}

const KNOWN: &[Known] = &[
    Known { scope: "network", verbs: &["read", "write", "unix"], is_enforced: true },
    Known { scope: "filesystem", verbs: &["read", "write"], is_enforced: true },
    Known { scope: "database", verbs: &["read", "write"], is_enforced: false },
    Known { scope: "secrets", verbs: &["read"], is_enforced: false },
    Known { scope: "compute", verbs: &["execute"], is_enforced: false },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_a_permission_is_told_from_what_is_an_owners_own() {
        for (written, meant) in [
            ("network:reed", "network:read"),
            ("network:rea", "network:read"),
            ("network:raed", "network:read"),
            ("Network:READ", "network:read"),
            ("netwrok:write", "network:write"),
            ("network:unixx", "network:unix"),
            ("filesytem:read", "filesystem:read"),
            ("file-system:wirte", "filesystem:write"),
            ("netwrk:listen", "network:listen"),
            ("secret:read", "secrets:read"),
            ("compute:exectue", "compute:execute"),
        ] {
            let Judged::Near(nearest) = judged(written) else { panic!("{written} is taken") };
            assert_eq!(nearest, meant);
        }
        for own in [
            "network:read",
            "network:unix",
            "database:admin",
            "secrets:rotate",
            "acme:read",
            "a:b",
            "fs:read",
        ] {
            assert!(matches!(judged(own), Judged::Taken), "{own}");
        }
        for odd in ["network:listen", "filesystem:*", "filesystem:wipe", "network", "z", ""] {
            assert!(matches!(judged(odd), Judged::Odd(_)), "{odd}");
        }
    }
}
