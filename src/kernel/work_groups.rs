//! The work-groups that a kernel declares: in its source, where drivers ignore it, and as built. Pure.

use crate::device::GroupSizes;

/// The properties of work-groups that the declaration of a kernel states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeclaredGroups {
    /// Whether it runs once, over no range.
    pub(super) is_single_task: bool,
    /// The most work-items of a group.
    pub(super) most: Option<usize>,
}

const FIX: &str = "choose a range that this size divides, and omit local_size or pass this size";

impl DeclaredGroups {
    /// Reads the declaration of a kernel, up to its name.
    pub(super) fn of(declaration: &[&str]) -> Self {
        let mut found = Self::default();
        for (at, token) in declaration.iter().enumerate() {
            match token.trim_matches('"') {
                "single_task_kernel" | "sycl-single-task-kernel" => found.is_single_task = true,
                "max_work_group_size"
                | "max_linear_work_group_size"
                | "sycl-max-work-group-size"
                | "sycl-max-linear-work-group-size" => {
                    let items = numbers(&declaration[at + 1..]).into_iter().reduce(usize::saturating_mul);
                    found.most = found.most.into_iter().chain(items).min();
                }
                _ => {}
            }
        }
        found
    }

    /// The sizes of the groups in a launch, if they must not be left to the driver, or why the launch is refused. `local`
    /// divides `global`, and the device has groups of this size.
    pub(super) fn groups(
        self,
        (global, local): (&[usize], Option<&[usize]>),
        built: GroupSizes,
    ) -> Result<Option<[usize; 3]>, String> {
        let items = |extents: &[usize]| extents.iter().copied().fold(1, usize::saturating_mul);
        if self.is_single_task && items(global) != 1 {
            return Err(format!(
                "declared as a single task, but range {global:?} has {} work-items; launch it over 1",
                items(global)
            ));
        }
        if let Some(required) = built.required {
            return self::required(&required, global, local).map(Some);
        }
        let as_three = |local: &[usize]| {
            let mut three = [1; 3];
            three[..local.len()].copy_from_slice(local);
            three
        };
        let Some(local) = local else {
            return match self.most {
                // The driver could choose larger groups.
                Some(most) if built.most.is_none_or(|built| built > most) && items(global) > most => {
                    Err(format!(
                        "its source allows at most {most} work-items in a work-group, which the driver of this device does not \
                     observe; give local_size"
                    ))
                }
                _ => Ok(None),
            };
        };
        if let Some(most) = self.most.filter(|most| items(local) > *most) {
            return Err(format!(
                "local range {local:?} has more than the {most} work-items that its source allows in a work-group"
            ));
        }
        if let Some(most) = built.most.filter(|most| items(local) > *most) {
            return Err(format!(
                "local range {local:?} has more than the {most} work-items that a work-group of this kernel can have on this \
                 device"
            ));
        }
        Ok(Some(as_three(local)))
    }
}

/// The required size for this range. `required` is in the driver's order of dimensions, in which the first varies fastest.
fn required(required: &[usize; 3], global: &[usize], local: Option<&[usize]>) -> Result<[usize; 3], String> {
    let mut size = [1; 3];
    for (to, from) in size.iter_mut().zip(required[..global.len()].iter().rev()) {
        *to = *from;
    }
    let (own, others) = (&size[..global.len()], &required[global.len()..]);
    if others.iter().any(|extent| *extent != 1) {
        let mut all = *required;
        all.reverse();
        return Err(format!(
            "its required work-group size {all:?} has more dimensions than range {global:?}"
        ));
    }
    if let Some(local) = local.filter(|local| *local != own) {
        return Err(format!("local range {local:?} is not its required work-group size {own:?}; {FIX}"));
    }
    if global.iter().zip(own).any(|(all, group)| all % group != 0) {
        return Err(format!("its required work-group size {own:?} does not divide range {global:?}; {FIX}"));
    }
    Ok(size)
}

/// The numbers between the next brackets, also those of one text.
pub(super) fn numbers(tokens: &[&str]) -> Vec<usize> {
    let end = tokens.iter().position(|token| matches!(*token, ")" | ">" | "]")).unwrap_or(tokens.len());
    let texts = tokens[..end].iter().flat_map(|token| token.trim_matches('"').split(','));
    let number = |text: &str| text.trim_end_matches(['u', 'U', 'l', 'L', 'z', 'Z']).trim().parse().ok();
    texts.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn of(text: &str) -> DeclaredGroups {
        DeclaredGroups::of(&tokens(text))
    }

    #[test]
    fn limits_are_read_in_every_spelling() {
        for (text, is_single_task, most) in [
            ("SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((e::single_task_kernel)) void", true, None),
            ("SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((e::nd_range_kernel<1>)) void", false, None),
            ("PROPERTY((e::max_linear_work_group_size<8>)) void", false, Some(8)),
            ("[[intel::max_work_group_size(1, 2, 8)]] void", false, Some(16)),
            (
                "[[intel::max_work_group_size(64u)]] PROPERTY((max_linear_work_group_size<32>)) void",
                false,
                Some(32),
            ),
            ("add_ir_attributes_function(\"sycl-max-work-group-size\", \"1,4,8\") void", false, Some(32)),
            ("add_ir_attributes_function(\"sycl-max-linear-work-group-size\", 4) void", false, Some(4)),
            ("add_ir_attributes_function(\"sycl-single-task-kernel\", nullptr) void", true, None),
        ] {
            assert_eq!(of(text), DeclaredGroups { is_single_task, most }, "{text}");
        }
    }

    #[test]
    fn a_required_size_is_that_of_each_launch_or_an_error() {
        let eight = GroupSizes { required: Some([8, 1, 1]), most: Some(8192), local_memory: 0 };
        let square = GroupSizes { required: Some([8, 4, 1]), most: Some(8192), local_memory: 0 };
        let cube = GroupSizes { required: Some([8, 4, 2]), most: Some(8192), local_memory: 0 };
        for (global, local, built, expected) in [
            (&[16][..], None, eight, Ok([8, 1, 1])),
            (&[16], Some(&[8][..]), eight, Ok([8, 1, 1])),
            (&[16], Some(&[16]), eight, Err("local range [16] is not its required work-group size [8]")),
            (&[12], None, eight, Err("its required work-group size [8] does not divide range [12]")),
            (&[0], None, eight, Ok([8, 1, 1])),
            (&[3, 16], None, eight, Ok([1, 8, 1])),
            (&[4, 16], None, square, Ok([4, 8, 1])),
            (&[16, 4], None, square, Err("size [4, 8] does not divide range [16, 4]")),
            (&[32], None, square, Err("size [1, 4, 8] has more dimensions than range [32]")),
            (&[1, 4, 8], None, square, Ok([1, 4, 8])),
            (&[2, 4, 8], Some(&[2, 4, 8]), cube, Ok([2, 4, 8])),
            (&[3, 4, 8], None, cube, Err("does not divide range [3, 4, 8]")),
        ] {
            match (DeclaredGroups::default().groups((global, local), built), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, Some(expected), "{global:?}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, _) => unreachable!("{global:?} {local:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_limit_of_the_source_holds_where_the_driver_ignores_it() {
        let (known, ignored) =
            (GroupSizes { required: None, most: Some(8), local_memory: 0 }, GroupSizes::default());
        let limited = DeclaredGroups { most: Some(8), ..DeclaredGroups::default() };
        assert_eq!(limited.groups((&[64], None), known), Ok(None));
        assert_eq!(limited.groups((&[8], None), ignored), Ok(None));
        assert!(limited.groups((&[64], None), ignored).is_err_and(|why| why.contains("give local_size")));
        assert_eq!(limited.groups((&[64], Some(&[8])), ignored), Ok(Some([8, 1, 1])));
        assert!(
            limited.groups((&[64], Some(&[16])), ignored).is_err_and(|why| why.contains("the 8 work-items"))
        );
        assert!(limited.groups((&[4, 16], Some(&[4, 4])), known).is_err());
        let plain = DeclaredGroups::default();
        assert!(plain.groups((&[64], Some(&[16])), known).is_err_and(|why| why.contains("of this kernel")));
        let single = DeclaredGroups { is_single_task: true, most: None };
        assert_eq!(single.groups((&[1, 1], None), ignored), Ok(None));
        for wrong in [&[12][..], &[0], &[2, 1], &[1, 1, 3]] {
            assert!(single.groups((wrong, None), ignored).is_err_and(|why| why.contains("single task")));
        }
    }
}
