//! Parameter sizes of a kernel, read from its PTX.
//!
//! `cuLaunchKernel` copies as many bytes an argument as the kernel declares and
//! trusts the caller for the rest. cuFuncGetParamInfo is newer than the oldest
//! driver that the lessons run on, so the header of the `.entry` is read instead.

/// Size in bytes of each parameter of `.entry name`, or `None` without that entry.
///
/// Limits: scalar parameters and byte arrays, which is what nvcc emits; a form that
/// is not understood counts as zero bytes and so never fits an argument.
pub(super) fn parameters(ptx: &str, name: &str) -> Option<Vec<usize>> {
    let list = parameter_list(ptx, name)?;
    Some(
        list.split(',')
            .map(str::trim)
            .filter(|p| !p.is_empty())
            .map(parameter_size)
            .collect(),
    )
}

fn parameter_list<'p>(ptx: &'p str, name: &str) -> Option<&'p str> {
    let mut rest = ptx;
    loop {
        let at = rest.find(".entry")?;
        rest = &rest[at + ".entry".len()..];
        let Some(after) = rest.trim_start().strip_prefix(name) else {
            continue;
        };
        let after = after.trim_start();
        if after.starts_with('{') || after.starts_with('.') {
            return Some("");
        }
        if let Some(list) = after.strip_prefix('(') {
            return list.split(')').next();
        }
    }
}

fn parameter_size(declaration: &str) -> usize {
    let element = declaration
        .split_whitespace()
        .find_map(scalar_size)
        .unwrap_or(0);
    match declaration.rsplit_once('[') {
        Some((_, count)) => {
            let count = count.trim_end_matches(']').trim();
            element * count.parse::<usize>().unwrap_or(0)
        }
        None => element,
    }
}

fn scalar_size(word: &str) -> Option<usize> {
    let bits = word
        .strip_prefix(".u")
        .or_else(|| word.strip_prefix(".s"))
        .or_else(|| word.strip_prefix(".b"))
        .or_else(|| word.strip_prefix(".f"))?;
    bits.parse::<usize>().ok().map(|bits| bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.visible .entry one(
    .param .u64 .ptr .align 1 one_param_0,
    .param .u32 one_param_1,
    .param .f32 one_param_2
)
{ ret; }
.visible .entry oneMore(
    .param .align 4 .b8 oneMore_param_0[12],
    .param .u64 oneMore_param_1
)
{ ret; }
.visible .entry none()
.maxntid 256
{ ret; }
";

    #[test]
    fn sizes_are_read_in_order_and_names_are_not_prefixes() {
        assert_eq!(parameters(PTX, "one"), Some(vec![8, 4, 4]));
        assert_eq!(parameters(PTX, "oneMore"), Some(vec![12, 8]));
        assert_eq!(parameters(PTX, "none"), Some(vec![]));
        assert_eq!(parameters(PTX, "on"), None);
        assert_eq!(parameters(PTX, "absent"), None);
    }

    #[test]
    fn every_lesson_kernel_has_its_signature() {
        use crate::kernels::{ADJACENT_DIFFERENCE, REDUCE, SQUARE, WINDOW_SUM};
        for (module, kernel, count) in [
            (REDUCE, "blockTreeSum", 3),
            (SQUARE, "squareGuarded", 3),
            (SQUARE, "squarePastEnd", 3),
            (ADJACENT_DIFFERENCE, "diffNext", 3),
            (ADJACENT_DIFFERENCE, "diffNextPastEnd", 4),
            (WINDOW_SUM, "windowSum", 3),
            (WINDOW_SUM, "windowSumPastTile", 3),
        ] {
            assert_eq!(
                parameters(module.ptx, kernel),
                Some(vec![8; count]),
                "{kernel}"
            );
        }
    }
}
