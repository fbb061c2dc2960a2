//! Which documented type a shape is: a component's binary knows types by what they are made of, and its documentation by
//! their names.

use super::docs::{Docs, TypeDocs};
use super::shape::Shape;
use crate::limits::DESCRIPTION_BYTES;
use crate::text::{clean, cut};
use serde_json::{Value, json};
use wasmtime::component::types::Type;

/// Types whose documentation is looked up.
const TYPES: usize = 512;

/// The named types of a component, and what is said about them.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<(Shape, Option<TypeDocs>)>);

impl Words {
    /// Of types with the interfaces and names that they are exported under.
    pub(super) fn new(docs: &Docs, named: &[(Option<String>, String, Type)]) -> Self {
        let mut words: Vec<(Shape, Option<TypeDocs>)> = Vec::new();
        for (interface, name, kind) in named.iter().take(TYPES) {
            // Other types have no names of their own in the binary: every number would be the one that is documented.
            if !matches!(kind, Type::Record(_) | Type::Variant(_) | Type::Enum(_) | Type::Flags(_)) {
                continue;
            }
            let (Some(said), Some(shape)) = (docs.of_type(interface.as_deref(), name), Shape::of(kind)) else {
                continue;
            };
            match words.iter_mut().find(|(other, _)| *other == shape) {
                // Two types that look alike and are told apart by their names alone.
                Some((_, other)) if other.as_ref() != Some(said) => *other = None,
                Some(_) => {}
                None => words.push((shape, Some(said.clone()))),
            }
        }
        Self(words)
    }

    fn about(&self, shape: &Shape) -> Option<&TypeDocs> {
        self.0.iter().find(|(documented, _)| documented == shape)?.1.as_ref()
    }

    /// What is said about a field or a case.
    pub(super) fn item(&self, shape: &Shape, name: &str) -> Option<&str> {
        self.about(shape)?.items.get(name).map(String::as_str)
    }

    /// Puts what is said about a type into its schema. Names without a place of their own stand in a list.
    pub(super) fn describe(&self, shape: &Shape, schema: &mut Value) {
        let Some(about) = self.about(shape) else { return };
        let mut text = about.docs.clone().unwrap_or_default();
        for name in shape.bare_names() {
            if let Some(docs) = about.items.get(name) {
                text.push_str(&format!("\n- `{name}`: {}", docs.trim()));
            }
        }
        add(text.trim(), schema);
    }
}

/// Puts words before what a schema says already.
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
