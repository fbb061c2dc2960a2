//! Tests of the conversion between WIT values and JSON (P3). Random values are converted to JSON that matches their
//! schema, and the JSON is converted back to the same values.

use super::arguments::read_fields;
use super::descriptions::Descriptions;
use super::results::write;
use super::schema::{for_parameters, for_shape};
use super::shape::{Integer, Shape};
use agent_core::schema::Schema;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use wasmtime::component::Val;

const INTEGERS: [Integer; 8] =
    [Integer::S8, Integer::U8, Integer::S16, Integer::U16, Integer::S32, Integer::U32, Integer::S64, Integer::U64];

fn named<T>(items: Vec<T>) -> Vec<(String, T)> {
    items.into_iter().enumerate().map(|(index, item)| (format!("n{index}"), item)).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("n{index}")).collect()
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Bool),
        select(INTEGERS.to_vec()).prop_map(Shape::Integer),
        Just(Shape::Float32),
        Just(Shape::Float64),
        Just(Shape::Char),
        Just(Shape::String),
        Just(Shape::Bytes),
        (1..5_usize).prop_map(|count| Shape::Enum(names(count))),
        (1..40_usize).prop_map(|count| Shape::Flags(names(count))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let maybe = || proptest::option::of(inner.clone());
        prop_oneof![
            inner
                .clone()
                .prop_filter("list<u8> is bytes", |item| *item != Shape::Integer(Integer::U8))
                .prop_map(|item| Shape::List(Box::new(item))),
            vec(inner.clone(), 1..4).prop_map(|items| Shape::Record(named(items))),
            vec(inner.clone(), 1..4).prop_map(Shape::Tuple),
            vec(maybe(), 1..4).prop_map(|cases| Shape::Variant(named(cases))),
            inner.clone().prop_map(|item| Shape::Option(Box::new(item))),
            (maybe(), maybe())
                .prop_map(|(ok, error)| Shape::Result { ok: ok.map(Box::new), error: error.map(Box::new) }),
        ]
    })
}

fn integer(kind: Integer) -> BoxedStrategy<Val> {
    match kind {
        Integer::S8 => any::<i8>().prop_map(Val::S8).boxed(),
        Integer::U8 => any::<u8>().prop_map(Val::U8).boxed(),
        Integer::S16 => any::<i16>().prop_map(Val::S16).boxed(),
        Integer::U16 => any::<u16>().prop_map(Val::U16).boxed(),
        Integer::S32 => any::<i32>().prop_map(Val::S32).boxed(),
        Integer::U32 => any::<u32>().prop_map(Val::U32).boxed(),
        Integer::S64 => prop_oneof![any::<i64>(), -100..100_i64, Just(i64::MIN)].prop_map(Val::S64).boxed(),
        Integer::U64 => prop_oneof![any::<u64>(), 0..100_u64, Just(u64::MAX)].prop_map(Val::U64).boxed(),
    }
}

fn value(shape: &Shape) -> BoxedStrategy<Val> {
    let maybe = |shape: Option<&Shape>| match shape {
        Some(shape) => value(shape).prop_map(|value| Some(Box::new(value))).boxed(),
        None => Just(None).boxed(),
    };
    match shape {
        Shape::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
        Shape::Integer(kind) => integer(*kind),
        Shape::Float32 => proptest::num::f32::ANY.prop_map(Val::Float32).boxed(),
        Shape::Float64 => proptest::num::f64::ANY.prop_map(Val::Float64).boxed(),
        Shape::Char => any::<char>().prop_map(Val::Char).boxed(),
        Shape::String => ".{0,8}".prop_map(Val::String).boxed(),
        Shape::Bytes => vec(any::<u8>().prop_map(Val::U8), 0..9).prop_map(Val::List).boxed(),
        Shape::List(item) => vec(value(item), 0..4).prop_map(Val::List).boxed(),
        Shape::Tuple(items) => items.iter().map(value).collect::<Vec<_>>().prop_map(Val::Tuple).boxed(),
        Shape::Record(fields) => {
            let names: Vec<_> = fields.iter().map(|(name, _)| name.clone()).collect();
            let values: Vec<_> = fields.iter().map(|(_, shape)| value(shape)).collect();
            values.prop_map(move |values| Val::Record(names.iter().cloned().zip(values).collect())).boxed()
        }
        Shape::Enum(names) => select(names.clone()).prop_map(Val::Enum).boxed(),
        Shape::Flags(names) => subsequence(names.clone(), 0..=names.len()).prop_map(Val::Flags).boxed(),
        Shape::Option(item) => prop_oneof![Just(None).boxed(), maybe(Some(item))].prop_map(Val::Option).boxed(),
        Shape::Result { ok, error } => prop_oneof![
            maybe(ok.as_deref()).prop_map(|value| Val::Result(Ok(value))),
            maybe(error.as_deref()).prop_map(|value| Val::Result(Err(value))),
        ]
        .boxed(),
        Shape::Variant(cases) => {
            let cases: Vec<_> = cases
                .iter()
                .map(|(name, payload)| {
                    let name = name.clone();
                    maybe(payload.as_ref()).prop_map(move |value| Val::Variant(name.clone(), value)).boxed()
                })
                .collect();
            proptest::strategy::Union::new(cases).boxed()
        }
    }
}

fn with_value() -> impl Strategy<Value = (Shape, Val)> {
    shape().prop_flat_map(|shape| (Just(shape.clone()), value(&shape)))
}

fn read(shape: &Shape, json: Value) -> Result<Val, agent_core::tool::Violation> {
    let fields = [("v".to_owned(), shape.clone())];
    read_fields(&fields, &json!({ "v": json }), "").map(|mut values| values.remove(0).1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    // P3: the JSON for any value matches the schema for its type, and the host can compile the schema.
    #[test]
    fn p3_values_are_read_back_unchanged((shape, value) in with_value()) {
        let json = write(&shape, value.clone()).expect("the value has this type");
        let schema = Schema::compile(&for_shape(&shape, &Descriptions::default())).expect("a schema");
        prop_assert_eq!(schema.check(&json), Ok(()), "{} of {}", json, for_shape(&shape, &Descriptions::default()));
        let arguments = Schema::compile(&for_parameters(&[("v".to_owned(), shape.clone())], &Descriptions::default())).expect("a schema");
        prop_assert_eq!(arguments.check(&json!({ "v": json })), Ok(()));
        let back = read(&shape, json.clone());
        prop_assert_eq!(back.as_ref(), Ok(&value), "{}", json);
    }

    // P3, row 26: reading JSON that was written for a different type returns a value of the expected type or a
    // violation, and never causes a panic.
    #[test]
    fn p3_row_26_json_of_another_type_is_read_or_refused((shape, value) in with_value(), (other, _) in with_value()) {
        let json = write(&shape, value).expect("the value has this type");
        if let Ok(read) = read(&other, json) {
            prop_assert!(write(&other, read).is_ok());
        }
    }
}

// P3: each form of JSON that wit/README.md describes is converted as described.
#[test]
fn p3_json_forms_match_the_documentation() {
    let string = || Box::new(Shape::String);
    let option = |item| Shape::Option(Box::new(item));
    let variant = Shape::Variant(vec![("none".to_owned(), None), ("some-text".to_owned(), Some(Shape::String))]);
    let cases = [
        (Shape::Integer(Integer::U64), Val::U64(1 << 53), json!("9007199254740992")),
        (Shape::Integer(Integer::U64), Val::U64((1 << 53) - 1), json!(9_007_199_254_740_991_u64)),
        (Shape::Integer(Integer::S64), Val::S64(-5), json!(-5)),
        (Shape::Float32, Val::Float32(0.1), json!(0.1)),
        (Shape::Float64, Val::Float64(f64::NEG_INFINITY), json!("-Infinity")),
        (Shape::Bytes, Val::List(vec![Val::U8(1), Val::U8(255)]), json!("Af8=")),
        (variant.clone(), Val::Variant("none".into(), None), json!("none")),
        (variant, Val::Variant("some-text".into(), Some(Box::new(Val::String("a".into())))), json!({"some-text": "a"})),
        (Shape::Result { ok: None, error: Some(string()) }, Val::Result(Ok(None)), json!("ok")),
        (option(Shape::String), Val::Option(None), Value::Null),
        (option(option(Shape::String)), Val::Option(Some(Box::new(Val::Option(None)))), json!({"some": null})),
        (Shape::Flags(names(3)), Val::Flags(vec!["n0".into(), "n2".into()]), json!(["n0", "n2"])),
    ];
    for (shape, value, expected) in cases {
        assert_eq!(write(&shape, value.clone()).as_ref(), Ok(&expected), "{shape:?}");
        assert_eq!(read(&shape, expected), Ok(value), "{shape:?}");
    }
    assert_eq!(read(&Shape::Bytes, json!([1, 255])), read(&Shape::Bytes, json!("Af8")));
    assert_eq!(read(&Shape::Integer(Integer::U64), json!(u64::MAX)), Ok(Val::U64(u64::MAX)));
    assert_eq!(read(&Shape::Integer(Integer::U8), json!(7.0)), Ok(Val::U8(7)), "JSON Schema accepts 7.0 as an integer");
    assert_eq!(read(&Shape::Integer(Integer::U64), json!(1e18)), Ok(Val::U64(1_000_000_000_000_000_000)));
    assert_eq!(read(&Shape::Integer(Integer::S64), json!(-1e18)), Ok(Val::S64(-1_000_000_000_000_000_000)));
}

// P3, L8: a violation contains the JSON pointer of the wrong value, even if the schema cannot express the rule.
#[test]
fn p3_l8_violation_points_at_the_wrong_value() {
    let fields = [("x~y/z".to_owned(), Shape::Integer(Integer::S8))];
    let point = Shape::Record(fields.to_vec());
    let list = Shape::List(Box::new(point));
    let violation = read(&list, json!([{"x~y/z": 1}, {"x~y/z": 128}])).expect_err("out of range");
    assert_eq!(violation.pointer, "/v/1/x~0y~1z");
    assert!(violation.message.contains("from -128 to 127"), "{violation:?}");
    let refused = [
        (Shape::Char, json!("ab")),
        (Shape::Float32, json!(1e300)),
        (Shape::Integer(Integer::U64), json!("18446744073709551616")),
        (Shape::Integer(Integer::S32), json!(1.5)),
        (Shape::Integer(Integer::U64), json!(2e19)),
        (Shape::Integer(Integer::S64), json!(1e19)),
        (Shape::Integer(Integer::U64), json!(-1.0)),
        (Shape::Bytes, json!("not base64!")),
        (Shape::Bytes, json!([256])),
        (Shape::Tuple(vec![Shape::Bool]), json!([true, true])),
        (Shape::Tuple(vec![Shape::Bool]), json!([])),
        (Shape::Enum(names(1)), json!("n1")),
        (Shape::Result { ok: None, error: Some(Box::new(Shape::String)) }, json!({"ok": 1})),
        (Shape::Variant(vec![("a".to_owned(), Some(Shape::Bool))]), json!("a")),
    ];
    for (shape, json) in refused {
        let violation = read(&shape, json.clone()).expect_err("refused");
        assert!(violation.pointer.starts_with("/v") && violation.rule.is_some(), "{shape:?} {json}: {violation:?}");
    }
}
