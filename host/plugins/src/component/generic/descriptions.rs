//! Finds the documentation of types. The documentation in a component refers to types by name, but the types themselves
//! have only a structure and no names. This module therefore uses the structure of a type to
//! find its documentation.

use super::shape::Shape;
use crate::binary::docs::{Docs, TypeDocs};
use crate::limits::DESCRIPTION_BYTES;
use crate::text::{clean, cut};
use serde_json::{Value, json};
use wasmtime::component::types::Type;

/// Maximum number of types whose documentation is looked up.
const MAX_TYPES: usize = 512;

/// The documented types of a component. The documentation is None if two types with the same structure have
/// different documentation.
#[derive(Debug, Default)]
pub(crate) struct Descriptions(Vec<(Shape, Option<TypeDocs>)>);

impl Descriptions {
    /// Looks up the documentation of exported types. Each item of `named` contains the interface that exports the type,
    /// the type's name and the type.
    pub(super) fn new(docs: &Docs, named: &[(Option<String>, String, Type)]) -> Self {
        let mut descriptions: Vec<(Shape, Option<TypeDocs>)> = Vec::new();
        for (interface, name, kind) in named.iter().take(MAX_TYPES) {
            // Types that are not records, variants, enums or flags are matched too easily: for example, the
            // documentation of an alias of `u32` would be used for every `u32`.
            if !matches!(kind, Type::Record(_) | Type::Variant(_) | Type::Enum(_) | Type::Flags(_)) {
                continue;
            }
            let (Some(type_docs), Some(shape)) = (docs.of_type(interface.as_deref(), name), Shape::of(kind)) else {
                continue;
            };
            match descriptions.iter_mut().find(|(other, _)| *other == shape) {
                // Two types with different documentation have the same structure, so neither documentation is used.
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

    /// The documentation of a field, case or flag of this type.
    pub(super) fn item(&self, shape: &Shape, name: &str) -> Option<&str> {
        self.type_docs(shape)?.items.get(name).map(String::as_str)
    }

    /// Adds the documentation of a type to its schema. The documentation of items without a schema of their own, such
    /// as flags, is added as a list.
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
