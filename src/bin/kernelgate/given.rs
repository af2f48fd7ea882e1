//! What is given on the command line, checked before a long run and not after it.

use std::fs::File;
use std::path::Path;

use anyhow::Context;

/// Most of anything that is counted: beyond it a run would not end.
const MOST: usize = 1_000_000;

/// Largest extent of a matrix. The product of two, in bytes, still fits in 64 bits.
const LARGEST: usize = 1 << 30;

/// For clap: a number of things of which none would be a run that checks nothing.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    within(text, 1, MOST)
}

/// For clap: a hidden or intermediate size of a layer.
pub fn width(text: &str) -> Result<usize, String> {
    within(text, 1, 1 << 16)
}

/// For clap: a number of things that may be none.
pub fn count(text: &str) -> Result<usize, String> {
    within(text, 0, MOST)
}

/// For clap: an extent of a matrix, rows of a group among them, which may be none.
pub fn extent(text: &str) -> Result<usize, String> {
    within(text, 0, LARGEST)
}

/// Three extents, separated by commas.
pub fn three_extents(text: &str) -> Result<[usize; 3], String> {
    let extents: Result<Vec<usize>, String> = text.split(',').map(|s| extent(s.trim())).collect();
    extents?
        .try_into()
        .map_err(|_| "expected three sizes, as in 1,128,640".into())
}

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "`{text}`: expected a number of at least {least} and at most {most}"
        )),
    }
}

/// For clap: a part of a file's name.
pub fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(plain) {
        return Err("expected letters, digits, `-`, `_` and `.`".into());
    }
    Ok(text.to_owned())
}

/// For clap: a commit, of which the head of a record keeps one line.
pub fn commit(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
        return Err("expected the id of a commit: one word".into());
    }
    Ok(text.to_owned())
}

/// For clap: a day.
pub fn day(text: &str) -> Result<String, String> {
    let expected = || format!("`{text}`: expected a day as YYYY-MM-DD");
    if text.len() != 10 {
        return Err(expected());
    }
    humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).map_err(|_| expected())?;
    Ok(text.to_owned())
}

/// For clap: seconds that something may take.
pub fn seconds(text: &str) -> Result<u64, String> {
    within(text, 1, 86_400).map(|seconds| seconds as u64)
}

/// Tries a file that is to be written at the end, and leaves it as it was.
///
/// # Errors
/// Names the file.
pub fn writable(path: &Path) -> anyhow::Result<()> {
    let existed = path.symlink_metadata().is_ok();
    // A pipe or device is not opened twice: its reader would see an end.
    if existed && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    File::options()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_be_written_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        writable(&file).unwrap();
        assert!(!file.exists(), "it was not there before");
        std::fs::write(&file, "text").unwrap();
        writable(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        let error = writable(&folder.path().join("no/f")).unwrap_err();
        assert!(error.to_string().contains("no/f"), "{error}");
        assert!(writable(folder.path()).is_err(), "a folder is no file");
    }

    #[test]
    fn none_and_paths_are_refused() {
        assert_eq!(at_least_one("3"), Ok(3));
        for wrong in ["0", "-1", "x", "", "1000001", "18446744073709551616"] {
            assert!(at_least_one(wrong).is_err(), "{wrong}");
        }
        assert_eq!(count("0"), Ok(0));
        assert_eq!(three_extents("1, 128,640"), Ok([1, 128, 640]));
        for wrong in ["1,2", "1,2,3,4", "1,2,x", "1,2,1073741825"] {
            assert!(three_extents(wrong).is_err(), "{wrong}");
        }
        assert_eq!(name("h200").as_deref(), Ok("h200"));
        for wrong in ["a/b", "..", "", "a b"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert!(commit("ae2d73a").is_ok());
        for wrong in ["", " ", "a\nb", "a b"] {
            assert!(commit(wrong).is_err(), "{wrong:?}");
        }
        assert!(day("2026-02-28").is_ok());
        for wrong in ["2026-13-41", "2026-02-30", "2026-1-1", "y", ""] {
            assert!(day(wrong).is_err(), "{wrong}");
        }
    }
}
