//! A descriptor's retry policy in; the one that the call machine goes by out.

use capd_proto::call::RetryPolicy;
use capd_proto::code::Code;
use capd_proto::message;

pub(super) fn retry_policy(declared: Option<&message::RetryPolicy>) -> RetryPolicy {
    let Some(declared) = declared else { return RetryPolicy::default() };
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
    let codes = declared.retry_on.iter().flat_map(|name| codes_named(name));
    policy.with_retry_on(codes.collect())
}

/// The codes behind a `retry_on` entry: a code's number or name, or one of the names that declarations use.
fn codes_named(name: &str) -> Vec<Code> {
    match name {
        "timeout" => vec![Code::TIMEOUT],
        "network_error" => vec![Code::ENDPOINT_UNREACHABLE, Code::UNAVAILABLE],
        "rate_limit" => vec![Code::RATE_LIMITED, Code::OVERLOADED],
        _ => {
            let named = Code::ALL.iter().copied().find(|code| code.name() == Some(name));
            named.or_else(|| name.parse().map(Code).ok()).into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_on_takes_numbers_code_names_and_the_names_of_declarations() {
        assert_eq!(codes_named("timeout"), [Code::TIMEOUT]);
        assert_eq!(codes_named("TIMEOUT"), [Code::TIMEOUT]);
        assert_eq!(codes_named("5003"), [Code::TIMEOUT]);
        assert_eq!(codes_named("rate_limit"), [Code::RATE_LIMITED, Code::OVERLOADED]);
        assert_eq!(codes_named("nonsense"), []);
    }
}
