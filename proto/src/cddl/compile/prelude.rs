//! Lists the names that every CDDL text has without defining them (RFC 8610 appendix D).

use super::super::program::{Node, Ranges, Scalar};

/// What [`core_type`] does not have.
pub(super) const PRELUDE: &str = "
tdate = #6.0(tstr)
time = #6.1(number)
number = int / float
biguint = #6.2(bstr)
bignint = #6.3(bstr)
bigint = biguint / bignint
integer = int / bigint
unsigned = uint / biguint
decfrac = #6.4([e10: int, m: integer])
bigfloat = #6.5([e2: int, m: integer])
eb64url = #6.21(any)
eb64legacy = #6.22(any)
eb16 = #6.23(any)
encoded-cbor = #6.24(bstr)
uri = #6.32(tstr)
b64url = #6.33(tstr)
b64legacy = #6.34(tstr)
regexp = #6.35(tstr)
mime-message = #6.36(tstr)
cbor-any = #6.55799(any)
float16-32 = float16 / float32
float32-64 = float32 / float64
";

/// The prelude types that are one node each.
pub(super) fn core_type(name: &str) -> Option<Node> {
    let simple = |low, high| Node::Scalar(Scalar::Simple(Ranges([(low, high)].into())));
    Some(match name {
        "any" => Node::Any,
        "uint" => Node::Major(0),
        "nint" => Node::Major(1),
        "int" => Node::Int,
        "bstr" | "bytes" => Node::Major(2),
        "tstr" | "text" => Node::Major(3),
        "float16" => Node::Scalar(Scalar::Initial(0xf9)),
        "float32" => Node::Scalar(Scalar::Initial(0xfa)),
        "float64" => Node::Scalar(Scalar::Initial(0xfb)),
        "float" => Node::Scalar(Scalar::Float),
        "false" => simple(20, 20),
        "true" => simple(21, 21),
        "bool" => simple(20, 21),
        "nil" | "null" => simple(22, 22),
        "undefined" => simple(23, 23),
        _ => return None,
    })
}
