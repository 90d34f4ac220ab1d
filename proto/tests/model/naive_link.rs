//! One side of a link as one would write it from PROTOCOL 4 alone: what happened in, where it stands out.

/// What happened, as far as it matters; `good` frames have the right version and the right answer in them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    HandshakeRequest { good: bool },
    HandshakeResponse { good: bool },
    Hello { good: bool },
    HelloAck { good: bool },
    HelloRefused,
    HelloReject,
    Message,
    Ping { large: bool },
    Heard,
    Goaway,
    Error,
    Malformed,
    Drain,
    InFlight(usize),
    Cut,
    Timeout,
}

/// What the link tells its owner of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Opened,
    Delivered { new_work_allowed: bool },
    Draining { by_peer: bool },
    Closed,
}

/// The timeouts of both sides. **Units:** milliseconds.
pub(crate) const HANDSHAKE_MS: u64 = 10_000;
pub(crate) const DRAIN_MS: u64 = 30_000;
pub(crate) const IDLE_MS: u64 = 45_000;
pub(crate) const KEEP_ALIVE_MS: u64 = 15_000;

pub(crate) struct NaiveLink {
    pub(crate) state: &'static str,
    heard_ms: u64,
    pinged_ms: u64,
    drain_ms: u64,
    in_flight: usize,
    said_goaway: bool,
}

impl NaiveLink {
    pub(crate) fn new(is_client: bool) -> Self {
        let state = if is_client { "HandshakeSent" } else { "Idle" };
        Self { state, heard_ms: 0, pinged_ms: 0, drain_ms: 0, in_flight: 0, said_goaway: false }
    }

    pub(crate) fn step(&mut self, event: Event, now_ms: u64) -> Vec<Told> {
        let is_up = matches!(self.state, "Open" | "Draining");
        if self.state == "Closed" {
            return Vec::new();
        }
        if is_up
            && matches!(
                event,
                Event::Message | Event::Ping { .. } | Event::Heard | Event::Goaway | Event::Error
            )
        {
            self.heard_ms = now_ms;
        }
        match (event, self.state) {
            (Event::HandshakeRequest { good: true }, "Idle") => self.rest("Handshaken"),
            (Event::HandshakeResponse { good: true }, "HandshakeSent") => self.rest("HelloSent"),
            (Event::Hello { good: true }, "Handshaken") | (Event::HelloAck { good: true }, "HelloSent") => {
                (self.heard_ms, self.pinged_ms) = (now_ms, now_ms);
                self.state = "Open";
                vec![Told::Opened]
            }
            (Event::Message, _) if is_up => {
                vec![Told::Delivered { new_work_allowed: self.state == "Open" }]
            }
            (Event::Goaway, "Open") => {
                self.state = "Draining";
                self.drain_ms = now_ms + DRAIN_MS;
                vec![Told::Draining { by_peer: true }]
            }
            (Event::Drain, "Open") => {
                self.state = "Draining";
                self.drain_ms = now_ms + DRAIN_MS;
                self.said_goaway = true;
                let mut told = vec![Told::Draining { by_peer: false }];
                told.extend(self.close_if_drained());
                told
            }
            (Event::Drain, "Draining") => {
                self.said_goaway = true;
                self.close_if_drained()
            }
            (Event::InFlight(calls), _) if is_up => {
                self.in_flight = calls;
                self.close_if_drained()
            }
            (Event::Timeout, _) => self.time_passed(now_ms),
            (Event::Goaway | Event::Error, _) if is_up => Vec::new(),
            (Event::Ping { large: false } | Event::Heard | Event::InFlight(_), _) => Vec::new(),
            // Whatever else comes ends the link: PROTOCOL 4 has no place for it here.
            _ => self.close(),
        }
    }

    /// When time alone changes something.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let live_ms = (self.heard_ms + IDLE_MS).min(self.heard_ms.max(self.pinged_ms) + KEEP_ALIVE_MS);
        match self.state {
            "Closed" => None,
            "Open" => Some(live_ms),
            "Draining" => Some(live_ms.min(self.drain_ms)),
            _ => Some(HANDSHAKE_MS),
        }
    }

    fn time_passed(&mut self, now_ms: u64) -> Vec<Told> {
        let is_over = match self.state {
            "Open" => now_ms >= self.heard_ms + IDLE_MS,
            "Draining" => now_ms >= self.drain_ms || now_ms >= self.heard_ms + IDLE_MS,
            _ => now_ms >= HANDSHAKE_MS,
        };
        if is_over {
            return self.close();
        }
        if now_ms >= self.heard_ms.max(self.pinged_ms) + KEEP_ALIVE_MS {
            self.pinged_ms = now_ms;
        }
        Vec::new()
    }

    fn close_if_drained(&mut self) -> Vec<Told> {
        let is_drained = self.state == "Draining" && self.said_goaway && self.in_flight == 0;
        if is_drained { self.close() } else { Vec::new() }
    }

    fn rest(&mut self, state: &'static str) -> Vec<Told> {
        self.state = state;
        Vec::new()
    }

    fn close(&mut self) -> Vec<Told> {
        self.state = "Closed";
        vec![Told::Closed]
    }
}
