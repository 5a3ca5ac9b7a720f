//! Validates a SPIR-V module before it reaches a driver: some drivers crash on invalid modules. Pure.

use super::module_ids::refuse_ids;

/// Source: the SPIR-V specification, section 2.3.
const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;
const ENTRY_POINT: u32 = 15;

/// Why these bytes are not a SPIR-V module with the kernel `name`.
pub(super) fn refuse_module(module: &[u8], name: &str) -> Result<(), String> {
    if module.is_empty() {
        return Err("the module is empty; pass the bytes of a SPIR-V module".to_owned());
    }
    let (words, rest) = module.as_chunks::<4>();
    let Some(first) = words.first().filter(|word| is_magic(word)) else {
        return Err(foreign(module));
    };
    let read = if u32::from_le_bytes(*first) == MAGIC { u32::from_le_bytes } else { u32::from_be_bytes };
    if !rest.is_empty() {
        return Err(format!(
            "the module has {} bytes, which is not a multiple of 4; it may be truncated",
            module.len()
        ));
    }
    if words.len() < HEADER {
        return Err(format!(
            "the module has {} bytes, but the SPIR-V header alone has 20; it may be truncated",
            module.len()
        ));
    }
    let mut names = Vec::new();
    let mut at = HEADER;
    while at < words.len() {
        let (count, code) = (read(words[at]) >> 16, read(words[at]) & 0xffff);
        let Some(instruction) = words.get(at..at + count as usize).filter(|found| !found.is_empty()) else {
            return Err(format!(
                "the instruction at byte {} of the module has a length of {count} words, but {} are left; it may \
                 be truncated",
                4 * at,
                words.len() - at
            ));
        };
        if code == ENTRY_POINT {
            names.extend(instruction.get(3..).map(|words| text(words, read)));
        }
        at += instruction.len();
    }
    if !names.iter().any(|found| found == name) {
        return Err(format!("the module has no kernel of this name; it has {names:?}"));
    }
    let little_endian: Vec<u8> = words.iter().flat_map(|word| read(*word).to_le_bytes()).collect();
    refuse_ids(&little_endian)
}

/// Whether an instruction of this module prints: `printf` of the set OpenCL.std, or a call with that name. Source: the
/// SPIR-V specification, OpExtInst, and the OpenCL Extended Instruction Set, section 2.8.
pub(super) fn prints_text(module: &[u8]) -> bool {
    const EXT_INST: u32 = 12;
    const PRINTF: u32 = 184;
    let (words, _) = module.as_chunks::<4>();
    let is_foreign = words.first().is_some_and(|first| u32::from_le_bytes(*first) != MAGIC);
    let read = if is_foreign { u32::from_be_bytes } else { u32::from_le_bytes };
    let mut at = HEADER;
    while let Some(first) = words.get(at).map(|word| read(*word)) {
        if first & 0xffff == EXT_INST && words.get(at + 4).is_some_and(|word| read(*word) == PRINTF) {
            return true;
        }
        at += (first >> 16).max(1) as usize;
    }
    module.windows(6).any(|part| part == b"printf")
}

fn is_magic(word: &[u8; 4]) -> bool {
    u32::from_le_bytes(*word) == MAGIC || u32::from_be_bytes(*word) == MAGIC
}

/// Reads a literal string up to its NUL, with the lowest byte of a word first.
fn text(words: &[[u8; 4]], read: fn([u8; 4]) -> u32) -> String {
    let bytes = words.iter().flat_map(|word| read(*word).to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The likely format of bytes without the magic number, and the fix.
fn foreign(module: &[u8]) -> String {
    let found = match module {
        [b'B', b'C', 0xc0, 0xde, ..] => "it is LLVM bitcode; llvm-spirv converts it",
        [0x7f, b'E', b'L', b'F', ..] => {
            "it is an ELF file; pass the SPIR-V module that it was made from, or that it contains"
        }
        _ if std::str::from_utf8(module).is_ok_and(|text| !text.contains('\0')) => {
            "it is text; from_opencl and from_sycl build sources, and spirv-as assembles a listing"
        }
        _ => "pass the bytes of a SPIR-V module",
    };
    format!("a SPIR-V module begins with the number 07230203, but this one does not: {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with entry points of these names only.
    fn module(names: &[&[u8]], write: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let mut words = vec![MAGIC, 0x0001_0000, 0, 9, 0];
        for name in names {
            let mut bytes = name.to_vec();
            bytes.resize(name.len() / 4 * 4 + 4, 0);
            let (chunks, _) = bytes.as_chunks::<4>();
            words.push((chunks.len() as u32 + 3) << 16 | ENTRY_POINT);
            words.extend([6, 1]);
            words.extend(chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)));
        }
        words.into_iter().flat_map(write).collect()
    }

    #[test]
    fn kernels_are_found_in_modules_of_either_byte_order() {
        for write in [u32::to_le_bytes, u32::to_be_bytes] {
            let module = module(&[b"add", b"a_long_name", b"four"], write);
            for name in ["add", "a_long_name", "four"] {
                assert_eq!(refuse_module(&module, name), Ok(()));
            }
            let why = refuse_module(&module, "ad").unwrap_err();
            assert!(why.ends_with(r#"it has ["add", "a_long_name", "four"]"#), "{why}");
        }
    }

    #[test]
    fn an_id_at_the_bound_is_refused_with_instruction_and_id() {
        let whole = module(&[b"add"], u32::to_le_bytes);
        // The bound is the fourth word, the function of the entry point the eighth.
        for (at, value, expected) in [
            (12, 0u32, "gives 0 as the bound"),
            (12, u32::MAX, "gives 4294967295 as the bound"),
            (28, 9, "OpEntryPoint of the module uses the id 9, but the header allows ids from 1 to 8"),
            (28, 0, "OpEntryPoint of the module uses the id 0"),
        ] {
            let mut changed = whole.clone();
            changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let why = refuse_module(&changed, "add").unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_module_that_prints_is_found() {
        for write in [u32::to_le_bytes, u32::to_be_bytes] {
            let mut changed = module(&[b"add"], write);
            assert!(!prints_text(&changed));
            let call = [7 << 16 | 12, 1, 2, 3, 184, 4, 5];
            changed.extend(call.into_iter().flat_map(write));
            assert!(prints_text(&changed));
            assert!(prints_text(&module(&[b"my_printf"], u32::to_le_bytes)));
        }
    }

    #[test]
    fn truncated_and_changed_modules_do_not_panic() {
        let whole = module(&[b"add"], u32::to_le_bytes);
        for length in 0..whole.len() {
            assert!(refuse_module(&whole[..length], "add").is_err(), "{length}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = refuse_module(&changed, "add");
            }
        }
        assert!(refuse_module(&[0xff; 64], "add").is_err_and(|why| why.contains("07230203")));
    }
}
