//! Bytes in, read as tables of grants, as policies, and as a table of cases; the claims that every grant which the
//! configuration takes is a policy which says the same when it is read again, and that the rest is read or refused.

use std::path::{Path, PathBuf};

use capd::config::Config;
use capd::policy::{Action, Caller, Rules, Source, Subject, cases};
use capd_proto::identity::{Did, Identity};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // Files are none of its business.
    if text.contains("policy") || text.contains("key_file") {
        return;
    }
    let _read_or_refused = cases::read(text, &[]);
    let own = Identity::from_seed([9; 32]).did().clone();
    let of = |groups, file: &str| {
        let files = vec![(PathBuf::from("a.cedar"), file.to_owned())];
        Rules::new(&Source { own: Some(own.clone()), groups, files, ..Source::default() })
    };
    if let Err(mistakes) = of(Vec::new(), text) {
        assert!(!mistakes.0.is_empty(), "refused without a reason");
    }
    let environment = [("HOME".to_owned(), "/nonexistent".to_owned())];
    let Ok(config) = Config::layer(Some((Path::new("/nonexistent/capd.toml"), text)), &environment, &[])
    else {
        return;
    };
    let did = |text: &String| Did::parse(text);
    let groups: Result<Vec<_>, _> = config
        .groups
        .iter()
        .map(|group| {
            Ok::<_, capd_proto::identity::DidError>((
                group.name.clone(),
                group.members.iter().map(did).collect::<Result<_, _>>()?,
            ))
        })
        .collect();
    // A DID that only looks like one is told of; it is no grant.
    let (Ok(groups), Ok(rules)) = (groups, capd::daemon::rules(&config)) else { return };
    let shown: Vec<_> = rules.shown().iter().map(|rule| rule.text.as_str()).collect();
    let again = of(groups, &shown.join("\n\n")).expect("what is shown is read again");
    let callers = config.groups.iter().flat_map(|group| &group.members).filter_map(|text| did(text).ok());
    for caller in callers.take(4).chain([Identity::from_seed([1; 32]).did().clone()]) {
        for name in ["org.example.a", "com.example.b.c"] {
            for action in Action::ALL {
                let decide = |rules: &Rules| {
                    let caller = Caller { did: &caller, alias: None };
                    rules.decide(caller, action, &Subject::named(name)).is_permitted()
                };
                assert_eq!(decide(&rules), decide(&again), "{caller} {action:?} {name}");
            }
        }
    }
}
