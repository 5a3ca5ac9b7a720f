//! Why a device cannot run a kernel that its source defines: the runtime leaves such kernels out of a program. Pure.

use super::work_groups::numbers;

/// The properties of a device that a kernel may require.
pub(super) struct DeviceFacts<'a> {
    pub(super) name: String,
    pub(super) sub_groups: &'a [usize],
    pub(super) most_in_group: usize,
    pub(super) aspects: &'a [String],
}

/// Types of the language that only devices with an aspect have.
const TYPES: [(&str, &str); 3] = [("double", "fp64"), ("half", "fp16"), ("_Float16", "fp16")];

/// Names what the device lacks, as far as the tokens of the source show it.
pub(super) fn lack(tokens: &[&str], device: &DeviceFacts<'_>) -> String {
    let DeviceFacts { name, sub_groups, most_in_group, aspects } = device;
    let mut needs: Vec<String> = Vec::new();
    let mut add = |need: String| {
        if !needs.contains(&need) {
            needs.push(need);
        }
    };
    let has = |aspect: &str| aspects.iter().any(|known| known == aspect);
    for (at, token) in tokens.iter().enumerate() {
        let after = &tokens[at + 1..];
        match token.trim_matches('"') {
            "reqd_sub_group_size" | "sub_group_size" | "sycl-sub-group-size" => {
                numbers(after)
                    .first()
                    .filter(|size| !sub_groups.contains(size))
                    .into_iter()
                    .for_each(|size| add(format!("sub-groups of {size} work-items")));
            }
            "reqd_work_group_size" | "work_group_size" | "sycl-work-group-size" => {
                numbers(after)
                    .into_iter()
                    .reduce(usize::saturating_mul)
                    .filter(|items| items > most_in_group)
                    .into_iter()
                    .for_each(|items| add(format!("work-groups of {items} work-items")));
            }
            "aspect" if after.first() == Some(&"::") => {
                after
                    .get(1)
                    .filter(|aspect| !has(aspect))
                    .into_iter()
                    .for_each(|aspect| add(format!("the aspect {aspect}")));
            }
            other => {
                let of_type = TYPES.iter().find(|(name, aspect)| *name == other && !has(aspect));
                of_type
                    .into_iter()
                    .for_each(|(name, aspect)| add(format!("the type {name} (aspect {aspect})")));
            }
        }
    }
    let sizes = sub_groups.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let about = format!("it has sub-groups of {sizes} work-items, and work-groups of up to {most_in_group}");
    if needs.is_empty() {
        return format!(
            "the source compiles, but {name} cannot run the kernel; {about}; its aspects are {aspects:?}"
        );
    }
    format!("the kernel needs {}, which {name} lacks; {about}", needs.join(", "))
}

/// Adds the name of the SPIR-V capability to a log that has only its number.
pub(super) fn with_capability(log: String) -> String {
    const MARK: &str = "requires unsupported capability ";
    let number = log.split(MARK).nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let number: Option<u32> = number.and_then(|number| number.parse().ok());
    match number.and_then(rspirv::spirv::Capability::from_u32) {
        Some(capability) => format!(
            "{log}\nthe device's compiler lacks the SPIR-V capability {capability:?}, which an attribute or a function of the \
             source needs"
        ),
        None => log,
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    #[test]
    fn the_missing_property_is_named() {
        let aspects = ["cpu".to_owned(), "fp64".to_owned()];
        let device = DeviceFacts {
            name: "opencl:cpu:0".to_owned(),
            sub_groups: &[4, 8],
            most_in_group: 1024,
            aspects: &aspects,
        };
        for (source, part) in [
            (
                "[[sycl::reqd_sub_group_size(7)]] void f()",
                "needs sub-groups of 7 work-items, which opencl:cpu:0 lacks",
            ),
            ("PROPERTY((e::sub_group_size<16>)) void f()", "sub-groups of 16"),
            ("f(\"sycl-sub-group-size\", 32) void f()", "sub-groups of 32"),
            ("[[sycl::reqd_work_group_size(64, 64)]] void f()", "work-groups of 4096 work-items"),
            ("[[sycl::device_has(sycl::aspect::gpu)]] void f()", "the aspect gpu"),
            ("void f(half x, double y)", "needs the type half (aspect fp16), which"),
            ("[[sycl::reqd_sub_group_size(8)]] void f()", "the source compiles, but opencl:cpu:0 cannot run"),
        ] {
            let text = lack(&tokens(source), &device);
            assert!(text.contains(part) && text.contains("it has sub-groups of 4, 8 work-items"), "{text}");
        }
    }

    #[test]
    fn a_capability_gets_its_name() {
        let log = with_capability("SPIRV module requires unsupported capability 5892\nfailed".to_owned());
        assert!(log.contains("the SPIR-V capability KernelAttributesINTEL, which"), "{log}");
        assert_eq!(with_capability("error".to_owned()), "error");
    }
}
