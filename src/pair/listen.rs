//! Listens for the other side of an introduction: connections in, the first that has the code out.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::exchange::{Met, Tries, answer};
use super::{Code, Own, PairError};

/// What a code survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it is valid.
    pub lifetime: Duration,
    /// Wrong codes after which it is void.
    pub tries: u32,
    /// Connections that lead to nothing, after which it is void.
    pub connections: u32,
    /// Connections that are served at once; one more waits.
    pub at_once: usize,
    /// Time for one connection to show that it has the code.
    pub handshake: Duration,
}

impl Default for Limits {
    /// Ten minutes and three wrong codes.
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(600),
            tries: 3,
            connections: 64,
            at_once: 8,
            handshake: Duration::from_secs(10),
        }
    }
}

/// What the owner is told while somebody is waited for.
#[derive(Debug)]
pub enum Event {
    /// A connection led to nothing.
    Failed {
        /// Where it came from.
        from: SocketAddr,
        /// Why.
        error: PairError,
        /// Wrong codes that still may come.
        tries_left: u32,
    },
}

/// Waits for the other side, which has the code.
///
/// Gives it and the address that it came from. **Errors:** [`PairError::Expired`], [`PairError::TooManyTries`],
/// [`PairError::TooManyConnections`], or the listener failed; the code is void then.
pub async fn listen(
    listener: TcpListener,
    code: Code,
    own: Arc<Own>,
    limits: Limits,
    mut on_event: impl FnMut(Event),
) -> Result<(Met<TcpStream>, SocketAddr), PairError> {
    let until = Instant::now() + limits.lifetime;
    let tally = Arc::new(Tally { tries: limits.tries, state: Mutex::default() });
    let code = Arc::new(code);
    let mut served = JoinSet::new();
    let mut failed = 0;
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept(), if served.len() < limits.at_once => accepted?,
            Some(ended) = served.join_next() => {
                // A part of ours that panicked is one that led to nothing.
                let Ok((outcome, from)) = ended else { return Err(PairError::Closed) };
                match outcome {
                    Ok(met) => return Ok((met, from)),
                    // It had the code and went away: whoever it was, the code has introduced somebody.
                    Err(error) if tally.is_used() && !matches!(error, PairError::Used) => return Err(error),
                    Err(error) => on_event(Event::Failed { from, error, tries_left: tally.left() }),
                }
                failed += 1;
                if tally.left() == 0 {
                    return Err(PairError::TooManyTries(limits.tries));
                }
                if failed >= limits.connections {
                    return Err(PairError::TooManyConnections(limits.connections));
                }
                continue;
            }
            () = tokio::time::sleep_until(until) => return Err(PairError::Expired),
        };
        let (code, own, tally) = (Arc::clone(&code), Arc::clone(&own), Arc::clone(&tally));
        let until = until.min(Instant::now() + limits.handshake);
        served.spawn(async move {
            let met = timeout_at(until, answer(stream, &code, &own, &*tally)).await;
            (met.unwrap_or(Err(PairError::TimedOut)), from)
        });
    }
}

/// Counts the tries of one code.
struct Tally {
    tries: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wrong: u32,
    is_used: bool,
}

impl Tally {
    fn left(&self) -> u32 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.tries.saturating_sub(state.wrong)
    }

    fn is_used(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_used
    }
}

impl Tries for Tally {
    fn judge(&self, is_right: bool) -> Result<(), PairError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Connections run at once, so more may come than there are tries.
        if state.wrong >= self.tries {
            return Err(PairError::TooManyTries(self.tries));
        }
        if !is_right {
            state.wrong += 1;
            return Err(PairError::WrongCode);
        }
        if std::mem::replace(&mut state.is_used, true) { Err(PairError::Used) } else { Ok(()) }
    }
}
