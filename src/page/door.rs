//! Decides which requests are the page's own: a request's head in; admitted, or why not, out.
//!
//! Every program of this machine, and every web page in its browser, can reach a port on loopback. The files of the page
//! are the same for everybody and hold no data. For all else a request shows two secrets: a cookie, which the browser keeps
//! from scripts and sends from no other site, and a key in a header, which the page's script alone has. Browsers send
//! cookies of 127.0.0.1 to every port of it, so the cookie alone proves nothing; the key alone is worth nothing either.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::fault::Fault;
use crate::net::Random;
use crate::net::local::Token;

/// The token that opens sessions, and the sessions that are open.
pub(super) struct Sessions {
    random: Random,
    token: String,
    /// Cookies are of a host, whatever its port.
    cookie_name: String,
    open: Mutex<VecDeque<Session>>,
}

struct Session {
    cookie: Token,
    key: Token,
}

/// What a session's owner shows from then on.
#[derive(Debug)]
pub(super) struct Opened {
    /// The header `Set-Cookie`.
    pub(super) cookie: String,
    /// What the page's script sends with every request.
    pub(super) key: String,
}

impl Sessions {
    /// **Errors:** the system gives no random bytes.
    pub(super) fn new(random: Random, port: u16) -> io::Result<Self> {
        let token = secret(&random)?;
        Ok(Self { random, token, cookie_name: format!("capd-page-{port}"), open: Mutex::default() })
    }

    /// What opens a session.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Opens a session for whoever knows the token; of too many, the oldest ends.
    ///
    /// **Errors:** 403 for another token, 503 without random bytes.
    pub(super) fn open(&self, token: &str) -> Result<Opened, Fault> {
        if !Token::new(self.token.as_bytes()).is(token.as_bytes()) {
            let detail = "this is not the token of the page; open the URL that `capd page` printed";
            return Err(Fault::new(StatusCode::FORBIDDEN, detail));
        }
        let made = || {
            secret(&self.random)
                .map_err(|error| Fault::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
        };
        let (cookie, key) = (made()?, made()?);
        let mut open = self.sessions();
        if open.len() == SESSIONS_MAX {
            open.pop_front();
        }
        open.push_back(Session { cookie: Token::new(cookie.as_bytes()), key: Token::new(key.as_bytes()) });
        let cookie = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name);
        Ok(Opened { cookie, key })
    }

    /// Whether a request is of an open session.
    fn has(&self, head: &HeaderMap) -> bool {
        let key = text(head, &KEY).unwrap_or_default();
        let cookies: Vec<&str> = head
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|field| field.to_str().ok())
            .flat_map(|field| field.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter_map(|(name, value)| (name == self.cookie_name).then_some(value))
            .take(COOKIES_MAX)
            .collect();
        self.sessions().iter().any(|session| {
            session.key.is(key.as_bytes())
                && cookies.iter().any(|cookie| session.cookie.is(cookie.as_bytes()))
        })
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<Session>> {
        // It changes in single steps, so a panic leaves none half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A file of the page.
    Asset,
    /// A session, for a token.
    Session,
    /// Anything else.
    Data,
}

/// Whether a request may come in.
///
/// **Errors:** 421 for a name that is not this machine's, 403 for another site's page, 401 without a session.
pub(super) fn admit(
    sessions: &Sessions,
    method: &Method,
    head: &HeaderMap,
    wanted: Wanted,
) -> Result<(), Fault> {
    let host = text(head, &header::HOST).unwrap_or_default();
    if !is_loopback(host) {
        // A name that somebody else's DNS has rebound to this machine.
        let detail = "the header Host does not name this machine; use 127.0.0.1, [::1] or localhost";
        return Err(Fault::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let own = format!("http://{host}");
    let is_foreign = head.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes() != own.as_bytes());
    // Browsers say with everything but a plain GET where it comes from.
    let is_unsaid = method != Method::GET && method != Method::HEAD && !head.contains_key(header::ORIGIN);
    let site = text(head, &FETCH_SITE);
    let is_of_other_site = wanted != Wanted::Asset && site.is_some_and(|site| site != "same-origin");
    if is_foreign || is_unsaid || is_of_other_site {
        return Err(Fault::new(StatusCode::FORBIDDEN, "only the page itself may ask this"));
    }
    if wanted == Wanted::Data && !sessions.has(head) {
        let detail = "this browser has no session; open the URL that `capd page` printed";
        return Err(Fault::new(StatusCode::UNAUTHORIZED, detail));
    }
    Ok(())
}

/// Tells the browser what the page may do: its own files, its own requests, nothing else.
pub(super) fn guard(fields: &mut HeaderMap) {
    for (name, value) in GUARDS {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    fields.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn secret(random: &Random) -> io::Result<String> {
    let bytes: [u8; SECRET_BYTES] = random.bytes().map_err(io::Error::other)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn text<'a>(head: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    head.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Whether a `Host` is a name or an address of this machine's own, at whatever port: the port may be forwarded.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

const KEY: HeaderName = HeaderName::from_static("capd-page-key");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const GUARDS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
];
/// Length of a token, a cookie and a key. **Units:** bytes.
const SECRET_BYTES: usize = 32;
/// Sessions that are open at once.
const SESSIONS_MAX: usize = 16;
/// Cookies of one name that are looked at.
const COOKIES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        Sessions::new(Random::system(), 7100).unwrap()
    }

    fn head(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn status(sessions: &Sessions, method: Method, fields: &[(&'static str, &str)], wanted: Wanted) -> u16 {
        match admit(sessions, &method, &head(fields), wanted) {
            Ok(()) => 200,
            Err(fault) => fault.status().as_u16(),
        }
    }

    #[test]
    fn data_needs_the_cookie_and_the_key_of_one_session() {
        let sessions = sessions();
        let opened = |_| {
            let Opened { cookie, key } = sessions.open(sessions.token()).unwrap();
            (cookie.split(';').next().unwrap().to_owned(), key)
        };
        let (one, other) = (opened(1), opened(2));
        let asked = |cookie: &str, key: &str| {
            let fields = [("host", "127.0.0.1:7100"), ("cookie", cookie), ("capd-page-key", key)];
            status(&sessions, Method::GET, &fields, Wanted::Data)
        };
        assert_eq!(asked(&one.0, &one.1), 200);
        assert_eq!(asked(&format!("a=b; {}", other.0), &other.1), 200);
        assert_eq!(asked(&one.0, &other.1), 401);
        assert_eq!(asked(&one.0, ""), 401);
        assert_eq!(asked("", &one.1), 401);
        assert_eq!(asked(&one.0.replace("7100", "7101"), &one.1), 401);
        assert!(sessions.open("").is_err() && sessions.open(&one.1).is_err());
    }

    #[test]
    fn the_oldest_of_too_many_sessions_ends() {
        let sessions = sessions();
        let first = sessions.open(sessions.token()).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.open(sessions.token()).unwrap();
        }
        assert_eq!(sessions.sessions().len(), SESSIONS_MAX);
        let cookie = first.cookie.split(';').next().unwrap();
        assert!(!sessions.has(&head(&[("cookie", cookie), ("capd-page-key", &first.key)])));
    }

    #[test]
    fn other_sites_and_rebound_names_are_kept_out() {
        let sessions = sessions();
        let host = ("host", "localhost:9");
        for (method, fields, wanted, expected) in [
            (Method::GET, vec![host], Wanted::Asset, 200),
            (Method::GET, vec![host, ("sec-fetch-site", "cross-site")], Wanted::Asset, 200),
            (Method::GET, vec![("host", "evil.example:9")], Wanted::Asset, 421),
            (Method::GET, vec![("host", "127.0.0.1.evil.example")], Wanted::Asset, 421),
            (Method::GET, vec![], Wanted::Asset, 421),
            (Method::POST, vec![host, ("origin", "http://localhost:9")], Wanted::Session, 200),
            (Method::POST, vec![host], Wanted::Session, 403),
            (Method::POST, vec![host, ("origin", "null")], Wanted::Session, 403),
            (Method::POST, vec![host, ("origin", "http://localhost:8")], Wanted::Session, 403),
            (Method::POST, vec![host, ("origin", "https://evil.example")], Wanted::Session, 403),
            (Method::GET, vec![host, ("sec-fetch-site", "same-site")], Wanted::Data, 403),
            (Method::GET, vec![host, ("sec-fetch-site", "same-origin")], Wanted::Data, 401),
        ] {
            assert_eq!(status(&sessions, method, &fields, wanted), expected, "{fields:?}");
        }
    }
}
