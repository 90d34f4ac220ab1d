//! Prints the difference of two texts, as `diff -u` and `git diff` do.

use std::fmt::Write as _;

/// A line of one text or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'t> {
    Both(&'t str),
    Before(&'t str),
    After(&'t str),
}

/// The difference in the form that `patch` reads; empty when there is none.
pub(super) fn unified(name: &str, before: Option<&str>, after: &str) -> String {
    let from = if before.is_some() { name } else { "/dev/null" };
    let lines =
        lines(&before.unwrap_or_default().lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let is_changed = |at: &usize| !matches!(lines[*at], Line::Both(_));
    let mut changed = (0..lines.len()).filter(is_changed).peekable();
    let mut out = String::new();
    while let Some(first) = changed.next() {
        let mut last = first;
        // Changes whose surroundings meet are shown as one.
        while let Some(next) = changed.next_if(|next| next - last <= 2 * CONTEXT) {
            last = next;
        }
        let (start, end) = (first.saturating_sub(CONTEXT), (last + CONTEXT + 1).min(lines.len()));
        if out.is_empty() {
            let _ = writeln!(out, "--- {from}\n+++ {name}");
        }
        hunk(&lines, start, end, &mut out);
    }
    out
}

fn hunk(lines: &[Line<'_>], start: usize, end: usize, out: &mut String) {
    let count = |lines: &[Line<'_>]| {
        lines.iter().fold((0, 0), |(before, after), line| match line {
            Line::Both(_) => (before + 1, after + 1),
            Line::Before(_) => (before + 1, after),
            Line::After(_) => (before, after + 1),
        })
    };
    let ((before, after), (old, new)) = (count(&lines[..start]), count(&lines[start..end]));
    // Lines are counted from 1; of none, the one before is named.
    let first = |before: usize, length: usize| if length == 0 { before } else { before + 1 };
    let _ = writeln!(out, "@@ -{},{old} +{},{new} @@", first(before, old), first(after, new));
    for line in &lines[start..end] {
        let _ = match line {
            Line::Both(text) => writeln!(out, " {text}"),
            Line::Before(text) => writeln!(out, "-{text}"),
            Line::After(text) => writeln!(out, "+{text}"),
        };
    }
}

/// Every line of both texts, what they have in common once.
fn lines<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<Line<'t>> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = before.iter().zip(after).take_while(same).count();
    let (before_rest, after_rest) = (&before[head..], &after[head..]);
    let tail = before_rest.iter().rev().zip(after_rest.iter().rev()).take_while(same).count();
    let (old, new) = (&before_rest[..before_rest.len() - tail], &after_rest[..after_rest.len() - tail]);
    let mut out: Vec<_> = before[..head].iter().map(|line| Line::Both(line)).collect();
    middle(old, new, &mut out);
    out.extend(before[before.len() - tail..].iter().map(|line| Line::Both(line)));
    out
}

/// The lines between what both texts begin and end with: their longest common subsequence stays.
fn middle<'t>(old: &[&'t str], new: &[&'t str], out: &mut Vec<Line<'t>>) {
    if old.len().saturating_mul(new.len()) > CELLS_MAX {
        out.extend(old.iter().map(|line| Line::Before(line)));
        out.extend(new.iter().map(|line| Line::After(line)));
        return;
    }
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            longest[a * width + b] = if old[a] == new[b] {
                longest[(a + 1) * width + b + 1] + 1
            } else {
                longest[(a + 1) * width + b].max(longest[a * width + b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        if a < old.len() && b < new.len() && old[a] == new[b] {
            out.push(Line::Both(old[a]));
            (a, b) = (a + 1, b + 1);
        } else if a < old.len()
            && (b == new.len() || longest[(a + 1) * width + b] >= longest[a * width + b + 1])
        {
            out.push(Line::Before(old[a]));
            a += 1;
        } else {
            out.push(Line::After(new[b]));
            b += 1;
        }
    }
}

/// Lines that are shown around a change.
const CONTEXT: usize = 3;
/// Most pairs of lines that are compared; beyond it, all that differs is shown as replaced.
const CELLS_MAX: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference_and_a_missing_one_is_all_new() {
        assert_eq!(unified("a", Some("x\ny\n"), "x\ny\n"), "");
        assert_eq!(unified("a", None, "x\ny\n"), "--- /dev/null\n+++ a\n@@ -0,0 +1,2 @@\n+x\n+y\n");
    }

    #[test]
    fn changes_are_shown_with_what_is_around_them() {
        let before: String = (1..=30).map(|number| format!("{number}\n")).collect();
        let after = before.replace("\n5\n", "\nfive\n").replace("\n25\n", "\n");
        assert_eq!(
            unified("a", Some(&before), &after),
            "--- a\n+++ a\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n@@ -22,7 +22,6 @@\n 22\n 23\n 24\n-25\n 26\n 27\n 28\n"
        );
    }

    #[test]
    fn what_is_too_long_to_compare_is_shown_as_replaced() {
        let text = |word: &str| (0..3_000).map(|number| format!("{word}{number}\n")).collect::<String>();
        let shown = unified("a", Some(&text("a")), &text("b"));
        assert_eq!(shown.lines().filter(|line| line.starts_with("-a")).count(), 3_000);
        assert_eq!(shown.lines().filter(|line| line.starts_with("+b")).count(), 3_000);
    }
}
