//! Tests the limits on a component's structure (row 36) with generated components and with randomly changed components.

use super::*;
use proptest::prelude::*;
use wasm_encoder::{
    ComponentBuilder, ComponentExportKind, ComponentTypeRef as TypeRef, ComponentValType, Encode, PrimitiveValType,
    TypeBounds,
};

const LIMITS: StructureLimits = StructureLimits { nesting: 100, types: 100_000, interfaces: 1_000 };

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("valid text")
}

/// Returns a component whose only section has this id and these contents.
fn with_section(id: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    bytes.push(id);
    contents.encode(&mut bytes);
    bytes
}

const TYPE_SECTION: u8 = 7;
const IMPORT_SECTION: u8 = 10;

/// A component that contains component types nested to this depth.
fn nested_types(levels: usize) -> Vec<u8> {
    let mut contents = vec![1];
    // Each type contains one declaration, which declares the next inner type. The innermost type has no declaration.
    contents.extend([0x41, 1, 1].repeat(levels - 1));
    contents.extend([0x41, 0]);
    with_section(TYPE_SECTION, &contents)
}

/// A component that contains components nested to this depth.
fn nested_components(levels: usize) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    for _ in 0..levels {
        let mut outer = b"\0asm\x0d\0\x01\0".to_vec();
        outer.push(4);
        bytes.as_slice().encode(&mut outer);
        bytes = outer;
    }
    bytes
}

/// A component with this number of imports.
fn imports(count: u32) -> Vec<u8> {
    let mut contents = Vec::new();
    count.encode(&mut contents);
    contents.extend([0, 1, b'a', 1, 0].repeat(count as usize));
    with_section(IMPORT_SECTION, &contents)
}

// Row 36: a component whose structure is exactly at the limits is accepted.
#[test]
fn row_36_ordinary_components_are_accepted() {
    let text = r#"(component
        (import "a:b/c@1.0.0" (instance (export "r" (type (sub resource)))
            (type (record (field "a" u32))) (export "t" (type (eq 1)))
            (type (func (param "x" 2) (result (list u8)))) (export "f" (func (type 3)))))
        (type (component (import "i" (func)) (type (instance (export "e" (func)))) (export "x" (instance (type 0)))))
        (core type (module (type (func)) (import "a" "b" (func (type 0))) (export "m" (memory 1))))
        (core module $m (type (func (param i32))) (func (export "f")))
        (component (component (core module)))
        (core instance $i (instantiate $m))
        (func (export "run") (canon lift (core func $i "f"))))"#;
    assert_eq!(check(&component(text), LIMITS), Ok(()));
    assert_eq!(check(&nested_types(100), LIMITS), Ok(()));
    assert_eq!(check(&nested_components(50), LIMITS), Ok(()));
    assert_eq!(check(&imports(1_000), LIMITS), Ok(()));
}

// Row 36: a component is refused if its nested components or types exceed the limit on nesting, and extremely deep
// nesting does not overflow the stack.
#[test]
fn row_36_nesting_is_limited() {
    let too_deep = Err(StructureProblem::Nesting { most: 100 });
    for levels in [101, 628, 100_000, 1_000_000] {
        assert_eq!(check(&nested_types(levels), LIMITS), too_deep, "{levels} types");
    }
    for levels in [101, 5_000] {
        assert_eq!(check(&nested_components(levels), LIMITS), too_deep, "{levels} components");
    }
    // Sixty nested components, and sixty nested types in the innermost component.
    let mut bytes = nested_types(60);
    for _ in 0..60 {
        let mut outer = b"\0asm\x0d\0\x01\0".to_vec();
        outer.push(4);
        bytes.as_slice().encode(&mut outer);
        bytes = outer;
    }
    assert_eq!(check(&bytes, LIMITS), too_deep);
}

// Row 36: the nesting limit also applies to instance types that declare other instance types.
#[test]
fn row_36_nesting_of_instance_types_is_limited() {
    let mut contents = vec![1];
    contents.extend([0x42, 1, 1].repeat(200));
    contents.extend([0x42, 0]);
    let problem = check(&with_section(TYPE_SECTION, &contents), LIMITS);
    assert_eq!(problem, Err(StructureProblem::Nesting { most: 100 }));
}

// Row 36: a section begins with its number of items. The host checks the declared number before it reads the items, so
// a number above the limit is refused even if the section contains fewer items.
#[test]
fn row_36_counts_are_limited() {
    let what = "imports".to_owned();
    assert_eq!(check(&imports(1_001), LIMITS), Err(StructureProblem::Interfaces { what: what.clone(), most: 1_000 }));
    let wrong_count = with_section(IMPORT_SECTION, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(check(&wrong_count, LIMITS), Err(StructureProblem::Interfaces { what, most: 1_000 }));
    // The imports of all sections are counted together.
    let two = [imports(600), imports(600)[8..].to_vec()].concat();
    assert!(matches!(check(&two, LIMITS), Err(StructureProblem::Interfaces { .. })));

    let mut types = Vec::new();
    100_001_u32.encode(&mut types);
    types.extend([0x7f].repeat(100_001));
    let problem = check(&with_section(TYPE_SECTION, &types), LIMITS);
    assert_eq!(problem, Err(StructureProblem::Types { most: 100_000 }));

    let long = "a".repeat(90_000);
    let names: String = (0..20).map(|number| format!("(import \"{long}{number}\" (func))")).collect();
    let problem = check(&component(&format!("(component {names})")), LIMITS);
    assert_eq!(problem, Err(StructureProblem::Names { most: NAME_BYTES }));
}

// Row 36: the number of types, imports and exports of core modules is also limited.
#[test]
fn row_36_core_modules_are_limited() {
    let mut contents = Vec::new();
    200_000_u32.encode(&mut contents);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    module.push(2);
    contents.as_slice().encode(&mut module);
    let problem = check(&with_section(1, &module), LIMITS);
    assert!(matches!(problem, Err(StructureProblem::CoreInterfaces { .. })), "{problem:?}");
    let types = "(type (func))".repeat(100_001);
    let problem = check(&component(&format!("(component (core module {types}))")), LIMITS);
    assert_eq!(problem, Err(StructureProblem::Types { most: 100_000 }));
}

/// Returns a component with these numbers of record fields, imports and nested components, and with one export.
fn built(fields: u32, imports: u32, nested: u32) -> Vec<u8> {
    let mut builder = ComponentBuilder::default();
    let names: Vec<_> = (0..fields).map(|number| format!("f{number}")).collect();
    let (record, encoder) = builder.ty(None);
    let value = ComponentValType::Primitive(PrimitiveValType::U32);
    encoder.defined_type().record(names.iter().map(|name| (name.as_str(), value)));
    for number in 0..imports {
        builder.import(format!("i{number}"), TypeRef::Type(TypeBounds::Eq(record)));
    }
    builder.component(None, inner_builder(nested));
    builder.export("out", ComponentExportKind::Type, record, None);
    builder.finish()
}

fn inner_builder(levels: u32) -> ComponentBuilder {
    let mut inner = ComponentBuilder::default();
    for _ in 0..levels {
        let mut outer = ComponentBuilder::default();
        outer.component(None, inner);
        inner = outer;
    }
    inner
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    // Row 36: the check does not panic for any bytes, and the parsers do not panic for bytes that the check accepts.
    #[test]
    fn row_36_mutated_components_do_not_cause_panics(
        shape in (1_u32..20, 0_u32..20, 0_u32..20),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..24),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = built(shape.0, shape.1, shape.2);
        for (index, byte) in edits {
            // The header is not changed, because a component with an invalid header is refused before its
            // sections are read.
            let index = 8 + index.index(bytes.len() - 8);
            bytes[index] = byte;
        }
        if is_cut {
            bytes.truncate(8 + cut.index(bytes.len() - 8));
        }
        let small = StructureLimits { nesting: 10, types: 10, interfaces: 10 };
        let strict = check(&bytes, small);
        let usual = check(&bytes, LIMITS);
        // A component that passes the check with the small limits also passes the check with the usual limits.
        prop_assert!(strict.is_err() || usual.is_ok());
        if usual.is_ok() {
            let _ = crate::binary::scan::scan(&bytes);
            let _ = crate::binary::docs::Docs::read(&bytes);
        }
        let _ = crate::binary::sections::interfaces(&bytes);
        let _ = crate::binary::sections::find_manifest(&bytes);
    }

    // Row 36: the checks do not panic if random bytes follow a component's header.
    #[test]
    fn row_36_random_bytes_cause_no_panic(tail in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [b"\0asm\x0d\0\x01\0".as_slice(), &tail].concat();
        let _ = check(&bytes, LIMITS);
        let _ = crate::binary::sections::interfaces(&bytes);
        let _ = crate::binary::sections::find_manifest(&bytes);
    }
}
