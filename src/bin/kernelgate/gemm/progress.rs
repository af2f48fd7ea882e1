//! A progress bar on stderr that shows itself only when a run is not short.

use kernelgate::outln;
use kernelgate::output::OutputError;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts steps; nothing is drawn in the first two seconds, nor off a terminal.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    pub fn new(steps: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {bar:30} {elapsed} {wide_msg}")
        {
            bar.set_style(style);
        }
        Progress {
            bar,
            started: Instant::now(),
            shown: false,
        }
    }

    pub fn step(&mut self, doing: &str) {
        if !self.shown && self.started.elapsed() > Duration::from_secs(2) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_message(doing.to_owned());
        self.bar.inc(1);
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) -> Result<(), OutputError> {
        self.bar.suspend(|| outln!("{text}"))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
