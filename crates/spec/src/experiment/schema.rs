//! Parts of the JSON Schema of an experiment file, derived from the declarations that its parser
//! uses. Editors for TOML use it for completion and checks.

use super::catalogues::OWN_FACTORS;
use crate::power::source_names;
use crate::{LINK_OPTIONS, PARTS, PRESETS, PROFILED_CELLS, SETTING_PROFILES, STREAM_OPTIONS};
use bytepath_record::{OptionKind, OptionSpec, joined};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// Returns the pattern for one of these names, optionally followed by a character of `after` and
/// any text.
pub(super) fn named<'a>(names: impl Iterator<Item = &'a str>, after: &str) -> String {
    format!("^({})([{after}].*)?$", joined(names, "|"))
}

/// Returns the pattern for the profiles to take.
pub(super) fn profile() -> String {
    named(PROFILED_CELLS.iter().map(|(name, _)| *name).chain(["[0-9]+"]), ":")
}

/// Returns the pattern for the source of power readings.
pub(super) fn power() -> String {
    named(source_names(), "=,")
}

pub(super) fn settings(_: &mut SchemaGenerator) -> Schema {
    let pattern = named(SETTING_PROFILES.iter().map(|profile| profile.name), ":");
    let profiles = one_or_several(&json!({"type": "string", "pattern": pattern}));
    let set = one_or_several(&json!({"type": "string"}));
    let table = json!({
        "type": "object",
        "properties": {"profile": profiles, "set": set},
        "additionalProperties": false,
    });
    json_schema!({"anyOf": [profiles, table]})
}

pub(super) fn baseline(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, levels(|level| json_schema!({"allOf": [level]}))]})
}

/// Returns the schema of the levels of each factor.
pub(super) fn factors(_: &mut SchemaGenerator) -> Schema {
    levels(one_or_several)
}

pub(super) fn exclude(_: &mut SchemaGenerator) -> Schema {
    one_or_several(levels(one_or_several).as_value())
}

/// Returns the schema of every factor; `wrap` is applied to that of a single level.
fn levels(wrap: impl Fn(&Value) -> Schema) -> Schema {
    let own = OWN_FACTORS.iter().map(|(name, help)| (*name, *help, own_level(name)));
    let options = STREAM_OPTIONS.iter().chain(LINK_OPTIONS);
    let options = options.map(|spec| (spec.name, spec.help, option_level(spec)));
    table(own.chain(options).map(|(name, help, level)| (name, help, wrap(&level).to_value())))
}

fn own_level(name: &str) -> Value {
    match name {
        "link" => {
            let pattern = named(PRESETS.iter().map(|preset| preset.name), ":");
            json!({"type": "string", "pattern": pattern})
        }
        "cores" => {
            let part = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]});
            let parts = table(PARTS.map(|(name, help)| (name, help, part.clone())));
            json!({"anyOf": [{"type": "string"}, parts]})
        }
        _ => json!({"type": "string"}),
    }
}

fn option_level(spec: &OptionSpec) -> Value {
    match spec.kind {
        OptionKind::Flag => {
            json!({"enum": [true, false, "on", "off", "yes", "no", "true", "false", "1", "0", 1, 0]})
        }
        OptionKind::Choice(words) => json!({"enum": words}),
        OptionKind::Count(min, max)
        | OptionKind::WordCount(_, min, max)
        | OptionKind::Load(min, max) => {
            json!({"anyOf": [{"type": "integer", "minimum": min, "maximum": max}, {"type": "string"}]})
        }
        OptionKind::Name | OptionKind::Text | OptionKind::Time(..) => json!({"type": "string"}),
        OptionKind::Size(..) | OptionKind::AutoSize(..) | OptionKind::Sizes(..) => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})
        }
    }
}

/// Returns the schema of a table with these keys: the description of each, and the schema of its
/// value.
fn table<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str, Value)>) -> Schema {
    let key = |(name, help, value): (&str, &str, Value)| (name.to_owned(), with_help(value, help));
    let properties: Map<String, Value> = keys.into_iter().map(key).collect();
    json_schema!({"type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1})
}

fn one_or_several(value: &Value) -> Schema {
    json_schema!({"anyOf": [value, list(value)]})
}

pub(super) fn list(element: &Value) -> Value {
    json!({"type": "array", "items": element, "minItems": 1})
}

fn with_help(mut schema: Value, help: &str) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), help.into());
    }
    schema
}
