//! Implements `bench`: a capability and a load in; calls made at that load, and their timing, out.
//!
//! A closed loop keeps a number of calls in flight. An open loop begins calls when they are due. If a call begins late
//! because too many are in flight, its time still counts from when it was due: every call that a stall delayed shows
//! the stall.

mod pace;
mod record;

use std::sync::{Arc, Mutex, PoisonError};

use capd::client::{CallRequest, Client, ClientError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::BenchArgs;
use crate::capability::Wanted;
use crate::failure::{Exit, Failure};
use crate::terminal::{self, Progress};
use crate::{Sidecar, call, names, output};
use record::Record;

/// Makes the calls and prints what was measured.
///
/// Ctrl-C ends it early, and what was measured until then is printed. **Errors:** usage; the first call's, which is
/// made alone; that the sidecar went away.
pub(crate) async fn run(sidecar: &Sidecar, args: BenchArgs, json: bool) -> Result<(), Failure> {
    if args.ttl <= args.timeout {
        return Err(Failure::usage("--ttl must be more than --timeout: it caps the time of a call"));
    }
    let wanted = Wanted::read(&args.capability, args.version.as_ref())?;
    let params = call::params(&args.params)?;
    let client = sidecar.connect_for_people().await?;
    let request = CallRequest::new(wanted.target(&client).await?).params_json(&params);
    let request = request.timeout(args.timeout).ttl(args.ttl);
    let request = match &args.to {
        Some(to) => request.to(names::find(&client, to).await?),
        None => request,
    };
    let mut interrupts = signal(SignalKind::interrupt())?;
    // What cannot be called at all is said at once.
    let first = client.call(request.clone())?;
    let id = first.id();
    if let Err(error) = first.outcome().await {
        return Err(call::refused(&client, error, id, &args.capability).await);
    }
    let load = Arc::new(Load::new(client, request, &args)?);
    let seen = Arc::clone(&load);
    let progress = Progress::begin(move |seconds| seen.words(seconds));
    let work = async {
        match args.rate {
            None => load.closed_loop(args.in_flight).await,
            Some(rate) => load.open_loop(rate, args.in_flight).await?,
        }
        Ok::<_, Failure>(())
    };
    let is_interrupted = tokio::select! {
        done = work => { done?; false }
        _ = interrupts.recv() => true,
    };
    let ended = Instant::now();
    load.stop.cancel();
    drop(progress);
    let record = load.take();
    if let Some(lost) = record.lost {
        return Err(lost.into());
    }
    let measured = ended.min(load.ends).saturating_duration_since(load.begins);
    let report = record.report(&args, measured);
    if json { output::print_json(&report.json()) } else { output::print(&report.text()) }?;
    if is_interrupted { Err(Failure::unexpected("interrupted").exit(Exit::Interrupted)) } else { Ok(()) }
}

/// The calls, and what is known of them.
struct Load {
    client: Client,
    request: CallRequest,
    starts: Instant,
    /// Calls that begin, or are due, from then on are measured…
    begins: Instant,
    /// …until then.
    ends: Instant,
    /// No more calls, since the link is gone or somebody pressed Ctrl-C.
    stop: CancellationToken,
    record: Mutex<Record>,
}

impl Load {
    fn new(client: Client, request: CallRequest, args: &BenchArgs) -> Result<Self, Failure> {
        let starts = Instant::now();
        let begins = starts + args.warm_up;
        Ok(Self {
            client,
            request,
            starts,
            begins,
            ends: begins + args.duration,
            stop: CancellationToken::new(),
            record: Mutex::new(Record::new()?),
        })
    }

    /// Keeps `in_flight` calls going until the end.
    async fn closed_loop(self: &Arc<Self>, in_flight: u32) {
        let callers = TaskTracker::new();
        for _ in 0..in_flight {
            let load = Arc::clone(self);
            callers.spawn(async move {
                loop {
                    let now = Instant::now();
                    if now >= load.ends || load.stop.is_cancelled() {
                        return;
                    }
                    load.call(now, now).await;
                }
            });
        }
        callers.close();
        callers.wait().await;
    }

    /// Begins `rate` calls a second until the end, while fewer than `in_flight_max` are in flight.
    async fn open_loop(self: &Arc<Self>, rate: u32, in_flight_max: u32) -> Result<(), Failure> {
        let callers = TaskTracker::new();
        let places = Arc::new(Semaphore::new(in_flight_max as usize));
        let mut moments = pace::moments(self.starts, rate, self.ends)?;
        while let Some(due) = moments.recv().await {
            if self.stop.is_cancelled() {
                break;
            }
            let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
            let load = Arc::clone(self);
            callers.spawn(async move {
                load.call(due, Instant::now()).await;
                drop(place);
            });
        }
        callers.close();
        callers.wait().await;
        Ok(())
    }

    /// One call that was due at `due` and is begun at `begun`.
    async fn call(&self, due: Instant, begun: Instant) {
        let outcome = match self.client.call(self.request.clone()) {
            Ok(handle) => handle.outcome().await,
            Err(error) => Err(error),
        };
        let ended = Instant::now();
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Err(error @ (ClientError::Closed(_) | ClientError::Connect { .. })) => {
                record.lost.get_or_insert(error);
                self.stop.cancel();
            }
            outcome if due >= self.begins && due < self.ends => {
                record.add(outcome.err().as_ref(), ended - due, ended - begun);
            }
            _ => {}
        }
    }

    /// How far it has come, for people who wait.
    fn words(&self, seconds: u64) -> String {
        let whole = self.ends.saturating_duration_since(self.starts).as_secs();
        let (calls, errors) = self.record.lock().unwrap_or_else(PoisonError::into_inner).counts();
        let [calls, errors] = [calls, errors].map(terminal::grouped);
        format!("{seconds} of {whole} s: {calls} calls, {errors} that ended badly")
    }

    fn take(&self) -> Record {
        std::mem::take(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
