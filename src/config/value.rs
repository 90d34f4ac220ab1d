//! Reads one value: TOML or text in; the value of its key's kind, or the mistake, out.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::fleet::{Agent, Cell};
use capd_proto::limits;
use capd_proto::rate::Rate;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::grant::{self, Grant, Group};
use super::keys::Kind;
use super::{Address, Peer, Transport};
use crate::otlp::Endpoint;

/// A value of a key's kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// [`Kind::Name`], [`Kind::Cell`], [`Kind::DidKey`], [`Kind::Choice`] and [`Kind::CapabilityOrOff`].
    Text(String),
    /// [`Kind::Integer`].
    Integer(u64),
    /// [`Kind::Path`] and [`Kind::PathOrOff`]; `None` is off.
    Path(Option<PathBuf>),
    /// [`Kind::Paths`].
    Paths(Vec<PathBuf>),
    /// [`Kind::Listener`] and [`Kind::LoopbackListener`]; `None` is off.
    Listener(Option<SocketAddr>),
    /// [`Kind::RateOrOff`]; `None` is off.
    Rate(Option<Rate>),
    /// [`Kind::Ratio`].
    Ratio(f64),
    /// [`Kind::CollectorOrOff`]; `None` is off.
    Collector(Option<Endpoint>),
    /// [`Kind::Capabilities`].
    Capabilities(Vec<CapabilityPattern>),
    /// [`Kind::Endpoints`].
    Endpoints(Vec<String>),
    /// [`Kind::Addresses`].
    Addresses(Vec<Address>),
    /// [`Kind::Peers`].
    Peers(Vec<Peer>),
    /// [`Kind::Groups`].
    Groups(Vec<Group>),
    /// [`Kind::Grants`].
    Grants(Vec<Grant>),
}

/// What is wrong, and for a TOML value the bytes of the part that is.
pub(super) struct Problem {
    pub(super) problem: String,
    pub(super) span: Range<usize>,
}

/// Most bytes of an input quoted in a message.
const QUOTED_BYTES_MAX: usize = 80;

/// The value of a key in the file; relative paths are joined to `base`.
pub(super) fn from_toml(kind: Kind, value: &Spanned<DeValue<'_>>, base: &Path) -> Result<Value, Problem> {
    let at = |problem: String| Problem { problem, span: value.span() };
    match (kind, value.get_ref()) {
        (Kind::Integer { .. }, DeValue::Integer(number)) => {
            let parsed = u64::from_str_radix(number.as_str(), number.radix());
            integer(kind, parsed.ok(), number.as_str()).map_err(at)
        }
        (Kind::Ratio, DeValue::Float(number)) => ratio(number.as_str()).map_err(at),
        (Kind::Ratio, DeValue::Integer(number)) => ratio(number.as_str()).map_err(at),
        (Kind::Paths, DeValue::Array(items)) => {
            let paths = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => {
                    path(text, base).map_err(|problem| Problem { problem, span: item.span() })
                }
                other => Err(Problem { problem: mistyped(other), span: item.span() }),
            });
            Ok(Value::Paths(paths.collect::<Result<_, _>>()?))
        }
        (Kind::Capabilities, DeValue::Array(items)) => {
            Ok(Value::Capabilities(grant::texts(items, grant::pattern)?))
        }
        (Kind::Endpoints, DeValue::Array(items)) => Ok(Value::Endpoints(grant::texts(items, endpoint)?)),
        (Kind::Addresses, DeValue::Array(items)) => Ok(Value::Addresses(grant::texts(items, address)?)),
        (Kind::Peers, DeValue::Array(items)) => Ok(Value::Peers(tables(items, peer_table)?)),
        (Kind::Groups, DeValue::Array(items)) => Ok(Value::Groups(tables(items, grant::group)?)),
        (Kind::Grants, DeValue::Array(items)) => Ok(Value::Grants(tables(items, grant::grant)?)),
        (
            Kind::Integer { .. }
            | Kind::Ratio
            | Kind::Paths
            | Kind::Capabilities
            | Kind::Endpoints
            | Kind::Addresses
            | Kind::Peers
            | Kind::Groups
            | Kind::Grants,
            other,
        ) => Err(at(mistyped(other))),
        (_, DeValue::String(text)) => word(kind, text, base).map_err(at),
        (_, other) => Err(at(mistyped(other))),
    }
}

/// The tables of an array, each read by `read`.
fn tables<T>(
    items: &[Spanned<DeValue<'_>>],
    read: impl Fn(&DeTable<'_>, Range<usize>) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    let read = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::Table(table) => read(table, item.span()),
        other => Err(Problem { problem: mistyped(other), span: item.span() }),
    };
    items.iter().map(read).collect()
}

/// The value of a key in the environment or a flag.
pub(super) fn from_text(kind: Kind, text: &str) -> Result<Value, String> {
    let here = Path::new("");
    let items = || text.split(',').map(str::trim).filter(|item| !item.is_empty());
    match kind {
        Kind::Integer { .. } => integer(kind, text.parse().ok(), text),
        Kind::Ratio => ratio(text),
        Kind::Paths => Ok(Value::Paths(items().map(|item| path(item, here)).collect::<Result<_, _>>()?)),
        Kind::Capabilities => Ok(Value::Capabilities(items().map(grant::pattern).collect::<Result<_, _>>()?)),
        Kind::Endpoints => Ok(Value::Endpoints(items().map(endpoint).collect::<Result<_, _>>()?)),
        Kind::Addresses => Ok(Value::Addresses(items().map(address).collect::<Result<_, _>>()?)),
        Kind::Peers => {
            let mut peers: Vec<Peer> = Vec::new();
            for item in items() {
                let (item, serves) = item.split_once('=').map_or((item, None), |(at, name)| (at, Some(name)));
                let serves = serves.map(grant::pattern).transpose()?;
                // A DID may hold no '@', so the first one ends it.
                let (did, address) = item.split_once('@').map_or((item, None), |(did, at)| (did, Some(at)));
                let did = peer_did(did)?;
                let address = address.map(self::address).transpose()?;
                match peers.iter_mut().find(|peer| peer.did == did) {
                    Some(peer) => {
                        peer.addresses.extend(address);
                        peer.serves.extend(serves);
                    }
                    None => peers.push(Peer {
                        name: None,
                        did,
                        addresses: address.into_iter().collect(),
                        serves: serves.into_iter().collect(),
                    }),
                }
            }
            Ok(Value::Peers(peers))
        }
        Kind::Groups => grant::groups_of_text(items()).map(Value::Groups),
        Kind::Grants => grant::grants_of_text(items()).map(Value::Grants),
        Kind::Name
        | Kind::Cell
        | Kind::DidKey
        | Kind::Path
        | Kind::PathOrOff
        | Kind::Listener
        | Kind::LoopbackListener
        | Kind::RateOrOff
        | Kind::CollectorOrOff
        | Kind::CapabilityOrOff
        | Kind::Choice(_) => word(kind, text, here),
    }
}

fn word(kind: Kind, text: &str, base: &Path) -> Result<Value, String> {
    let off = text == "off";
    match kind {
        Kind::Name => {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            let good = !text.is_empty() && text.len() <= 64 && text.chars().all(fits);
            if good { Ok(Value::Text(text.into())) } else { Err(format!("{} is not a name", quoted(text))) }
        }
        Kind::Cell => match text.parse::<Cell>() {
            Ok(_) => Ok(Value::Text(text.into())),
            Err(error) => Err(format!("{} is no cell: {error}", quoted(text))),
        },
        Kind::DidKey => match Agent::from_did(text) {
            Ok(_) => Ok(Value::Text(text.into())),
            Err(error) => Err(format!("{} is no did:key: {error}", quoted(text))),
        },
        Kind::Choice(words) if words.contains(&text) => Ok(Value::Text(text.into())),
        Kind::Choice(_) => Err(format!("{} is not one of its words", quoted(text))),
        Kind::PathOrOff if off => Ok(Value::Path(None)),
        Kind::Path | Kind::PathOrOff => path(text, base).map(|path| Value::Path(Some(path))),
        Kind::Listener | Kind::LoopbackListener if off => Ok(Value::Listener(None)),
        Kind::Listener | Kind::LoopbackListener => match text.parse::<SocketAddr>() {
            Err(_) => Err(format!("{} is not an IP address and port", quoted(text))),
            Ok(at) if kind == Kind::LoopbackListener && !at.ip().is_loopback() => {
                Err(format!("{at} is not on loopback"))
            }
            Ok(at) => Ok(Value::Listener(Some(at))),
        },
        Kind::CapabilityOrOff if off => Ok(Value::Text(text.into())),
        Kind::CapabilityOrOff => match text.parse::<CapabilityName>() {
            Ok(_) => Ok(Value::Text(text.into())),
            Err(error) => Err(format!("{} is no capability's name: {error}", quoted(text))),
        },
        Kind::CollectorOrOff if off => Ok(Value::Collector(None)),
        Kind::CollectorOrOff => match text.parse() {
            Ok(endpoint) => Ok(Value::Collector(Some(endpoint))),
            Err(error) => Err(format!("{} is no collector's URL: {error}", quoted(text))),
        },
        Kind::RateOrOff if off => Ok(Value::Rate(None)),
        Kind::RateOrOff => match text.parse() {
            Ok(rate) => Ok(Value::Rate(Some(rate))),
            Err(error) => Err(format!("{} is no rate: {error}", quoted(text))),
        },
        Kind::Integer { .. }
        | Kind::Ratio
        | Kind::Paths
        | Kind::Capabilities
        | Kind::Endpoints
        | Kind::Addresses
        | Kind::Peers
        | Kind::Groups
        | Kind::Grants => Err(format!("{} is a text", quoted(text))),
    }
}

fn integer(kind: Kind, number: Option<u64>, written: &str) -> Result<Value, String> {
    let Kind::Integer { min, max, .. } = kind else { return Err(format!("{} is a number", quoted(written))) };
    match number {
        None => Err(format!("{} is not an integer of its range", quoted(written))),
        Some(number) if number < min => Err(format!("{number} is below {min}")),
        Some(number) if number > max => Err(format!("{number} is above {max}")),
        Some(number) => Ok(Value::Integer(number)),
    }
}

fn ratio(written: &str) -> Result<Value, String> {
    match written.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Value::Ratio(ratio)),
        Ok(_) | Err(_) => Err(format!("{} is not a number from 0.0 to 1.0", quoted(written))),
    }
}

fn path(text: &str, base: &Path) -> Result<PathBuf, String> {
    if text.is_empty() { Err("an empty path".into()) } else { Ok(base.join(text)) }
}

fn peer_table(table: &DeTable<'_>, span: Range<usize>) -> Result<Peer, Problem> {
    let (mut name, mut did) = (None, None);
    let (mut addresses, mut serves) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let at = |problem: String| Problem { problem, span: value.span() };
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("name", DeValue::String(text)) => name = Some(peer_name(text).map_err(at)?),
            ("did", DeValue::String(text)) => did = Some(peer_did(text).map_err(at)?),
            ("addresses", DeValue::Array(items)) => {
                for item in items {
                    let at = |problem: String| Problem { problem, span: item.span() };
                    let DeValue::String(text) = item.get_ref() else {
                        return Err(at(mistyped(item.get_ref())));
                    };
                    addresses.push(address(text).map_err(at)?);
                }
            }
            ("serves", DeValue::Array(items)) => serves = grant::texts(items, grant::pattern)?,
            ("name" | "did" | "addresses" | "serves", other) => {
                return Err(at(format!("{}: {}", key.get_ref(), mistyped(other))));
            }
            (unknown, _) => {
                let mut problem = format!("unknown key {}", quoted(unknown));
                if let Some(meant) = crate::text::nearest(unknown, ["name", "did", "addresses", "serves"]) {
                    problem += &format!("; did you mean {meant:?}?");
                }
                return Err(Problem { problem, span: key.span() });
            }
        }
    }
    let did = did.ok_or(Problem { problem: "a peer without did".into(), span })?;
    Ok(Peer { name, did, addresses, serves })
}

/// A text of the characters that names of agents have.
fn peer_name(text: &str) -> Result<String, String> {
    match word(Kind::Name, text, Path::new(""))? {
        Value::Text(name) => Ok(name),
        _ => Err(format!("{} is not a name", quoted(text))),
    }
}

pub(super) fn peer_did(text: &str) -> Result<String, String> {
    let mut parts = text.splitn(3, ':');
    let scheme = parts.next() == Some("did");
    let method = parts
        .next()
        .is_some_and(|m| !m.is_empty() && m.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%');
    let rest = parts.next().is_some_and(|rest| !rest.is_empty() && rest.bytes().all(fits));
    if scheme && method && rest && text.len() <= limits::DID_BYTES_MAX {
        Ok(text.to_owned())
    } else {
        Err(format!("{} is not a DID", quoted(text)))
    }
}

/// Reads a client URL of etcd.
fn endpoint(text: &str) -> Result<String, String> {
    let wrong = |why: &str| format!("{} is not a URL of etcd: {why}", quoted(text));
    let rest = ["https://", "http://"].into_iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| wrong("it begins with neither https:// nor http://"))?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("no port"))?;
    if port.parse::<u16>().is_ok_and(|port| port > 0) && to_host(host).is_some() {
        Ok(text.to_owned())
    } else {
        Err(wrong("it is not SCHEME://HOST:PORT"))
    }
}

/// Reads `quic://HOST:PORT` or `tcp://HOST:PORT`, with `+dns` behind the scheme for a host that names several sidecars.
pub(super) fn address(text: &str) -> Result<Address, String> {
    let wrong = |why: &str| format!("{} is not a peer's address: {why}", quoted(text));
    let (transport, rest, is_shared) = match text.split_once("://") {
        Some(("quic", rest)) => (Transport::Quic, rest, false),
        Some(("tcp", rest)) => (Transport::Tcp, rest, false),
        Some(("quic+dns", rest)) => (Transport::Quic, rest, true),
        Some(("tcp+dns", rest)) => (Transport::Tcp, rest, true),
        _ => return Err(wrong("it begins with neither quic:// nor tcp://")),
    };
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("no port"))?;
    let port =
        port.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("the port is not 1 to 65535"))?;
    let host = to_host(host).ok_or_else(|| wrong("no host"))?;
    if is_shared && host.parse::<IpAddr>().is_ok() {
        return Err(wrong("+dns needs a host name"));
    }
    Ok(Address { transport, host: host.to_owned(), port, is_shared })
}

/// The host of a URL, without an IPv6 address's brackets; none for what is no host.
fn to_host(host: &str) -> Option<&str> {
    match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) if matches!(inner.parse(), Ok(IpAddr::V6(_))) => Some(inner),
        None if is_host(host) => Some(host),
        _ => None,
    }
}

fn is_host(host: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !host.is_empty() && host.len() <= 253 && host.bytes().all(fits)
}

pub(super) fn mistyped(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{} is a text", quoted(text)),
        DeValue::Integer(number) => format!("{} is an integer", number.as_str()),
        DeValue::Float(number) => format!("{} is a float", number.as_str()),
        DeValue::Boolean(truth) => format!("{truth} is a boolean"),
        DeValue::Datetime(_) => "this is a date".into(),
        DeValue::Array(_) => "this is a list".into(),
        DeValue::Table(_) => "this is a table".into(),
    }
}

/// `text` in quotes, cut to a bounded length.
pub(super) fn quoted(text: &str) -> String {
    let mut end = text.len().min(QUOTED_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let dots = if end < text.len() { "…" } else { "" };
    format!("{:?}{dots}", &text[..end])
}

impl Value {
    /// The value as it would be written in the file.
    pub(super) fn written(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Path(None) | Self::Listener(None) | Self::Rate(None) | Self::Collector(None) => {
                "\"off\"".into()
            }
            Self::Collector(Some(endpoint)) => format!("\"{endpoint}\""),
            Self::Ratio(ratio) => format!("{ratio:?}"),
            Self::Rate(Some(rate)) => format!("\"{rate}\""),
            Self::Path(Some(path)) => format!("{:?}", path.display().to_string()),
            Self::Listener(Some(at)) => format!("\"{at}\""),
            Self::Paths(paths) => {
                list(paths.iter().map(|path| format!("{:?}", path.display().to_string())).collect())
            }
            Self::Peers(peers) => list(peers.iter().map(ToString::to_string).collect()),
            Self::Endpoints(urls) => list(urls.iter().map(|url| format!("{url:?}")).collect()),
            Self::Addresses(addresses) => list(addresses.iter().map(|at| format!("\"{at}\"")).collect()),
            Self::Capabilities(names) => list(names.iter().map(|name| format!("\"{name}\"")).collect()),
            Self::Groups(groups) => list(groups.iter().map(ToString::to_string).collect()),
            Self::Grants(grants) => list(grants.iter().map(ToString::to_string).collect()),
        }
    }
}
