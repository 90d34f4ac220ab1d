//! Bytes in, read as two schemas; the claims that a verdict is no lie, and that every schema is within itself.
//!
//! Bytes that begin with `{` are a line `{"sub", "sup"}`; others are the choices of the generator of the property test,
//! `tests/subtype/`, so that a byte changed is a schema edited. Whoever includes this has those modules beside it.

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use serde_json::Value;

use super::generate::{self, Random};
use super::{support, values};

pub(crate) fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let (sub, sup) = if bytes.first() == Some(&b'{') {
        let Ok(Value::Object(mut line)) = serde_json::from_slice(bytes) else { return };
        let (Some(sub), Some(sup)) = (line.remove("sub"), line.remove("sup")) else { return };
        random = Random::given(&[]);
        (sub, sup)
    } else {
        generate::pair(&mut random)
    };
    let compile = |schema: &Value| Compiled::compile(schema.to_string().as_bytes());
    let (Ok(a), Ok(b)) = (compile(&sub), compile(&sup)) else { return };
    for same in [&a, &b] {
        let verdict = is_subtype(same, same);
        assert!(!matches!(verdict, Verdict::Refuted { .. }), "{verdict:?}, of itself, {sub} or {sup}");
    }
    hold(&mut random, (&sub, &a), (&sup, &b));
    hold(&mut random, (&sup, &b), (&sub, &a));
}

fn hold(random: &mut Random, (sub, a): (&Value, &Compiled), (sup, b): (&Value, &Compiled)) {
    let verdict = is_subtype(a, b);
    match &verdict {
        Verdict::Proven => {
            let (fits, must) = (support::validator(sub), support::validator(sup));
            let mut last = Value::Null;
            for at in 0..VALUES {
                let value = match at % 4 {
                    0 => values::value(random, 3),
                    1 => values::next_to(random, &last),
                    2 => values::value_for(random, sup, sup, 5),
                    _ => values::value_for(random, sub, sub, 5),
                };
                if fits.is_valid(&value) {
                    assert!(must.is_valid(&value), "{value} fits {sub} and not {sup}");
                    last = value;
                }
            }
        }
        Verdict::Refuted { witness, path, rule } => {
            assert!(support::validator(sub).is_valid(witness), "{witness} is none of {sub}");
            assert!(!support::validator(sup).is_valid(witness), "{witness} is one of {sup}");
            assert!(path.starts_with('/') && !rule.is_empty(), "{path:?} {rule:?}");
        }
        Verdict::Unknown { path, construct } => {
            assert!(path.starts_with('/') && !construct.is_empty(), "{path:?} {construct:?}");
        }
    }
}

/// Values held against a proven pair.
const VALUES: usize = 32;
