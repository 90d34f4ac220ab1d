//! A CDDL text and randomness in, values that mostly match it out; and ways to spoil them.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of other crates, of which only some variants matter"
)]

use std::collections::BTreeMap;

use cddl::ast::{
    CDDL, Group, GroupEntry, Identifier, MemberKey, Occur, Occurrence, RangeCtlOp, Rule, Type, Type1, Type2,
};
use cddl::token::{ControlOperator, TagConstraint, Value as Token};
use ciborium::Value;

/// Deepest nesting that is generated.
const DEPTH_MAX: usize = 5;

/// A seeded sequence of numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

pub(crate) struct Generator {
    rules: BTreeMap<String, Vec<&'static Rule<'static>>>,
}

type Bindings = BTreeMap<String, &'static Type1<'static>>;

impl Generator {
    pub(crate) fn new(text: &'static str) -> Generator {
        let parsed: &'static CDDL<'static> =
            Box::leak(Box::new(cddl::cddl_from_str(text, false).expect("CDDL")));
        let mut rules: BTreeMap<String, Vec<&Rule<'_>>> = BTreeMap::new();
        for rule in &parsed.rules {
            rules.entry(rule.name()).or_default().push(rule);
        }
        Generator { rules }
    }

    pub(crate) fn root(&self, random: &mut Random) -> Value {
        self.name("root", &Bindings::new(), random, 0)
    }

    fn name(&self, name: &str, bound: &Bindings, random: &mut Random, depth: usize) -> Value {
        if let Some(argument) = bound.get(name) {
            return self.type1(argument, &Bindings::new(), random, depth);
        }
        let Some(rules) = self.rules.get(name) else { return core(name, random) };
        match *random.pick(rules) {
            Rule::Type { rule, .. } => self.type_(&rule.value, bound, random, depth),
            Rule::Group { .. } => Value::Null,
        }
    }

    /// The arguments of a generic rule, by its parameters.
    fn bindings(
        &self,
        ident: &Identifier<'_>,
        args: Option<&'static cddl::ast::GenericArgs<'static>>,
    ) -> Bindings {
        let rule = self.rules.get(&ident.to_string()).map(|rules| rules[0]);
        let params = match rule {
            Some(Rule::Type { rule, .. }) => rule.generic_params.as_ref(),
            Some(Rule::Group { rule, .. }) => rule.generic_params.as_ref(),
            None => None,
        };
        let names = params.into_iter().flat_map(|p| &p.params).map(|p| p.param.ident.to_string());
        names.zip(args.into_iter().flat_map(|a| &a.args).map(|a| a.arg.as_ref())).collect()
    }

    fn type_(
        &self,
        value: &'static Type<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
    ) -> Value {
        match value.type_choices.is_empty() {
            true => scrap(random),
            false => self.type1(&random.pick(&value.type_choices).type1, bound, random, depth),
        }
    }

    fn type1(
        &self,
        value: &'static Type1<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
    ) -> Value {
        let target = self.type2(&value.type2, bound, random, depth);
        let Some(operator) = &value.operator else { return target };
        let other = self.type2(&operator.type2, bound, random, depth);
        match &operator.operator {
            RangeCtlOp::RangeOp { .. } => between(&target, &other, random),
            RangeCtlOp::CtlOp { ctrl, .. } => match ctrl {
                ControlOperator::SIZE => sized(target, &other),
                ControlOperator::CBOR => {
                    let mut bytes = Vec::new();
                    ciborium::into_writer(&other, &mut bytes).expect("a vector takes any value");
                    Value::Bytes(bytes)
                }
                ControlOperator::REGEXP => {
                    Value::Text((*random.pick(&["a", "abc", "bx", "x", "", "cax"])).into())
                }
                ControlOperator::LT | ControlOperator::LE | ControlOperator::GT | ControlOperator::GE => {
                    near(&other, random)
                }
                ControlOperator::EQ => other,
                _ => target,
            },
        }
    }

    fn type2(
        &self,
        value: &'static Type2<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
    ) -> Value {
        match value {
            Type2::IntValue { value, .. } => Value::from(*value as i64),
            Type2::UintValue { value, .. } => Value::from(*value as u64),
            Type2::FloatValue { value, .. } => Value::Float(*value),
            Type2::TextValue { value, .. } => Value::Text(value.to_string()),
            Type2::UTF8ByteString { value, .. }
            | Type2::B16ByteString { value, .. }
            | Type2::B64ByteString { value, .. } => Value::Bytes(value.to_vec()),
            Type2::Typename { ident, generic_args, .. } => {
                if bound.contains_key(ident.ident) {
                    return self.name(ident.ident, bound, random, depth);
                }
                let inner = self.bindings(ident, generic_args.as_ref());
                self.name(&ident.to_string(), &inner, random, depth + 1)
            }
            Type2::ParenthesizedType { pt, .. } => self.type_(pt, bound, random, depth),
            Type2::Map { group, .. } => self.map(group, bound, random, depth + 1),
            Type2::Array { group, .. } => {
                let mut items = Vec::new();
                self.group(group, bound, random, depth + 1, &mut items);
                Value::Array(items.into_iter().map(|(_, value)| value).collect())
            }
            Type2::ChoiceFromInlineGroup { group, .. } => {
                let mut items = Vec::new();
                self.group(group, bound, random, depth, &mut items);
                items.swap_remove(random.below(items.len())).1
            }
            Type2::TaggedData { tag, t, .. } => {
                let number = match tag {
                    Some(TagConstraint::Literal(number)) => *number,
                    Some(TagConstraint::Type(_)) | None => random.below(100) as u64,
                };
                Value::Tag(number, Box::new(self.type_(t, bound, random, depth + 1)))
            }
            Type2::Unwrap { .. }
            | Type2::ChoiceFromGroup { .. }
            | Type2::DataMajorType { .. }
            | Type2::Any { .. } => scrap(random),
        }
    }

    fn map(
        &self,
        group: &'static Group<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
    ) -> Value {
        let mut items = Vec::new();
        self.group(group, bound, random, depth, &mut items);
        let mut members: Vec<(Value, Value)> = Vec::new();
        for (key, value) in items {
            if !members.iter().any(|(known, _)| *known == key) {
                members.insert(random.below(members.len() + 1), (key, value));
            }
        }
        Value::Map(members)
    }

    fn group(
        &self,
        group: &'static Group<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
        out: &mut Vec<(Value, Value)>,
    ) {
        for (entry, _) in &random.pick(&group.group_choices).group_entries {
            self.entry(entry, bound, random, depth, out);
        }
    }

    fn entry(
        &self,
        entry: &'static GroupEntry<'static>,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
        out: &mut Vec<(Value, Value)>,
    ) {
        let occurrence = match entry {
            GroupEntry::ValueMemberKey { ge, .. } => &ge.occur,
            GroupEntry::TypeGroupname { ge, .. } => &ge.occur,
            GroupEntry::InlineGroup { occur, .. } => occur,
        };
        for _ in 0..times(occurrence.as_ref(), random, depth) {
            match entry {
                GroupEntry::InlineGroup { group, .. } => self.group(group, bound, random, depth, out),
                GroupEntry::TypeGroupname { ge, .. } => {
                    let name = ge.name.to_string();
                    match self.rules.get(&name).map(|rules| *random.pick(rules)) {
                        Some(Rule::Group { rule, .. }) => {
                            let inner = self.bindings(&ge.name, ge.generic_args.as_ref());
                            self.entry(&rule.entry, &inner, random, depth, out);
                        }
                        Some(Rule::Type { .. }) | None => {
                            let inner = self.bindings(&ge.name, ge.generic_args.as_ref());
                            let bound = if inner.is_empty() { bound } else { &inner };
                            out.push((Value::Null, self.name(&name, bound, random, depth + 1)));
                        }
                    }
                }
                GroupEntry::ValueMemberKey { ge, .. } => {
                    if let (None, [choice]) = (&ge.member_key, ge.entry_type.type_choices.as_slice())
                        && let Type2::Unwrap { ident, .. } = &choice.type1.type2
                    {
                        self.unwrapped(&ident.to_string(), bound, random, depth, out);
                        continue;
                    }
                    let key = match &ge.member_key {
                        None => Value::Null,
                        Some(MemberKey::Type1 { t1, .. }) => self.type1(t1, bound, random, depth),
                        Some(MemberKey::Bareword { ident, .. }) => Value::Text(ident.ident.into()),
                        Some(MemberKey::Value { value: Token::TEXT(text), .. }) => {
                            Value::Text(text.to_string())
                        }
                        Some(MemberKey::Value { value: Token::UINT(number), .. }) => {
                            Value::from(*number as u64)
                        }
                        Some(MemberKey::Value { value: Token::INT(number), .. }) => {
                            Value::from(*number as i64)
                        }
                        Some(MemberKey::Value { .. } | MemberKey::NonMemberKey { .. }) => Value::Null,
                    };
                    out.push((key, self.type_(&ge.entry_type, bound, random, depth)));
                }
            }
        }
    }

    fn unwrapped(
        &self,
        name: &str,
        bound: &Bindings,
        random: &mut Random,
        depth: usize,
        out: &mut Vec<(Value, Value)>,
    ) {
        if let Some(Rule::Type { rule, .. }) = self.rules.get(name).map(|rules| rules[0])
            && let Type2::Map { group, .. } | Type2::Array { group, .. } =
                &rule.value.type_choices[0].type1.type2
        {
            self.group(group, bound, random, depth, out);
        }
    }
}

fn times(occurrence: Option<&Occurrence<'_>>, random: &mut Random, depth: usize) -> usize {
    let (least, most) = match occurrence.map(|o| o.occur) {
        None => (1, 1),
        Some(Occur::Optional { .. }) => (0, 1),
        Some(Occur::ZeroOrMore { .. }) => (0, 3),
        Some(Occur::OneOrMore { .. }) => (1, 3),
        Some(Occur::Exact { lower, upper, .. }) => {
            (lower.unwrap_or(0), upper.unwrap_or(lower.unwrap_or(0) + 2))
        }
    };
    if depth > DEPTH_MAX { least } else { least + random.below(most - least + 1) }
}

fn core(name: &str, random: &mut Random) -> Value {
    match name {
        "uint" => Value::from(*random.pick(&[0u64, 1, 9, 23, 24, 255, 256, 65_536, u64::MAX])),
        "nint" => Value::from(*random.pick(&[-1i64, -2, -24, -25, -1_000])),
        "int" => Value::from(*random.pick(&[0i64, 1, -1, 5, -3, 300])),
        "float" | "float16" | "float32" | "float64" => Value::Float(*random.pick(&[0.5, 1.5, -2.25, 1e10])),
        "number" => random.pick(&[Value::from(3), Value::Float(0.5)]).clone(),
        "bstr" | "bytes" => Value::Bytes(vec![7; *random.pick(&[0, 1, 2, 16, 24, 32])]),
        "tstr" | "text" => Value::Text((*random.pick(&["", "x", "y", "a", "key", "zz"])).into()),
        "bool" => Value::Bool(random.below(2) == 0),
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" | "nil" => Value::Null,
        _ => scrap(random),
    }
}

/// Anything.
fn scrap(random: &mut Random) -> Value {
    match random.below(11) {
        0 => core("uint", random),
        1 => core("nint", random),
        2 => core("bstr", random),
        3 | 4 => core("tstr", random),
        5 => core("bool", random),
        6 => Value::Null,
        7 => core("float", random),
        8 => Value::Array((0..random.below(3)).map(|_| scrap(random)).collect()),
        9 => Value::Map((0..random.below(2)).map(|_| (core("tstr", random), scrap(random))).collect()),
        _ => core("int", random),
    }
}

fn between(low: &Value, high: &Value, random: &mut Random) -> Value {
    match (low.as_integer(), high.as_integer(), low.as_float(), high.as_float()) {
        (Some(low), Some(high), ..) => {
            let (low, high) = (i128::from(low), i128::from(high));
            let value = low - 1 + random.below((high - low + 3).min(1_000) as usize) as i128;
            Value::Integer(value.try_into().expect("bounds of schemas are small"))
        }
        (.., Some(low), Some(high)) => Value::Float(low + (high - low) * random.below(5) as f64 / 3.0),
        _ => Value::Null,
    }
}

fn near(value: &Value, random: &mut Random) -> Value {
    match value.as_integer() {
        Some(number) => {
            let number = i128::from(number) + random.below(5) as i128 - 2;
            Value::Integer(number.try_into().expect("bounds of schemas are small"))
        }
        None => value.clone(),
    }
}

fn sized(target: Value, size: &Value) -> Value {
    let size = size.as_integer().and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
    match target {
        Value::Bytes(_) => Value::Bytes(vec![5; size]),
        Value::Text(_) => Value::Text("t".repeat(size)),
        other => other,
    }
}

/// Spoils one place of a value.
pub(crate) fn mutate(value: &mut Value, random: &mut Random) {
    let descend = random.below(3) > 0;
    match value {
        Value::Array(items) if !items.is_empty() && descend => {
            let at = random.below(items.len());
            mutate(&mut items[at], random);
        }
        Value::Map(members) if !members.is_empty() && descend => {
            let at = random.below(members.len());
            mutate(&mut members[at].1, random);
        }
        Value::Tag(_, item) if descend => mutate(item, random),
        Value::Array(items) => match random.below(4) {
            0 if !items.is_empty() => _ = items.remove(random.below(items.len())),
            1 if !items.is_empty() => items.push(items[0].clone()),
            2 => items.insert(random.below(items.len() + 1), scrap(random)),
            _ => *value = scrap(random),
        },
        Value::Map(members) => match random.below(5) {
            0 if !members.is_empty() => _ = members.remove(random.below(members.len())),
            1 if members.len() > 1 => members.swap_remove(0).1.clone_into(&mut members[0].1),
            2 | 3 => {
                let key = if random.below(4) == 0 { scrap(random) } else { core("tstr", random) };
                if !members.iter().any(|(known, _)| *known == key) {
                    members.push((key, scrap(random)));
                }
            }
            _ => *value = scrap(random),
        },
        Value::Integer(number) if random.below(2) == 0 => {
            let near = i128::from(*number) + random.below(3) as i128 - 1;
            *number = near.try_into().unwrap_or(*number);
        }
        Value::Text(text) if random.below(2) == 0 => text.push('a'),
        Value::Bytes(bytes) if random.below(2) == 0 => _ = bytes.pop(),
        _ => *value = scrap(random),
    }
}
