//! compute-sanitizer's flags, by its own names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cuda::check::config::{Config, Destroy, NameFilter, SaveForm, Tool};

use super::outcome::Rules;
use super::usage;

/// Run PROGRAM under a sanitizer: NVIDIA's where there is a GPU and the tool, the
/// CPU driver's checkers otherwise. Flags and exit rules are compute-sanitizer's.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit code: --error-exitcode when there are findings, else PROGRAM's own. \
A PROGRAM that never reached CUDA gives 255, or 3 with --require-cuda-init no: it is never a pass. \
Neither is a run without a SUMMARY line."
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
    /// Check only these kernels: `kne=NAME` (or NAME) exactly, `kns=PART` by part.
    #[arg(long, value_delimiter = ',', value_name = "FILTER")]
    kernel_name: Vec<String>,
    /// Do not check these kernels; same form as --kernel-name.
    #[arg(long, value_delimiter = ',', value_name = "FILTER")]
    kernel_name_exclude: Vec<String>,
    /// Leave this many launches unchecked first.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    launch_skip: u64,
    /// Check this many launches after those; 0 checks all.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    launch_count: u64,
    /// Write the report to this file; %p is the process id.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Save a machine-readable report.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Save as XML; needs --save.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true,
          default_value_t = YesNo::No, default_missing_value = "yes")]
    xml: YesNo,
    /// Print the report as JSON on stdout instead of text (CPU driver only).
    #[arg(long)]
    pub json: bool,
    /// Bytes without access after each allocation.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
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
    /// The tool asked for.
    pub fn tool(&self) -> anyhow::Result<Tool> {
        Tool::ALL
            .into_iter()
            .find(|tool| tool.name() == self.tool)
            .ok_or_else(|| {
                usage(&format!(
                    "there is no tool `{}`; the tools are {}",
                    self.tool,
                    super::names(&Tool::ALL)
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
    pub fn log_file(&self) -> Option<&Path> {
        self.log_file.as_deref()
    }

    /// For our driver.
    pub fn config(&self, tool: Tool, status_folder: &Path) -> anyhow::Result<Config> {
        let save_form = match (self.xml, &self.save) {
            (YesNo::Yes, None) => return Err(usage("--xml needs --save FILE")),
            (YesNo::Yes, Some(_)) => SaveForm::Xml,
            (YesNo::No, _) => SaveForm::Json,
        };
        Ok(Config {
            tool,
            leak_check: self.leak_check == LeakCheck::Full,
            destroy_on_device_error: match self.destroy_on_device_error {
                DestroyFlag::Context => Destroy::Context,
                DestroyFlag::Kernel => Destroy::Kernel,
            },
            print_limit: self.print_limit,
            kernel_name: filters(&self.kernel_name)?,
            kernel_name_exclude: filters(&self.kernel_name_exclude)?,
            launch_skip: self.launch_skip,
            launch_count: self.launch_count,
            log_file: self.log_file.clone(),
            save: self.save.clone(),
            save_form,
            json: self.json,
            padding: self.padding,
            status_folder: Some(status_folder.to_path_buf()),
        })
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
            for filter in filters(values)? {
                flag(name, &vendor_filter(&filter));
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
                return Err(usage("--xml needs --save FILE"));
            }
            out.push("--xml".into());
        }
        out.extend(self.program.iter().cloned());
        Ok(out)
    }
}

fn filters(texts: &[String]) -> anyhow::Result<Vec<NameFilter>> {
    texts.iter().map(|text| filter(text)).collect()
}

fn filter(text: &str) -> anyhow::Result<NameFilter> {
    let (key, value) = text.split_once('=').unwrap_or(("kne", text));
    if value.is_empty() {
        return Err(usage(&format!(
            "the kernel filter `{text}` names no kernel"
        )));
    }
    match key {
        "kne" | "kernel_name" => Ok(NameFilter::Exact(value.into())),
        "kns" | "kernel_substring" => Ok(NameFilter::Substring(value.into())),
        _ => Err(usage(&format!(
            "the kernel filter `{text}` starts with `{key}=`; expected kne=NAME or kns=PART"
        ))),
    }
}

fn vendor_filter(filter: &NameFilter) -> String {
    match filter {
        NameFilter::Exact(name) => format!("kne={name}"),
        NameFilter::Substring(part) => format!("kns={part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

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
        parse(line)
            .unwrap()
            .config(Tool::Memcheck, Path::new("/status"))
            .unwrap()
    }

    #[test]
    fn every_flag_of_the_list_reaches_the_driver() {
        let got = config(
            "--tool memcheck --leak-check full --error-exitcode 1 --destroy-on-device-error kernel \
             --print-limit 7 --kernel-name kns=diff --kernel-name-exclude kne=diffNext,window \
             --launch-skip 2 --launch-count 3 --log-file r.txt --save r.xml --xml yes --padding 32 \
             --require-cuda-init no -- prog --leak-check no",
        );
        let want = Config {
            tool: Tool::Memcheck,
            leak_check: true,
            destroy_on_device_error: Destroy::Kernel,
            print_limit: 7,
            kernel_name: vec![NameFilter::Substring("diff".into())],
            kernel_name_exclude: vec![
                NameFilter::Exact("diffNext".into()),
                NameFilter::Exact("window".into()),
            ],
            launch_skip: 2,
            launch_count: 3,
            log_file: Some("r.txt".into()),
            save: Some("r.xml".into()),
            save_form: SaveForm::Xml,
            json: false,
            padding: 32,
            status_folder: Some("/status".into()),
        };
        assert_eq!(got, want);
    }

    #[test]
    fn no_flags_are_compute_sanitizers_defaults() {
        let want = Config {
            status_folder: Some("/status".into()),
            ..Config::default()
        };
        assert_eq!(config("prog"), want);
        let rules = parse("prog").unwrap().rules();
        assert_eq!(rules.error_exitcode, 0);
        assert!(rules.require_cuda_init);
    }

    #[test]
    fn flags_after_the_program_are_the_programs() {
        let arguments = parse("--leak-check full prog --fixed --tool x").unwrap();
        let (program, rest) = arguments.program();
        assert_eq!(program, "prog");
        assert_eq!(rest, ["--fixed", "--tool", "x"]);
        assert_eq!(arguments.tool().unwrap(), Tool::Memcheck);
    }

    #[test]
    fn xml_is_taken_alone_and_with_a_value_and_never_eats_the_program() {
        for (line, form) in [
            ("--save f --xml prog", SaveForm::Xml),
            ("--save f --xml yes prog", SaveForm::Xml),
            ("--save f --xml no prog", SaveForm::Json),
            ("--save f --xml=yes prog", SaveForm::Xml),
        ] {
            assert_eq!(config(line).save_form, form, "{line}");
            assert_eq!(parse(line).unwrap().program().0, "prog", "{line}");
        }
        let alone = parse("--xml prog").unwrap();
        assert!(alone.config(Tool::Memcheck, Path::new("/s")).is_err());
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
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        for line in ["--kernel-name kns= prog", "--kernel-name mod=x prog"] {
            let parsed = parse(line).unwrap();
            assert!(
                parsed.config(Tool::Memcheck, Path::new("/s")).is_err(),
                "{line:?}"
            );
        }
    }

    #[test]
    fn an_unknown_tool_is_named() {
        let error = parse("--tool leakcheck prog").unwrap().tool().unwrap_err();
        assert!(error.to_string().contains("leakcheck"), "{error}");
        assert_eq!(
            kernelgate::exit::Exit::of(&error),
            kernelgate::exit::Exit::Usage
        );
    }
}
