//! Finds the documentation of types. A component's binary describes types by their structure, but its documentation
//! refers to types by name.

use super::shape::Shape;
use crate::binary::docs::{Docs, TypeDocs};
use crate::limits::DESCRIPTION_BYTES;
use crate::text::{clean, cut};
use serde_json::{Value, json};
use wasmtime::component::types::Type;

/// Maximum number of types whose documentation is looked up.
const MAX_TYPES: usize = 512;

/// The named types of a component with their documentation. None if two types with the same structure have different
/// documentation.
#[derive(Debug, Default)]
pub(crate) struct Descriptions(Vec<(Shape, Option<TypeDocs>)>);

impl Descriptions {
    /// Looks up the documentation of types. Each type is given with the interface and the name under which it is
    /// exported.
    pub(super) fn new(docs: &Docs, named: &[(Option<String>, String, Type)]) -> Self {
        let mut descriptions: Vec<(Shape, Option<TypeDocs>)> = Vec::new();
        for (interface, name, kind) in named.iter().take(MAX_TYPES) {
            // Other types have no name in the binary, so the documentation of one `u32`, for example, would be used for
            // every `u32`.
            if !matches!(kind, Type::Record(_) | Type::Variant(_) | Type::Enum(_) | Type::Flags(_)) {
                continue;
            }
            let (Some(type_docs), Some(shape)) = (docs.of_type(interface.as_deref(), name), Shape::of(kind)) else {
                continue;
            };
            match descriptions.iter_mut().find(|(other, _)| *other == shape) {
                // Two types have the same structure and differ only in their names.
                Some((_, other)) if other.as_ref() != Some(type_docs) => *other = None,
                Some(_) => {}
                None => descriptions.push((shape, Some(type_docs.clone()))),
            }
        }
        Self(descriptions)
    }

    fn type_docs(&self, shape: &Shape) -> Option<&TypeDocs> {
        self.0.iter().find(|(documented, _)| documented == shape)?.1.as_ref()
    }

    /// The documentation of a field or a case.
    pub(super) fn item(&self, shape: &Shape, name: &str) -> Option<&str> {
        self.type_docs(shape)?.items.get(name).map(String::as_str)
    }

    /// Adds the documentation of a type to its schema. The documentation of names without their own schema, such as
    /// flags, is added as a list.
    pub(super) fn describe(&self, shape: &Shape, schema: &mut Value) {
        let Some(type_docs) = self.type_docs(shape) else { return };
        let mut text = type_docs.docs.clone().unwrap_or_default();
        for name in shape.bare_names() {
            if let Some(docs) = type_docs.items.get(name) {
                text.push_str(&format!("\n- `{name}`: {}", docs.trim()));
            }
        }
        add(text.trim(), schema);
    }
}

/// Inserts text before the existing description of a schema.
pub(super) fn add(text: &str, schema: &mut Value) {
    if text.is_empty() {
        return;
    }
    let text = match schema["description"].as_str() {
        Some(description) => format!("{}\n{description}", text.trim_end()),
        None => text.to_owned(),
    };
    schema["description"] = json!(cut(&clean(&text, DESCRIPTION_BYTES), DESCRIPTION_BYTES));
}
