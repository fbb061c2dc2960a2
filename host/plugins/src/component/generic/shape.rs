//! This crate's representation of the WIT types of generic functions. The represented types contain no resource
//! handles, and their size is limited so that a model can read them.

use std::fmt::Write;
use wasmtime::component::types::{ComponentFunc, Type};

/// Maximum number of types, cases and flags of one function.
const MAX_PARTS: usize = 1_024;
/// Maximum total size of the names of parameters, fields, cases and flags of one function, in bytes.
const MAX_NAME_BYTES: usize = 32 * 1024;
/// Maximum nesting depth of a type.
const MAX_LEVELS: usize = 24;

/// A WIT type whose values are data and contain no handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Bool,
    Integer(Integer),
    Float32,
    Float64,
    Char,
    String,
    /// The type `list<u8>`, which is written as base64 text in JSON.
    Bytes,
    List(Box<Shape>),
    Record(Vec<(String, Shape)>),
    Tuple(Vec<Shape>),
    Variant(Vec<(String, Option<Shape>)>),
    Enum(Vec<String>),
    Option(Box<Shape>),
    Result {
        ok: Option<Box<Shape>>,
        error: Option<Box<Shape>>,
    },
    Flags(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
}

impl Integer {
    /// Name of the type in WIT.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Integer::S8 => "s8",
            Integer::U8 => "u8",
            Integer::S16 => "s16",
            Integer::U16 => "u16",
            Integer::S32 => "s32",
            Integer::U32 => "u32",
            Integer::S64 => "s64",
            Integer::U64 => "u64",
        }
    }

    /// The smallest and the largest value of the integer type.
    pub(crate) fn range(self) -> (i128, i128) {
        match self {
            Integer::S8 => (i8::MIN.into(), i8::MAX.into()),
            Integer::U8 => (0, u8::MAX.into()),
            Integer::S16 => (i16::MIN.into(), i16::MAX.into()),
            Integer::U16 => (0, u16::MAX.into()),
            Integer::S32 => (i32::MIN.into(), i32::MAX.into()),
            Integer::U32 => (0, u32::MAX.into()),
            Integer::S64 => (i64::MIN.into(), i64::MAX.into()),
            Integer::U64 => (0, u64::MAX.into()),
        }
    }
}

/// The parameters and the result of a function, without the resource handle that the host passes or receives itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<(String, Shape)>,
    pub(crate) result: Option<Shape>,
}

/// The position at which the signature of a function contains a resource handle. The host passes or receives this
/// handle itself, and the model does not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlePosition {
    /// The signature contains no resource handle.
    None,
    /// The first parameter is the handle of the resource whose method is called.
    First,
    /// The result is the handle of the new resource, or a `result` that contains this handle.
    Result,
}

impl Signature {
    /// Reads the signature of a function. If the function cannot be a tool, the error completes the sentence "it is not
    /// offered: ".
    pub(crate) fn of(function: &ComponentFunc, handles: HandlePosition) -> Result<Self, String> {
        if function.async_() {
            return Err("it is asynchronous".to_owned());
        }
        let mut reader = Reader { parts: MAX_PARTS, name_bytes: MAX_NAME_BYTES };
        let skipped = usize::from(handles == HandlePosition::First);
        let mut parameters = Vec::new();
        for (name, kind) in function.params().skip(skipped) {
            reader.name(name)?;
            let shape = reader.shape(&kind, MAX_LEVELS).map_err(|reason| format!("its parameter `{name}` {reason}"))?;
            parameters.push((name.to_owned(), shape));
        }
        let result = match (handles, function.results().next()) {
            (_, None) => None,
            (HandlePosition::Result, Some(kind)) => reader.failure_of(&kind),
            (_, Some(kind)) => Some(reader.shape(&kind, MAX_LEVELS).map_err(|reason| format!("its result {reason}"))?),
        };
        Ok(Self { parameters, result })
    }

    /// Total number of types, cases and flags in the signature.
    pub(crate) fn parts(&self) -> usize {
        self.parameters.iter().map(|(_, shape)| shape).chain(&self.result).map(Shape::parts).sum()
    }

    /// The signature in WIT syntax.
    pub(crate) fn wit(&self) -> String {
        let parameters: Vec<_> =
            self.parameters.iter().map(|(name, shape)| format!("{name}: {}", shape.wit())).collect();
        let result = self.result.as_ref().map(|shape| format!(" -> {}", shape.wit())).unwrap_or_default();
        format!("({}){result}", parameters.join(", "))
    }
}

impl Shape {
    /// Converts a type of wasmtime to this representation. Returns None if values of the type are not data (for example
    /// handles), or if the type is too large.
    pub(crate) fn of(kind: &Type) -> Option<Self> {
        Reader { parts: MAX_PARTS, name_bytes: MAX_NAME_BYTES }.shape(kind, MAX_LEVELS).ok()
    }

    /// Whether a value of this type can be null in JSON.
    pub(crate) fn has_null(&self) -> bool {
        matches!(self, Shape::Option(_))
    }

    /// Returns the cases of a variant or of a `result`, or None if the type is neither a variant nor a `result`.
    pub(crate) fn cases(&self) -> Option<Vec<(&str, Option<&Shape>)>> {
        match self {
            Shape::Variant(cases) => {
                Some(cases.iter().map(|(name, payload)| (name.as_str(), payload.as_ref())).collect())
            }
            Shape::Result { ok, error } => Some(vec![("ok", ok.as_deref()), ("err", error.as_deref())]),
            _ => None,
        }
    }

    /// Returns the names of flags, and of cases without a payload, which are written as strings in JSON.
    pub(crate) fn bare_names(&self) -> Vec<&str> {
        match self {
            Shape::Enum(names) | Shape::Flags(names) => names.iter().map(String::as_str).collect(),
            Shape::Variant(cases) => {
                cases.iter().filter(|(_, payload)| payload.is_none()).map(|(name, _)| name.as_str()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn parts(&self) -> usize {
        let optional_parts = |shape: &Option<Box<Shape>>| shape.as_deref().map_or(0, Shape::parts);
        1 + match self {
            Shape::List(item) | Shape::Option(item) => item.parts(),
            Shape::Tuple(items) => items.iter().map(Shape::parts).sum(),
            Shape::Record(fields) => fields.iter().map(|(_, shape)| shape.parts()).sum(),
            Shape::Variant(cases) => {
                cases.iter().map(|(_, payload)| 1 + payload.as_ref().map_or(0, Shape::parts)).sum()
            }
            Shape::Result { ok, error } => optional_parts(ok) + optional_parts(error),
            Shape::Enum(names) | Shape::Flags(names) => names.len(),
            _ => 0,
        }
    }

    fn wit(&self) -> String {
        let comma_separated = |shapes: &[Shape]| shapes.iter().map(Shape::wit).collect::<Vec<_>>().join(", ");
        let or_nothing =
            |shape: &Option<Box<Shape>>| shape.as_ref().map_or_else(|| "_".to_owned(), |shape| shape.wit());
        match self {
            Shape::Bool => "bool".to_owned(),
            Shape::Integer(integer) => integer.name().to_owned(),
            Shape::Float32 => "f32".to_owned(),
            Shape::Float64 => "f64".to_owned(),
            Shape::Char => "char".to_owned(),
            Shape::String => "string".to_owned(),
            Shape::Bytes => "list<u8>".to_owned(),
            Shape::List(item) => format!("list<{}>", item.wit()),
            Shape::Tuple(items) => format!("tuple<{}>", comma_separated(items)),
            Shape::Option(item) => format!("option<{}>", item.wit()),
            Shape::Result { ok: None, error: None } => "result".to_owned(),
            Shape::Result { ok, error: None } => format!("result<{}>", or_nothing(ok)),
            Shape::Result { ok, error } => format!("result<{}, {}>", or_nothing(ok), or_nothing(error)),
            Shape::Enum(names) => format!("enum {{{}}}", names.join(", ")),
            Shape::Flags(names) => format!("flags {{{}}}", names.join(", ")),
            Shape::Record(fields) => {
                let fields: Vec<_> = fields.iter().map(|(name, shape)| format!("{name}: {}", shape.wit())).collect();
                format!("record {{{}}}", fields.join(", "))
            }
            Shape::Variant(cases) => {
                let mut text = String::from("variant {");
                for (number, (name, payload)) in cases.iter().enumerate() {
                    let comma = if number == 0 { "" } else { ", " };
                    let payload = payload.as_ref().map(|shape| format!("({})", shape.wit())).unwrap_or_default();
                    let _ = write!(text, "{comma}{name}{payload}");
                }
                text + "}"
            }
        }
    }
}

/// Reads types up to a size limit, because a component of a few bytes can declare a type with a million parts.
struct Reader {
    /// Number of types, cases and flags that may still be read.
    parts: usize,
    /// Number of bytes that are left for the names of parameters, fields, cases and flags.
    name_bytes: usize,
}

impl Reader {
    fn shape(&mut self, kind: &Type, levels: usize) -> Result<Shape, String> {
        self.part()?;
        let levels = levels.checked_sub(1).ok_or_else(|| format!("has a type of more than {MAX_LEVELS} levels"))?;
        Ok(match kind {
            Type::Bool => Shape::Bool,
            Type::S8 => Shape::Integer(Integer::S8),
            Type::U8 => Shape::Integer(Integer::U8),
            Type::S16 => Shape::Integer(Integer::S16),
            Type::U16 => Shape::Integer(Integer::U16),
            Type::S32 => Shape::Integer(Integer::S32),
            Type::U32 => Shape::Integer(Integer::U32),
            Type::S64 => Shape::Integer(Integer::S64),
            Type::U64 => Shape::Integer(Integer::U64),
            Type::Float32 => Shape::Float32,
            Type::Float64 => Shape::Float64,
            Type::Char => Shape::Char,
            Type::String => Shape::String,
            Type::List(list) if list.ty() == Type::U8 => Shape::Bytes,
            Type::List(list) => Shape::List(Box::new(self.shape(&list.ty(), levels)?)),
            Type::Option(option) => Shape::Option(Box::new(self.shape(&option.ty(), levels)?)),
            Type::Result(result) => Shape::Result {
                ok: self.optional_shape(result.ok(), levels)?.map(Box::new),
                error: self.optional_shape(result.err(), levels)?.map(Box::new),
            },
            Type::Tuple(tuple) => {
                let items: Result<_, _> = tuple.types().map(|kind| self.shape(&kind, levels)).collect();
                Shape::Tuple(items?)
            }
            Type::Enum(cases) => Shape::Enum(self.names(cases.names())?),
            Type::Flags(flags) => Shape::Flags(self.names(flags.names())?),
            Type::Record(record) => {
                let mut fields = Vec::new();
                for field in record.fields() {
                    self.name(field.name)?;
                    fields.push((field.name.to_owned(), self.shape(&field.ty, levels)?));
                }
                Shape::Record(fields)
            }
            Type::Variant(variant) => {
                let mut cases = Vec::new();
                for case in variant.cases() {
                    self.part()?;
                    self.name(case.name)?;
                    cases.push((case.name.to_owned(), self.optional_shape(case.ty, levels)?));
                }
                Shape::Variant(cases)
            }
            Type::Own(_) | Type::Borrow(_) => return Err("is a handle, which is valid only during its call".to_owned()),
            Type::Future(_) | Type::Stream(_) => return Err("is a future or a stream".to_owned()),
            Type::ErrorContext => return Err("is an error context".to_owned()),
            Type::Map(_) | Type::FixedLengthList(_) => return Err("has a type that is still experimental".to_owned()),
        })
    }

    fn optional_shape(&mut self, kind: Option<Type>, levels: usize) -> Result<Option<Shape>, String> {
        kind.map(|kind| self.shape(&kind, levels)).transpose()
    }

    /// The `result` type that a constructor returns, but without its success type, which is a handle. If the
    /// values of the error type are not data, the error type is left out. Returns None if the constructor does not
    /// return a `result`.
    fn failure_of(&mut self, kind: &Type) -> Option<Shape> {
        let Type::Result(result) = kind else { return None };
        let error = result.err().and_then(|kind| self.shape(&kind, MAX_LEVELS).ok());
        Some(Shape::Result { ok: None, error: error.map(Box::new) })
    }

    fn names<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> Result<Vec<String>, String> {
        names
            .map(|name| {
                self.part()?;
                self.name(name)?;
                Ok(name.to_owned())
            })
            .collect()
    }

    fn part(&mut self) -> Result<(), String> {
        self.parts = self.parts.checked_sub(1).ok_or_else(|| format!("has a type of more than {MAX_PARTS} parts"))?;
        Ok(())
    }

    fn name(&mut self, name: &str) -> Result<(), String> {
        let left = self.name_bytes.checked_sub(name.len());
        self.name_bytes = left.ok_or_else(|| format!("has names of more than {MAX_NAME_BYTES} bytes in total"))?;
        Ok(())
    }
}
