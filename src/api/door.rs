//! Decides by the head of a request whether it is admitted.
//!
//! The mode of a unix socket admits its owner only. Loopback TCP is open to every program of the machine, and to every
//! web page in a browser there. The checks here keep both out (AGENT-API 1).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use capd_proto::code::Code;

use super::problem::Problem;
use crate::net::local::Token;

/// Whether a request may come in. `token` is what it must show, on TCP.
///
/// **Errors:** 421 for a name that is not this machine's, 403 for another site's page, 401 without the token.
pub(super) fn admit(head: &HeaderMap, token: Option<&Token>) -> Result<(), Problem> {
    let host = head.get(header::HOST).and_then(|host| host.to_str().ok());
    if token.is_some() && !host.is_some_and(is_loopback) {
        // A name that somebody else's DNS has rebound to this machine.
        let detail = "the header Host does not name this machine; use 127.0.0.1, [::1] or localhost";
        return Err(Problem::refused(Code::UNAUTHORIZED, detail)
            .status(StatusCode::MISDIRECTED_REQUEST)
            .closes());
    }
    if let Some(origin) = head.get(header::ORIGIN) {
        let own = host.map(|host| format!("http://{host}"));
        if own.as_deref().map(str::as_bytes) != Some(origin.as_bytes()) {
            let detail = "a web page of another origin may not speak to a sidecar";
            return Err(Problem::refused(Code::UNAUTHORIZED, detail).closes());
        }
    }
    match token {
        Some(token) if !shows(head, token) => {
            let detail = "this request needs the header \"Authorization: Bearer TOKEN\", with the token of listen.token_file";
            Err(Problem::refused(Code::UNAUTHORIZED, detail)
                .status(StatusCode::UNAUTHORIZED)
                .field(header::WWW_AUTHENTICATE, "Bearer realm=\"capd\"")
                .closes())
        }
        Some(_) | None => Ok(()),
    }
}

/// Lets a body through that is of a kind which no form can send.
///
/// It is asked of routes that take a body, and not of the others: those answer another method with 405.
/// **Errors:** 415.
pub(super) async fn json_only(request: Request, next: Next) -> Result<Response, Problem> {
    let found = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = found.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(next.run(request).await);
    }
    let detail = match kind {
        "" => "a body needs the header \"Content-Type: application/json\"".to_owned(),
        kind => {
            format!("a body of type {kind:?} is not taken; send JSON with \"Content-Type: application/json\"")
        }
    };
    Err(Problem::bad(detail)
        .status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        .field(header::ACCEPT, "application/json"))
}

fn shows(head: &HeaderMap, token: &Token) -> bool {
    let shown = head.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let (scheme, rest) = shown.split_at(shown.len().min(BEARER.len()));
    scheme.eq_ignore_ascii_case(BEARER) && token.is(rest.trim_ascii())
}

/// Whether a `Host` is a name or an address of this machine's own.
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

/// How the token is introduced.
const BEARER: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:7100", "127.1.2.3", "[::1]", "[::1]:7100"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "[::2]",
            "[::1",
            "10.0.0.1",
            "[::1]x",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
