//! A provider's declaration in; the calls that the script has for it, and what becomes of its answers, out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use capd_client::proto::cbor::Writer;
use capd_client::proto::envelope::{Envelope, MessageId};
use capd_client::proto::limits::EXT_CAPABILITY_ID;
use capd_client::proto::message::{Declare, Descriptor, Invoke, Message, Request, SchemaSource, Type};
use capd_net::{CloseReason, Link, Route};
use serde_json::{Value, json};

use crate::scripted::{Outgoing, Sidecar, cbor, posted};
use crate::world::Asked;

/// What one link provides.
#[derive(Default)]
pub struct Provider {
    session: Mutex<String>,
    /// The script's name of each call.
    calls: Mutex<HashMap<MessageId, String>>,
}

pub fn on_declare(
    sidecar: &Arc<Sidecar>,
    link: &Arc<Link>,
    route: &Route,
    id: MessageId,
    declare: &Declare<'_>,
) {
    let capabilities: Vec<_> = declare.descriptors().unwrap().iter().map(declared).collect();
    let mut asked = Asked::with_body("POST", "/v1/provide", json!({"capabilities": capabilities}));
    asked.headers.insert("accept".to_owned(), json!("text/event-stream"));
    asked.headers.insert("content-type".to_owned(), json!("application/json"));
    let Some(exchange) = sidecar.take(route, id, &asked) else { return };
    let reply = &exchange["reply"];
    if reply["status"].as_u64().is_some_and(|status| status >= 400) {
        // Before the PONG of the PING that follows, which says that nothing was wrong.
        sidecar.refuse(route, id, &reply["body"], reply["headers"]["Retry-After"].as_str());
        return sidecar.world.answered(&exchange);
    }
    if reply["cut"].is_string() {
        return link.close(CloseReason::Local("the script cuts it".to_owned()));
    }
    let provider = Arc::<Provider>::default();
    sidecar.providers.lock().unwrap().insert(link.id().to_string(), Arc::clone(&provider));
    let (sidecar, link) = (Arc::clone(sidecar), Arc::clone(link));
    tokio::spawn(async move {
        play(&sidecar, &link, &provider, exchange["reply"]["events"].as_array().unwrap()).await;
        sidecar.world.answered(&exchange);
    });
}

/// A descriptor as it is posted.
fn declared(descriptor: &Descriptor) -> Value {
    let mut document = json!({
        "name": descriptor.id.name.as_str(),
        "version": descriptor.id.version.to_string(),
        "idempotent": descriptor.idempotent,
    });
    if let Some(description) = &descriptor.description {
        document["description"] = json!(description);
    }
    for (key, side) in
        [("inputSchema", &descriptor.input_schema), ("outputSchema", &descriptor.output_schema)]
    {
        if let Some(SchemaSource::Ref(schema)) = side {
            document[key] = serde_json::from_slice(&schema.inline_document().unwrap()).unwrap();
        }
    }
    document
}

async fn play(sidecar: &Arc<Sidecar>, link: &Arc<Link>, provider: &Arc<Provider>, events: &[Value]) {
    for action in events {
        if let Some(name) = action["wait"].as_str() {
            tokio::select! {
                is_set = sidecar.world.wait(name) => if !is_set {
                    sidecar.world.problem(format!("waited for {name:?}, which never came"));
                },
                () = link.closed() => {}
            }
        } else if let Some(name) = action["signal"].as_str() {
            sidecar.world.signal(name);
        } else if action["wait_closed"] == true {
            return link.closed().await;
        } else if action["cut"] == true {
            break;
        } else if let Some(event) = action["event"].as_str() {
            let data = &action["data"];
            match event {
                "ready" => *provider.session.lock().unwrap() = data["session"].as_str().unwrap().to_owned(),
                "call" => call(sidecar, link, provider, data),
                "cancel" => cancel(sidecar, link, provider, data),
                // An event that an SDK does not know, it ignores; the link has none.
                _ => {}
            }
        }
    }
    link.close(CloseReason::Local("the script's stream ends".to_owned()));
}

fn call(sidecar: &Sidecar, link: &Arc<Link>, provider: &Provider, data: &Value) {
    let text = |key: &str| data[key].as_str().unwrap();
    let id = MessageId::new(sidecar.system.clock.wall_ms(), sidecar.system.random.bytes().unwrap());
    sidecar.names.lock().unwrap().insert(id.to_string(), text("id").to_owned());
    provider.calls.lock().unwrap().insert(id, text("id").to_owned());
    let capability = format!("{}:{}", text("capability"), text("version"));
    let params = cbor(&data["params"]);
    let mut invoke = Invoke::new(&params);
    invoke.id = Some(capability.as_str().into());
    invoke.timeout_ms = data["deadline_ms"].as_u64();
    let (mut body, mut ext) = (Vec::new(), Vec::new());
    invoke.encode_around(&mut body);
    Writer::new(&mut ext).map(1).text(EXT_CAPABILITY_ID).text(&capability);
    send(sidecar, link, Some(id), Type::CapInvoke, Some(text("caller")), &body, Some(&ext));
}

fn cancel(sidecar: &Sidecar, link: &Arc<Link>, provider: &Provider, data: &Value) {
    let found =
        provider.calls.lock().unwrap().iter().find(|(_, name)| data["id"] == **name).map(|(id, _)| *id);
    let target = found.unwrap_or(MessageId([9; 16]));
    let mut body = Vec::new();
    Request::Cancel { target }.encode(&mut body);
    send(sidecar, link, None, Type::Request, None, &body, None);
}

fn send(
    sidecar: &Sidecar,
    link: &Arc<Link>,
    id: Option<MessageId>,
    typ: Type,
    from: Option<&str>,
    body: &[u8],
    ext: Option<&[u8]>,
) {
    // A link that is gone has nobody to tell.
    let _ = link.notify(sidecar.sealed(&Outgoing { id, typ, from, reply_to: None, body, ext }));
}

/// What a handler says, or how it ended.
pub fn on_answer(
    sidecar: &Arc<Sidecar>,
    link: &Arc<Link>,
    route: &Route,
    envelope: &Envelope<'_>,
    message: &Message<'_>,
) {
    let Some(provider) = sidecar.providers.lock().unwrap().get(&link.id().to_string()).cloned() else {
        return;
    };
    let call = envelope.reply_id().and_then(|id| provider.calls.lock().unwrap().get(&id).cloned());
    let Some(call) = call else { return sidecar.world.problem("an answer to no call") };
    let (what, body) = match message {
        Message::CapResult(result) => ("result", posted(result)),
        Message::Processing(status) => {
            // What an agent leaves out, its post leaves out. That it can be cancelled, the link adds.
            let mut body = json!({});
            if let Some(text) = &status.status_text {
                body["status_text"] = json!(text);
            }
            if let Some(eta_ms) = status.eta_ms {
                body["eta_ms"] = json!(eta_ms);
            }
            ("progress", body)
        }
        Message::Progress(progress) => ("progress", json!({"progress_pct": progress.progress_pct})),
        Message::InputRequired(input) => ("input", json!({"prompt": input.prompt})),
        other => return sidecar.world.problem(format!("unexpected: {other:?}")),
    };
    let session = provider.session.lock().unwrap().clone();
    let mut asked = Asked::with_body("POST", format!("/v1/provide/{session}/calls/{call}/{what}"), body);
    asked.headers.insert("content-type".to_owned(), json!("application/json"));
    let Some(exchange) = sidecar.take(route, envelope.id, &asked) else { return };
    if exchange["reply"]["status"].as_u64().is_some_and(|status| status >= 400) {
        sidecar.refuse(route, envelope.id, &exchange["reply"]["body"], None);
    }
    sidecar.world.answered(&exchange);
}
