use std::path::PathBuf;
use std::sync::Arc;

use capd_proto::capability::CapabilityId;
use capd_proto::identity::{Did, Identity};
use capd_proto::message::{Descriptor, DescriptorDraft};

use super::*;

fn did(seed: u8) -> Did {
    Identity::from_seed([seed; 32]).did().clone()
}

fn descriptor(id: &str, permissions: &[&str], category: Option<&str>) -> Arc<Descriptor> {
    let mut draft = DescriptorDraft::new(id.parse::<CapabilityId>().unwrap());
    draft.permissions = permissions.iter().map(|text| (*text).to_owned()).collect();
    draft.category = category.map(str::to_owned);
    Arc::new(draft.finish().unwrap())
}

fn grant(callers: &[Who], capabilities: &[&str], permissions: &[&str]) -> Grant {
    Grant {
        callers: callers.to_vec(),
        capabilities: capabilities.iter().map(|text| text.parse().unwrap()).collect(),
        actions: vec![Action::Query, Action::Invoke],
        permissions: permissions.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn source(grants: &[Grant], cedar: &str) -> Source {
    let groups = vec![("ops".to_owned(), vec![did(2)])];
    let files = if cedar.is_empty() {
        Vec::new()
    } else {
        vec![(PathBuf::from("/etc/capd/a.cedar"), cedar.to_owned())]
    };
    Source { own: Some(did(9)), groups, grants: grants.to_vec(), files }
}

fn rules(grants: &[Grant], cedar: &str) -> Rules {
    Rules::new(&source(grants, cedar)).unwrap()
}

fn refused(cedar: &str) -> String {
    Rules::new(&source(&[], cedar)).unwrap_err().to_string()
}

fn verdict(rules: &Rules, caller: &Did, action: Action, descriptor: &Descriptor) -> Verdict {
    rules.decide(Caller { did: caller, alias: None }, action, &Subject::of(descriptor))
}

fn by(rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| (*rule).to_owned()).collect()
}

#[test]
fn nobody_but_the_own_agent_may_do_anything_unless_a_rule_says_so() {
    let rules = rules(&[], "");
    let echo = descriptor("org.example.echo:1.0.0", &["secrets:read"], None);
    for action in Action::ALL {
        assert_eq!(verdict(&rules, &did(1), action, &echo), Verdict::Ungranted);
        let own = verdict(&rules, &did(9), action, &echo);
        assert_eq!(own, Verdict::Permitted { by: by(&["own-agent"]) });
    }
    assert!(!rules.has_forbids());
}

#[test]
fn a_grant_reaches_its_callers_its_capabilities_and_its_actions_only() {
    let callers = [Who::Caller(did(1)), Who::Group("ops".to_owned())];
    let rules = rules(&[grant(&callers, &["org.example.*", "com.other.one"], &[])], "");
    let may = |caller: u8, action, id: &str| {
        verdict(&rules, &did(caller), action, &descriptor(id, &[], None)).is_permitted()
    };
    for caller in [1, 2] {
        assert!(may(caller, Action::Invoke, "org.example.echo:1.0.0"));
        assert!(may(caller, Action::Query, "org.example.deep.er:1.0.0"));
        assert!(may(caller, Action::Invoke, "com.other.one:1.0.0"));
        assert!(!may(caller, Action::Declare, "org.example.echo:1.0.0"));
        for other in [
            "com.other.two:1.0.0",
            "org.examples.echo:1.0.0",
            "org.Example.echo:1.0.0",
            "com.other.one.more:1.0.0",
        ] {
            assert!(!may(caller, Action::Invoke, other), "{other}");
        }
    }
    assert!(!may(3, Action::Invoke, "org.example.echo:1.0.0"));
}

#[test]
fn every_permission_that_a_capability_declares_must_be_granted_with_it() {
    let anyone = [Who::Anyone];
    let grants = [
        grant(&anyone, &["*"], &["network:read"]),
        grant(&[Who::Caller(did(1))], &["org.example.*"], &["filesystem:*"]),
        grant(&[Who::Caller(did(3))], &["*"], &["*"]),
    ];
    let rules = rules(&grants, "");
    let reads = descriptor("org.example.a:1.0.0", &["network:read", "filesystem:write"], None);
    assert!(verdict(&rules, &did(1), Action::Invoke, &reads).is_permitted(), "two grants add up");
    let short = verdict(&rules, &did(2), Action::Invoke, &reads);
    let missing = vec!["filesystem:write".to_owned()];
    assert_eq!(short, Verdict::Unpermitted { by: by(&["allow-1"]), missing });
    assert!(verdict(&rules, &did(2), Action::Query, &reads).is_permitted());
    // Given for one namespace, it holds in no other.
    let elsewhere = descriptor("com.other.a:1.0.0", &["filesystem:write"], None);
    assert!(!verdict(&rules, &did(1), Action::Invoke, &elsewhere).is_permitted());
    let odd = descriptor("com.other.b:1.0.0", &["filesystem", "secrets:read", "z"], None);
    assert!(verdict(&rules, &did(3), Action::Invoke, &odd).is_permitted());
    assert!(!verdict(&rules, &did(1), Action::Invoke, &odd).is_permitted());
}

#[test]
fn policies_see_namespace_version_permissions_and_category_and_forbid_over_grants() {
    let cedar = r#"
@id("reports") @permissions("database:read")
permit (principal in Group::"ops", action == Action::"invoke", resource in Namespace::"org.example")
when { resource.category == "reports" && resource.major >= 2 && resource.version like "2.*" };

@id("no-secrets")
forbid (principal, action, resource) when { resource.permissions.contains("secrets:read") };
"#;
    let rules = rules(&[grant(&[Who::Caller(did(1))], &["*"], &["*"])], cedar);
    assert!(rules.has_forbids());
    let report = |id, category| descriptor(id, &["database:read"], category);
    let may = |descriptor: &Descriptor| verdict(&rules, &did(2), Action::Invoke, descriptor);
    let reports = Some("reports");
    assert_eq!(may(&report("org.example.r:2.1.0", reports)), Verdict::Permitted { by: by(&["reports"]) });
    assert_eq!(may(&report("org.example.r:1.9.0", reports)), Verdict::Ungranted);
    assert_eq!(may(&report("org.example.r:2.1.0", None)), Verdict::Ungranted);
    assert_eq!(may(&report("org.other.r:2.1.0", reports)), Verdict::Ungranted);
    let secret = descriptor("org.example.s:1.0.0", &["secrets:read"], None);
    for caller in [1, 9] {
        let verdict = verdict(&rules, &did(caller), Action::Invoke, &secret);
        assert_eq!(verdict, Verdict::Forbidden { by: by(&["no-secrets"]) });
    }
}

#[test]
fn a_caller_under_another_did_of_its_key_stays_the_caller_of_its_key() {
    let web = Did::parse("did:web:example.org").unwrap();
    let cedar = format!("@id(\"f\") forbid (principal == Caller::\"{}\", action, resource);", did(1));
    let rules = rules(&[grant(&[Who::Caller(web.clone())], &["*"], &[])], &cedar);
    let echo = descriptor("org.example.echo:1.0.0", &[], None);
    let decide = |key: u8, alias| {
        let key = did(key);
        rules.decide(Caller { did: &key, alias }, Action::Invoke, &Subject::of(&echo))
    };
    assert!(decide(3, Some(&web)).is_permitted());
    assert_eq!(decide(3, None), Verdict::Ungranted);
    assert_eq!(decide(1, Some(&web)), Verdict::Forbidden { by: by(&["f"]) });
}

#[test]
fn a_rule_that_may_forbid_and_ends_in_an_error_permits_nothing() {
    let cedar = "@id(\"over\") forbid (principal, action, resource) when { resource.major + 9223372036854775807 > 0 };";
    let rules = rules(&[grant(&[Who::Anyone], &["*"], &[])], cedar);
    let echo = descriptor("org.example.echo:1.0.0", &[], None);
    assert_eq!(verdict(&rules, &did(1), Action::Invoke, &echo), Verdict::Failed { by: by(&["over"]) });
}

#[test]
fn what_is_wrong_in_a_policy_file_is_told_with_its_line() {
    for (cedar, parts) in [
        ("permit (principal, action, resource)", &["a.cedar:1:"][..]),
        (
            "\n\npermit (principal, action, resource) when { resource.catgory == \"x\" };",
            &["a.cedar:3:", "catgory", "category"],
        ),
        ("permit (principal, action == Action::\"call\", resource);", &["a.cedar:1:", "call"]),
        ("\npermit (principal in Group::\"opps\", action, resource);", &["a.cedar:2:", "no group \"opps\""]),
        ("permit (principal == User::\"x\", action, resource);", &["User"]),
        ("permit (principal == Caller::\"bob\", action, resource);", &["\"bob\" is no DID"]),
        (
            "permit (principal, action, resource == Capability::\"echo\");",
            &["\"echo\" is no capability's name"],
        ),
        ("permit (principal, action, resource in Namespace::\"a..b\");", &["\"a..b\" is no namespace"]),
        ("permit (principal == ?principal, action, resource);", &["a.cedar:1:", "slots"]),
        (
            "@id(\"a\") permit (principal, action, resource);\n@id(\"a\") permit (principal, action, resource);",
            &["a.cedar:2:", "a second rule has the @id \"a\""],
        ),
        ("@id(\"own-agent\") permit (principal, action, resource);", &["own-agent"]),
        ("@permissions(\"read\") permit (principal, action, resource);", &["\"read\" is none", "scope:verb"]),
        ("@permissions(\"*\") forbid (principal, action, resource);", &["forbids"]),
    ] {
        let told = refused(cedar);
        for part in parts {
            assert!(told.contains(part), "{cedar}\n{told}\n{part}");
        }
    }
    let several = refused(
        "permit (principal in Group::\"x\", action, resource);\npermit (principal in Group::\"y\", action, resource);",
    );
    assert_eq!(several.lines().count(), 2, "{several}");
}

#[test]
fn a_policy_without_a_name_is_called_by_its_file_and_line() {
    let rules = rules(
        &[],
        "// first\npermit (principal, action, resource);\n\npermit (principal, action, resource);\n",
    );
    let ids: Vec<_> = rules.shown().iter().map(|shown| (shown.id.as_str(), shown.origin.as_str())).collect();
    assert_eq!(
        ids,
        [
            ("own-agent", "the sidecar's own agent"),
            ("a:2", "/etc/capd/a.cedar:2"),
            ("a:4", "/etc/capd/a.cedar:4")
        ]
    );
}

#[test]
fn what_is_shown_of_grants_says_the_same_when_it_is_read_again() {
    let grants = [
        grant(&[Who::Anyone], &["*"], &["*"]),
        grant(
            &[Who::Caller(did(1)), Who::Group("ops".to_owned())],
            &["org.example.*", "org.a.b"],
            &["network:read"],
        ),
        grant(&[Who::Caller(did(3))], &["com.other.a"], &[]),
        grant(&[], &["com.other.a"], &[]),
    ];
    let ours = rules(&grants, "");
    let text: String = ours.shown().iter().skip(1).map(|shown| format!("{}\n\n", shown.text)).collect();
    let again = rules(&[], &text);
    for id in ["org.example.a:1.0.0", "org.a.b:1.0.0", "com.other.a:1.0.0", "com.x.y:1.0.0"] {
        for caller in [1, 2, 3, 4] {
            let descriptor = descriptor(id, &["network:read"], None);
            let verdicts =
                [&ours, &again].map(|rules| verdict(rules, &did(caller), Action::Invoke, &descriptor));
            assert_eq!(verdicts[0], verdicts[1], "{id} {caller}");
        }
    }
}

#[test]
fn a_view_holds_what_its_caller_may_call_and_its_number_changes_with_that_alone() {
    let mut listed = grant(&[Who::Caller(did(1))], &["org.example.seen"], &[]);
    let mut called = listed.clone();
    called.capabilities = vec!["org.example.blind".parse().unwrap()];
    called.actions = vec![Action::Invoke];
    listed.capabilities.push("org.example.more".parse().unwrap());
    let decisions = Decisions::new(rules(&[listed.clone(), called], ""));
    let all =
        ["seen", "blind", "hidden"].map(|name| descriptor(&format!("org.example.{name}:1.0.0"), &[], None));
    let (key, other) = (did(1), did(3));
    let caller = Caller { did: &key, alias: None };
    decisions.serve(|| all.to_vec());
    let view = decisions.view(caller);
    let seen: Vec<_> =
        all.iter().map(|descriptor| (view.may_call(descriptor), view.may_see(descriptor))).collect();
    assert_eq!(seen, [(true, true), (true, false), (false, false)]);
    assert_eq!(view.all().count(), 2);
    assert_eq!(
        (view.may_call_named("org.example.more"), view.may_call_named("org.example.hidden")),
        (true, false)
    );
    let stranger = decisions.view(Caller { did: &other, alias: None });
    assert!(stranger.all().next().is_none());
    // What it may not see went, and what it may see came.
    decisions.serve(|| all[..2].to_vec());
    assert_eq!(decisions.view(caller).edition(), view.edition());
    decisions.serve(|| all[..1].to_vec());
    assert_ne!(decisions.view(caller).edition(), view.edition());
    decisions.replace(rules(&[], ""));
    decisions.serve(|| all.to_vec());
    assert!(decisions.view(caller).all().next().is_none());
}

/// Callers that are told apart, each by a group of its own.
fn crowd(count: u16) -> (Vec<Did>, Rules) {
    let did = |number: u16| {
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&number.to_be_bytes());
        Identity::from_seed(seed).did().clone()
    };
    let dids: Vec<_> = (0..count).map(did).collect();
    let groups = dids.iter().map(|did| (did.to_string(), vec![did.clone()])).collect();
    let grants = vec![grant(&[Who::Anyone], &["org.example.*"], &[])];
    (dids, Rules::new(&Source { groups, grants, ..Source::default() }).unwrap())
}

#[test]
fn one_caller_more_than_are_kept_costs_the_others_nothing() {
    let (dids, rules) = crowd(1_025);
    let decisions = Decisions::new(rules);
    decisions.serve(|| vec![descriptor("org.example.echo:1.0.0", &[], None)]);
    // What is decided anew of a caller has another edition.
    let edition = |did: &Did| decisions.view(Caller { did, alias: None }).edition();
    let first: Vec<_> = dids[..1_024].iter().map(edition).collect();
    assert_eq!(edition(&dids[0]), first[0], "it asked last");
    edition(&dids[1_024]);
    assert_eq!(edition(&dids[0]), first[0]);
    let again: Vec<_> = dids[2..1_024].iter().map(edition).collect();
    assert_eq!(again, first[2..], "they are decided anew");
    assert_ne!(edition(&dids[1]), first[1], "the one that asked the longest ago went");
}

#[test]
fn callers_that_no_rule_tells_apart_share_what_is_decided() {
    let (mut grants, cedar) = (
        vec![grant(&[Who::Group("ops".to_owned())], &["org.a.*"], &[])],
        format!("forbid (principal, action, resource) when {{ principal == Caller::\"{}\" }};", did(4)),
    );
    grants.push(grant(&[Who::Caller(did(3))], &["org.b.*"], &[]));
    let rules = rules(&grants, &cedar);
    let class = |seed: u8, alias: Option<&Did>| rules.class(Caller { did: &did(seed), alias });
    assert_eq!(class(5, None), class(6, None));
    assert_eq!(class(5, Some(&did(6))), class(7, None));
    let others = [class(5, None), class(2, None), class(3, None), class(4, None), class(9, None)];
    for (index, other) in others.iter().enumerate() {
        assert!(!others[..index].contains(other), "{other:?}");
    }
    assert_ne!(class(5, Some(&did(3))), class(5, None));
    // A group's member under another DID is one all the same.
    assert_eq!(class(5, Some(&did(2))), class(2, None));
}

#[test]
fn what_callers_may_call_is_decided_when_it_changes_and_not_when_they_ask() {
    let decisions = Decisions::new(rules(&[grant(&[Who::Anyone], &["org.seen.*"], &[])], ""));
    let [seen, hidden] = ["org.seen.a:1.0.0", "org.hidden.b:1.0.0"].map(|id| descriptor(id, &[], None));
    decisions.serve(|| vec![Arc::clone(&seen)]);
    let key = did(1);
    let caller = Caller { did: &key, alias: None };
    let before = decisions.view(caller);
    decisions.serve(|| vec![Arc::clone(&seen), Arc::clone(&hidden)]);
    // Another view of the same caller finds what was decided by then, and decides nothing.
    let held = Arc::clone(&before.asker);
    let after = decisions.view(caller);
    assert!(Arc::ptr_eq(&held, &after.asker) && Arc::ptr_eq(&held.slot.allowed(), &after.allowed));
    assert!(!Arc::ptr_eq(&before.allowed, &after.allowed), "it was decided when it changed");
    let pattern = "org.*".parse().unwrap();
    let names: Vec<_> = after.matching(&pattern).map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["org.seen.a"]);
}

#[test]
fn a_policy_may_speak_of_who_serves() {
    let (trusted, other) = (did(1), did(2));
    let cedar = format!(
        "forbid (principal, action == Action::\"invoke\", resource in Namespace::\"org.pay\") unless {{ \
         resource.provider == \"{trusted}\" }};"
    );
    let decisions = Decisions::new(rules(&[grant(&[Who::Anyone], &["*"], &[])], &cedar));
    let [pay, echo] = ["org.pay.charge:1.0.0", "org.example.echo:1.0.0"].map(|id| descriptor(id, &[], None));
    for _ in 0..2 {
        let may = |descriptor, provider| decisions.own_may(&did(9), Action::Invoke, descriptor, provider);
        assert!(may(&pay, &trusted) && may(&echo, &trusted) && may(&echo, &other));
        assert!(!may(&pay, &other) && !may(&pay, &did(9)));
    }
    // What peers call here is served by the sidecar's own agent.
    decisions.serve(|| vec![Arc::clone(&pay), Arc::clone(&echo)]);
    let view = decisions.view(Caller { did: &trusted, alias: None });
    assert!(!view.may_call(&pay) && view.may_call(&echo) && !view.may_call_named("org.pay.other"));
}

#[test]
fn the_own_agent_is_asked_about_only_where_something_is_forbidden() {
    let cedar = "forbid (principal, action == Action::\"declare\", resource in Namespace::\"org.bank\");";
    let bank = descriptor("org.bank.pay:1.0.0", &[], None);
    let free = Decisions::new(rules(&[], ""));
    assert!(free.own_may(&did(9), Action::Declare, &bank, &did(9)));
    let bound = Decisions::new(rules(&[], cedar));
    for _ in 0..2 {
        assert!(!bound.own_may(&did(9), Action::Declare, &bank, &did(9)));
        assert!(bound.own_may(&did(9), Action::Invoke, &bank, &did(9)));
    }
}

#[test]
fn a_table_of_cases_is_decided_with_what_the_declaration_says() {
    let table = format!(
        "[[case]]\ncaller = \"{0}\"\ncapability = \"org.example.a:1.0.0\"\nexpect = \"deny\"\n\
         [[case]]\ncaller = \"{0}\"\ncapability = \"org.example.a\"\naction = \"query\"\nexpect = \"allow\"\n",
        did(1)
    );
    let declared = cases::Declared {
        id: "org.example.a:1.0.0".parse().unwrap(),
        category: String::new(),
        permissions: vec!["secrets:read".to_owned()],
    };
    let rules = rules(&[grant(&[Who::Anyone], &["*"], &[])], "");
    let cases = cases::read(&table, &[declared]).unwrap();
    for case in &cases {
        assert_eq!(case.decide(&rules).is_permitted(), case.is_expected, "{case:?}");
    }
    assert_eq!(cases.iter().map(|case| case.line).collect::<Vec<_>>(), [1, 5]);
    for (text, line, part) in [
        ("", 1, "no [[case]]"),
        ("[[case]]\ncaller = \"bob\"\ncapability = \"a.b.c\"\nexpect = \"deny\"\n", 1, "bob"),
        ("\n[[case]]\ncaller = \"did:web:a\"\ncapability = \"echo\"\nexpect = \"deny\"\n", 2, "echo"),
        ("[[case]]\ncaller = \"did:web:a\"\ncapability = \"a.b.c\"\nexpect = \"maybe\"\n", 4, "maybe"),
        (
            "[[case]]\ncaller = \"did:web:a\"\ncapability = \"a.b.c\"\nexpect = \"deny\"\nprovider = \"bob\"\n",
            1,
            "provider \"bob\"",
        ),
        (
            "[[case]]\ncaller = \"did:web:a\"\ncapability = \"a.b.c\"\nexpect = \"deny\"\naction = \"call\"\n",
            1,
            "call",
        ),
    ] {
        let mistakes = cases::read(text, &[]).unwrap_err();
        assert!(mistakes[0].0 == line && mistakes[0].1.contains(part), "{text} {mistakes:?}");
    }
}
