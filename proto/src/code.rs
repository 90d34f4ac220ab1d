//! Lists the wire codes: number, name, category, and whether the same request may be retried.

use std::fmt;

/// Which part of the system an error belongs to; the `category` of an ERROR body. **Source:** PROTOCOL 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// 1xxx: the bytes or the envelope.
    Protocol,
    /// 2xxx: the route to the recipient.
    Routing,
    /// 3xxx: permissions and rates.
    Security,
    /// 4xxx: the caller's request.
    Client,
    /// 5xxx: a failure of the executor.
    Server,
}

impl Category {
    /// The category as written in an ERROR body.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Routing => "routing",
            Self::Security => "security",
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// Whether a request refused with a code may be retried. **Source:** PROTOCOL 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Sending it again gives the same answer.
    No,
    /// It may succeed later.
    Yes,
    /// It may succeed later, and only with growing pauses.
    Backoff,
}

/// A wire code. Codes that this build does not know survive a round trip.
///
/// **Shape:** an unsigned integer. **Source:** PROTOCOL 9.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($konst:ident = $number:literal, $retry:ident, $doc:literal;)*) => {
        impl Code {
            $(#[doc = $doc] pub const $konst: Self = Self($number);)*
            /// Every code of PROTOCOL 9, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$konst),*];

            /// The code's name, or `None` for one this build does not know.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($konst)),)*
                    _ => None,
                }
            }

            /// Whether the request may be retried; with unknown codes it may not.
            pub const fn retry(self) -> Retry {
                match self.0 {
                    $($number => Retry::$retry,)*
                    _ => Retry::No,
                }
            }
        }
    };
}

codes! {
    INVALID_MESSAGE = 1001, No, "Bytes, frame, envelope or body not of the shape the protocol asks for.";
    INVALID_SIGNATURE = 1002, No, "The signature does not fit the envelope and the sender's key.";
    INVALID_TIMESTAMP = 1003, No, "Expired, from the future, a `ttl` over thirty days, or an id whose time is not `ts`.";
    UNSUPPORTED_VERSION = 1004, No, "A protocol version we do not speak, or a message before the link is open.";
    UNKNOWN_TYPE = 1005, No, "A message type we do not speak.";
    RECIPIENT_NOT_FOUND = 2001, Yes, "`to` does not name this sidecar's agent.";
    ENDPOINT_UNREACHABLE = 2002, Yes, "No link to the recipient could be made in time.";
    UNAUTHORIZED = 3001, No, "Not allowed, or not who it says it is; alike for known and unknown names.";
    DELEGATION_INVALID = 3004, No, "A delegation was given that does not hold.";
    RATE_LIMITED = 3005, Backoff, "Too many requests; `details` says when to come back.";
    BAD_REQUEST = 4001, No, "Well-shaped, but it contradicts itself or lacks an identity.";
    CAPABILITY_NOT_FOUND = 4002, No, "No capability of that name.";
    VERSION_MISMATCH = 4003, No, "The name is known, but no served version fits.";
    SCHEMA_VIOLATION = 4004, No, "`params` do not fit the input schema; `details.violations` lists where.";
    CANCELLED = 4901, No, "The caller cancelled the call.";
    SCHEMA_DRIFT = 4902, No, "The two sides' schemas no longer agree.";
    UNSUPPORTED_SCHEMA = 4903, No, "A schema uses a construct that cannot be proven.";
    REPAIR_EXHAUSTED = 4904, No, "The turn's budget of argument repairs is spent.";
    CONTRACT_ERROR = 4905, No, "A descriptor answer is malformed or of a newer major.";
    INTERNAL_ERROR = 5001, Yes, "A fault of ours.";
    UNAVAILABLE = 5002, Yes, "The provider, a schema or the store is not available.";
    TIMEOUT = 5003, Yes, "The call's time ran out.";
    OVERLOADED = 5004, Backoff, "No capacity for new work at the moment.";
    RESULT_SCHEMA_VIOLATION = 5901, No, "The provider's result does not fit the output schema.";
    INTERRUPTED = 5902, No, "A crash interrupted the call; whether it took effect is unknown.";
}

impl Code {
    /// The category by the code's thousands; unknown thousands count as `server`.
    pub const fn category(self) -> Category {
        match self.0 / 1000 {
            1 => Category::Protocol,
            2 => Category::Routing,
            3 => Category::Security,
            4 => Category::Client,
            _ => Category::Server,
        }
    }

    /// Whether an ERROR of this code is about the executor that sent it, so that another executor may take the call. Every
    /// other refusal is about the call, and is not to be shopped around. **Source:** PROTOCOL 8.
    pub const fn is_about_executor(self) -> bool {
        matches!(
            self,
            Self::RECIPIENT_NOT_FOUND
                | Self::CAPABILITY_NOT_FOUND
                | Self::VERSION_MISMATCH
                | Self::UNAVAILABLE
                | Self::OVERLOADED
        )
    }

    /// Whether the same id may be sent again after an ERROR with this code.
    pub const fn is_retryable(self) -> bool {
        !matches!(self.retry(), Retry::No)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
