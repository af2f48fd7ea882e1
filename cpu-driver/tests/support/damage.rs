//! Damage to PTX texts, the same for the same seed.

use std::path::{Path, PathBuf};

/// xorshift64*
pub struct Random(pub u64);

impl Random {
    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

/// Splits into words and what stands between them, so that joining gives the
/// text again.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        let kind = c.is_alphanumeric() || c == '_' || c == '%' || c == '$';
        if last == Some(kind) && kind {
            if let Some(word) = out.last_mut() {
                word.push(c);
            }
        } else {
            out.push(c.to_string());
        }
        last = Some(kind);
    }
    out
}

/// Words exchanged, doubled, dropped, or made into an odd number.
fn words_damaged(text: &str, random: &mut Random) -> String {
    // Most damage to the head only makes another target or version.
    let start = match random.below(8) {
        0 => 0,
        _ => text.find('{').unwrap_or(0),
    };
    let mut words = words(&text[start..]);
    for _ in 0..=random.below(4) {
        let (a, b) = (random.below(words.len()), random.below(words.len()));
        match random.below(5) {
            0 => words.swap(a, b),
            1 => words[a] = words[b].clone(),
            2 => words[a] = String::new(),
            3 => {
                let copy = words[b].clone();
                words.insert(a, copy);
            }
            _ => {
                let numbers = ["0", "-1", "4294967295", "7", "_", "9223372036854775807"];
                words[a] = numbers[random.below(numbers.len())].to_owned();
            }
        }
    }
    format!("{}{}", &text[..start], words.concat())
}

/// Statements dropped, doubled or exchanged, registers and labels exchanged with
/// others of their prefix, numbers made extreme: mostly still PTX.
fn statements_damaged(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let statements: Vec<usize> = (0..lines.len())
        .filter(|&at| {
            let line = lines[at].trim_start();
            line.contains(';') && !line.starts_with('.') && !line.starts_with("//")
        })
        .collect();
    if statements.is_empty() {
        return text.to_owned();
    }
    for _ in 0..=random.below(3) {
        let at = statements[random.below(statements.len())];
        let other = statements[random.below(statements.len())];
        match random.below(6) {
            0 => lines[at] = "\n".to_owned(),
            1 => lines.swap(at, other),
            2 => {
                let copy = lines[other].clone();
                lines[at].push_str(&copy);
            }
            _ => lines[at] = operand_damaged(&lines[at], &lines[other], random),
        }
    }
    lines.concat()
}

/// One word of a line exchanged with one of the same sort from another line.
fn operand_damaged(line: &str, other: &str, random: &mut Random) -> String {
    const EXTREMES: [&str; 8] = [
        "0",
        "1",
        "-1",
        "31",
        "32",
        "2147483647",
        "4294967295",
        "9223372036854775807",
    ];
    let sort = |word: &str| match word.as_bytes() {
        [b'0'..=b'9', ..] => 1,
        [b'%', ..] => 2,
        [b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$', ..] => 3,
        _ => 0,
    };
    let mut words = words(line);
    let candidates: Vec<usize> = (0..words.len())
        .filter(|&at| sort(&words[at]) != 0)
        .collect();
    if candidates.is_empty() {
        return line.to_owned();
    }
    let at = candidates[random.below(candidates.len())];
    if sort(&words[at]) == 1 && random.below(2) == 0 {
        words[at] = EXTREMES[random.below(EXTREMES.len())].to_owned();
        return words.concat();
    }
    let wanted = sort(&words[at]);
    let others: Vec<String> = self::words(other)
        .into_iter()
        .filter(|word| sort(word) == wanted)
        .collect();
    if !others.is_empty() {
        words[at] = others[random.below(others.len())].clone();
    }
    words.concat()
}

/// Flipped bits, a cut end, damaged words or statements.
pub fn damaged(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    match random.below(12) {
        0 => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        1 => bytes.truncate(random.below(bytes.len())),
        2..=5 => return words_damaged(text, random),
        _ => return statements_damaged(text, random),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Every PTX file below a folder.
pub fn ptx_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            ptx_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            into.push(path);
        }
    }
}

/// A number from the environment.
pub fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect(variable),
        Err(_) => default,
    }
}
