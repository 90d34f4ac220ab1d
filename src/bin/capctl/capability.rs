//! Reads which capability the command line means: `NAME`, `NAME:VERSION` or `NAME@RANGE`, with a name or its unique ending.
//!
//! A text with fewer labels than a name has is an ending: the sidecar is asked for the names that it knows.

use std::collections::BTreeSet;

use capd::client::{Client, ClientError, Offer, Order, Query, Target};
use capd::text::distance;
use capd_proto::capability::{CapabilityId, CapabilityName, CapabilityPattern, Range, Version};
use capd_proto::code::Code;

use crate::failure::{Exit, Failure};
use crate::output::one_line;

/// A capability, as the command line has it.
#[derive(Debug)]
pub(crate) struct Wanted {
    name: String,
    version: Wish,
}

/// Which of its versions.
#[derive(Debug, PartialEq)]
enum Wish {
    /// The highest release.
    Newest,
    Exact(Version),
    In(Range),
}

impl Wanted {
    /// Reads it; `--version` stands for `@RANGE`. **Errors:** usage.
    pub(crate) fn read(text: &str, range: Option<&Range>) -> Result<Self, Failure> {
        let wrong = |error| Failure::usage(format!("{text:?}: {error}"));
        let (name, version) = match text.split_once([':', '@']) {
            None => (text, range.map_or(Wish::Newest, |range| Wish::In(range.clone()))),
            Some(_) if range.is_some() => {
                let id = if text.contains(':') { "an id" } else { "NAME@RANGE" };
                return Err(Failure::usage(format!(
                    "{id} already has a version; use --version with a name only"
                )));
            }
            Some((name, version)) if text[name.len()..].starts_with(':') => {
                (name, Wish::Exact(version.parse().map_err(wrong)?))
            }
            Some((name, range)) => (name, Wish::In(range.parse().map_err(wrong)?)),
        };
        // A name, or the end of one.
        if let Err(error) = format!("{ROOT}{name}").parse::<CapabilityName>() {
            return Err(Failure::usage(format!("{text:?}: {error}")));
        }
        Ok(Self { name: name.to_owned(), version })
    }

    /// The whole name. **Errors:** usage for several names, refused for none, or as the client has them.
    pub(crate) async fn name(&self, client: &Client) -> Result<CapabilityName, Failure> {
        if let Ok(name) = self.name.parse() {
            return Ok(name);
        }
        self.among(&known(client).await?)
    }

    /// The whole name, which is one of those known. **Errors:** as [`Wanted::name`].
    pub(crate) fn among(&self, names: &BTreeSet<CapabilityName>) -> Result<CapabilityName, Failure> {
        if let Ok(name) = self.name.parse() {
            return Ok(name);
        }
        let ending = format!(".{}", self.name);
        let found: Vec<_> = names.iter().filter(|name| name.as_str().ends_with(&ending)).collect();
        match found[..] {
            [name] => Ok(name.clone()),
            [] => {
                let failure = Failure::usage(format!("no capability is named {:?}, or ends so", self.name));
                let failure = failure.exit(Exit::Refused);
                Err(failure.hint(guess(&self.name, names)))
            }
            _ => {
                let failure =
                    Failure::usage(format!("{:?} is the ending of {} names", self.name, found.len()));
                Err(failure.hint(format!("write one of: {}", listed(found.iter().map(|name| name.as_str())))))
            }
        }
    }

    /// The name for a verb that is about all versions. **Errors:** also usage, for one that names a version.
    pub(crate) fn of_all_versions(text: &str, verb: &str) -> Result<Self, Failure> {
        let wanted = Self::read(text, None)?;
        if wanted.version == Wish::Newest {
            return Ok(wanted);
        }
        let failure = Failure::usage(format!("{text:?}: {verb} is about all versions of a name"));
        Err(failure.hint(format!("leave the version away: {}", wanted.name)))
    }

    /// The name as it was written, whole or an ending.
    pub(crate) fn written(&self) -> &str {
        &self.name
    }

    /// Its versions that are meant; none for a bare name.
    pub(crate) fn range(&self) -> Option<Range> {
        match &self.version {
            Wish::Newest => None,
            Wish::Exact(version) => Some(Range::exact(version.clone())),
            Wish::In(range) => Some(range.clone()),
        }
    }

    /// Whether an id, or a name alone, is of a version that is meant. A name alone is of any.
    pub(crate) fn admits(&self, text: &str) -> bool {
        let version = text.split_once(':').and_then(|(_, version)| version.parse().ok());
        self.range().is_none_or(|range| version.is_none_or(|version| range.matches(&version)))
    }

    /// What to call.
    pub(crate) async fn target(&self, client: &Client) -> Result<Target, Failure> {
        let name = self.name(client).await?;
        Ok(match &self.version {
            Wish::Newest => Target::newest(name),
            Wish::Exact(version) => Target::Id(CapabilityId { name, version: version.clone() }),
            Wish::In(range) => Target::in_range(name, range.clone()),
        })
    }

    /// Its versions that are meant; all of them for a bare name.
    pub(crate) async fn query(&self, client: &Client) -> Result<Query, Failure> {
        Ok(Query { version: self.range(), ..Query::new(self.name(client).await?) })
    }

    /// The one version that is meant: the highest release, or the highest in the range.
    pub(crate) async fn id(&self, client: &Client) -> Result<CapabilityId, Failure> {
        if let Wish::Exact(version) = &self.version {
            return Ok(CapabilityId { name: self.name(client).await?, version: version.clone() });
        }
        let mut query = self.query(client).await?;
        query.order = Order::NewestFirst;
        let offers = match client.query_all(&query).await {
            Ok(offers) => offers,
            Err(error) => return Err(not_found(client, error, &self.name).await),
        };
        let released = offers.iter().find(|offer| !offer.id().version.is_prerelease());
        let newest = released.or(offers.first()).map(|offer| offer.id().clone());
        newest.ok_or_else(|| Failure::unexpected("the sidecar lists no version").exit(Exit::Refused))
    }
}

/// An error about a capability; one that is not found names those that are nearly it.
pub(crate) async fn not_found(client: &Client, error: ClientError, text: &str) -> Failure {
    let is_unknown = matches!(&error, ClientError::Refused(wire) if wire.code == Code::CAPABILITY_NOT_FOUND);
    let failure = Failure::from(error);
    if !is_unknown {
        return failure;
    }
    let name = text.split([':', '@']).next().unwrap_or(text);
    match known(client).await {
        Ok(names) => failure.hint(guess(name, &names)),
        Err(_) => failure,
    }
}

/// Every name that the sidecar knows.
pub(crate) async fn known(client: &Client) -> Result<BTreeSet<CapabilityName>, Failure> {
    match client.query_all(&Query::new(CapabilityPattern::Any)).await {
        Ok(offers) => Ok(offers.iter().map(|offer: &Offer| offer.id().name.clone()).collect()),
        // PROTOCOL 7.1: nothing to list is 4002.
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => Ok(BTreeSet::new()),
        Err(error) => Err(error.into()),
    }
}

/// The nearest of the names that there are, or where to look.
pub(crate) fn guess(text: &str, names: &BTreeSet<CapabilityName>) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_lowercase();
    let wanted = text.to_lowercase();
    let distances = names.iter().take(NAMES_MAX).map(|name| {
        let whole = distance(&name.as_str().to_lowercase(), &wanted);
        (whole.min(distance(&last(name.as_str()), &last(text))), name.as_str())
    });
    let nearest = distances.min();
    let far_max = FAR_MAX.min(text.len() / 3);
    match nearest.filter(|(distance, _)| *distance <= far_max) {
        Some((_, name)) => format!("did you mean {name:?}?"),
        None if names.is_empty() => "the sidecar knows no capability; capctl doctor finds out why".to_owned(),
        None => format!("the sidecar knows: {}", listed(names.iter().map(CapabilityName::as_str))),
    }
}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let names: Vec<_> = names.take(LISTED_MAX).map(one_line).collect();
    format!("{}{more}", names.join(", "))
}

/// Labels before an ending, so that it can be checked as a name is.
const ROOT: &str = "a.a.";
/// Letters by which a name may differ from what was meant.
const FAR_MAX: usize = 3;
/// Names that are compared.
const NAMES_MAX: usize = 10_000;
/// Names that an error lists.
const LISTED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_no_other() {
        let read = |text: &str| Wanted::read(text, None);
        let version = |text: &str| read(text).unwrap().version;
        assert_eq!(version("org.example.a"), Wish::Newest);
        assert_eq!(version("a"), Wish::Newest);
        assert_eq!(version("org.example.a:1.2.0"), Wish::Exact("1.2.0".parse().unwrap()));
        assert_eq!(version("a:1.2.0"), Wish::Exact("1.2.0".parse().unwrap()));
        assert_eq!(version("example.a@>=1.0.0 <2.0.0"), Wish::In(">=1.0.0 <2.0.0".parse().unwrap()));
        let range: Range = ">=1.0.0".parse().unwrap();
        assert_eq!(Wanted::read("a.b.c", Some(&range)).unwrap().version, Wish::In(range.clone()));
        for wrong in ["", "a:", "a@", "a:x", "a@x y", "-a", "a..b", "a b", "a:1.0.0@2.0.0"] {
            assert_eq!(read(wrong).unwrap_err().exit, Exit::Usage, "{wrong:?}");
        }
        for twice in ["a.b.c:1.0.0", "a.b.c@>=1.0.0"] {
            let failure = Wanted::read(twice, Some(&range)).unwrap_err().to_string();
            assert!(failure.contains("already has a version"), "{failure}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_one_is_answered_with_that_one() {
        let names: BTreeSet<CapabilityName> =
            ["org.example.upper", "org.example.word-count"].map(|name| name.parse().unwrap()).into();
        for (text, name) in [
            ("org.example.uper", "org.example.upper"),
            ("word-coutn", "org.example.word-count"),
            ("com.example.upper", "org.example.upper"),
            ("UPPER", "org.example.upper"),
        ] {
            assert_eq!(guess(text, &names), format!("did you mean {name:?}?"), "{text}");
        }
        assert!(guess("other", &names).contains("org.example.upper, org.example.word-count"));
        assert!(guess("other", &BTreeSet::new()).contains("capctl doctor"));
    }
}
