//! Tests fields from and to structs of the interface, valid and invalid.

use super::*;

fn with_dictionary(name: &str, format: &str, values: Arc<Field>) -> Result<Field> {
    let (format, name) = (format.to_owned(), name.to_owned());
    let dictionary = Some(values);
    Field::build(Parts {
        format,
        name,
        metadata: None,
        flags: FLAG_NULLABLE,
        children: Vec::new(),
        dictionary,
    })
}

#[test]
fn nesting_is_limited_for_every_field_constructor() {
    let mut field = Arc::new(Field::new("x", "i").unwrap());
    for _ in 0..DEEPEST {
        field = Arc::new(Field::nested("x", "+s", vec![field]).unwrap());
    }
    let deeper = Field::nested("x", "+s", vec![field.clone()]).unwrap_err().to_string();
    assert!(deeper.contains("65 levels") && deeper.contains("64 levels"), "{deeper}");
    assert!(with_dictionary("x", "i", field.clone()).is_err());
    // A field of the largest depth is exported, imported and dropped.
    let schema = field.export().unwrap();
    assert_eq!(read(&schema).unwrap(), *field);
    assert_eq!(Field::from_bytes(&field.to_bytes()).unwrap(), *field);
    // Shared children count at each occurrence: traversing 2^20 fields would take a minute.
    let mut wide = Arc::new(Field::new("x", "i").unwrap());
    let failed = (0..64).find_map(|level| {
        let twice = Field::nested("x", "+s", vec![wide.clone(), wide.clone()]);
        match twice {
            Ok(twice) => {
                wide = Arc::new(twice);
                None
            }
            Err(error) => Some((level, error.to_string())),
        }
    });
    let (level, text) = failed.unwrap();
    assert!(level == 19 && text.contains("2097151 fields"), "{level}: {text}");
}

#[test]
fn children_and_indices_have_the_types_required_by_their_format() {
    let of = |format: &str| Arc::new(Field::new("x", format).unwrap());
    assert!(Field::nested("x", "+r", vec![of("i"), of("u")]).is_ok());
    let text = Field::nested("x", "+r", vec![of("u"), of("u")]).unwrap_err().to_string();
    assert!(text.contains("run ends"), "{text}");
    assert!(with_dictionary("x", "g", of("u")).unwrap_err().to_string().contains("integers"));
}

/// A struct column with a dictionary, an extension type and a nested list.
pub(in crate::interop::arrow) fn sample() -> Field {
    let values = Arc::new(Field::new("", "u").unwrap());
    let indices = with_dictionary("carrier", "i", values).unwrap();
    let mut item = Field::new("item", "w:16").unwrap();
    let mut metadata = 1i32.to_ne_bytes().to_vec();
    for text in ["ARROW:extension:name", "arrow.uuid"] {
        metadata.extend((text.len() as i32).to_ne_bytes());
        metadata.extend(text.as_bytes());
    }
    item.metadata = Some(metadata.into());
    let list = Field::nested("ids", "+l", vec![Arc::new(item)]).unwrap();
    Field::record(vec![Arc::new(indices), Arc::new(list)]).unwrap()
}

fn read(schema: &ArrowSchema) -> Result<Field> {
    // SAFETY: the tests' structs come from `export`, with single fields made wrong.
    unsafe { import(schema, 0, &mut 0) }
}

#[test]
fn a_field_round_trips_exactly() {
    let field = sample();
    let schema = field.export().unwrap();
    assert_eq!(read(&schema).unwrap(), field);
    // The struct may move, and its memory is its own.
    let moved = Box::new(schema);
    drop(field);
    assert_eq!(read(&moved).unwrap(), sample());
}

#[test]
fn an_unchanged_field_of_usmq_is_shared_and_a_changed_one_is_read() {
    let field = Arc::new(sample());
    let mut schema = field.export_shared().unwrap();
    assert!(Arc::ptr_eq(&shared(&schema).unwrap(), &field));
    let name = std::mem::replace(&mut schema.name, c"renamed".as_ptr());
    assert!(shared(&schema).is_none());
    assert_eq!(read(&schema).unwrap().name(), "renamed");
    schema.name = name;
    // SAFETY: `export_shared` made two children.
    let children = unsafe { pointers(schema.children, 2, "children") }.unwrap();
    // SAFETY: a child of this export, used by no one else.
    let flags = unsafe { &mut (*children[1]).flags };
    *flags ^= FLAG_NULLABLE;
    assert!(shared(&schema).is_none());
    *flags ^= FLAG_NULLABLE;
    assert!(shared(&schema).is_some());
    // SAFETY: as above.
    drop(unsafe { crate::interop::arrow::ForeignStruct::take(children[1]) });
    assert!(shared(&schema).is_none());
}

#[test]
fn a_child_that_was_moved_out_outlives_its_parent() {
    let schema = sample().export().unwrap();
    // SAFETY: `export` made two children.
    let children = unsafe { pointers(schema.children, 2, "children") }.unwrap();
    // SAFETY: a child of this export, used by no one else.
    let child = unsafe { crate::interop::arrow::ForeignStruct::take(children[1]) }.inner;
    drop(schema);
    assert_eq!(read(&child).unwrap(), *sample().children[1]);
}

#[test]
fn invalid_schemas_are_errors() {
    let fails = |spoil: &dyn Fn(&mut ArrowSchema), word: &str| {
        let mut schema = sample().export().unwrap();
        let (children, format) = (schema.children, schema.format);
        spoil(&mut schema);
        let text = read(&schema).unwrap_err().to_string();
        assert!(text.contains(word), "{word:?} is missing in {text}");
        // As it was, for its release.
        (schema.children, schema.format) = (children, format);
    };
    fails(&|schema| schema.format = ptr::null(), "no format");
    fails(&|schema| schema.format = c"+s\xff".as_ptr(), "not UTF-8");
    fails(&|schema| schema.format = c"+zz".as_ptr(), "+zz");
    fails(&|schema| schema.format = c"+l".as_ptr(), "1 children, not 2");
    fails(&|schema| schema.name = c"\xc3\x28".as_ptr(), "not UTF-8");
    fails(&|schema| schema.n_children = -1, "-1 children");
    fails(&|schema| schema.n_children = i64::MAX, "children");
    fails(&|schema| schema.children = ptr::null_mut(), "children");
    static NEGATIVE: [u8; 4] = (-1i32).to_ne_bytes();
    fails(&|schema| schema.metadata = NEGATIVE.as_ptr().cast(), "metadata");
    assert!(read(&ArrowSchema::empty()).is_err());
    // A child that is its own child.
    let schema = sample().export().unwrap();
    // SAFETY: `export` made two children.
    let children = unsafe { pointers(schema.children, 2, "children") }.unwrap();
    // SAFETY: a child of this export, used by no one else.
    let list = unsafe { &mut *children[1] };
    let own = ptr::from_mut(list);
    // SAFETY: the list has one child; the cycle is undone before the release.
    let item = unsafe { std::mem::replace(&mut *list.children, own) };
    assert!(read(&schema).unwrap_err().to_string().contains("cycle"));
    // SAFETY: as above.
    unsafe { *list.children = item };
}
