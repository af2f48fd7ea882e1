//! Real modules cut and damaged, arbitrary bytes, token soup: never a panic.

use super::{HEAD, TOUR};
use crate::ptx::parse;
use proptest::prelude::*;

#[test]
fn a_module_cut_anywhere_is_parsed_or_refused_without_panic() {
    let mut refused = 0;
    for end in (0..TOUR.len())
        .step_by(7)
        .filter(|&end| TOUR.is_char_boundary(end))
    {
        refused += usize::from(parse(&TOUR[..end]).is_err());
    }
    assert!(refused > 1000, "only {refused} cuts were refused");
}

/// Cuts, repeats and replaces pieces of real PTX.
fn damaged() -> impl Strategy<Value = String> {
    let edit = (0..TOUR.len(), 0..40_usize, 0..TOUR.len(), 0..3_u8);
    proptest::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut bytes = TOUR.as_bytes().to_vec();
        for (at, length, from, how) in edits {
            let at = at.min(bytes.len());
            let end = (at + length).min(bytes.len());
            let from = from.min(bytes.len().saturating_sub(length));
            let piece = match how {
                0 => Vec::new(),
                1 => bytes[from..(from + length).min(bytes.len())].to_vec(),
                _ => bytes[at..end]
                    .iter()
                    .map(|b| b.wrapping_add(13) & 0x7f)
                    .collect(),
            };
            bytes.splice(at..end, piece);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_modules_never_panic(text in damaged()) {
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = parse(&text);
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(&format!("{HEAD}.entry k() {{{text}}}"));
    }

    #[test]
    fn token_soup_never_panics(words in proptest::collection::vec(0..SOUP.len(), 0..120)) {
        let text: String = words.iter().map(|&w| SOUP[w]).collect::<Vec<_>>().join(" ");
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(&format!("{HEAD}.entry k() {{{text}}}"));
    }
}

const SOUP: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    ":",
    "=",
    "+",
    "-",
    "|",
    "!",
    "@",
    "_",
    "%r1",
    "$L",
    "k",
    "generic",
    ".entry",
    ".func",
    ".reg",
    ".global",
    ".param",
    ".b32",
    ".align",
    ".v4",
    ".loc",
    ".file",
    ".section",
    ".debug_str",
    ".callprototype",
    ".branchtargets",
    ".pragma",
    ".attribute",
    ".ptr",
    ".maxntid",
    "function_name",
    "inlined_at",
    "1",
    "0xFFFFFFFFFFFFFFFF",
    "18446744073709551616",
    "0f3F800000",
    "1.5",
    "\"s\"",
    ".extern",
    ".alias",
    ".target",
    "sm_75",
];
