//! `docs/errors.md` in; each code once, with the name, the retry rule and the category that the code table has.

use capd_proto::code::{Category, Code, Retry};

const PAGE: &str = include_str!("../../docs/errors.md");

/// Each row's cells, with the heading it stands under.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut heading = "";
    let mut rows = Vec::new();
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        // A number of three digits is an HTTP status.
        if line.starts_with('|') && cells[0].len() == 4 && cells[0].chars().all(|c| c.is_ascii_digit()) {
            rows.push((heading, cells));
        }
    }
    rows
}

#[test]
fn page_lists_every_code_once_and_in_order() {
    let listed: Vec<u32> = rows().iter().map(|(_, cells)| cells[0].parse().unwrap()).collect();
    let codes: Vec<u32> = Code::ALL.iter().map(|code| code.0).collect();
    assert_eq!(listed, codes);
}

#[test]
fn name_retry_and_category_of_the_page_are_the_code_s() {
    for (heading, cells) in rows() {
        let code = Code(cells[0].parse().unwrap());
        assert_eq!(Some(cells[1]), code.name(), "{code}");
        let retry = match code.retry() {
            Retry::No => "no",
            Retry::Yes => "yes",
            Retry::Backoff => "backoff",
        };
        assert_eq!(cells[2], retry, "{code}");
        let category = match code.category() {
            Category::Protocol => "Protocol (1xxx)",
            Category::Routing => "Routing (2xxx)",
            Category::Security => "Security (3xxx)",
            Category::Client => "Client (4xxx)",
            Category::Server => "Server (5xxx)",
        };
        assert_eq!(heading, category, "{code}");
    }
}

#[test]
fn every_code_has_a_cause_and_a_remedy() {
    for (_, cells) in rows() {
        assert_eq!(cells.len(), 5, "{cells:?}");
        assert!(cells[3].ends_with('.') && cells[4].ends_with('.'), "{cells:?}");
    }
}
