//! Lets one desk into the cell of another: a code in; a membership, signed by the authority that holds its key, out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capd::pair::{self, Card, Code, Event, Limits, Own, PairError};
use capd::text;
use capd_proto::capability::CapabilityName;
use capd_proto::fleet::Agent;
use capd_proto::identity::Identity;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::super::Failure;
use super::super::super::pair::place::Place;
use super::desk::{self, Desk, NAMESPACE};

/// The authority, at the desk that has its key.
pub(super) struct Door {
    own: Arc<Own>,
    /// The names that desks have.
    taken: BTreeSet<CapabilityName>,
}

/// A desk that was let in.
pub(super) struct Admitted {
    pub(super) did: String,
    pub(super) capability: CapabilityName,
}

/// Why a code let nobody in.
pub(super) enum Refused {
    /// Another code may.
    Again(String),
    /// Somebody guesses.
    Void(String),
}

impl Door {
    pub(super) fn new(authority: Identity, desk: &Desk) -> Self {
        let card = card(desk, Vec::new());
        Self {
            own: Arc::new(Own { identity: authority, card }),
            taken: BTreeSet::from([desk.capability.clone()]),
        }
    }

    /// Waits for the desk that has the code, and gives it a membership.
    pub(super) async fn admit(&mut self, listener: TcpListener, code: Code) -> Result<Admitted, Refused> {
        let own = Arc::clone(&self.own);
        let met = pair::listen(listener, code, own, Limits::default(), |event| {
            let Event::Failed { from, error, tries_left } = event;
            eprintln!("capd: {from}: {} ({tries_left} tries left)", text::line(&error.to_string()));
        });
        let (met, from) = met.await.map_err(|error| match error {
            PairError::TooManyTries(_) | PairError::TooManyConnections(_) => Refused::Void(error.to_string()),
            _ => Refused::Again(error.to_string()),
        })?;
        let again = |why: String| Refused::Again(format!("{}: {why}", from.ip()));
        let did = met.did().to_string();
        let capability = match self.wanted(&met.card().serves) {
            Ok(capability) => capability,
            Err(why) => {
                // It may be gone.
                let _gone = met.decline().await;
                return Err(again(why));
            }
        };
        let agent = Agent::from_did(&did).map_err(|error| again(error.to_string()))?;
        let signed = desk::membership(&self.own.identity, agent, capability.clone());
        let signed = signed.map_err(|failure| again(failure.message))?;
        let handed = async {
            let mut agreed = met.agree().await?;
            agreed.give(&signed).await?;
            agreed.written().await
        };
        match timeout(WAIT, handed).await {
            Ok(Ok(())) => {
                self.taken.insert(capability.clone());
                Ok(Admitted { did, capability })
            }
            Ok(Err(error)) => Err(again(error.to_string())),
            Err(_) => Err(again(PairError::TimedOut.to_string())),
        }
    }

    /// The one name that a newcomer asks for.
    fn wanted(&self, serves: &[String]) -> Result<CapabilityName, String> {
        let name = match serves {
            [one] => one.parse::<CapabilityName>().ok(),
            _ => None,
        };
        let is_of_desk = |name: &CapabilityName| {
            name.as_str().rsplit_once('.').is_some_and(|(namespace, _)| namespace == NAMESPACE)
        };
        let name =
            name.filter(is_of_desk).ok_or_else(|| format!("it asks for more than {NAMESPACE}.NAME"))?;
        if self.taken.contains(&name) {
            return Err(format!("another desk serves {name}; name the new one with --name"));
        }
        Ok(name)
    }
}

/// Gets a membership from the desk that printed this code, and writes the desk's files. Gives the authority's DID.
pub(super) async fn join(desk: &Desk, place: &Place) -> Result<String, Failure> {
    desk.check_new()?;
    let at = format!("{}:{}", place.host, place.port);
    let stream = timeout(WAIT, TcpStream::connect((&*place.host, place.port)))
        .await
        .map_err(|_| "no answer in time".to_owned());
    let stream = stream.and_then(|connected| connected.map_err(|error| error.to_string())).map_err(|why| {
        Failure::runtime(format!(
            "cannot connect to {at}: {why}; is `capd dev --lan` still running there, and is TCP port {} open?",
            place.port
        ))
    })?;
    let own = Own { identity: desk.identity()?, card: card(desk, vec![desk.capability.to_string()]) };
    let failed = |error: PairError| {
        let next = match error {
            PairError::Declined => "its screen says why",
            _ => "use the code that it shows last",
        };
        Failure::runtime(format!("{at}: {error}; {next}"))
    };
    let handed = async {
        let met = pair::dial(stream, &place.code, &own).await.map_err(failed)?;
        let authority = met.did().clone();
        let mut agreed = met.agree().await.map_err(failed)?;
        let membership = agreed.take().await.map_err(failed)?;
        if let Err(failure) = desk.settle(&authority, &membership) {
            let _gone = agreed.failed().await;
            return Err(failure);
        }
        // What is written is good, whether or not the other desk hears of it.
        let _gone = agreed.written().await;
        Ok(authority.to_string())
    };
    timeout(WAIT, handed).await.map_err(|_| Failure::runtime(format!("{at} did not answer in time")))?
}

fn card(desk: &Desk, serves: Vec<String>) -> Card {
    Card { name: desk.name.clone(), serves, addresses: Vec::new(), quic_port: None, tcp_port: None }
}

/// How long one step with the other desk may take.
const WAIT: Duration = Duration::from_secs(15);
