//! Implements `query` and `ls`: a name or pattern in; a table of capabilities, or their descriptors as JSON, out.

use capd::client::{ClientError, Offer, Order, Query, descriptor_json};
use capd_proto::capability::CapabilityPattern;
use capd_proto::code::Code;
use serde_json::json;

use crate::args::{LsArgs, OrderArg, QueryArgs};
use crate::capability::Wanted;
use crate::failure::Failure;
use crate::{Sidecar, capability, names, output};

/// Lists the versions of one name, or the names of one namespace.
pub(crate) async fn query(sidecar: &Sidecar, args: QueryArgs, json: bool) -> Result<(), Failure> {
    let is_pattern = args.name.ends_with('*');
    let wanted = if is_pattern { None } else { Some(Wanted::read(&args.name, args.version.as_ref())?) };
    let filter = if is_pattern { Some(pattern(&args.name)?) } else { None };
    let client = sidecar.connect_for_people().await?;
    let mut query = match (&wanted, filter) {
        (Some(wanted), _) => wanted.query(&client).await?,
        (None, filter) => {
            Query { version: args.version, ..Query::new(filter.unwrap_or(CapabilityPattern::Any)) }
        }
    };
    query.limit = args.limit;
    query.cursor = args.cursor;
    query.order = match args.order {
        OrderArg::NewestFirst => Order::NewestFirst,
        OrderArg::OldestFirst => Order::OldestFirst,
    };
    if let Some(to) = &args.to {
        query.to = Some(names::find(&client, to).await?);
    }
    // A limit or a cursor asks for one page; otherwise the list is whole.
    let found = if query.limit.is_some() || query.cursor.is_some() {
        client.query(&query).await.map(|page| (page.offers, page.next_cursor))
    } else {
        client.query_all(&query).await.map(|offers| (offers, None))
    };
    let (offers, next_cursor) = match found {
        Ok(found) => found,
        Err(error) => return Err(capability::not_found(&client, error, &args.name).await),
    };
    if json {
        let offers: Vec<_> = offers.iter().map(descriptor_json).collect();
        let mut document = json!({"capabilities": offers});
        if let Some(cursor) = next_cursor {
            document["next_cursor"] = cursor.into();
        }
        return output::print_json(&document);
    }
    output::print(&table(&offers))?;
    if let Some(cursor) = next_cursor {
        output::note(&format!("more: --cursor {}", output::one_line(&cursor)));
    }
    Ok(())
}

/// Lists everything the sidecar knows, or its peers.
pub(crate) async fn ls(sidecar: &Sidecar, args: LsArgs, json: bool) -> Result<(), Failure> {
    if args.peers {
        return crate::peers::ls(sidecar, json).await;
    }
    // A namespace is the sidecar's to list; a part of a name is looked for here.
    let (filter, part) = match args.pattern.as_deref() {
        Some(text) if text.ends_with('*') => (pattern(text)?, ""),
        part => (CapabilityPattern::Any, part.unwrap_or_default()),
    };
    let client = sidecar.connect_for_people().await?;
    let mut offers = match client.query_all(&Query::new(filter)).await {
        Ok(offers) => offers,
        // PROTOCOL 7.1: nothing to list is 4002, never an empty CAP_DECLARE.
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    offers.retain(|offer| offer.id().to_string().contains(part));
    if json {
        for offer in &offers {
            output::print_json(&descriptor_json(offer))?;
        }
    } else if offers.is_empty() {
        output::note("no capabilities");
    } else {
        output::print(&table(&offers))?;
    }
    Ok(())
}

fn pattern(text: &str) -> Result<CapabilityPattern, Failure> {
    text.parse().map_err(|error| Failure::usage(format!("{text:?}: {error}")))
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
