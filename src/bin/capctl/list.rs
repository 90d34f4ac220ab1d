//! Implements `ls`: a capability, a part of a name or a namespace in; a table, or descriptors as JSON, out.

use capd::client::{Client, ClientError, Offer, Query, descriptor_json};
use capd_proto::capability::{CapabilityName, CapabilityPattern, Range};
use capd_proto::code::Code;
use serde_json::json;

use crate::args::LsArgs;
use crate::capability::Wanted;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, capability, names, output};

/// Lists what the sidecar knows, or its peers.
///
/// **Errors:** usage; not found, for a name that nobody has. A namespace, or everything, may be empty.
pub(crate) async fn ls(sidecar: &Sidecar, args: LsArgs, json: bool) -> Result<(), Failure> {
    if args.peers {
        return crate::peers::ls(sidecar, json).await;
    }
    let kind = Kind::read(args.wanted.as_deref(), args.version.as_ref())?;
    if let (Kind::Part(_), Some(_)) = (&kind, &args.cursor) {
        return Err(Failure::usage("--cursor continues the list of a whole name, or of a namespace"));
    }
    let client = sidecar.connect_for_people().await?;
    let mut query = kind.query(args.version);
    query.order = args.order.into();
    if let Some(to) = &args.to {
        query.to = Some(names::find(&client, to).await?);
    }
    let (mut offers, next_cursor) = match &kind {
        Kind::Part(wanted) => (of_part(&client, &query, wanted, args.limit).await?, None),
        Kind::Filter(_) | Kind::Name(_) => {
            query.limit = args.limit;
            query.cursor = args.cursor;
            found(&client, &query, &kind).await?
        }
    };
    // A peer that lists its own capabilities does not say whose they are.
    for offer in offers.iter_mut().filter(|offer| !offer.is_local && offer.provider.is_none()) {
        offer.provider = query.to.as_ref().map(ToString::to_string);
    }
    shown(&offers, next_cursor, json)
}

/// What is to be listed.
enum Kind {
    Filter(CapabilityPattern),
    /// A whole name.
    Name(Wanted),
    /// Names that have this part.
    Part(Wanted),
}

impl Kind {
    fn read(text: Option<&str>, range: Option<&Range>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self::Filter(CapabilityPattern::Any)) };
        if text.ends_with('*') {
            let pattern = text.parse().map_err(|error| Failure::usage(format!("{text:?}: {error}")))?;
            return Ok(Self::Filter(pattern));
        }
        let wanted = Wanted::read(text, range)?;
        let is_whole = wanted.written().parse::<CapabilityName>().is_ok();
        Ok(if is_whole { Self::Name(wanted) } else { Self::Part(wanted) })
    }

    fn query(&self, range: Option<Range>) -> Query {
        let filter = match self {
            Self::Filter(filter) => filter.clone(),
            Self::Name(wanted) => wanted.written().parse().unwrap_or(CapabilityPattern::Any),
            Self::Part(_) => CapabilityPattern::Any,
        };
        let version = match self {
            Self::Filter(_) => range,
            Self::Name(wanted) | Self::Part(wanted) => wanted.range(),
        };
        Query { version, ..Query::new(filter) }
    }
}

/// One page if a limit or a cursor asks for it, or else all.
async fn found(client: &Client, query: &Query, kind: &Kind) -> Result<(Vec<Offer>, Option<String>), Failure> {
    let found = if query.limit.is_some() || query.cursor.is_some() {
        client.query(query).await.map(|page| (page.offers, page.next_cursor))
    } else {
        client.query_all(query).await.map(|offers| (offers, None))
    };
    match (found, kind) {
        (Ok(found), _) => Ok(found),
        (Err(error), Kind::Filter(_)) if is_empty(&error) => Ok((Vec::new(), None)),
        (Err(error), Kind::Name(wanted)) => Err(capability::not_found(client, error, wanted.written()).await),
        (Err(error), Kind::Filter(_) | Kind::Part(_)) => Err(error.into()),
    }
}

/// All whose name has a part. **Errors:** not found.
async fn of_part(
    client: &Client,
    query: &Query,
    wanted: &Wanted,
    limit: Option<u64>,
) -> Result<Vec<Offer>, Failure> {
    let mut offers = match client.query_all(query).await {
        Ok(offers) => offers,
        Err(error) if is_empty(&error) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    offers.retain(|offer| offer.id().name.as_str().contains(wanted.written()));
    if offers.is_empty() && query.version.is_some() {
        let names = capability::known(client).await?;
        let named: Vec<_> = names.iter().filter(|name| name.as_str().contains(wanted.written())).collect();
        if let [name] = named[..] {
            // It says which versions there are.
            let whole = Query { filter: CapabilityPattern::Name(name.clone()), ..query.clone() };
            return client.query_all(&whole).await.map_err(Into::into);
        }
    }
    if offers.is_empty() {
        let failure = Failure::usage(format!("no capability has {:?} in its name", wanted.written()));
        let failure = failure.exit(Exit::Refused);
        return Err(failure.hint(capability::guess(wanted.written(), &capability::known(client).await?)));
    }
    if let Some(limit) =
        limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit < offers.len())
    {
        output::note(&format!("{} more: raise --limit", offers.len() - limit));
        offers.truncate(limit);
    }
    Ok(offers)
}

/// PROTOCOL 7.1: nothing to list is 4002, never an empty CAP_DECLARE.
fn is_empty(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(wire) if [Code::CAPABILITY_NOT_FOUND, Code::VERSION_MISMATCH].contains(&wire.code))
}

fn shown(offers: &[Offer], next_cursor: Option<String>, json: bool) -> Result<(), Failure> {
    if json {
        offers.iter().try_for_each(|offer| output::print_json(&descriptor_json(offer)))?;
        return next_cursor.map_or(Ok(()), |cursor| output::print_json(&json!({"next_cursor": cursor})));
    }
    if offers.is_empty() {
        output::note("no capabilities");
        return Ok(());
    }
    output::print_table(&table(offers))?;
    if let Some(cursor) = next_cursor {
        output::note(&format!("more: --cursor {}", output::one_line(&cursor)));
    }
    Ok(())
}

/// Who provides it, for people.
pub(crate) fn provider(offer: &Offer) -> String {
    if offer.is_local { "local".to_owned() } else { offer.provider.clone().unwrap_or_default() }
}

fn table(offers: &[Offer]) -> String {
    let rows: Vec<_> = offers
        .iter()
        .map(|offer| {
            let description = descriptor_json(offer)["description"].as_str().unwrap_or_default().to_owned();
            vec![offer.id().name.to_string(), offer.id().version.to_string(), provider(offer), description]
        })
        .collect();
    output::table(&["NAME", "VERSION", "PROVIDER", "DESCRIPTION"], &rows)
}
