//! Source text in; what a reviewer would say about it out. Pure: the same text gets the same review.
//!
//! [`source`] tells code from comments and literals, [`blocks`] finds functions and nesting, [`rules`] looks at
//! both and reports findings; this file orders them, weighs them into a score, and says what to do first.

mod blocks;
mod rules;
mod source;

use std::collections::BTreeMap;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use rules::{Context, Finding};
use source::Language;

/// What is reviewed. `context` came with 2.0.0.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The source text.
    pub(crate) code: String,
    /// The language's name, as editors write it; unknown ones are reviewed as plain text.
    pub(crate) language: String,
    /// What the text is for, in words: `test`, `parser of untrusted input`, `public library`, `command-line tool`.
    pub(crate) context: Option<String>,
}

/// How much an issue matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Info,
    Warning,
    Error,
}

/// One thing found, on one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) severity: Severity,
    pub(crate) message: String,
}

/// The whole review. `score` came with 2.0.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Review {
    /// By line, then by rule; at most [`ISSUES_MAX`].
    pub(crate) issues: Vec<Issue>,
    /// What to do, the most pressing first; one sentence for each rule that found something.
    pub(crate) suggestions: Vec<String>,
    /// 0 to 100; 100 is a text without issues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<u32>,
}

/// Reviews `code`, written in `language`, in the light of `context`.
pub(crate) fn review(code: &str, language: &str, context: Option<&str>) -> Review {
    let language = Language::named(language);
    let lines = source::lines(code, language);
    let blocks = blocks::blocks(&lines, language);
    let context = Context::read(context.unwrap_or_default());
    let mut findings = rules::findings(&lines, &blocks, language, context);
    findings.sort_by(|a, b| (a.line, a.rule.name, &a.message).cmp(&(b.line, b.rule.name, &b.message)));
    findings.dedup_by(|b, a| (a.line, a.rule.name) == (b.line, b.rule.name));
    let code_lines = lines.iter().filter(|line| !line.is_blank()).count();
    Review {
        score: Some(score(&findings, code_lines)),
        suggestions: suggestions(&findings),
        issues: findings.into_iter().take(ISSUES_MAX).map(Issue::from).collect(),
    }
}

impl From<Finding> for Issue {
    fn from(finding: Finding) -> Self {
        let Finding { line, rule, severity, message } = finding;
        Self { line, rule: rule.name, severity, message }
    }
}

/// Lines of code against the weight of what was found: `lines / (lines + weight)` of 100, rounded to the nearest.
fn score(findings: &[Finding], code_lines: usize) -> u32 {
    let weight: usize = findings.iter().map(|finding| weight(finding.severity)).sum();
    let lines = code_lines.max(SCORE_LINES_MIN);
    let score = (100 * lines + (lines + weight) / 2) / (lines + weight);
    // Only a text without issues is perfect.
    let best = if findings.is_empty() { 100 } else { 99 };
    u32::try_from(score.min(best)).unwrap_or_default()
}

fn weight(severity: Severity) -> usize {
    match severity {
        Severity::Error => 15,
        Severity::Warning => 5,
        Severity::Info => 1,
    }
}

fn suggestions(findings: &[Finding]) -> Vec<String> {
    let mut by_rule: BTreeMap<&str, (Severity, usize, &str)> = BTreeMap::new();
    for finding in findings {
        let entry = by_rule.entry(finding.rule.name).or_insert((finding.severity, 0, finding.rule.remedy));
        entry.0 = entry.0.max(finding.severity);
        entry.1 += 1;
    }
    let mut rules: Vec<_> = by_rule.into_values().collect();
    rules.sort_by_key(|(severity, count, _)| std::cmp::Reverse((*severity, *count)));
    let places = |count| if count == 1 { "1 place".to_owned() } else { format!("{count} places") };
    let mut suggestions: Vec<String> = rules
        .into_iter()
        .take(SUGGESTIONS_MAX)
        .map(|(_, count, remedy)| format!("{remedy} ({})", places(count)))
        .collect();
    if findings.len() > ISSUES_MAX {
        suggestions.push(format!("Only the first {ISSUES_MAX} of {} issues are listed.", findings.len()));
    }
    suggestions
}

/// Answers one call: a [`Request`] as JSON from `input`, its [`Review`] as JSON to `output`, as version `api` of
/// the capability has them.
///
/// **Errors:** a sentence for stderr; nothing was written then.
pub(crate) fn answer(api: &str, mut input: impl Read, mut output: impl Write) -> Result<(), String> {
    let has_context_and_score = match api {
        "1.5.0" => false,
        "2.0.0" => true,
        other => return Err(format!("version {other} is not served; 1.5.0 and 2.0.0 are")),
    };
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(|error| format!("params cannot be read: {}", error.kind()))?;
    let request: Request = serde_json::from_str(&text).map_err(|error| format!("params: {error}"))?;
    if request.context.is_some() && !has_context_and_score {
        return Err(format!("params: version {api} takes no context"));
    }
    let mut review = review(&request.code, &request.language, request.context.as_deref());
    review.score = review.score.filter(|_| has_context_and_score);
    let json = serde_json::to_vec(&review).map_err(|error| error.to_string())?;
    output
        .write_all(&json)
        .and_then(|()| output.flush())
        .map_err(|error| format!("the review cannot be written: {}", error.kind()))
}

/// Most issues in one review.
pub(crate) const ISSUES_MAX: usize = 500;
/// Most suggestions, one a rule.
const SUGGESTIONS_MAX: usize = 12;
/// A shorter text is scored as one of this many lines, so that a single remark does not sink it.
const SCORE_LINES_MIN: usize = 20;

#[cfg(test)]
mod tests;
