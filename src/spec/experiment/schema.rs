//! The JSON Schema of an experiment file, from the declarations that its reader
//! goes by. Editors for TOML complete and check by it.

use super::factors::{OWN_FACTORS, preset_names};
use super::schedule::MOST_BLOCKS;
use super::{Catalogues, EXPERIMENT_KEYS, LONGEST_TITLE};
use crate::record::{OptionKind, OptionSpec};
use crate::spec::{
    LINK_OPTIONS, PARTS, POWER_SOURCES, PROFILED_CELLS, SETTING_PROFILES, STREAM_OPTIONS,
};
use serde_json::{Map, Value, json};

/// The schema of an experiment file, as far as a schema can say it: names of
/// keys and factors, types, words. Ranges of sizes and the sense of the whole
/// are checked by [`parse_experiment`](super::parse_experiment) alone.
pub fn experiment_schema(catalogues: &Catalogues) -> Value {
    let properties: Map<String, Value> = EXPERIMENT_KEYS
        .iter()
        .map(|(key, help)| ((*key).to_owned(), with_help(key_schema(key, catalogues), help)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Experiment",
        "description": "An experiment file of bytepath",
        "type": "object",
        "properties": properties,
        "required": ["factors"],
        "additionalProperties": false,
    })
}

fn key_schema(key: &str, catalogues: &Catalogues) -> Value {
    let factors = || factors(|value| json!({"anyOf": [value, list(value)]}));
    match key {
        "title" => json!({"type": "string", "maxLength": LONGEST_TITLE}),
        "workload" => json!({"enum": ["stream"]}),
        "testbed" => {
            let names: Vec<&str> = catalogues.testbeds.iter().map(|one| one.name).collect();
            json!({"type": "string", "pattern": format!("^({})(:.*)?$", names.join("|"))})
        }
        "baseline" => {
            json!({"anyOf": [{"type": "string"}, factors_object(&self::factors(Value::clone))]})
        }
        "blocks" => json!({"type": "integer", "minimum": 1, "maximum": MOST_BLOCKS}),
        "seed" => json!({"type": "integer", "minimum": 0}),
        "warm-up" | "window" => json!({"type": ["string", "number"], "minimum": 0}),
        "margin" | "confidence" => share(),
        "roi" => object(&json!({"throughput": exponent(), "power": exponent()}), &[]),
        "design" => json!({"type": "string", "pattern": "^(trials|slices(:.+)?)$"}),
        "stop" => {
            let at_least = json!({"type": "integer", "minimum": 2, "maximum": MOST_BLOCKS});
            object(&json!({"within": share(), "at-least": at_least}), &["within"])
        }
        "meters" => {
            let meters = json!({"enum": catalogues.meters});
            json!({"anyOf": [{"enum": ["all", "none"]}, meters, list(&meters)]})
        }
        "profile" => {
            let names: Vec<&str> = PROFILED_CELLS.iter().map(|(name, _)| *name).collect();
            json!({"type": "string", "pattern": format!("^({}|[0-9]+)(:.*)?$", names.join("|"))})
        }
        "power" => {
            let stem = |name: &'static str| name.split('=').next().unwrap_or(name);
            let names: Vec<&str> = POWER_SOURCES.iter().map(|(name, _)| stem(name)).collect();
            json!({"type": "string", "pattern": format!("^({})([=,].*)?$", names.join("|"))})
        }
        "settings" => {
            let names: Vec<&str> = SETTING_PROFILES.iter().map(|profile| profile.name).collect();
            let pattern = format!("^({})(:.*)?$", names.join("|"));
            let profile = json!({"type": "string", "pattern": pattern});
            let profiles = json!({"anyOf": [profile, list(&profile)]});
            let line = json!({"type": "string"});
            let set = json!({"anyOf": [line, list(&line)]});
            json!({"anyOf": [profiles, object(&json!({"profile": profiles, "set": set}), &[])]})
        }
        "factors" => factors_object(&factors()),
        "exclude" => {
            let one = factors_object(&factors());
            json!({"anyOf": [one, list(&one)]})
        }
        _ => json!({}),
    }
}

/// Every factor with the schema of one level of it, wrapped.
fn factors(wrap: impl Fn(&Value) -> Value) -> Map<String, Value> {
    let own = OWN_FACTORS.iter().map(|(name, help)| (*name, *help, own_level(name)));
    let options = STREAM_OPTIONS.iter().chain(LINK_OPTIONS);
    let options = options.map(|spec| (spec.name, spec.help, option_level(spec)));
    own.chain(options)
        .map(|(name, help, level)| (name.to_owned(), with_help(wrap(&level), help)))
        .collect()
}

fn own_level(name: &str) -> Value {
    match name {
        "link" => {
            json!({"type": "string", "pattern": format!("^({})(:.*)?$", preset_names().join("|"))})
        }
        "cores" => {
            let part = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]});
            let parts: Map<String, Value> = PARTS
                .iter()
                .map(|(part_name, help)| ((*part_name).to_owned(), with_help(part.clone(), help)))
                .collect();
            let table = json!({
                "type": "object",
                "properties": parts,
                "additionalProperties": false,
                "minProperties": 1,
            });
            json!({"anyOf": [{"type": "string"}, table]})
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
        OptionKind::Count(min, max) => {
            json!({"anyOf": [{"type": "integer", "minimum": min, "maximum": max}, {"type": "string"}]})
        }
        OptionKind::MaybeCount(min, max)
        | OptionKind::AutoCount(min, max)
        | OptionKind::WordCount(_, min, max) => {
            json!({"anyOf": [{"type": "integer", "minimum": min, "maximum": max}, {"type": "string"}]})
        }
        OptionKind::Time(..) => json!({"type": ["string", "number"]}),
        OptionKind::Name | OptionKind::Text => json!({"type": "string"}),
        OptionKind::Size(..) | OptionKind::AutoSize(..) => {
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]})
        }
    }
}

fn factors_object(factors: &Map<String, Value>) -> Value {
    json!({"type": "object", "properties": factors, "additionalProperties": false, "minProperties": 1})
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn share() -> Value {
    json!({"type": ["string", "number"], "exclusiveMinimum": 0, "exclusiveMaximum": 1, "pattern": "^ *[0-9.]+ *% *$"})
}

fn exponent() -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 10})
}

fn list(element: &Value) -> Value {
    json!({"type": "array", "items": element, "minItems": 1})
}

fn with_help(mut schema: Value, help: &str) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), help.into());
    }
    schema
}
