//! compute-sanitizer's flags, by its own names.

use std::ffi::OsString;

use clap::ValueEnum;
use cuda::check::config::{Config, DestroyOnDeviceError, MOST_PADDING, Tool};

use super::outcome::Rules;
use super::usage;

/// compute-sanitizer's tools.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// Run PROGRAM under a sanitizer: NVIDIA's where there is a GPU and the tool, the
/// CPU driver's checkers otherwise. Flags and exit rules are compute-sanitizer's.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit code: --error-exitcode when there are findings, else PROGRAM's own. \
A PROGRAM that never reached CUDA gives 255, or 3 with --require-cuda-init no: it is never a pass. \
Neither is a run whose report is not whole, nor, on the CPU driver, one in which no kernel launch \
was checked: 3 where it would be 0. A sentence on stderr says why."
)]
pub struct Arguments {
    /// memcheck, racecheck, initcheck or synccheck.
    #[arg(long, default_value = "memcheck")]
    tool: String,
    /// Report allocations that are never freed.
    #[arg(long, value_enum, default_value_t = LeakCheck::No)]
    leak_check: LeakCheck,
    /// Exit code when there are findings; 0 leaves PROGRAM's own.
    #[arg(long, default_value_t = 0, value_name = "CODE")]
    error_exitcode: u8,
    /// What an invalid access takes with it.
    #[arg(long, value_enum, default_value_t = DestroyFlag::Context)]
    destroy_on_device_error: DestroyFlag,
    /// Print at most this many findings; 0 prints all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    print_limit: u64,
    /// Check only these kernels: `kne=NAME` (or NAME) exactly, `kns=PART` by part,
    /// `regex=EXPRESSION`.
    #[arg(long, value_name = "FILTER")]
    kernel_name: Vec<String>,
    /// Do not check these kernels; same form as --kernel-name.
    #[arg(long, value_name = "FILTER")]
    kernel_name_exclude: Vec<String>,
    /// Leave this many launches unchecked first.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    launch_skip: u64,
    /// Check this many launches after those; 0 checks all.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    launch_count: u64,
    /// Write the report to this file; %p is the process id.
    #[arg(long, value_name = "FILE")]
    log_file: Option<String>,
    /// Save a machine-readable report: JSON, or NVIDIA's own form under its tool.
    #[arg(long, value_name = "FILE")]
    save: Option<String>,
    /// Save as XML; needs --save.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true,
          default_value_t = YesNo::No, default_missing_value = "yes")]
    xml: YesNo,
    /// Print the report as JSON on stdout instead of text, after PROGRAM's output
    /// (CPU driver only).
    #[arg(long, conflicts_with_all = ["log_file", "xml"])]
    pub json: bool,
    /// Bytes without access after each allocation.
    #[arg(long, default_value_t = 0, value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(..=MOST_PADDING))]
    padding: u64,
    /// Whether a PROGRAM that never reaches CUDA is an error of its own.
    #[arg(long, value_enum, default_value_t = YesNo::Yes)]
    require_cuda_init: YesNo,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LeakCheck {
    Full,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DestroyFlag {
    Context,
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// compute-sanitizer takes `--xml` alone and `--xml yes`. clap cannot tell the
/// latter's value from PROGRAM, so it is joined first.
pub fn joined_xml(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    for argument in arguments {
        let is_value = argument == "yes" || argument == "no";
        match joined.last_mut() {
            Some(last) if is_value && last == "--xml" => {
                last.push("=");
                last.push(&argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

impl Arguments {
    /// The tool asked for, by compute-sanitizer's name.
    pub fn tool(&self) -> anyhow::Result<&'static str> {
        TOOLS
            .into_iter()
            .find(|tool| *tool == self.tool)
            .ok_or_else(|| {
                usage(format!(
                    "there is no tool `{}`; the tools are {}",
                    self.tool,
                    TOOLS.join(", ")
                ))
            })
    }

    /// What decides the exit code.
    pub fn rules(&self) -> Rules {
        Rules {
            error_exitcode: self.error_exitcode,
            require_cuda_init: self.require_cuda_init == YesNo::Yes,
        }
    }

    /// PROGRAM and its arguments.
    pub fn program(&self) -> (&OsString, &[OsString]) {
        let (program, arguments) = self.program.split_first().expect("clap requires one");
        (program, arguments)
    }

    /// Where the text report goes, if not to stdout.
    pub fn log_file(&self) -> Option<&str> {
        self.log_file.as_deref()
    }

    /// For our driver. `status_file` is where it reports to this process, and
    /// `json_file` where it leaves the findings under `--json`.
    ///
    /// # Errors
    /// A tool that our driver does not have yet, a filter that is none, `--xml`
    /// without `--save`.
    pub fn config(&self, status_file: &str, json_file: &str) -> anyhow::Result<Config> {
        let mut config = Config {
            tool: our_tool(self.tool()?)?,
            leak_check: self.leak_check == LeakCheck::Full,
            destroy_on_device_error: match self.destroy_on_device_error {
                DestroyFlag::Context => DestroyOnDeviceError::Context,
                DestroyFlag::Kernel => DestroyOnDeviceError::Kernel,
            },
            print_limit: self.print_limit,
            kernel_name: with_key(&self.kernel_name),
            kernel_name_exclude: with_key(&self.kernel_name_exclude),
            launch_skip: self.launch_skip,
            launch_count: self.launch_count,
            log_file: self.log_file.clone(),
            save: self.save.clone(),
            xml: self.xml == YesNo::Yes,
            padding: self.padding,
            status_file: Some(status_file.to_string()),
            ..Config::default()
        };
        if self.json {
            config.log_file = Some("/dev/null".into());
            config.save.get_or_insert_with(|| json_file.to_string());
        }
        config.check().map_err(|error| usage(error.to_string()))?;
        Ok(config)
    }

    /// For NVIDIA's tool: what differs from its defaults, then PROGRAM.
    pub fn vendor_arguments(&self) -> anyhow::Result<Vec<OsString>> {
        let mut out: Vec<OsString> = Vec::new();
        let mut flag = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            out.push(name.into());
            out.push(value.as_ref().to_os_string());
        };
        flag("--tool", &self.tool);
        if self.leak_check == LeakCheck::Full {
            flag("--leak-check", &"full");
        }
        if self.error_exitcode != 0 {
            flag("--error-exitcode", &self.error_exitcode.to_string());
        }
        if self.destroy_on_device_error == DestroyFlag::Kernel {
            flag("--destroy-on-device-error", &"kernel");
        }
        if self.print_limit != 100 {
            flag("--print-limit", &self.print_limit.to_string());
        }
        for (name, values) in [
            ("--kernel-name", &self.kernel_name),
            ("--kernel-name-exclude", &self.kernel_name_exclude),
        ] {
            for filter in with_key(values) {
                flag(name, &filter);
            }
        }
        if self.launch_skip != 0 {
            flag("--launch-skip", &self.launch_skip.to_string());
        }
        if self.launch_count != 0 {
            flag("--launch-count", &self.launch_count.to_string());
        }
        if let Some(file) = &self.log_file {
            flag("--log-file", file);
        }
        if let Some(file) = &self.save {
            flag("--save", file);
        }
        if self.padding != 0 {
            flag("--padding", &self.padding.to_string());
        }
        if self.require_cuda_init == YesNo::No {
            flag("--require-cuda-init", &"no");
        }
        if self.xml == YesNo::Yes {
            if self.save.is_none() {
                return Err(usage("--xml needs --save FILE".into()));
            }
            out.push("--xml".into());
        }
        out.extend(self.program.iter().cloned());
        Ok(out)
    }
}

/// compute-sanitizer wants `key=value`; a bare name is taken for the whole name.
fn with_key(filters: &[String]) -> Vec<String> {
    filters
        .iter()
        .map(|filter| match filter.contains('=') {
            true => filter.clone(),
            false => format!("kne={filter}"),
        })
        .collect()
}

/// The driver's own list decides which tools are there.
pub fn our_tool(name: &str) -> anyhow::Result<Tool> {
    serde_json::from_value(serde_json::Value::from(name)).map_err(|_| {
        usage(format!(
            "the CPU driver has no {name} yet; run it on a GPU with NVIDIA's tool"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use kernelgate::exit::Exit;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("sanitize").chain(line.split_whitespace());
        Line::try_parse_from(joined_xml(words.map(OsString::from))).map(|l| l.arguments)
    }

    fn config(line: &str) -> Config {
        parse(line).unwrap().config("/status", "/json").unwrap()
    }

    #[test]
    fn every_flag_of_the_list_reaches_the_driver() {
        let got = config(
            "--tool memcheck --leak-check full --error-exitcode 1 --destroy-on-device-error kernel \
             --print-limit 7 --kernel-name kns=diff --kernel-name-exclude window \
             --launch-skip 2 --launch-count 3 --log-file r.txt --save r.xml --xml yes --padding 32 \
             --require-cuda-init no -- prog --leak-check no",
        );
        let want = Config {
            tool: Tool::Memcheck,
            leak_check: true,
            destroy_on_device_error: DestroyOnDeviceError::Kernel,
            print_limit: 7,
            kernel_name: vec!["kns=diff".into()],
            kernel_name_exclude: vec!["kne=window".into()],
            launch_skip: 2,
            launch_count: 3,
            log_file: Some("r.txt".into()),
            save: Some("r.xml".into()),
            xml: true,
            padding: 32,
            status_file: Some("/status".into()),
            ..Config::default()
        };
        assert_eq!(got, want);
    }

    #[test]
    fn no_flags_are_compute_sanitizers_defaults() {
        let want = Config {
            status_file: Some("/status".into()),
            ..Config::default()
        };
        assert_eq!(config("prog"), want);
        let rules = parse("prog").unwrap().rules();
        assert_eq!(rules.error_exitcode, 0);
        assert!(rules.require_cuda_init);
    }

    #[test]
    fn json_takes_the_place_of_the_text_and_keeps_a_saved_file() {
        let plain = config("--json prog");
        assert_eq!(plain.save.as_deref(), Some("/json"));
        assert_eq!(plain.log_file.as_deref(), Some("/dev/null"));
        assert_eq!(config("--json --save f prog").save.as_deref(), Some("f"));
        assert!(parse("--json --log-file f prog").is_err());
    }

    #[test]
    fn flags_after_the_program_are_the_programs() {
        let arguments = parse("--leak-check full prog --fixed --tool x").unwrap();
        let (program, rest) = arguments.program();
        assert_eq!(program, "prog");
        assert_eq!(rest, ["--fixed", "--tool", "x"]);
        assert_eq!(arguments.tool().unwrap(), "memcheck");
    }

    #[test]
    fn xml_is_taken_alone_and_with_a_value_and_never_eats_the_program() {
        for (line, xml) in [
            ("--save f --xml prog", true),
            ("--save f --xml yes prog", true),
            ("--save f --xml no prog", false),
            ("--save f --xml=yes prog", true),
        ] {
            assert_eq!(config(line).xml, xml, "{line}");
            assert_eq!(parse(line).unwrap().program().0, "prog", "{line}");
        }
        let alone = parse("--xml prog").unwrap();
        assert!(alone.config("/s", "/j").is_err());
        assert!(alone.vendor_arguments().is_err());
    }

    #[test]
    fn nvidias_tool_gets_the_same_flags_back() {
        let line = "--tool racecheck --leak-check full --error-exitcode 9 \
                    --destroy-on-device-error kernel --kernel-name kns=a --padding 8 \
                    --require-cuda-init no prog --x";
        let given: Vec<String> = parse(line)
            .unwrap()
            .vendor_arguments()
            .unwrap()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            given.join(" "),
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        for line in [
            "",
            "--leak-check maybe prog",
            "--error-exitcode 256 prog",
            "--error-exitcode -1 prog",
            "--destroy-on-device-error grid prog",
            "--print-limit x prog",
            "--no-such-flag prog",
            "--padding 1073741825 prog",
            "--padding 18446744073709551615 prog",
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        for line in ["--kernel-name kns= prog", "--kernel-name mod=x prog"] {
            let parsed = parse(line).unwrap();
            let error = parsed.config("/s", "/j").unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Usage, "{line:?}");
        }
    }

    #[test]
    fn a_tool_that_is_not_there_is_named_and_is_wrong_usage() {
        let unknown = parse("--tool leakcheck prog").unwrap().tool().unwrap_err();
        assert!(unknown.to_string().contains("leakcheck"), "{unknown}");
        assert_eq!(Exit::of(&unknown), Exit::Usage);
        let later = our_tool("warpcheck").unwrap_err();
        assert!(later.to_string().contains("warpcheck"), "{later}");
        assert_eq!(Exit::of(&later), Exit::Usage);
        assert_eq!(our_tool("memcheck").unwrap(), Tool::Memcheck);
    }
}
