//! Links between pages lead to files and headings that are there.

use std::path::Path;

/// The links of a page that lead nowhere, of those within the project.
pub(super) fn broken(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    // What stands in blocks and between backticks is no link.
    let prose: String = text.split("\n```").step_by(2).collect();
    let prose: String = prose.split('`').step_by(2).collect();
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let leads_nowhere = |link: &&str| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
        !target.exists() || (!anchor.is_empty() && !headings(&target).iter().any(|heading| heading == anchor))
    };
    links.filter(|link| !link.contains("://")).filter(leads_nowhere).map(str::to_owned).collect()
}

/// The anchors of a page's headings.
fn headings(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    headings.map(anchor).collect()
}
