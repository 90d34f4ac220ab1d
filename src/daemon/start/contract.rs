//! Checks a declaration's schemas against their profiles, and collects its requirements.

use std::sync::Arc;

use super::StartError;
use crate::declaration::{self, Declaration, SchemaProfile};
use crate::schema::drift::{Needed, Requirement};
use crate::schema::{Artifacts, Profile, Validator};

pub(in crate::daemon) fn check_schemas(declaration: &Declaration) -> Result<(), StartError> {
    for declared in &declaration.capabilities {
        let schemas = [&declared.input_schema, &declared.output_schema];
        check_profile(&declared.id, declared.schema_profile, schemas)?;
    }
    for required in &declaration.requires {
        let schemas = [&required.input_schema, &required.output_schema];
        check_profile(&required.name, required.schema_profile, schemas)?;
    }
    Ok(())
}

fn check_profile(
    id: &dyn std::fmt::Display,
    profile: SchemaProfile,
    schemas: [&Option<declaration::SchemaSource>; 2],
) -> Result<(), StartError> {
    let profile = match profile {
        SchemaProfile::Strict => Profile::Strict,
        SchemaProfile::Full => Profile::Full,
    };
    for schema in schemas.into_iter().flatten() {
        let checked = Validator::compile_under(profile, &schema.bytes);
        checked.map_err(|error| schema_error(id, schema, &error))?;
    }
    Ok(())
}

/// What the declaration requires of others, its schemas kept.
pub(super) fn requirements(
    declaration: Option<&Declaration>,
    artifacts: &Artifacts,
) -> Result<Vec<Requirement>, StartError> {
    let mut requirements = Vec::new();
    for required in declaration.into_iter().flat_map(|declaration| &declaration.requires) {
        let kept = |schema: &Option<declaration::SchemaSource>| {
            let Some(schema) = schema else { return Ok(None) };
            let kept = artifacts.declare(schema.bytes.clone());
            let kept = kept.and_then(|artifact| artifact.validator().map(|_| Arc::clone(&artifact)));
            kept.map(Some).map_err(|error| schema_error(&required.name, schema, &error))
        };
        let needed = Needed { input: kept(&required.input_schema)?, output: kept(&required.output_schema)? };
        let (name, version) = (required.name.clone(), required.version.clone());
        requirements.push(Requirement { name, version, needed });
    }
    Ok(requirements)
}

pub(in crate::daemon) fn schema_error(
    id: &dyn std::fmt::Display,
    schema: &declaration::SchemaSource,
    error: &impl ToString,
) -> StartError {
    StartError::Schema {
        file: schema.file.clone(),
        line: schema.line,
        id: id.to_string(),
        error: error.to_string(),
    }
}
