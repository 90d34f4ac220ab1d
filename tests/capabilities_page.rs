//! `docs/capabilities.md` in; its example loads, and its tables name exactly the keys that a declaration takes.

use std::collections::BTreeSet;
use std::path::Path;

use capd::declaration::Declaration;

const PAGE: &str = include_str!("../docs/capabilities.md");

fn example() -> &'static str {
    let (_, rest) = PAGE.split_once("```yaml\n").expect("the page has an example");
    rest.split_once("```").expect("the example ends").0
}

/// The keys named in the first cells of the tables under a heading.
fn keys(heading: &str) -> BTreeSet<String> {
    let (_, rest) = PAGE.split_once(heading).expect("the page has this heading");
    let section = rest.split("\n## ").next().expect("a split has a first part");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

/// The keys that the reader says it accepts when it meets one that it does not know.
fn accepted(text: &str) -> BTreeSet<String> {
    let mistakes = Declaration::parse(text, Path::new("capabilities.yaml")).expect_err("the key is unknown");
    let [mistake] = &mistakes.0[..] else { panic!("one mistake: {mistakes}") };
    mistake.accepted.split(", ").map(str::to_owned).collect()
}

#[test]
fn example_of_the_page_loads_without_a_warning() {
    let declaration =
        Declaration::parse(example(), Path::new("capabilities.yaml")).expect("the example is right");
    assert_eq!(declaration.warnings, Vec::<String>::new());
    assert_eq!(declaration.capabilities[0].id.to_string(), "com.example.review-pr:1.5.0");
}

#[test]
fn tables_name_the_keys_that_are_read() {
    let file = accepted("version: 1\ncapabilities: []\nbogus: 1\n");
    let capability = accepted("version: 1\ncapabilities:\n- { name: a.b.c, command: [x], bogus: 1 }\n");
    let required = accepted("version: 1\nrequires:\n- { name: a.b.c, bogus: 1 }\n");
    for (heading, accepted) in
        [("## The file", file), ("## A capability", capability), ("## What is required", required)]
    {
        assert_eq!(keys(heading), accepted, "{heading}");
    }
}
