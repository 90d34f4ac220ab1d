//! Calls that keep coming in; the same memory at their end as when all that is kept had filled up, out.
//!
//! `capd-e2e --steady 30` in `benches/e2e` does so for half an hour, with calls that run only once as well.

use ciborium::Value;

use crate::agents::{Caller, Provider, by_id, idempotent, success};
use crate::support::{Setup, Sidecar};

const ECHO: &str = "org.example.echo:1.0.0";
/// Calls after which whatever is kept of calls is full.
const FILLING: usize = 1_000;
/// Calls after that.
const MORE: usize = 2_000;
/// What may come on top, in KiB: half a KiB for each call more would be as much.
const ALLOWANCE_KIB: u64 = 1_024;

#[test]
fn memory_stays_what_it_is_however_many_calls_are_made() {
    let b = Setup::new().set("limits.ledger_idempotent_bytes_max", "65536").start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&a);
    let params = Value::from("x".repeat(400));
    let mut call = |count: usize| {
        for _ in 0..count {
            let id = caller.invoke(by_id(ECHO, params.clone()));
            provider.echo();
            assert_eq!(success(&caller.result(&id)), &params);
        }
    };
    let sidecars = [&a, &b];
    call(FILLING);
    let full = sidecars.map(Sidecar::memory_kib);
    call(MORE);
    let after = sidecars.map(Sidecar::memory_kib);
    for ((name, full), after) in ["the caller's", "the provider's"].into_iter().zip(full).zip(after) {
        assert!(after <= full + ALLOWANCE_KIB, "{name} sidecar held {full} KiB, {MORE} calls later {after}");
    }
}
