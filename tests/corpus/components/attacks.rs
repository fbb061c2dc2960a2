//! Generates components that attack the component parser or the compiler.

/// The first eight bytes of a component: the magic number, the version and the layer.
const HEADER: [u8; 8] = *b"\0asm\x0d\0\x01\0";
const MODULE_HEADER: [u8; 8] = *b"\0asm\x01\0\0\0";

fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id], leb(contents.len()).as_slice(), contents].concat()
}

fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    [HEADER.to_vec(), sections.concat()].concat()
}

fn parse_text(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is valid")
}

/// Returns a section with an import that has an unknown name. Without this import, the host would not examine the rest
/// of the component.
fn unknown_import() -> Vec<u8> {
    let name = b"acme:thing/api@1.0.0";
    section(10, &[&[1, 0], leb(name.len()).as_slice(), name, &[5, 0]].concat())
}

/// A component with nested component types or instance types.
pub(crate) fn nested_types(levels: usize, kind: u8) -> Vec<u8> {
    let mut contents = vec![2, 0x42, 0];
    contents.extend([kind, 1, 1].repeat(levels - 1));
    contents.extend([kind, 0]);
    component(&[section(7, &contents), unknown_import()])
}

/// A component with nested components. The function writes the outermost component first.
pub(super) fn nested_components(levels: usize) -> Vec<u8> {
    let mut sizes = vec![HEADER.len()];
    for level in 0..levels {
        let inner = sizes[level];
        sizes.push(HEADER.len() + 1 + leb(inner).len() + inner);
    }
    let mut bytes = Vec::with_capacity(sizes[levels]);
    for level in (0..levels).rev() {
        bytes.extend(HEADER);
        bytes.push(4);
        bytes.extend(leb(sizes[level]));
    }
    bytes.extend(HEADER);
    bytes
}

/// A component with this many imports of five bytes each.
pub(crate) fn imports(count: usize) -> Vec<u8> {
    component(&[section(10, &[leb(count), [0, 1, b'a', 1, 0].repeat(count)].concat())])
}

/// A component with `modules` modules. The memory of each module has only two initialised bytes,
/// at the offsets 0 and `distance - 1`.
pub(crate) fn sparse_images(modules: usize, distance: usize) -> Vec<u8> {
    let pages = distance / 65_536 + 1;
    let module =
        format!("(core module (memory {pages}) (data (i32.const 0) \"a\") (data (i32.const {}) \"b\"))", distance - 1);
    parse_text(&format!("(component {})", module.repeat(modules)))
}

/// Adds a module to the component. The module's memory is initialised with this many bytes, which become a part of the
/// compiled code.
pub(crate) fn with_memory_image(component: &[u8], bytes: usize, filled_with: u8) -> Vec<u8> {
    let memory = section(5, &[&[1, 0], leb(bytes.div_ceil(65_536)).as_slice()].concat());
    let data = [&[1, 0, 0x41, 0, 0x0b], leb(bytes).as_slice(), &vec![filled_with; bytes]].concat();
    let module = [MODULE_HEADER.to_vec(), memory, section(11, &data)].concat();
    [component, &section(1, &module)].concat()
}

/// Returns a component with nested list types, in which each type refers to the previous one.
pub(crate) fn list_chain(levels: usize) -> Vec<u8> {
    let mut contents = leb(levels + 1);
    contents.push(0x7d);
    for level in 0..levels {
        contents.push(0x70);
        contents.extend(signed_leb(level));
    }
    component(&[section(7, &contents)])
}

/// A component with tuple types. Each tuple contains the previous tuple twice, so the last type has two to the power of
/// `levels` parts.
pub(super) fn doubling_tuples(levels: usize) -> Vec<u8> {
    let mut contents = leb(levels + 1);
    contents.push(0x7d);
    for level in 0..levels {
        contents.extend([0x6f, 2]);
        contents.extend(signed_leb(level));
        contents.extend(signed_leb(level));
    }
    component(&[section(7, &contents)])
}

/// Encodes a number as signed LEB128.
fn signed_leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 && byte & 0x40 == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

/// A core module with a type `func()` and one function with this body.
fn module_with_function(body: &[u8]) -> Vec<u8> {
    let code = [leb(1), leb(body.len()), body.to_vec()].concat();
    let sections = [section(1, &[1, 0x60, 0, 0]), section(3, &[1, 0]), section(10, &code)];
    [MODULE_HEADER.to_vec(), sections.concat()].concat()
}

/// A component with nested blocks in one function.
pub(crate) fn nested_blocks(levels: usize) -> Vec<u8> {
    let body = [vec![0], [0x02, 0x40].repeat(levels), vec![0x0b; levels + 1]].concat();
    component(&[section(1, &module_with_function(&body))])
}

/// A component with a function that claims four billion local variables.
pub(super) fn many_locals() -> Vec<u8> {
    let body = [vec![1], leb(u32::MAX as usize), vec![0x7f, 0x0b]].concat();
    component(&[section(1, &module_with_function(&body))])
}

/// A component with a name section that has this many bytes but contains no names.
pub(super) fn giant_names(bytes: usize) -> Vec<u8> {
    let names = [vec![4], b"name".to_vec(), vec![b'x'; bytes]].concat();
    let module = [MODULE_HEADER.to_vec(), section(0, &names)].concat();
    component(&[section(1, &module)])
}

/// A component with this many function types in one recursive group.
pub(super) fn recursive_group(types: usize) -> Vec<u8> {
    let group = [vec![1, 0x4e], leb(types), [0x60, 0, 0].repeat(types)].concat();
    let module = [MODULE_HEADER.to_vec(), section(1, &group)].concat();
    component(&[section(1, &module)])
}

/// A component with this many aliases of types of an outer component.
pub(super) fn aliases(count: usize) -> Vec<u8> {
    let aliases = [leb(count), [3, 2, 1, 0].repeat(count)].concat();
    let inner = component(&[section(6, &aliases)]);
    component(&[section(7, &[1, 0x7d]), section(4, &inner)])
}

/// A component with this many empty sections.
pub(super) fn empty_sections(count: usize) -> Vec<u8> {
    [HEADER.to_vec(), [0, 1, 0].repeat(count)].concat()
}

/// Returns all malicious components with their names.
pub(super) fn all_attacks() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("component-types-628", nested_types(628, 0x41)),
        ("component-types-100000", nested_types(100_000, 0x41)),
        ("instance-types-100000", nested_types(100_000, 0x42)),
        ("component-types-8000000", nested_types(8_000_000, 0x41)),
        ("components-100000", nested_components(100_000)),
        ("components-2000000", nested_components(2_000_000)),
        ("imports-6000000", imports(6_000_000)),
        ("sparse-images", sparse_images(60, 16 << 20)),
        ("list-chain", list_chain(90_000)),
        ("doubling-tuples", doubling_tuples(90)),
        ("nested-blocks", nested_blocks(100_000)),
        ("many-locals", many_locals()),
        ("giant-names", giant_names(30 << 20)),
        ("recursive-group", recursive_group(900_000)),
        ("aliases", aliases(7_000_000)),
        ("empty-sections", empty_sections(10_000_000)),
    ]
}
