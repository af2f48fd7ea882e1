//! One deliberate bug a file, the exact diagnostic beside it, and a clean twin
//! that must stay silent.
//!
//! `tests/diagnostics/*.ptx` each hold a kernel `buggy` and a kernel `clean`
//! with the same parameters. The head of the file says how to launch them:
//!
//! ```text
//! // launch: grid 2 block 64 shared 16      (all optional)
//! // arg: buffer 100                        (one line a parameter)
//! // unchecked: 0                           (what cuCtxSynchronize returns
//! //                                         for `buggy` without a sanitizer)
//! //| Invalid __global__ read of size 4 bytes
//! ```
//!
//! Lines after `//|` are the report of `buggy`, word for word, with addresses
//! written as distances from the arguments. `BLESS=1` writes them anew.

mod outside;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuda::check::config::{Config, DestroyOnDeviceError, VARIABLE};
use outside::{Cuda, Shape};

const FILE: &str = "KERNELGATE_TEST_FILE";
const KERNEL: &str = "KERNELGATE_TEST_KERNEL";

struct Case {
    path: PathBuf,
    ptx: String,
    shape: Shape,
    arguments: Vec<Argument>,
    unchecked: i32,
    expected: String,
}

#[derive(Debug, Clone)]
struct Argument {
    kind: String,
    bytes: u64,
    /// Added to the address that the kernel gets.
    offset: u64,
}

impl Case {
    fn read(path: &Path) -> Self {
        let ptx = std::fs::read_to_string(path).expect("a case");
        let mut case = Self {
            path: path.to_owned(),
            shape: Shape {
                grid: 1,
                block: 32,
                shared: 0,
            },
            arguments: Vec::new(),
            unchecked: i32::MIN,
            expected: String::new(),
            ptx: ptx.clone(),
        };
        for line in ptx.lines() {
            if let Some(text) = line.strip_prefix("// launch: ") {
                case.shape = shape(text);
            } else if let Some(text) = line.strip_prefix("// arg: ") {
                case.arguments.push(argument(text));
            } else if let Some(text) = line.strip_prefix("// unchecked: ") {
                case.unchecked = text.trim().parse().expect("a code");
            } else if let Some(text) = line.strip_prefix("//|") {
                case.expected += text.strip_prefix(' ').unwrap_or(text);
                case.expected.push('\n');
            }
        }
        assert_ne!(
            case.unchecked,
            i32::MIN,
            "{}: no `// unchecked:`",
            path.display()
        );
        case
    }

    fn name(&self) -> String {
        self.path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    }

    fn bless(&self, report: &str) {
        let mut text = String::new();
        let mut done = false;
        for line in self.ptx.lines().filter(|line| !line.starts_with("//|")) {
            if !line.starts_with("//") && !done {
                for expected in report.lines() {
                    let _ = writeln!(text, "{}", format!("//| {expected}").trim_end());
                }
                done = true;
            }
            let _ = writeln!(text, "{line}");
        }
        std::fs::write(&self.path, text).expect("a writable case");
    }
}

fn shape(text: &str) -> Shape {
    let mut shape = Shape {
        grid: 1,
        block: 32,
        shared: 0,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    for pair in words.chunks(2) {
        let value = pair[1].parse().expect("a number");
        match pair[0] {
            "grid" => shape.grid = value,
            "block" => shape.block = value,
            "shared" => shape.shared = value,
            other => panic!("unknown launch word {other}"),
        }
    }
    shape
}

fn argument(text: &str) -> Argument {
    let mut words = text.split_whitespace();
    let kind = words.next().expect("a kind").to_owned();
    let mut number = || {
        let word = words.find(|&word| word != "+")?;
        let value = word
            .strip_prefix("0x")
            .map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16));
        Some(value.expect("a number"))
    };
    Argument {
        bytes: number().unwrap_or(0),
        offset: number().unwrap_or(0),
        kind,
    }
}

/// The program under test. Prints the addresses of its arguments and the code
/// of the synchronise.
#[test]
fn child() {
    let (Ok(file), Ok(kernel)) = (std::env::var(FILE), std::env::var(KERNEL)) else {
        return;
    };
    let case = Case::read(Path::new(&file));
    let cuda = Cuda::start();
    let module = cuda.load(&case.ptx);
    let function = cuda.function(module, &kernel);
    let mut host = vec![0_u8; 4096];
    let bases: Vec<u64> = case
        .arguments
        .iter()
        .map(|argument| make(&cuda, argument, &mut host, &kernel))
        .collect();
    for base in &bases {
        println!("ARGUMENT {base:#x}");
    }
    let values: Vec<u64> = bases
        .iter()
        .zip(&case.arguments)
        .map(|(base, argument)| {
            base + if kernel == "clean" {
                0
            } else {
                argument.offset
            }
        })
        .collect();
    println!("LAUNCH {}", cuda.launch(function, case.shape, &values));
    println!("SYNCHRONIZE {}", cuda.synchronize());
    std::process::exit(0);
}

/// An argument's value, less its offset. The clean twin gets good memory where
/// the buggy kernel gets freed, wild or host memory.
fn make(cuda: &Cuda, argument: &Argument, host: &mut [u8], kernel: &str) -> u64 {
    let bytes = argument.bytes as usize;
    let clean = kernel == "clean";
    let device = || {
        let address = cuda.alloc(bytes);
        assert_eq!(cuda.memset(address, 0, bytes), 0);
        address
    };
    match argument.kind.as_str() {
        "buffer" => device(),
        "freed" => {
            let address = device();
            if !clean {
                assert_eq!(cuda.mem_free(address), 0);
            }
            address
        }
        "host" if clean => device(),
        "host" => host.as_mut_ptr().expose_provenance() as u64,
        "wild" if clean => cuda.alloc(4096),
        "wild" => argument.bytes,
        "managed" => {
            let mut address = 0;
            assert_eq!(cuda.mem_alloc_managed(&raw mut address, bytes, 1), 0);
            address
        }
        "pinned" => {
            let mut address = std::ptr::null_mut();
            assert_eq!(cuda.mem_host_alloc(&raw mut address, bytes, 0), 0);
            address.expose_provenance() as u64
        }
        "registered" => {
            let address = host.as_mut_ptr();
            assert_eq!(cuda.mem_host_register(address.cast(), bytes, 0), 0);
            address.expose_provenance() as u64
        }
        "number" => argument.bytes,
        other => panic!("unknown argument kind {other}"),
    }
}

struct Run {
    synchronize: i32,
    arguments: Vec<u64>,
    /// Empty without a sanitizer.
    report: String,
}

fn run(case: &Case, kernel: &str, config: Option<Config>) -> Run {
    let log = std::env::temp_dir().join(format!(
        "kernelgate-diagnostics-{}-{}-{kernel}-{:?}",
        std::process::id(),
        case.name(),
        std::thread::current().id()
    ));
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command
        .args(["child", "--exact", "--nocapture"])
        .env(FILE, &case.path)
        .env(KERNEL, kernel)
        .env_remove(VARIABLE);
    if let Some(config) = config {
        let config = Config {
            log_file: Some(log.to_string_lossy().into_owned()),
            show_backtrace: false,
            ..config
        };
        command.env(VARIABLE, config.to_variable());
    }
    let Output {
        stdout,
        stderr,
        status,
    } = command.output().expect("a child process");
    let output = String::from_utf8_lossy(&stdout);
    let complaint = String::from_utf8_lossy(&stderr);
    assert!(
        status.success(),
        "{} {kernel}: {status}\n{output}\n{complaint}",
        case.name()
    );
    let words = |key: &str| {
        let values = output.lines().filter_map(|line| line.split_once(key));
        values
            .map(|(_, value)| value.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let code = |key: &str| words(key)[0].parse::<i32>().expect("a code");
    assert_eq!(
        code("LAUNCH"),
        0,
        "{} {kernel}: launch\n{complaint}",
        case.name()
    );
    let hex = |text: String| u64::from_str_radix(&text[2..], 16).expect("hexadecimal");
    let report = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    Run {
        synchronize: code("SYNCHRONIZE"),
        arguments: words("ARGUMENT").into_iter().map(hex).collect(),
        report,
    }
}

/// The findings of a report: without head, summary, code offsets and addresses.
fn findings(case: &Case, run: &Run) -> String {
    let mut text = String::new();
    for line in run.report.lines() {
        let line = line.strip_prefix("=========").expect("a prefix");
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line != "KERNELGATE SANITIZER" && !line.contains("SUMMARY") {
            let _ = writeln!(text, "{}", symbolic(case, &run.arguments, line).trim_end());
        }
    }
    text.trim_end().to_owned() + if text.is_empty() { "" } else { "\n" }
}

/// `0x7000060060a0` as `ARGUMENT0+0xa0`, `kernel+0x40 in` as `kernel+OFFSET in`.
fn symbolic(case: &Case, arguments: &[u64], line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..]
            .find(|letter: char| !letter.is_ascii_hexdigit())
            .map_or(rest.len(), |end| at + 2 + end);
        text.push_str(&rest[..at]);
        let value = u64::from_str_radix(&rest[at + 2..digits], 16).expect("hexadecimal");
        if text.ends_with('+') {
            text.push_str("OFFSET");
        } else {
            text.push_str(&name(case, arguments, value));
        }
        rest = &rest[digits..];
    }
    far(text + rest)
}

/// Distances between address spaces depend on where the system puts them.
fn far(line: String) -> String {
    let (start, end) = ("    and is ", " bytes before the nearest");
    match line
        .strip_prefix(start)
        .and_then(|rest| rest.split_once(end))
    {
        Some((distance, rest)) if distance.matches(',').count() > 2 => {
            format!("{start}FAR{end}{rest}")
        }
        _ => line,
    }
}

fn name(case: &Case, arguments: &[u64], value: u64) -> String {
    let near = arguments
        .iter()
        .enumerate()
        .filter(|(index, _)| !matches!(case.arguments[*index].kind.as_str(), "wild" | "number"))
        .min_by_key(|(_, base)| value.abs_diff(**base));
    match near {
        Some((index, &base)) if value == base => format!("ARGUMENT{index}"),
        Some((index, &base)) if value.abs_diff(base) < 1 << 20 => {
            let sign = if value < base { '-' } else { '+' };
            format!("ARGUMENT{index}{sign}{:#x}", value.abs_diff(base))
        }
        _ if value >= 1 << 32 => "ADDRESS".to_owned(),
        _ => format!("{value:#x}"),
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("tests/diagnostics")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 20, "only {} cases", paths.len());
    paths.iter().map(|path| Case::read(path)).collect()
}

fn kernel_mode() -> Option<Config> {
    Some(Config {
        destroy_on_device_error: DestroyOnDeviceError::Kernel,
        ..Config::default()
    })
}

/// Runs `check` on every case and names all that fail.
fn for_each_case(check: impl Fn(&Case) -> Result<(), String> + Sync) {
    let cases = cases();
    let failures: BTreeMap<String, String> = cases
        .iter()
        .filter_map(|case| Some((case.name(), check(case).err()?)))
        .collect();
    let mut text = String::new();
    for (name, failure) in &failures {
        let _ = writeln!(text, "--- {name}\n{failure}");
    }
    assert!(
        failures.is_empty(),
        "{} of {} fail\n{text}",
        failures.len(),
        cases.len()
    );
}

fn expect<T: PartialEq + std::fmt::Display>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}: expected\n{want}\ngot\n{got}"))
    }
}

#[test]
fn each_bug_is_reported_word_for_word_and_only_its_kernel_is_lost() {
    let bless = std::env::var_os("BLESS").is_some();
    for_each_case(|case| {
        let run = run(case, "buggy", kernel_mode());
        let report = findings(case, &run);
        if bless {
            case.bless(&report);
            return Ok(());
        }
        if report.is_empty() {
            return Err("no finding".into());
        }
        expect("report", report, case.expected.clone())?;
        expect("cuCtxSynchronize", run.synchronize, 0)
    });
}

#[test]
fn each_clean_twin_stays_silent_checked_and_unchecked() {
    for_each_case(|case| {
        for config in [kernel_mode(), Some(Config::default()), None] {
            let checked = config.is_some();
            let run = run(case, "clean", config);
            expect("cuCtxSynchronize", run.synchronize, 0)?;
            expect("report", findings(case, &run), String::new())?;
            let summary = run.report.ends_with("========= ERROR SUMMARY: 0 errors\n");
            expect("summary", summary, checked)?;
        }
        Ok(())
    });
}

#[test]
fn by_default_the_context_is_lost_with_error_719() {
    for_each_case(|case| {
        let run = run(case, "buggy", Some(Config::default()));
        expect("cuCtxSynchronize", run.synchronize, 719)?;
        let hit = "Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to \"unspecified launch \
                   failure\" on CUDA API call to cuCtxSynchronize.";
        expect("failed calls", run.report.matches(hit).count(), 1)
    });
}

#[test]
fn without_a_sanitizer_the_code_is_the_hardware_s() {
    for_each_case(|case| {
        let run = run(case, "buggy", None);
        expect("cuCtxSynchronize", run.synchronize, case.unchecked)?;
        expect("report", run.report, String::new())
    });
}
