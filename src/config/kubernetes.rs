//! Recognizes the variables that Kubernetes makes for a Service called `capd`.
//!
//! Kubernetes gives each container variables about every Service of its namespace, under the Service's name in upper
//! case (see *Accessing the Service* in its documentation; the second half are those of Docker's links).

/// Whether Kubernetes makes such a variable for a Service called `capd`: its name has the form, and so has the value of
/// one that could be meant as a setting.
pub(super) fn makes(name: &str, value: &str) -> bool {
    let Some(name) = name.strip_prefix("CAPD_") else { return false };
    match name {
        "SERVICE_HOST" | "SERVICE_PORT" => true,
        "PORT" => is_url(value),
        _ => match (name.strip_prefix("SERVICE_PORT_"), name.strip_prefix("PORT_")) {
            (Some(port), _) => is_port_name(port),
            (None, Some(port)) => is_link(port, value),
            (None, None) => false,
        },
    }
}

/// **Shape:** `<number>_TCP`, `<number>_TCP_ADDR`, `_PORT`, `_PROTO`; the same with `UDP`.
fn is_link(port: &str, value: &str) -> bool {
    let Some((number, rest)) = port.split_once('_') else { return false };
    let is_number = !number.starts_with('0') && number.parse::<u16>().is_ok();
    let part = rest.strip_prefix("TCP").or_else(|| rest.strip_prefix("UDP"));
    is_number
        && match part {
            Some("") => is_url(value),
            Some(part) => matches!(part, "_ADDR" | "_PORT" | "_PROTO"),
            None => false,
        }
}

/// A port's name is a DNS label: it neither begins nor ends with a dash, which is an underscore here.
fn is_port_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('_')
        && !name.ends_with('_')
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn is_url(value: &str) -> bool {
    value.starts_with("tcp://") || value.starts_with("udp://")
}
