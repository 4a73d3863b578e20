//! The JSON Schema of every kind of line, generated from the types.

use schemars::generate::SchemaSettings;

use super::answers::Answer;

/// Returns the JSON Schema (draft 2020-12) of one line on stdout.
///
/// A field that may be absent is not required; one that may be `null` is. It is checked in as
/// `docs/schema/answer.json`, and a test compares the two.
pub fn json_schema() -> serde_json::Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Answer>().to_value()
}
