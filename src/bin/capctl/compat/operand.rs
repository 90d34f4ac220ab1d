//! Finds the declarations that a command line names: operands in; declarations with their schemas, from files, the
//! sidecar or its peers, out.
//!
//! **Shape:** `FILE`, `FILE#CAPABILITY`; `CAPABILITY` as the sidecar knows it; `PEER/CAPABILITY` as that peer declares it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use capd::client::{Client, Description, SchemaSide};
use capd::declaration::{DECLARATION_BYTES_MAX, Declaration, Declared, Required, SchemaSource};
use capd::schema::compat::{Contract, Terms};
use capd_proto::capability::{CapabilityId, CapabilityName};
use capd_proto::negotiate::Served;

use super::descriptor;
use super::needed::Needed;
use crate::capability::{self, Wanted};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, names};

/// One declaration of a capability.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: CapabilityId,
    /// The versions whose callers it serves.
    pub(super) served: Served,
    /// Where it is from, for people.
    pub(super) source: String,
    /// Its place in a file that declares it.
    pub(super) place: Option<Place>,
    pub(super) contract: Contract,
    /// Whether a call may run twice.
    pub(super) idempotent: bool,
    /// Whether its providers remember the ids of calls.
    pub(super) by_id: bool,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

impl Held {
    /// Its version, for people.
    pub(super) fn shown(&self) -> String {
        self.id.version.to_string()
    }
}

/// One side of a comparison.
#[derive(Debug)]
pub(super) enum Side {
    Held(Box<Held>),
    Needed(Needed),
}

/// Everything that one operand names.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) held: Vec<Held>,
    /// What the agent calls elsewhere.
    pub(super) needed: Vec<Needed>,
    /// Whether it is all that an agent declares, so that what is not in it is not declared.
    pub(super) is_whole: bool,
}

impl Found {
    const fn of(held: Vec<Held>, is_whole: bool) -> Self {
        Self { held, needed: Vec::new(), is_whole }
    }

    fn one(held: Held) -> Self {
        Self::of(vec![held], false)
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let held = self.held.iter().map(|held| held.id.to_string());
        held.chain(self.needed.iter().map(|needed| needed.name.to_string()))
    }
}

/// Reads operands; links to the sidecar with the first one that needs it.
pub(super) struct Operands<'a> {
    sidecar: &'a Sidecar,
    client: Option<Client>,
}

impl<'a> Operands<'a> {
    pub(super) const fn new(sidecar: &'a Sidecar) -> Self {
        Self { sidecar, client: None }
    }

    /// The one declaration or requirement that an operand names. **Errors:** usage, when it names several.
    pub(super) async fn one(&mut self, text: &str) -> Result<Side, Failure> {
        let Found { mut held, mut needed, .. } = self.all(text).await?;
        // A name that is declared is not meant as one that is required.
        if !held.is_empty() && text.contains('#') {
            needed.clear();
        }
        if held.len() + needed.len() > 1 {
            let file = text.split('#').next().unwrap_or(text);
            let named = held.iter().map(|held| format!("{file}#{}", held.id));
            let names: Vec<_> =
                named.chain(needed.iter().map(|needed| format!("{file}#{}", needed.name))).collect();
            return Err(Failure::usage(format!("{text} names {} capabilities", names.len()))
                .hint(format!("name one of them: {}", names.join(", "))));
        }
        let side =
            held.pop().map(|held| Side::Held(Box::new(held))).or_else(|| needed.pop().map(Side::Needed));
        side.ok_or_else(|| Failure::usage(format!("{text} declares nothing and requires nothing")))
    }

    /// Every declaration that an operand names.
    ///
    /// **Errors:** usage: it is no file, no id, or a file with a mistake; and those of asking the sidecar.
    pub(super) async fn all(&mut self, text: &str) -> Result<Found, Failure> {
        if let Some((path, selector)) = file_of(text) {
            return in_file(&path, selector);
        }
        if let Some((peer, id)) = text.split_once('/') {
            let wanted = Wanted::read(id, None).map_err(|_| nothing(text))?;
            let id = wanted.id(self.client().await?).await?;
            return Ok(Found::one(self.declared_by(Some(peer), &id).await?));
        }
        let wanted = Wanted::read(text, None).map_err(|_| nothing(text))?;
        let id = wanted.id(self.client().await?).await?;
        Ok(Found::one(self.declared_by(None, &id).await?))
    }

    /// Every version of a capability that is meant and that the sidecar knows.
    pub(super) async fn known(&mut self, wanted: &Wanted) -> Result<Vec<Held>, Failure> {
        let client = self.client().await?;
        let query = wanted.query(client).await?;
        let offers = match client.query_all(&query).await {
            Ok(offers) => offers,
            Err(error) => return Err(capability::not_found(client, error, wanted.written()).await),
        };
        let mut ids: Vec<_> = offers.into_iter().map(|offer| offer.descriptor.id).collect();
        ids.sort_by(|one, other| one.version.total_cmp(&other.version));
        ids.dedup();
        let mut held = Vec::new();
        for id in ids {
            held.extend(client.describe(&id).await?.iter().map(of_description));
        }
        Ok(held)
    }

    async fn client(&mut self) -> Result<&Client, Failure> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(self.sidecar.connect_for_people().await?)),
        }
    }

    async fn declared_by(&mut self, peer: Option<&str>, id: &CapabilityId) -> Result<Held, Failure> {
        let client = self.client().await?;
        let own = client.did().as_str().to_owned();
        let mut descriptions = match client.describe(id).await {
            Ok(descriptions) => descriptions,
            Err(error) => return Err(capability::not_found(client, error, id.name.as_str()).await),
        };
        if let Some(peer) = peer {
            let did = names::resolved(client, peer).await;
            descriptions.retain(|description| is_from(description, &did, &own));
        }
        let Some(first) = descriptions.first() else {
            let guess = match peer {
                Some(peer) => names::guess(client, peer).await,
                None => None,
            };
            let hint = guess.unwrap_or_else(|| format!("to see who does: capctl ls {}", id.name));
            return Err(Failure::usage(format!("{} does not declare {id}", peer.unwrap_or("nobody")))
                .exit(Exit::Refused)
                .hint(hint));
        };
        let held = of_description(first);
        // The agent's own declaration comes first and is the one that is meant; peers must agree or be named.
        let others = descriptions.iter().skip(1).filter(|_| !first.offer.is_local).map(of_description);
        let other = others.into_iter().find(|other| !other.contract.is_same(&held.contract));
        if let Some(other) = other {
            let message =
                format!("{id} is declared in different ways by {} and {}", held.source, other.source);
            return Err(Failure::usage(message).hint(format!("name one of them: {}/{id}", held.source)));
        }
        Ok(held)
    }
}

/// Whether a peer is the one that was named, by its DID or by how that ends.
pub(crate) fn is_from(description: &Description, peer: &str, own: &str) -> bool {
    let provider = description.offer.provider.as_deref().unwrap_or(own);
    provider == peer || (peer.len() >= DID_END_CHARS_MIN && provider.ends_with(peer))
}

fn of_description(description: &Description) -> Held {
    let Description { offer, input, output } = description;
    let [input, output] = [input, output].map(|side| match side {
        SchemaSide::Undeclared => Terms::Undeclared,
        SchemaSide::Checked { document, .. } => Terms::read_foreign(document),
        SchemaSide::Unknown { uri } => {
            Terms::Unknown { reason: format!("the sidecar has no schema under {uri}") }
        }
        SchemaSide::Unavailable { hash, reason } => Terms::Unknown { reason: format!("{hash}: {reason}") },
    });
    let provider = offer.provider.as_deref().unwrap_or_default();
    let source = if offer.is_local { "local".to_owned() } else { names::shown(provider).into_owned() };
    let (served, contract) = (offer.descriptor.served.clone(), Contract { input, output });
    let (idempotent, by_id) = (offer.descriptor.idempotent, offer.descriptor.by_id);
    Held { id: offer.id().clone(), served, source, place: None, contract, idempotent, by_id }
}

/// The file that an operand names, and what stands behind `#`; `None` when it names none.
fn file_of(text: &str) -> Option<(PathBuf, Option<&str>)> {
    if Path::new(text).is_file() {
        return Some((text.into(), None));
    }
    let (path, selector) = match text.rsplit_once('#') {
        Some((path, selector)) => (path, Some(selector)),
        None => (text, None),
    };
    // What looks like a file and is not there is a mistake in its name.
    let is_meant =
        [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end)) || path.starts_with(['.', '/']);
    (Path::new(path).is_file() || is_meant).then(|| (path.into(), selector))
}

/// Whether an operand names a file, whether it is there or not.
pub(super) fn is_file(text: &str) -> bool {
    file_of(text).is_some()
}

fn in_file(path: &Path, selector: Option<&str>) -> Result<Found, Failure> {
    let bytes = read(path)?;
    let json = serde_json::from_slice::<serde_json::Value>(&bytes).ok().filter(|json| json["version"] != 1);
    let mut found = match &json {
        Some(json) => Found::of(descriptor::read(json, path)?, false),
        None => declared(path)?,
    };
    if let Some(selector) = selector {
        let known: Vec<_> = found.names().collect();
        found.held.retain(|held| is_selected(&held.id, selector));
        found.needed.retain(|needed| needed.is_selected(selector));
        found.is_whole = false;
        if found.names().next().is_none() {
            let message = format!("{} neither declares nor requires {selector:?}", path.display());
            let named = known.iter().map(|id| id.split(':').next().unwrap_or(id));
            let names: BTreeSet<CapabilityName> = named.filter_map(|name| name.parse().ok()).collect();
            let meant = selector.split([':', '@']).next().unwrap_or(selector);
            // A name that is there, in another version, needs no other name.
            let is_there = names.iter().any(|name| name.as_str().ends_with(meant));
            let guess = capability::guess(meant, &names);
            let hint = if guess.starts_with("did you mean") && !is_there {
                guess
            } else {
                format!("it has {}", known.join(", "))
            };
            return Err(Failure::usage(message).exit(Exit::Refused).hint(hint));
        }
    }
    Ok(found)
}

/// Whether a name, its last labels, or either with a version or a range, names an id.
pub(crate) fn is_selected(id: &CapabilityId, selector: &str) -> bool {
    let Ok(wanted) = Wanted::read(selector, None) else { return false };
    let (full, name) = (id.name.as_str(), wanted.written());
    let is_named = full == name || full.strip_suffix(name).is_some_and(|before| before.ends_with('.'));
    is_named && wanted.range().is_none_or(|range| range.matches(&id.version))
}

fn declared(path: &Path) -> Result<Found, Failure> {
    let declaration = Declaration::load(path).map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
    let held = declaration
        .capabilities
        .iter()
        .map(|declared| of_declared(declared, path))
        .collect::<Result<_, _>>()?;
    let needed =
        declaration.requires.iter().map(|required| of_required(required, path)).collect::<Result<_, _>>()?;
    Ok(Found { held, needed, is_whole: !declaration.capabilities.is_empty() })
}

fn of_declared(declared: &Declared, path: &Path) -> Result<Held, Failure> {
    let contract = contract(declared.input_schema.as_ref(), declared.output_schema.as_ref())?;
    let place = Some(Place { file: path.to_owned(), line: declared.line });
    let served = Served {
        supported_ranges: declared.supported_ranges.clone(),
        min_schema_version: declared.min_schema_version.clone(),
        ..Served::only(declared.id.version.clone())
    };
    let (source, idempotent, by_id) = (path.display().to_string(), declared.idempotent, declared.by_id);
    Ok(Held { id: declared.id.clone(), served, source, place, contract, idempotent, by_id })
}

fn of_required(required: &Required, path: &Path) -> Result<Needed, Failure> {
    Ok(Needed {
        name: required.name.clone(),
        range: required.version.clone(),
        place: Place { file: path.to_owned(), line: required.line },
        contract: contract(required.input_schema.as_ref(), required.output_schema.as_ref())?,
    })
}

fn contract(input: Option<&SchemaSource>, output: Option<&SchemaSource>) -> Result<Contract, Failure> {
    let terms = |schema: Option<&SchemaSource>| match schema {
        None => Ok(Terms::Undeclared),
        Some(schema) => Terms::read(&schema.bytes)
            .map_err(|error| Failure::usage(format!("{}:{}: {error}", schema.file.display(), schema.line))),
    };
    Ok(Contract { input: terms(input)?, output: terms(output)? })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{}: too large; accepted: at most {FILE_BYTES_MAX} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

fn nothing(text: &str) -> Failure {
    Failure::usage(format!("{text:?} is neither a file nor a capability")).hint(
        "accepted: FILE, FILE#CAPABILITY, CAPABILITY, or PEER/CAPABILITY; a CAPABILITY is NAME, NAME:VERSION or NAME@RANGE",
    )
}

/// Largest file that is read: a declaration, or descriptors with both their schemas.
const FILE_BYTES_MAX: u64 = 4 * DECLARATION_BYTES_MAX;
/// Fewest characters that the end of a DID is known by.
const DID_END_CHARS_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_a_name_or_its_last_labels_with_or_without_a_version() {
        let id: CapabilityId = "org.example.review:1.5.0".parse().unwrap();
        for selector in
            ["org.example.review", "review", "example.review", "review:1.5", "org.example.review:1.5.0"]
        {
            assert!(is_selected(&id, selector), "{selector}");
        }
        for selector in ["", "view", "org.example", "review:1.5.1", "review:", "other"] {
            assert!(!is_selected(&id, selector), "{selector}");
        }
    }

    #[test]
    fn what_looks_like_a_file_is_one_even_when_it_is_not_there() {
        for (text, path, selector) in [
            ("gone.yaml", "gone.yaml", None),
            ("./gone#review", "./gone", Some("review")),
            ("/gone/descriptor.json#a.b.c:1.0", "/gone/descriptor.json", Some("a.b.c:1.0")),
        ] {
            assert_eq!(file_of(text), Some((PathBuf::from(path), selector)), "{text}");
        }
        for text in ["org.example.review:1.0.0", "did:key:z6Mk/org.example.review:1.0.0"] {
            assert_eq!(file_of(text), None, "{text}");
        }
    }
}
