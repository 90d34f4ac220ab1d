//! Answers `POST /v1/provide/{session}/calls/{id}/…`: an agent's answer to a call that it was given.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use serde_json::{Value, json};

use super::super::problem::Problem;
use super::super::{Api, body};
use super::session::{Answer, Gone, Session};
use crate::client::{ClientError, WireError};

/// A session and a call, as a path names them.
type Named = Path<(String, String)>;

pub(in super::super) async fn progress(
    State(api): State<Arc<Api>>,
    path: Named,
    head: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (session, id) = named(&api, &path)?;
    let said = body::document(&api.read(&head, body).await?)?;
    let reporter = session.reporter(id).map_err(|gone| ended(id, gone))?;
    let (text, eta) = (&said["status_text"], &said["eta_ms"]);
    let told = match (&said["progress_pct"], text.as_str(), body::integer(eta)) {
        (Value::Null, text_said, eta_said)
            if (text_said.is_some() || text.is_null())
                && (eta_said.is_some() || eta.is_null())
                && (text_said.is_some() || eta_said.is_some()) =>
        {
            reporter.processing(text_said, eta_said)
        }
        (pct, None, None) if text.is_null() && eta.is_null() => match body::integer(pct) {
            Some(pct @ 0..=100) => reporter.progress(pct as u8),
            _ => return Err(bad_progress()),
        },
        _ => return Err(bad_progress()),
    };
    said_to_caller(told, id)
}

pub(in super::super) async fn input(
    State(api): State<Arc<Api>>,
    path: Named,
    head: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (session, id) = named(&api, &path)?;
    let said = body::document(&api.read(&head, body).await?)?;
    let reporter = session.reporter(id).map_err(|gone| ended(id, gone))?;
    let Some(prompt) = said["prompt"].as_str() else {
        return Err(Problem::bad("input: accepted: {\"prompt\": TEXT}"));
    };
    said_to_caller(reporter.input_required(prompt), id)
}

pub(in super::super) async fn result(
    State(api): State<Arc<Api>>,
    path: Named,
    head: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (session, id) = named(&api, &path)?;
    let read = api.read(&head, body).await?;
    let answer = api.apart(read.len(), move || answer(&body::document(&read)?)).await?;
    session.answer(id, answer).map_err(|gone| ended(id, gone))?;
    Ok(StatusCode::NO_CONTENT)
}

fn bad_progress() -> Problem {
    let accepted = "{\"progress_pct\": 0 to 100}, or {\"status_text\": TEXT, \"eta_ms\": MILLISECONDS}";
    Problem::bad(format!("progress: accepted: {accepted}"))
}

/// The stream and the call that a path names.
fn named(api: &Api, Path((session, id)): &Named) -> Result<(Arc<Session>, MessageId), Problem> {
    let found = session.parse().ok().and_then(|id| api.providers.get(&id));
    let session = found.ok_or_else(|| {
        let detail = "no stream has this session: it has ended, and its calls with it";
        Problem::bad(detail).status(StatusCode::NOT_FOUND)
    })?;
    let id = id.parse().map_err(|error| Problem::bad(format!("the call {id:?}: {error}")))?;
    Ok((session, id))
}

/// `{"result": …}` or `{"error": {…}}`.
fn answer(said: &Value) -> Result<Answer, Problem> {
    let members =
        said.as_object().map(|members| (members.len(), members.get("result"), members.get("error")));
    match members {
        Some((1, Some(result), None)) => Ok(Ok(item(result))),
        Some((1, None, Some(error))) => error_of(error).map(Err),
        _ => Err(Problem::bad(
            "a result is {\"result\": ANY} or {\"error\": {\"code\", \"message\", \"details\"}}",
        )),
    }
}

fn error_of(error: &Value) -> Result<WireError, Problem> {
    let code = match &error["code"] {
        Value::Null => Some(Code::INTERNAL_ERROR),
        code => body::integer(code).and_then(|code| u32::try_from(code).ok()).map(Code),
    };
    let (Some(code), Some(message)) = (code, error["message"].as_str()) else {
        return Err(Problem::bad(
            "error: accepted: {\"code\": INTEGER, \"message\": TEXT, \"details\": ANY}",
        ));
    };
    let details = (!error["details"].is_null()).then(|| item(&error["details"]));
    Ok(WireError { code, message: message.to_owned(), details })
}

fn item(value: &Value) -> Bytes {
    let mut out = Vec::new();
    from_json(value, &mut out);
    out.into()
}

fn said_to_caller(told: Result<(), ClientError>, id: MessageId) -> Result<StatusCode, Problem> {
    told.map_err(|error| Problem::of_request(&error).about(id))?;
    Ok(StatusCode::NO_CONTENT)
}

fn ended(id: MessageId, gone: Option<Gone>) -> Problem {
    let problem = match gone {
        Some(gone) => {
            let why = match gone {
                Gone::Answered => "it was answered before",
                Gone::Cancelled => "it was cancelled",
                Gone::Late => "its time ran out",
            };
            let problem = Problem::bad(format!("the call takes no answer any more: {why}"));
            problem.status(StatusCode::CONFLICT).details(json!({"reason": gone.as_str()}))
        }
        None => Problem::bad("this stream was given no such call").status(StatusCode::NOT_FOUND),
    };
    problem.about(id)
}
