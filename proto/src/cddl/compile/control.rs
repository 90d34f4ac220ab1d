//! Compiles range and control operators (RFC 8610 2.2.2.1 and 3.8, RFC 9165).

use cddl::ast::{Operator, RangeCtlOp};
use cddl::token::ControlOperator;

use super::super::CompileError;
use super::super::program::{
    Comparison, Constraint, Literal, Node, NodeId, Number, Ranges, Scalar, resolved,
};
use super::super::regexp::Regexp;
use super::{Compiler, Scope};

impl<'a> Compiler<'a> {
    pub(super) fn operator(
        &mut self,
        target: NodeId,
        operator: &Operator<'a>,
        scope: &Scope<'a>,
    ) -> Result<NodeId, CompileError> {
        let control = match &operator.operator {
            RangeCtlOp::RangeOp { is_inclusive, .. } => {
                let high = self.type2(&operator.type2, scope)?;
                return self.range(target, high, *is_inclusive, scope);
            }
            RangeCtlOp::CtlOp { ctrl, .. } => *ctrl,
        };
        // RFC 9165 4: names a feature and matches whatever the target matches; the controller is not a constraint.
        if control == ControlOperator::FEATURE {
            return Ok(target);
        }
        let controller = self.type2(&operator.type2, scope)?;
        self.control(target, control, controller, scope)
    }

    fn control(
        &mut self,
        target: NodeId,
        control: ControlOperator,
        controller: NodeId,
        scope: &Scope<'a>,
    ) -> Result<NodeId, CompileError> {
        let node = match control {
            ControlOperator::SIZE => {
                let sizes = self
                    .ranges(controller)
                    .map_or_else(|| scope.invalid("`.size` wants unsigned numbers"), Ok)?;
                Node::Constrained { target, constraint: Constraint::Size(sizes) }
            }
            ControlOperator::BITS => {
                let bits = self
                    .ranges(controller)
                    .map_or_else(|| scope.invalid("`.bits` wants unsigned numbers"), Ok)?;
                Node::Constrained { target, constraint: Constraint::Bits(bits) }
            }
            ControlOperator::REGEXP => {
                let Some(Literal::Text(text)) = self.literal(controller) else {
                    return scope.invalid("`.regexp` wants a text");
                };
                let text = String::from_utf8_lossy(&text).into_owned();
                let regexp = Regexp::compile(&text).or_else(|reason| {
                    scope.unsupported(format!("the regular expression \"{text}\" ({reason})"))
                })?;
                Node::Constrained { target, constraint: Constraint::Regexp(Box::new(regexp)) }
            }
            ControlOperator::CBOR => Node::Constrained { target, constraint: Constraint::Cbor(controller) },
            ControlOperator::WITHIN | ControlOperator::AND => Node::Both(target, controller),
            ControlOperator::LT => self.comparison(target, Comparison::Less, controller, scope)?,
            ControlOperator::LE => self.comparison(target, Comparison::LessOrEqual, controller, scope)?,
            ControlOperator::GT => self.comparison(target, Comparison::Greater, controller, scope)?,
            ControlOperator::GE => self.comparison(target, Comparison::GreaterOrEqual, controller, scope)?,
            ControlOperator::EQ if self.is_single(controller) => Node::Both(target, controller),
            ControlOperator::NE if self.is_single(controller) => {
                Node::Except { target, excluded: controller }
            }
            ControlOperator::EQ | ControlOperator::NE => {
                return scope.invalid("`.eq` and `.ne` want a single value");
            }
            // RFC 8610 3.8.6: a default says what absence means; it does not narrow the type.
            ControlOperator::DEFAULT | ControlOperator::FEATURE => return Ok(target),
            ControlOperator::PLUS => Node::Scalar(Scalar::Literal(
                self.sum(target, controller)
                    .map_or_else(|| scope.invalid("`.plus` wants two numbers"), Ok)?,
            )),
            ControlOperator::CAT => Node::Scalar(Scalar::Literal(
                self.joined(target, controller, false)
                    .map_or_else(|| scope.invalid("`.cat` wants two strings"), Ok)?,
            )),
            ControlOperator::DET => Node::Scalar(Scalar::Literal(
                self.joined(target, controller, true)
                    .map_or_else(|| scope.invalid("`.det` wants two strings"), Ok)?,
            )),
            ControlOperator::CBORSEQ
            | ControlOperator::PCRE
            | ControlOperator::ABNF
            | ControlOperator::ABNFB
            | ControlOperator::B64U
            | ControlOperator::B64C
            | ControlOperator::B64USLOPPY
            | ControlOperator::B64CSLOPPY
            | ControlOperator::HEX
            | ControlOperator::HEXLC
            | ControlOperator::HEXUC
            | ControlOperator::B32
            | ControlOperator::H32
            | ControlOperator::B45
            | ControlOperator::BASE10
            | ControlOperator::PRINTF
            | ControlOperator::JSON
            | ControlOperator::JOIN => return scope.unsupported(format!("the control operator `{control}`")),
        };
        Ok(self.add(node))
    }

    fn range(
        &mut self,
        low: NodeId,
        high: NodeId,
        inclusive: bool,
        scope: &Scope<'a>,
    ) -> Result<NodeId, CompileError> {
        let node = match (self.literal(low), self.literal(high)) {
            (Some(Literal::Int(low)), Some(Literal::Int(high))) => {
                let high = if inclusive { high } else { high - 1 };
                if low > high {
                    return scope.invalid("a range that holds nothing");
                }
                Node::Scalar(Scalar::IntRange(low, high))
            }
            (Some(Literal::Float(low)), Some(Literal::Float(high))) => {
                if low > high || (low == high && !inclusive) {
                    return scope.invalid("a range that holds nothing");
                }
                Node::Scalar(Scalar::FloatRange { low, high, inclusive })
            }
            _ => return scope.invalid("a range wants two integers or two floats"),
        };
        Ok(self.add(node))
    }

    fn comparison(
        &mut self,
        target: NodeId,
        comparison: Comparison,
        bound: NodeId,
        scope: &Scope<'a>,
    ) -> Result<Node, CompileError> {
        let bound = match self.literal(bound) {
            Some(Literal::Int(value)) => Number::Int(value),
            Some(Literal::Float(value)) => Number::Float(value),
            Some(Literal::Text(_) | Literal::Bytes(_)) | None => {
                return scope.invalid("`.lt`, `.le`, `.gt` and `.ge` want a number");
            }
        };
        Ok(Node::Constrained { target, constraint: Constraint::Compare(comparison, bound) })
    }

    /// The value of a type that has only one.
    fn literal(&self, node: NodeId) -> Option<Literal> {
        if let Node::Scalar(Scalar::Literal(literal)) = resolved(&self.nodes, node) {
            return Some(literal.clone());
        }
        None
    }

    fn is_single(&self, node: NodeId) -> bool {
        let node = resolved(&self.nodes, node);
        let value = |ranges: &Ranges| matches!(ranges.0.as_ref(), [(low, high)] if low == high);
        matches!(node, Node::Scalar(Scalar::Literal(_)))
            || matches!(node, Node::Scalar(Scalar::Simple(values)) if value(values))
    }

    /// The unsigned numbers of a type that is made of nothing else.
    pub(super) fn ranges(&self, node: NodeId) -> Option<Ranges> {
        let node = resolved(&self.nodes, node);
        let between = |low: i128, high: i128| {
            let (low, high) = (u64::try_from(low).ok()?, u64::try_from(high).ok()?);
            Some(Ranges([(low, high)].into()))
        };
        if let Node::Choice(choices) = node {
            let parts: Option<Vec<Ranges>> = choices.iter().map(|choice| self.ranges(*choice)).collect();
            return Some(Ranges(parts?.into_iter().flat_map(|part| part.0).collect()));
        }
        if let Node::Scalar(Scalar::Literal(Literal::Int(value))) = node {
            return between(*value, *value);
        }
        if let Node::Scalar(Scalar::IntRange(low, high)) = node {
            return between(*low, *high);
        }
        matches!(node, Node::Major(0)).then(|| Ranges([(0, u64::MAX)].into()))
    }

    /// RFC 9165 2.1: the sum has the kind of the left-hand side.
    fn sum(&self, left: NodeId, right: NodeId) -> Option<Literal> {
        match (self.literal(left)?, self.literal(right)?) {
            (Literal::Int(a), Literal::Int(b)) => Some(Literal::Int(a.checked_add(b)?)),
            (Literal::Int(a), Literal::Float(b)) => Some(Literal::Int(a.checked_add(b as i128)?)),
            (Literal::Float(a), Literal::Int(b)) => Some(Literal::Float(a + b as f64)),
            (Literal::Float(a), Literal::Float(b)) => Some(Literal::Float(a + b)),
            (Literal::Text(_) | Literal::Bytes(_), _) | (_, Literal::Text(_) | Literal::Bytes(_)) => None,
        }
    }

    /// RFC 9165 2.2 and 2.3: two strings as one of the kind of the left-hand side, each without its indentation.
    fn joined(&self, left: NodeId, right: NodeId, dedent: bool) -> Option<Literal> {
        let left = self.literal(left)?;
        let part = |literal: &Literal| match literal {
            Literal::Text(bytes) | Literal::Bytes(bytes) => {
                Some(if dedent { dedented(bytes) } else { bytes.to_vec() })
            }
            Literal::Int(_) | Literal::Float(_) => None,
        };
        let mut joined = part(&left)?;
        joined.extend(part(&self.literal(right)?)?);
        match left {
            Literal::Text(_) => std::str::from_utf8(&joined).is_ok().then(|| Literal::Text(joined.into())),
            Literal::Bytes(_) => Some(Literal::Bytes(joined.into())),
            Literal::Int(_) | Literal::Float(_) => None,
        }
    }
}

/// Takes the smallest indentation of any line that is not blank off every line.
fn dedented(text: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let indent = |line: &[u8]| line.iter().take_while(|b| **b == b' ').count();
    let least = lines
        .iter()
        .filter(|line| line.iter().any(|b| *b != b' '))
        .map(|line| indent(line))
        .min()
        .unwrap_or(0);
    let kept: Vec<&[u8]> = lines.iter().map(|line| &line[least.min(indent(line))..]).collect();
    kept.join(&b'\n')
}
