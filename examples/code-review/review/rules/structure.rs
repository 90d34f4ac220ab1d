//! Rules on the shape of code: long functions, deep nesting.

use super::super::Severity::Warning;
use super::super::blocks::{Block, Kind};
use super::super::source::Line;
use super::{Findings, Rule};

pub(super) fn check(lines: &[Line], blocks: &[Block], review: &mut Findings) {
    // Lines of code before each line, so that blocks inside blocks are counted once.
    let before: Vec<usize> = std::iter::once(0)
        .chain(lines.iter().scan(0, |sum, line| {
            *sum += usize::from(!line.is_blank());
            Some(*sum)
        }))
        .collect();
    for block in blocks {
        let code_lines = before[block.last.max(block.first)] - before[block.first - 1];
        if block.kind == Kind::Function && code_lines > FUNCTION_LINES_MAX {
            let message =
                format!("{code_lines} lines of code in one function, {FUNCTION_LINES_MAX} fit on a page");
            review.add(block.first, &LONG_FUNCTION, message);
        }
        // Deeper blocks inside this one are the same finding.
        if block.kind == Kind::Control && block.nesting == NESTING_MAX + 1 {
            let message = format!("{} levels of control flow inside each other", block.nesting);
            review.add(block.first, &DEEP_NESTING, message);
        }
    }
}

const FUNCTION_LINES_MAX: usize = 70;
const NESTING_MAX: usize = 4;

static LONG_FUNCTION: Rule = Rule {
    name: "long-function",
    severity: Warning,
    remedy: "Split long functions at the points where a comment would name the next part.",
};
static DEEP_NESTING: Rule = Rule {
    name: "deep-nesting",
    severity: Warning,
    remedy: "Return early, or move the inner levels into a function.",
};
