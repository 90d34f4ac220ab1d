//! Reads `requires`: the list in; what the agent calls, each name with one range once, out.

use std::collections::BTreeMap;

use capd_proto::capability::{CapabilityName, Range};

use super::Required;
use super::fields::{Fields, Report};
use super::read::{CAPABILITIES_MAX, Defaults, RANGE_ACCEPTED, name, schema, schema_profile};
use super::yaml::Node;

const KEYS: &[&str] = &["name", "version", "inputSchema", "outputSchema", "schemaProfile"];

/// Reads the file's `requires`.
pub(super) fn of(fields: &Fields<'_>, defaults: &Defaults, report: &mut Report<'_>) -> Vec<Required> {
    let mut all: Vec<Required> = Vec::new();
    let mut lines: BTreeMap<(CapabilityName, Option<String>), usize> = BTreeMap::new();
    for (node, at) in fields.items("requires", CAPABILITIES_MAX, report) {
        let Some(required) = one(node, &at, defaults, report) else { continue };
        let range = required.version.as_ref().map(Range::to_string);
        if let Some(first) = lines.insert((required.name.clone(), range), required.line) {
            let problem = format!("{} is a duplicate; the first is in line {first}", required.name);
            let accepted = "each name once, or once with each range";
            report.mistake(required.line, &format!("{at}.name"), problem, accepted);
            continue;
        }
        all.push(required);
    }
    all
}

fn one(node: &Node, at: &str, defaults: &Defaults, report: &mut Report<'_>) -> Option<Required> {
    let fields = Fields::of(node, at, KEYS, report)?;
    // Every field is read before a missing name ends it, so that all its mistakes are told.
    let name = name(&fields, defaults.namespace.as_deref(), report);
    let required = Required {
        version: fields.parsed::<Range>("version", RANGE_ACCEPTED, report),
        input_schema: schema(&fields, "inputSchema", report),
        output_schema: schema(&fields, "outputSchema", report),
        schema_profile: schema_profile(&fields, report).unwrap_or(defaults.schema_profile),
        line: fields.line_of("name"),
        name: name?,
    };
    if required.input_schema.is_none() && required.output_schema.is_none() {
        let proven = if required.version.is_some() { "only its version" } else { "nothing" };
        let sentence = format!("{} has no schema: capd proves {proven} of it", required.name);
        report.warning(required.line, at, &sentence);
    }
    Some(required)
}
