//! CAP_INVOKEs of the caller's in; what the script replies to the call, as messages, out.

use std::sync::Arc;

use capd_client::proto::envelope::{Envelope, MessageId};
use capd_client::proto::limits::EXT_CALL;
use capd_client::proto::message::{CapResult, InputRequired, Invoke, Processing, Progress, Type};
use capd_net::{CloseReason, Link, Route};
use serde_json::{Value, json};

use crate::scripted::{Sidecar, answer_ext, call_request, cbor, failure};
use crate::world::Asked;

/// A call that comes for the first time, or is asked about again.
pub fn on_invoke(
    sidecar: &Arc<Sidecar>,
    link: &Arc<Link>,
    route: &Route,
    envelope: &Envelope<'_>,
    invoke: &Invoke<'_>,
) {
    let id = envelope.id;
    if let Some(call) = envelope.ext_bytes(EXT_CALL) {
        return on_known(sidecar, link, route, id, &MessageId::from_slice(&call).unwrap().to_string());
    }
    let asked = call_request(sidecar, envelope, invoke);
    let key = asked.headers["idempotency-key"].as_str().unwrap().to_owned();
    let known = sidecar.names.lock().unwrap().get(&key).cloned();
    // A call that broke while it was followed goes on where it was.
    let events = known.map(|call| format!("/v1/calls/{call}/events"));
    let resumed = events.filter(|path| sidecar.world.expects("GET", path)).map(|path| {
        let mut resumed = Asked::new("GET", path);
        resumed.headers.clone_from(&asked.headers);
        resumed
    });
    let Some(exchange) = sidecar.take(route, id, resumed.as_ref().unwrap_or(&asked)) else { return };
    if let Some(call) = sidecar.world.call_id(&exchange) {
        let mut names = sidecar.names.lock().unwrap();
        names.insert(id.to_string(), call.clone());
        names.insert(key, call);
    }
    let playing = Playing { sidecar: Arc::clone(sidecar), link: Arc::clone(link), route: route.clone(), id };
    tokio::spawn(async move {
        playing.play(&exchange).await;
        playing.sidecar.world.answered(&exchange);
    });
}

/// A call that was made before: its events, or, where there are none, its state.
fn on_known(sidecar: &Arc<Sidecar>, link: &Arc<Link>, route: &Route, id: MessageId, call: &str) {
    let playing = Playing { sidecar: Arc::clone(sidecar), link: Arc::clone(link), route: route.clone(), id };
    let path = format!("/v1/calls/{call}");
    let events = Asked::with_events(format!("{path}/events"));
    if sidecar.world.expects("GET", &events.path) {
        let Some(exchange) = sidecar.take(route, id, &events) else { return };
        if exchange["reply"]["status"] != 404 {
            tokio::spawn(async move {
                playing.play(&exchange).await;
                playing.sidecar.world.answered(&exchange);
            });
            return;
        }
        sidecar.world.answered(&exchange);
    }
    let Some(exchange) = sidecar.take(route, id, &Asked::new("GET", path)) else { return };
    playing.state(&exchange["reply"], call);
    sidecar.world.answered(&exchange);
}

/// One call's way back.
struct Playing {
    sidecar: Arc<Sidecar>,
    link: Arc<Link>,
    route: Route,
    id: MessageId,
}

impl Playing {
    async fn play(&self, exchange: &Value) {
        let reply = &exchange["reply"];
        if let Some(name) = reply["wait"].as_str() {
            self.wait(name).await;
        }
        if reply["cut"].is_string() {
            return self.cut();
        }
        if let Some(events) = reply["events"].as_array() {
            return self.events(events).await;
        }
        let field = |name: &str| reply["headers"][name].as_str();
        match reply["status"].as_u64().unwrap_or(200) {
            202 => {
                let call = field("Capd-Call").unwrap();
                self.say(Type::Ack, &[0xa0], Some(&answer_ext(Some(call), None, false)));
                // Its events come by themselves.
                let asked = Asked::with_events(format!("/v1/calls/{call}/events"));
                if self.sidecar.world.expects("GET", &asked.path)
                    && let Ok(exchange) = self.sidecar.world.take(&asked)
                {
                    self.events(exchange["reply"]["events"].as_array().unwrap()).await;
                }
            }
            status if status >= 400 => self.problem(&reply["body"], field("Retry-After")),
            _ => {
                let is_replayed = field("Capd-Replayed").is_some();
                self.result(&reply["body"], field("Capd-Call"), field("Capd-Capability"), None, is_replayed);
            }
        }
        if reply["close"] == true {
            self.link.drain();
        }
    }

    async fn events(&self, events: &[Value]) {
        for action in events {
            if let Some(name) = action["wait"].as_str() {
                self.wait(name).await;
            } else if let Some(name) = action["signal"].as_str() {
                self.sidecar.world.signal(name);
            } else if action["cut"] == true {
                return self.cut();
            } else if action["wait_closed"] == true {
                self.link.closed().await;
            } else if self.event(action["event"].as_str().expect("an event"), &action["data"]) {
                return;
            }
        }
        // A stream that ends without an end is a sidecar that goes away.
        self.cut();
    }

    /// Whether the call has ended with it.
    fn event(&self, name: &str, data: &Value) -> bool {
        let text = |key: &str| data[key].as_str();
        let mut body = Vec::new();
        match name {
            "accepted" => {
                let ext = answer_ext(text("call"), text("capability"), false);
                self.say(Type::Ack, &[0xa0], Some(&ext));
                return false;
            }
            "processing" => {
                let status_text = text("status_text").map(Into::into);
                let (eta_ms, cancellable) = (data["eta_ms"].as_u64(), data["cancellable"].as_bool());
                Processing { status_text, eta_ms, cancellable }.encode(&mut body);
                self.say(Type::Processing, &body, None);
            }
            "progress" => {
                let pct = data["progress_pct"].as_u64().unwrap();
                Progress { progress_pct: u8::try_from(pct).unwrap() }.encode(&mut body);
                self.say(Type::Progress, &body, None);
            }
            "input_required" => {
                let prompt = text("prompt").unwrap().into();
                InputRequired { prompt, options: None, timeout_ms: None }.encode(&mut body);
                self.say(Type::InputRequired, &body, None);
            }
            "result" => {
                let (call, capability) = (text("call"), text("capability"));
                self.result(&data["result"], call, capability, data["execution_ms"].as_u64(), false);
                return true;
            }
            "error" => {
                self.problem(data, None);
                return true;
            }
            other => panic!("the link has no {other}"),
        }
        false
    }

    fn result(
        &self,
        result: &Value,
        call: Option<&str>,
        capability: Option<&str>,
        ms: Option<u64>,
        is_replayed: bool,
    ) {
        let result = cbor(result);
        let mut written = CapResult::success(&result);
        written.execution_time_ms = ms;
        let mut body = Vec::new();
        written.encode(&mut body);
        self.say(Type::CapResult, &body, Some(&answer_ext(call, capability, is_replayed)));
    }

    /// What is known of a call without its events.
    fn state(&self, reply: &Value, call: &str) {
        let body = &reply["body"];
        if reply["status"].as_u64().is_some_and(|status| status >= 400) {
            self.problem(body, None);
        } else if let Some(result) = body.get("result") {
            let capability = body["capability"].as_str();
            self.result(result, Some(call), capability, body["execution_ms"].as_u64(), false);
        } else if body["error"].is_object() {
            self.problem(&body["error"], None);
        } else {
            let unrecorded = match body["state"] == "running" {
                true => {
                    let details = json!({"retry_after_seconds": 0});
                    json!({"code": 5003, "detail": "it runs", "outcome": "pending", "details": details})
                }
                false => json!({"code": 5902, "detail": "nobody has recorded its answer"}),
            };
            self.say(Type::CapResult, &failure(&unrecorded), Some(&answer_ext(Some(call), None, false)));
        }
    }

    fn problem(&self, problem: &Value, retry_after: Option<&str>) {
        if problem["outcome"] == "refused" {
            return self.sidecar.refuse(&self.route, self.id, problem, retry_after);
        }
        let call = problem["call"].as_str();
        self.say(Type::CapResult, &failure(problem), Some(&answer_ext(call, None, false)));
    }

    fn say(&self, typ: Type, body: &[u8], ext: Option<&[u8]>) {
        self.sidecar.answer(&self.route, self.id, typ, body, ext);
    }

    fn cut(&self) {
        self.link.close(CloseReason::Local("the script cuts it".to_owned()));
    }

    async fn wait(&self, name: &str) {
        tokio::select! {
            is_set = self.sidecar.world.wait(name) => if !is_set {
                self.sidecar.world.problem(format!("waited for {name:?}, which never came"));
            },
            () = self.link.closed() => {}
        }
    }
}
