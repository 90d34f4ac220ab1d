//! The scripted sidecar: messages of the binary link in; each as the request of HTTP that means the same, and the reply that
//! the script has for it as messages, out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_client::proto::capability::CapabilityPattern;
use capd_client::proto::cbor::Writer;
use capd_client::proto::cbor::json::{from_json, to_json};
use capd_client::proto::code::Code;
use capd_client::proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_client::proto::identity::Identity;
use capd_client::proto::limits::{
    EXT_AFFINITY, EXT_BUILT_AGAINST, EXT_CALL, EXT_CAPABILITY_ID, EXT_KEY, EXT_REPLAYED,
};
use capd_client::proto::message::{
    CallError, CancelState, CapResult, Declare, Descriptor, DescriptorDraft, DocSend, ErrorBody, HashAlg,
    Message, Outcome, Query, Request, Response, SchemaRef, SchemaSource, Type,
};
use capd_net::{CloseReason, Link, Route, Service, System};
use serde_json::{Value, json};

use crate::calls;
use crate::provide::{self, Provider};
use crate::world::{Asked, World};

/// The sidecar of one scenario.
pub struct Sidecar {
    pub world: Arc<World>,
    pub system: System,
    pub identity: Identity,
    /// The scenario's name of each call, by its invoke's id or its key.
    pub names: Mutex<HashMap<String, String>>,
    /// Documents by their hash.
    pub documents: Mutex<HashMap<Vec<u8>, String>>,
    /// What each link provides.
    pub providers: Mutex<HashMap<String, Arc<Provider>>>,
}

impl Sidecar {
    pub fn new(world: Arc<World>, identity: Identity) -> Arc<Self> {
        Arc::new(Self {
            world,
            system: System::real(),
            identity,
            names: Mutex::default(),
            documents: Mutex::default(),
            providers: Mutex::default(),
        })
    }

    /// An id of the link as the scenario calls it.
    pub fn shown(&self, id: &str) -> String {
        self.names.lock().unwrap().get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    /// The bytes of an envelope.
    pub fn sealed(&self, message: &Outgoing<'_>) -> Bytes {
        let ts = self.system.clock.wall_ms();
        let id = message.id.unwrap_or_else(|| MessageId::new(ts, self.system.random.bytes().unwrap()));
        let did = self.identity.did();
        let draft = Draft {
            id,
            typ: message.typ.code(),
            ts,
            ttl: 60_000,
            from: message.from.unwrap_or(did.as_str()),
            to: Recipients::one(did),
            reply_to: message.reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: None,
            body: message.body,
            ext: message.ext.map_or(Ext::None, Ext::Raw),
        };
        let mut bytes = Vec::new();
        draft.write_unsigned(&mut bytes);
        bytes.into()
    }

    /// Answers; a link that is gone takes no answer.
    pub fn answer(&self, route: &Route, reply_to: MessageId, typ: Type, body: &[u8], ext: Option<&[u8]>) {
        let message = Outgoing { id: None, typ, from: None, reply_to: Some(reply_to), body, ext };
        let _ = route.send(self.sealed(&message));
    }

    pub fn refuse(&self, route: &Route, reply_to: MessageId, problem: &Value, retry_after: Option<&str>) {
        let body = error_body(problem, retry_after);
        self.answer(route, reply_to, Type::Error, &body, None);
    }

    /// What the script has for a message; a message that it has nothing for is refused, and fails the scenario.
    pub fn take(&self, route: &Route, id: MessageId, asked: &Asked) -> Option<Value> {
        match self.world.take(asked) {
            Ok(exchange) => Some(exchange),
            Err(why) => {
                self.refuse(route, id, &json!({"code": 1001, "detail": why}), None);
                self.world.problem(why);
                None
            }
        }
    }
}

/// A message before it has a time.
pub struct Outgoing<'a> {
    pub id: Option<MessageId>,
    pub typ: Type,
    pub from: Option<&'a str>,
    pub reply_to: Option<MessageId>,
    pub body: &'a [u8],
    pub ext: Option<&'a [u8]>,
}

/// The service of a link's other end.
pub struct Ear(pub Arc<Sidecar>);

impl Service for Ear {
    fn on_open(&self, _link: &Arc<Link>) {
        // That the link opens is the answer to who the sidecar is.
        if self.0.world.expects("GET", "/v1/self") {
            let _ = self.0.world.take(&Asked::new("GET", "/v1/self"));
        }
    }

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        let sidecar = &self.0;
        let envelope = Envelope::decode(&payload).unwrap();
        let typ = Type::from_code(envelope.typ).unwrap();
        let id = envelope.id;
        let message = Message::decode_checked(typ, envelope.checked_body().unwrap()).unwrap();
        match message {
            Message::Ping(_) => sidecar.answer(route, id, Type::Pong, envelope.body().unwrap(), None),
            Message::CapInvoke(invoke) => calls::on_invoke(sidecar, link, route, &envelope, &invoke),
            Message::Request(Request::Cancel { target }) => on_cancel(sidecar, link, route, id, target),
            Message::DocSend(document) => {
                let hash: String = document.hash.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut asked = Asked::new("PUT", format!("/v1/schemas/{hash}"));
                asked.headers.insert("content-type".to_owned(), json!("application/json"));
                asked.text = Some(String::from_utf8(document.data.to_vec()).unwrap());
                if let Some(exchange) = sidecar.take(route, id, &asked) {
                    sidecar.answer(route, id, Type::Ack, &[0xa0], None);
                    sidecar.world.answered(&exchange);
                }
            }
            Message::CapQuery(query) => {
                let pattern: CapabilityPattern = query.capability.as_ref().unwrap().parse().unwrap();
                on_query(sidecar, route, id, &pattern, &query);
            }
            Message::DocRequest(request) => {
                let found = sidecar.documents.lock().unwrap().get(&*request.hash).cloned();
                let document = found.expect("only what was declared is asked for");
                let mut body = Vec::new();
                DocSend {
                    content_type: "application/json".into(),
                    filename: "schema.json".into(),
                    size: document.len() as u64,
                    hash: request.hash,
                    data: document.as_bytes().into(),
                }
                .encode(&mut body);
                sidecar.answer(route, id, Type::DocSend, &body, None);
            }
            Message::CapDeclare(declare) => provide::on_declare(sidecar, link, route, id, &declare),
            Message::CapResult(_)
            | Message::Processing(_)
            | Message::Progress(_)
            | Message::InputRequired(_) => {
                provide::on_answer(sidecar, link, route, &envelope, &message);
            }
            // What it answers to a cancel, and what it has to say about our answers.
            Message::Response(_) | Message::Error(_) => {}
            other => sidecar.world.problem(format!("unexpected: {other:?}")),
        }
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {}

    fn on_close(&self, _link: &Arc<Link>, _reason: &CloseReason) {}
}

fn on_cancel(sidecar: &Arc<Sidecar>, link: &Arc<Link>, route: &Route, id: MessageId, target: MessageId) {
    let asked = Asked::new("DELETE", format!("/v1/calls/{}", sidecar.shown(&target.to_string())));
    let Some(exchange) = sidecar.take(route, id, &asked) else { return };
    if exchange["reply"]["cut"].is_string() {
        link.close(CloseReason::Local("the script cuts it".to_owned()));
    } else {
        let state = match exchange["reply"]["status"].as_u64() {
            Some(409) => CancelState::Finished,
            _ => CancelState::Cancelling,
        };
        let mut body = Vec::new();
        Response::Cancel { target, state }.encode(&mut body);
        sidecar.answer(route, id, Type::Response, &body, None);
    }
    sidecar.world.answered(&exchange);
}

fn on_query(
    sidecar: &Arc<Sidecar>,
    route: &Route,
    id: MessageId,
    pattern: &CapabilityPattern,
    query: &Query<'_>,
) {
    let (name, namespace) = match pattern.to_string() {
        text if text == "*" => (None, None),
        text => match text.strip_suffix(".*") {
            Some(namespace) => (None, Some(namespace.to_owned())),
            None => (Some(text), None),
        },
    };
    let path = match (name, query.version.as_deref()) {
        (Some(name), Some(version)) => format!("/v1/capabilities/{name}:{}", version.trim_start_matches('=')),
        (Some(name), None) => format!("/v1/capabilities/{name}"),
        (None, _) if sidecar.world.expects("GET", "/v1/tools") => "/v1/tools".to_owned(),
        (None, _) => "/v1/capabilities".to_owned(),
    };
    let mut asked = Asked::new("GET", path);
    let [cursor, words] = [&query.cursor, &query.words].map(Option::as_deref);
    for (key, text) in [("namespace", namespace.as_deref()), ("cursor", cursor), ("q", words)] {
        if let Some(text) = text {
            asked.query.insert(key.to_owned(), json!(text));
        }
    }
    let Some(exchange) = sidecar.take(route, id, &asked) else { return };
    let reply = &exchange["reply"];
    if reply["status"].as_u64().is_some_and(|status| status >= 400) {
        sidecar.refuse(route, id, &reply["body"], None);
    } else {
        let descriptors = match reply["body"]["tools"].as_array() {
            Some(_) => tools(sidecar, &reply["body"]),
            None => {
                let listed = reply["body"]["capabilities"].as_array().unwrap();
                listed.iter().map(|listed| descriptor(&listed["id"], &listed["description"], None)).collect()
            }
        };
        let raw = descriptors.iter().map(Descriptor::as_bytes).collect();
        let mut declare = Declare::new(raw, None);
        declare.next_cursor = reply["body"]["next_cursor"].as_str().map(Into::into);
        let mut body = Vec::new();
        declare.encode(&mut body);
        sidecar.answer(route, id, Type::CapDeclare, &body, None);
    }
    sidecar.world.answered(&exchange);
}

/// The capabilities that definitions of tools stand for.
fn tools(sidecar: &Sidecar, body: &Value) -> Vec<Descriptor> {
    let definitions = body["tools"].as_array().unwrap();
    let capability = |definition: &Value| {
        let inner = if definition["function"].is_object() { &definition["function"] } else { definition };
        let schema = ["parameters", "input_schema"].into_iter().find_map(|key| inner.get(key)).unwrap();
        let is_wrapped = body["wrapped"].as_array().unwrap().contains(&inner["name"]);
        let schema = if is_wrapped { &schema["properties"]["value"] } else { schema };
        let document = schema.to_string();
        let reference = SchemaRef::inline(HashAlg::Sha256, document.as_bytes());
        sidecar.documents.lock().unwrap().insert(reference.hash.as_bytes().to_vec(), document);
        let name = inner["name"].as_str().unwrap();
        descriptor(&body["names"][name], &inner["description"], Some(reference))
    };
    definitions.iter().map(capability).collect()
}

fn descriptor(id: &Value, description: &Value, input: Option<SchemaRef>) -> Descriptor {
    let mut draft = DescriptorDraft::new(id.as_str().unwrap().parse().unwrap());
    draft.description = description.as_str().map(str::to_owned);
    draft.input_schema = input.map(|input| SchemaSource::Ref(Box::new(input)));
    draft.finish().unwrap()
}

/// The request of HTTP that a CAP_INVOKE is.
pub fn call_request(
    sidecar: &Sidecar,
    envelope: &Envelope<'_>,
    invoke: &capd_client::proto::message::Invoke<'_>,
) -> Asked {
    let target = invoke.id.as_deref().or(invoke.capability.as_deref()).unwrap();
    let params = to_json(invoke.params).unwrap();
    let mut asked = Asked::with_body("POST", format!("/v1/call/{target}"), params);
    let range = invoke.negotiate.as_ref().and_then(|wanted| wanted.range.as_deref());
    // The newest release, which HTTP asks for by asking for none.
    if let Some(range) = range.filter(|range| *range != ">=0.0.0") {
        let range = range.strip_prefix('=').unwrap_or(range);
        asked.query.insert("version".to_owned(), json!(range));
    }
    if let Some(ms) = invoke.timeout_ms {
        asked.query.insert("timeout".to_owned(), json!(format!("{ms}ms")));
    }
    let hex = |field| {
        let hash = envelope.ext_bytes(field)?;
        Some(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let [input, output] = EXT_BUILT_AGAINST.map(hex);
    let built = (input.is_some() || output.is_some())
        .then(|| [input, output].map(|side| side.unwrap_or_else(|| "-".to_owned())).join(", "));
    let key = envelope.ext_text(EXT_KEY);
    // A call without a key is known by its id.
    let id = envelope.id.to_string();
    let is_default = key.is_some() && envelope.ttl == 24 * 3_600_000;
    let thread = envelope.thread_id.as_deref().map(|thread| String::from_utf8(thread.to_vec()).unwrap());
    for (name, text) in [
        ("idempotency-key", Some(key.as_deref().unwrap_or(&id).to_owned())),
        ("capd-thread", thread),
        ("capd-affinity", envelope.ext_text(EXT_AFFINITY).map(String::from)),
        ("capd-built-against", built),
        ("capd-ttl", (!is_default).then(|| format!("{}ms", envelope.ttl))),
        ("content-type", Some("application/json".to_owned())),
        // A call's events and its result come in one and the same way.
        ("accept", Some("application/json, text/event-stream".to_owned())),
        ("prefer", sidecar.world.is_async().then(|| "respond-async".to_owned())),
    ] {
        if let Some(text) = text {
            asked.headers.insert(name.to_owned(), json!(text));
        }
    }
    asked
}

/// The body of an ERROR.
fn error_body(problem: &Value, retry_after: Option<&str>) -> Vec<u8> {
    let mut details = problem["details"].clone();
    if let (Some(seconds), true) = (retry_after, details["retry_after_seconds"].is_null()) {
        details["retry_after_seconds"] = json!(seconds.parse::<u64>().unwrap());
    }
    let written = (!details.is_null()).then(|| cbor(&details));
    let code = Code(u32::try_from(problem["code"].as_u64().unwrap()).unwrap());
    let mut error = ErrorBody::new(code, problem["detail"].as_str().unwrap_or_default());
    error.details = written.as_deref();
    let mut body = Vec::new();
    error.encode(&mut body);
    body
}

/// The CAP_RESULT of a problem.
pub fn failure(problem: &Value) -> Vec<u8> {
    let mut details = problem["details"].clone();
    if problem["outcome"] == "pending" {
        details["final"] = json!(false);
    }
    let written = (!details.is_null()).then(|| cbor(&details));
    let code = Code(u32::try_from(problem["code"].as_u64().unwrap()).unwrap());
    let error = CallError::new(code, problem["detail"].as_str().unwrap(), written.as_deref());
    let mut body = Vec::new();
    CapResult::error(error).encode(&mut body);
    body
}

/// What a provider's CAP_RESULT says, as it is posted.
pub fn posted(result: &CapResult<'_>) -> Value {
    match &result.outcome {
        Outcome::Success(result) => json!({"result": to_json(result).unwrap()}),
        Outcome::Error(error) => {
            let mut posted =
                json!({"code": error.code.0, "message": error.message.as_deref().unwrap_or_default()});
            if let Some(details) = error.details {
                posted["details"] = to_json(details).unwrap();
            }
            json!({"error": posted})
        }
    }
}

/// The `ext` of an answer: the call, what served it, whether it was recorded.
pub fn answer_ext(call: Option<&str>, capability: Option<&str>, is_replayed: bool) -> Vec<u8> {
    let fields = u64::from(call.is_some()) + u64::from(capability.is_some()) + u64::from(is_replayed);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(fields);
    if let Some(call) = call {
        let id: MessageId = call.parse().unwrap();
        writer.text(EXT_CALL).bytes(id.as_bytes());
    }
    if let Some(capability) = capability {
        writer.text(EXT_CAPABILITY_ID).text(capability);
    }
    if is_replayed {
        writer.text(EXT_REPLAYED).bool(true);
    }
    out
}

pub fn cbor(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    from_json(value, &mut out);
    out
}
