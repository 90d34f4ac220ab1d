//! Converts a descriptor's retry policy to the call machine's.

use std::sync::{Arc, LazyLock};

use capd_proto::call::RetryPolicy;
use capd_proto::message;

/// Most calls go by the default, which they share.
pub(super) fn retry_policy(declared: Option<&message::RetryPolicy>) -> Arc<RetryPolicy> {
    let Some(declared) = declared else { return Arc::clone(&DEFAULT) };
    let mut policy = RetryPolicy::default();
    if let Some(attempts) = declared.max_attempts {
        policy = policy.with_attempts_max(u32::try_from(attempts).unwrap_or(u32::MAX));
    }
    if let Some(delay_ms) = declared.initial_delay_ms {
        policy = policy.with_initial_delay_ms(delay_ms);
    }
    if let Some(multiplier) = declared.backoff_multiplier {
        policy = policy.with_multiplier(multiplier);
    }
    if let Some(delay_ms) = declared.max_delay_ms {
        policy = policy.with_delay_ms_max(delay_ms);
    }
    let codes = declared.retry_on.iter().flat_map(|name| RetryPolicy::codes_named(name));
    Arc::new(policy.with_retry_on(codes.collect()))
}

static DEFAULT: LazyLock<Arc<RetryPolicy>> = LazyLock::new(Arc::default);
