//! Compiles the parser's syntax tree into the nodes of a program.
//!
//! Rules are compiled on demand, beginning with the type rules that have no parameters. A generic rule is compiled once
//! per set of arguments. The compiler reserves a rule's node before it compiles the body, so rules can refer to
//! themselves.

mod control;
mod group;
mod plan;
mod prelude;
mod quick;
mod recursion;

use std::collections::BTreeMap;

use cddl::ast::{CDDL, GenericArgs, Identifier, Rule, Type, Type1, Type2};
use cddl::token::TagConstraint;

use super::program::{Group, GroupId, Literal, NameId, Node, NodeId, Program, Ranges, RuleId, Scalar};
use super::{CompileError, source};
use prelude::{PRELUDE, core_type};

/// Most nodes of one program; generic rules that instantiate themselves without end meet it.
const NODES_MAX: usize = 65_536;
/// Deepest nesting of rules within rules while compiling, for the same reason.
const NESTING_MAX: usize = 64;
const TOO_LARGE: &str = "is too large; a generic rule may instantiate itself without end";

/// Rules are cut by us and parsed one at a time: the parser counts lines from the beginning for everything that it reads, so
/// its time grows with the square of the length, and a syntax tree takes twenty times its text. A text of which that makes
/// no program is parsed as a whole, and cut where the parser says: so an error tells of lines in the text.
pub(super) fn compile(text: &str) -> Result<Program, CompileError> {
    let text = source::respell(text)?;
    let rules = source::rules(&text);
    if !rules.is_empty()
        && let Ok(program) = program(rules)
    {
        return Ok(program);
    }
    let tree = parse(&text)?;
    let names: Vec<String> = tree.rules.iter().map(|rule| name_of(rule).to_string()).collect();
    program(tree.rules.iter().zip(&names).map(|(rule, name)| cut(rule, name, &text)).collect())
}

fn program(rules: Vec<source::Rule<'_>>) -> Result<Program, CompileError> {
    let first = rules.first().map(|rule| rule.name.to_owned());
    let mut compiler = Compiler::default();
    compiler.define(source::rules(PRELUDE), true)?;
    compiler.define(rules, false)?;
    Ok(Program { first, ..compiler.rules()? })
}

/// A rule as the parser cuts it.
fn cut<'a>(rule: &Rule<'a>, name: &'a str, text: &'a str) -> source::Rule<'a> {
    let (generic, extends, span) = match rule {
        Rule::Type { rule, span, .. } => (&rule.generic_params, rule.is_type_choice_alternate, span),
        Rule::Group { rule, span, .. } => (&rule.generic_params, rule.is_group_choice_alternate, span),
    };
    let params = generic.iter().flat_map(|params| &params.params).map(|param| param.param.ident).collect();
    source::Rule { name, params, extends, text: &text[span.0..span.1] }
}

fn parse(text: &str) -> Result<CDDL<'_>, CompileError> {
    cddl::cddl_from_str(text, false).map_err(CompileError::Syntax)
}

/// The tree of a text that is one rule of this name.
fn parse_rule<'a>(name: &str, text: &'a str) -> Result<Rule<'a>, CompileError> {
    let mut rules = parse(text)?.rules;
    match rules.pop() {
        Some(rule) if rules.is_empty() && name_of(&rule).to_string() == name => Ok(rule),
        _ => Err(CompileError::Syntax(format!("not one rule `{name}`: {text}"))),
    }
}

fn name_of<'t, 'a>(rule: &'t Rule<'a>) -> &'t Identifier<'a> {
    match rule {
        Rule::Type { rule, .. } => &rule.name,
        Rule::Group { rule, .. } => &rule.name,
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Type(NodeId),
    Group(GroupId),
}

#[derive(Clone)]
struct Definition<'a> {
    params: Vec<&'a str>,
    /// The text of each rule that defines or extends it.
    texts: Vec<&'a str>,
    prelude: bool,
}

/// What is in force where a piece of text is compiled.
#[derive(Default)]
struct Scope<'a> {
    rule: String,
    /// The text that spans in the syntax tree count in.
    text: &'a str,
    params: BTreeMap<&'a str, Named>,
    nesting: usize,
}

#[derive(Default)]
struct Compiler<'a> {
    definitions: BTreeMap<String, Definition<'a>>,
    instances: BTreeMap<(String, Vec<Named>), Named>,
    /// Whether a name without arguments is that of a group, as far as that was asked.
    are_groups: BTreeMap<String, bool>,
    nodes: Vec<Node>,
    groups: Vec<Group>,
    names: Vec<String>,
    /// Every map, with the rule that holds it.
    maps: Vec<(NodeId, String)>,
}

impl<'a> Scope<'a> {
    fn unsupported<T>(&self, construct: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError::Unsupported { rule: self.rule.clone(), construct: construct.into() })
    }

    fn invalid<T>(&self, reason: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError::Invalid { rule: self.rule.clone(), reason: reason.into() })
    }
}

impl<'a> Compiler<'a> {
    fn define(&mut self, rules: Vec<source::Rule<'a>>, prelude: bool) -> Result<(), CompileError> {
        for source::Rule { name, params, extends, text } in rules {
            let scope = Scope { rule: name.to_owned(), ..Scope::default() };
            if core_type(name).is_some() {
                return scope.invalid("redefines a name of the prelude");
            }
            let definition = self.definitions.entry(name.to_owned()).or_insert_with(|| Definition {
                params: params.clone(),
                texts: Vec::new(),
                prelude,
            });
            if definition.prelude != prelude {
                return scope.invalid("redefines a name of the prelude");
            }
            if !extends && !definition.texts.is_empty() {
                return scope.invalid("is defined twice");
            }
            if definition.params != params {
                return scope.invalid("is extended with other generic parameters");
            }
            definition.texts.push(text);
        }
        Ok(())
    }

    /// Compiles every rule that can stand alone, and what those refer to.
    fn rules(mut self) -> Result<Program, CompileError> {
        let own = self.definitions.iter().filter(|(_, definition)| !definition.prelude);
        let own: Vec<(String, Definition<'a>)> =
            own.map(|(name, definition)| (name.clone(), definition.clone())).collect();
        let mut rules = BTreeMap::new();
        for (name, definition) in &own {
            let scope = Scope { rule: name.clone(), ..Scope::default() };
            if definition.params.is_empty()
                && let Named::Type(node) = self.instance(name, Vec::new(), &scope)?
            {
                rules.insert(name.clone(), RuleId(node));
            }
        }
        for (name, definition) in &own {
            if !self.instances.keys().any(|(instance, _)| instance == name) {
                definition.texts.iter().try_for_each(|text| parse_rule(name, text).map(drop))?;
            }
        }
        let mut program = Program {
            nodes: self.nodes,
            groups: self.groups,
            tables: Vec::new(),
            quick: Vec::new(),
            names: self.names,
            rules,
            first: None,
        };
        recursion::check(&program)?;
        plan::tables(&mut program, &self.maps)?;
        quick::quick(&mut program);
        // A program stays as long as its process, mostly.
        program.nodes.shrink_to_fit();
        program.groups.shrink_to_fit();
        Ok(program)
    }

    fn add(&mut self, node: Node) -> NodeId {
        // Equal values share a node, so that generic rules which pass them on find their instance again.
        if let Node::Scalar(scalar) = &node {
            let same = |n: &Node| matches!(n, Node::Scalar(other) if other == scalar);
            if let Some(at) = self.nodes.iter().position(same) {
                return NodeId(at as u32);
            }
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn add_group(&mut self, group: Group) -> GroupId {
        self.groups.push(group);
        GroupId(self.groups.len() as u32 - 1)
    }

    /// The type or group that `name` stands for with these arguments.
    fn instance(&mut self, name: &str, args: Vec<Named>, scope: &Scope<'a>) -> Result<Named, CompileError> {
        let instance = (name.to_string(), args);
        if let Some(known) = self.instances.get(&instance) {
            return Ok(*known);
        }
        if scope.nesting > NESTING_MAX || self.nodes.len() > NODES_MAX {
            return scope.invalid(TOO_LARGE);
        }
        if let Some(node) = core_type(name) {
            let node = Named::Type(self.add(node));
            self.instances.insert(instance, node);
            return Ok(node);
        }
        let Some(definition) = self.definitions.get(name) else {
            let socket = if name.starts_with("$$") {
                Named::Group(self.add_group(Group::Never))
            } else if name.starts_with('$') {
                Named::Type(self.add(Node::Never))
            } else {
                return Err(CompileError::Undefined { rule: scope.rule.clone(), name: name.into() });
            };
            self.instances.insert(instance, socket);
            return Ok(socket);
        };
        if definition.params.len() != instance.1.len() {
            let (want, have) = (definition.params.len(), instance.1.len());
            return scope.invalid(format!("`{name}` takes {want} generic arguments, not {have}"));
        }
        let mut inner = Scope {
            rule: if definition.prelude { scope.rule.clone() } else { name.to_string() },
            text: "",
            params: definition.params.iter().copied().zip(instance.1.iter().copied()).collect(),
            nesting: scope.nesting + 1,
        };
        let (prelude, texts) = (definition.prelude, definition.texts.clone());
        let alternatives: Vec<Rule<'a>> =
            texts.iter().map(|text| parse_rule(name, text)).collect::<Result<_, _>>()?;
        let mut is_group = false;
        for alternative in &alternatives {
            is_group |= self.is_group(alternative, &inner)?;
        }
        if is_group {
            let reserved = self.add_group(Group::Pending);
            self.instances.insert(instance, Named::Group(reserved));
            let mut choices = Vec::new();
            for (alternative, text) in alternatives.iter().zip(texts) {
                inner.text = text;
                choices.push(match alternative {
                    Rule::Group { rule, .. } => self.entry(&rule.entry, &inner)?,
                    Rule::Type { rule, .. } => self.keyless(&rule.value, &inner)?,
                });
            }
            let group = self.group_choice(choices);
            self.groups[reserved.0 as usize] = Group::Same(group);
            return Ok(Named::Group(reserved));
        }
        let reserved = self.add(Node::Pending);
        self.instances.insert(instance.clone(), Named::Type(reserved));
        let mut choices = Vec::new();
        for (alternative, text) in alternatives.iter().zip(texts) {
            inner.text = text;
            match alternative {
                Rule::Type { rule, .. } => choices.push(self.type_(&rule.value, &inner)?),
                Rule::Group { .. } => return inner.invalid("is a type and a group"),
            }
        }
        let body = self.choice(choices);
        if prelude {
            // The rule that names a prelude type is the one to report, so these get no node of their own.
            self.instances.insert(instance, Named::Type(body));
            return Ok(Named::Type(body));
        }
        let known = self.names.iter().position(|n| n == name);
        let label = known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        });
        self.nodes[reserved.0 as usize] = Node::Rule { name: NameId(label as u32), body };
        Ok(Named::Type(reserved))
    }

    fn choice(&mut self, mut choices: Vec<NodeId>) -> NodeId {
        if choices.len() == 1 {
            return choices.remove(0);
        }
        self.add(Node::Choice(choices.into()))
    }

    fn name(
        &mut self,
        ident: &Identifier<'a>,
        args: Option<&GenericArgs<'a>>,
        scope: &Scope<'a>,
    ) -> Result<Named, CompileError> {
        let mut compiled = Vec::new();
        for arg in args.iter().flat_map(|a| &a.args) {
            compiled.push(match single_name(&arg.arg) {
                Some((ident, args)) => self.name(ident, args, scope)?,
                None => Named::Type(self.type1(&arg.arg, scope)?),
            });
        }
        if ident.socket.is_none()
            && let Some(bound) = scope.params.get(ident.ident)
        {
            if !compiled.is_empty() {
                return scope.invalid(format!("the parameter `{}` takes no arguments", ident.ident));
            }
            return Ok(*bound);
        }
        self.instance(&ident.to_string(), compiled, scope)
    }

    fn type_(&mut self, value: &Type<'a>, scope: &Scope<'a>) -> Result<NodeId, CompileError> {
        if value.type_choices.is_empty() {
            return scope.invalid("a type is missing");
        }
        let choices: Result<Vec<NodeId>, CompileError> =
            value.type_choices.iter().map(|choice| self.type1(&choice.type1, scope)).collect();
        Ok(self.choice(choices?))
    }

    fn type1(&mut self, value: &Type1<'a>, scope: &Scope<'a>) -> Result<NodeId, CompileError> {
        let target = self.type2(&value.type2, scope)?;
        match &value.operator {
            None => Ok(target),
            Some(operator) => self.operator(target, operator, scope),
        }
    }

    fn type2(&mut self, value: &Type2<'a>, scope: &Scope<'a>) -> Result<NodeId, CompileError> {
        let literal = match value {
            Type2::IntValue { value, .. } => Literal::Int(*value as i128),
            Type2::UintValue { value, .. } => Literal::Int(*value as i128),
            Type2::FloatValue { value, .. } => Literal::Float(*value),
            Type2::TextValue { value, .. } => Literal::Text(value.as_bytes().into()),
            Type2::UTF8ByteString { value, .. }
            | Type2::B16ByteString { value, .. }
            | Type2::B64ByteString { value, .. } => Literal::Bytes(value.as_ref().into()),
            Type2::Typename { ident, generic_args, .. } => {
                return match self.name(ident, generic_args.as_ref(), scope)? {
                    Named::Type(node) => Ok(node),
                    Named::Group(_) => {
                        scope.invalid(format!("the group `{ident}` stands where a type is wanted"))
                    }
                };
            }
            Type2::ParenthesizedType { pt, .. } => return self.type_(pt, scope),
            Type2::Map { group, .. } => {
                let group = self.group(group, scope)?;
                let map = self.add(Node::Map { group, table: None });
                self.maps.push((map, scope.rule.clone()));
                return Ok(map);
            }
            Type2::Array { group, .. } => {
                let group = self.group(group, scope)?;
                return Ok(self.add(Node::Array(group)));
            }
            Type2::Unwrap { ident, generic_args, .. } => {
                let named = self.name(ident, generic_args.as_ref(), scope)?;
                return match self.unwrapped(named) {
                    Some(Named::Type(content)) => Ok(content),
                    Some(Named::Group(_)) => {
                        scope.invalid(format!("`~{ident}` is a group where a type is wanted"))
                    }
                    None => {
                        scope.invalid(format!("`~{ident}`: only a map, an array or a tag can be unwrapped"))
                    }
                };
            }
            Type2::ChoiceFromInlineGroup { group, .. } => {
                let group = self.group(group, scope)?;
                return self.enumeration(group, scope);
            }
            Type2::ChoiceFromGroup { ident, generic_args, .. } => {
                return match self.name(ident, generic_args.as_ref(), scope)? {
                    Named::Group(group) => self.enumeration(group, scope),
                    Named::Type(_) => scope.invalid(format!("`&{ident}` wants a group")),
                };
            }
            Type2::TaggedData { tag, t, span } => {
                let written = scope.text.get(span.0..span.1).unwrap_or_default();
                if !written.starts_with("#6") {
                    return scope.unsupported(format!("`{written}`"));
                }
                return self.tagged(tag.as_ref(), t, scope);
            }
            Type2::DataMajorType { mt, constraint, span } => {
                let written = scope.text.get(span.0..span.1).unwrap_or_default();
                return self.major_type(*mt, constraint.as_ref(), written, scope);
            }
            Type2::Any { .. } => return Ok(self.add(Node::Any)),
        };
        Ok(self.add(Node::Scalar(Scalar::Literal(literal))))
    }

    fn tagged(
        &mut self,
        tag: Option<&TagConstraint<'a>>,
        content: &Type<'a>,
        scope: &Scope<'a>,
    ) -> Result<NodeId, CompileError> {
        let numbers = match tag {
            None => None,
            Some(TagConstraint::Literal(number)) => Some(Ranges([(*number, *number)].into())),
            Some(TagConstraint::Type(text)) => Some(self.numbers(text, scope)?),
        };
        let content = match content.type_choices.is_empty() {
            true => self.add(Node::Any),
            false => self.type_(content, scope)?,
        };
        Ok(self.add(Node::Tag { numbers, content }))
    }

    fn major_type(
        &mut self,
        major: u8,
        constraint: Option<&TagConstraint<'a>>,
        written: &str,
        scope: &Scope<'a>,
    ) -> Result<NodeId, CompileError> {
        if major > 7 || written.contains('(') {
            return scope.unsupported(format!("`{written}`"));
        }
        let node = match (major, constraint) {
            (_, None) => Node::Major(major),
            (7, Some(TagConstraint::Literal(info @ 25..=27))) => {
                Node::Scalar(Scalar::Initial(7 << 5 | *info as u8))
            }
            (7, Some(TagConstraint::Literal(value @ (0..=23 | 32..=255)))) => {
                Node::Scalar(Scalar::Simple(Ranges([(*value, *value)].into())))
            }
            (7, Some(TagConstraint::Type(text))) => Node::Scalar(Scalar::Simple(self.numbers(text, scope)?)),
            (0..=5, Some(TagConstraint::Literal(info @ 0..=27))) => {
                Node::Scalar(Scalar::Initial(major << 5 | *info as u8))
            }
            (_, Some(_)) => return scope.unsupported(format!("`{written}`")),
        };
        Ok(self.add(node))
    }

    /// The numbers of a `<type>` in a head, which the parser hands over as text (RFC 9682 3.2).
    fn numbers(&mut self, text: &str, scope: &Scope<'a>) -> Result<Ranges, CompileError> {
        // The text is a piece of the outer one: only literals, ranges and their choices keep their meaning alone.
        let alone = super::program::Program::compile(&format!("numbers = {text}"))?;
        let Some(RuleId(node)) = alone.rule("numbers") else {
            return scope.unsupported(format!("`<{text}>`"));
        };
        let outer = std::mem::replace(&mut self.nodes, alone.nodes);
        let ranges = self.ranges(node);
        self.nodes = outer;
        ranges.map_or_else(|| scope.unsupported(format!("`<{text}>`")), Ok)
    }
}

/// The name that a type is, with or without parentheses and arguments, if it is nothing else.
fn lone_name<'t, 'a>(value: &'t Type<'a>) -> Option<&'t Identifier<'a>> {
    let [choice] = value.type_choices.as_slice() else { return None };
    single_name(&choice.type1).map(|(name, _)| name)
}

/// `name` or `(name)` and nothing else.
fn single_name<'t, 'a>(value: &'t Type1<'a>) -> Option<(&'t Identifier<'a>, Option<&'t GenericArgs<'a>>)> {
    if value.operator.is_some() {
        return None;
    }
    if let Type2::ParenthesizedType { pt, .. } = &value.type2 {
        return match pt.type_choices.as_slice() {
            [choice] => single_name(&choice.type1),
            _ => None,
        };
    }
    if let Type2::Typename { ident, generic_args, .. } = &value.type2 {
        return Some((ident, generic_args.as_ref()));
    }
    None
}
