//! Planned calls in; each made, and asked about again under its id until its one result is there, out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use capd::client::{CallRequest, Client, ClientError, Options, Target, WireError};
use capd::net::{System, Udp};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::dice::Dice;
use super::machine::{Machine, World};
use super::oracle::{End, Made, Seen};
use super::plan::{Call, Plan};
use super::process::Process;
use super::provider::{LOOK, ONCE};
use super::trace::digest;

/// An agent that calls, beside a machine's sidecar.
pub struct Caller {
    machine: Arc<Machine>,
    world: World,
    /// Whether providers remember the ids of calls that are not idempotent.
    remembers: bool,
    process: Process,
    system: System,
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    /// Tells one link from the next.
    number: u64,
    client: Option<Client>,
}

impl Caller {
    pub fn new(machine: &Arc<Machine>, plan: &Plan, world: &World) -> Arc<Self> {
        let process = Process::start(&world.panics);
        let system = process.system(&machine.wall, world.dice.u64(), Udp::real());
        Arc::new(Self {
            machine: Arc::clone(machine),
            world: world.clone(),
            remembers: plan.remembers,
            process,
            system,
            link: Mutex::default(),
        })
    }

    /// Ends the agent for good.
    pub fn end(&self) {
        self.process.kill();
    }

    /// Makes a call and sees it through. `on_made` is told when it is about to be sent.
    pub async fn call(&self, call: &Call, on_made: impl FnOnce()) {
        let dice = self.world.dice.fork();
        let random = self.system.random.bytes().expect("a seeded source always has bytes");
        let id = MessageId::new(self.machine.wall.now_ms(), random);
        let (number, is_idempotent) = (call.number, call.is_idempotent);
        let is_remembered = self.remembers && !is_idempotent;
        let made = Made { number, caller: self.machine.index, id, is_idempotent, is_remembered };
        self.world.oracle.made(made);
        let (client, link) = self.client().await;
        on_made();
        // How often nobody knew what became of it, though a journal that may have known is gone.
        let mut forgotten = 0;
        let mut seen = self.ask(call, id, Some((client, link)), true).await;
        loop {
            self.world.oracle.sees(call.number, seen.clone());
            let end = match &seen {
                Seen::Success(_) => Some(End::Success),
                Seen::Failure { code, .. } => Some(End::Failure(*code)),
                Seen::Expired => Some(End::Expired),
                Seen::Refused { code } => self.refused(call, id, *code),
                Seen::NotFinal { code }
                    if *code == Code::INTERRUPTED.0 && self.world.wiped.load(Ordering::Relaxed) > 0 =>
                {
                    forgotten += 1;
                    (forgotten == FORGOTTEN_ASKS).then_some(End::Failure(*code))
                }
                Seen::NotFinal { .. } | Seen::Lost | Seen::Silence => None,
            };
            if let Some(end) = end {
                if end != End::Expired {
                    self.ask_again(call, id, &dice).await;
                }
                return self.world.oracle.ends(call.number, end);
            }
            sleep(Duration::from_millis(dice.within(10..400))).await;
            seen = self.ask(call, id, None, false).await;
        }
    }

    /// Asks for a result that is there already: it must be the same.
    async fn ask_again(&self, call: &Call, id: MessageId, dice: &Dice) {
        for _ in 0..call.repeats {
            sleep(Duration::from_millis(dice.within(1..1_500))).await;
            let seen = self.ask(call, id, None, false).await;
            self.world.oracle.sees(call.number, seen);
        }
    }

    /// What a refusal means for a call: whether it is the end.
    fn refused(&self, call: &Call, id: MessageId, code: u32) -> Option<End> {
        let is_past = self.machine.wall.now_ms() + SKEW_MS > id.ts_ms() + call.ttl_ms;
        if code == Code::INVALID_TIMESTAMP.0 && is_past {
            return Some(End::Expired);
        }
        if code == Code::BAD_REQUEST.0 || code == Code::INVALID_MESSAGE.0 {
            self.world.oracle.violates(format!("call {} was refused with {code}", call.number));
        }
        None
    }

    /// Whether the id's time has passed by the machine's clock, as late as it ever was.
    fn is_past(&self, call: &Call, id: MessageId) -> bool {
        self.machine.latest_wall_ms() > id.ts_ms() + call.ttl_ms
    }

    /// One ask: the same invoke, byte for byte, as every time.
    async fn ask(&self, call: &Call, id: MessageId, client: Option<(Client, u64)>, is_first: bool) -> Seen {
        let (client, link) = match client {
            Some(client) => client,
            None => self.client().await,
        };
        self.world.oracle.asks(call.number);
        let target = if call.is_idempotent { LOOK } else { ONCE };
        let request = CallRequest::new(Target::Id(target.parse().expect("a constant capability id")))
            .params_json(&json!({"call": call.number}))
            .timeout(Duration::from_millis(call.timeout_ms))
            .ttl(Duration::from_millis(call.ttl_ms))
            .id(id);
        let asked = match client.call(request) {
            Ok(handle) => handle.outcome(),
            Err(error) => return self.failed(call, id, error, link).await,
        };
        let cancel = call.cancel_after_ms.filter(|_| is_first);
        let hang_up = call.hang_up_after_ms.filter(|_| is_first);
        let disturbed = async {
            if let Some(after_ms) = cancel {
                sleep(Duration::from_millis(after_ms)).await;
                self.world.oracle.tell(Some(call.number), || "its agent cancels it".to_owned());
                // The call's own answer says what became of it.
                let _state = client.cancel(id).await;
            }
            if let Some(after_ms) = hang_up {
                sleep(Duration::from_millis(after_ms)).await;
                return;
            }
            std::future::pending().await
        };
        let outcome = tokio::select! {
            biased;
            outcome = asked => outcome,
            () = disturbed => {
                self.forget(link).await;
                return Seen::Lost;
            }
        };
        match outcome {
            Ok(answer) => Seen::Success(answer.result.to_vec()),
            Err(error) => self.failed(call, id, error, link).await,
        }
    }

    async fn failed(&self, call: &Call, id: MessageId, error: ClientError, link: u64) -> Seen {
        match error {
            ClientError::Result(error) if error.is_final() => {
                Seen::Failure { code: error.code.0, text: text(&error) }
            }
            ClientError::Result(error) => Seen::NotFinal { code: error.code.0 },
            ClientError::Refused(error)
                if error.code == Code::INVALID_TIMESTAMP && self.is_past(call, id) =>
            {
                Seen::Expired
            }
            ClientError::Refused(error) => Seen::Refused { code: error.code.0 },
            ClientError::Timeout { .. } => Seen::Silence,
            ClientError::Connect { .. }
            | ClientError::Owner { .. }
            | ClientError::Closed(_)
            | ClientError::Unsent(_) => {
                self.forget(link).await;
                Seen::Lost
            }
            ClientError::Answer(what) | ClientError::Invalid(what) => {
                self.world.oracle.violates(format!("an answer that cannot be read: {what}"));
                Seen::Lost
            }
        }
    }

    /// The link there is, or a new one once the sidecar is up.
    async fn client(&self) -> (Client, u64) {
        let mut link = self.link.lock().await;
        loop {
            if let Some(client) = &link.client {
                return (client.clone(), link.number);
            }
            let stream = self.machine.dial().await;
            let opening = Client::connect_stream(stream, Options::default(), self.system.clone());
            match timeout(CONNECT_TIME, opening).await {
                Ok(Ok(client)) => {
                    link.number += 1;
                    link.client = Some(client);
                }
                Ok(Err(_)) | Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Drops a link that is lost, unless there is a newer one already.
    async fn forget(&self, number: u64) {
        let mut link = self.link.lock().await;
        if link.number == number {
            link.client = None;
        }
    }
}

fn text(error: &WireError) -> String {
    let details = error.details.as_ref().map_or(0, |details: &Bytes| digest(details));
    format!("{} {details:016x}", error.message)
}

/// How often an agent asks for a call that nobody may remember before it takes 5902 for the last word.
const FORGOTTEN_ASKS: u64 = 4;
/// Longest wait for a local link.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How far apart the clocks of two machines may be.
const SKEW_MS: u64 = 40_000;
