//! The scoreboard as text, Markdown and (through serde) JSON.

use std::fmt::Write;

use super::faults::CATALOGUE;
use super::limits;
use super::rivals::Rival;
use super::scoreboard::{Column, Scoreboard};

/// How a gate did on a fault: on inputs as its suite uses them, or on ours.
fn mark(rate: (usize, usize, usize, usize)) -> &'static str {
    match rate {
        (typical, _, _, _) if typical > 0 => "#",
        (_, _, caught, _) if caught > 0 => "o",
        _ => ".",
    }
}

const LEGEND: &str = "#  caught on inputs as suites use them (normal, aligned, BF16)   \
                      o  caught on our inputs only   .  missed";

fn rows(board: &Scoreboard) -> Vec<(String, Vec<String>)> {
    let columns = Column::all();
    let marks = |fault: &str| {
        (0..columns.len())
            .map(|c| mark(board.rate(fault, c)).to_owned())
            .collect::<Vec<_>>()
    };
    let mut rows: Vec<(String, Vec<String>)> = board
        .faults()
        .into_iter()
        .map(|fault| {
            let (_, _, caught, of) = board.rate(fault, 0);
            (format!("{fault} ({caught}/{of})"), marks(fault))
        })
        .collect();
    let faults = board.faults();
    let total = |c: usize, typical: bool| {
        let caught = faults.iter().filter(|fault| {
            let rate = board.rate(fault, c);
            if typical { rate.0 > 0 } else { rate.2 > 0 }
        });
        format!("{}/{}", caught.count(), faults.len())
    };
    let line = |f: &dyn Fn(usize) -> String| (0..columns.len()).map(f).collect::<Vec<_>>();
    rows.push(("caught, suites' inputs".into(), line(&|c| total(c, true))));
    rows.push(("caught, all inputs".into(), line(&|c| total(c, false))));
    rows.push((
        "false alarms".into(),
        line(&|c| {
            format!(
                "{}/{}",
                board.alarms.rejected.get(c).unwrap_or(&0),
                board.alarms.cases
            )
        }),
    ));
    rows
}

/// Fixed-width text.
pub fn text(board: &Scoreboard) -> String {
    let mut out = String::new();
    let columns = Column::all();
    let rows = rows(board);
    let first = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    // Column names stand above as a numbered list: they are wider than the marks.
    for (i, column) in columns.iter().enumerate() {
        let formula = match column {
            Column::Rival(rival) => format!(": {}", rival.formula()),
            Column::Ours => ": every check below together".into(),
            Column::Exact => ": integers, tolerance zero".into(),
            Column::Elementwise => ": computed interval of each element".into(),
            Column::Global => ": calc_diff within what the intervals allow".into(),
            Column::Memory => ": guard bands, operands, masked rows, padding, coverage".into(),
            Column::Rerun => ": same bits twice".into(),
        };
        let _ = writeln!(out, "{:>3} {}{formula}", i + 1, column.name());
    }
    let _ = writeln!(out, "\n{LEGEND}\n");
    let _ = write!(
        out,
        "{:first$}",
        "fault (cases that catch it / cases)"
            .get(..first.min(35))
            .unwrap_or("")
    );
    for i in 1..=columns.len() {
        let _ = write!(out, " {i:>7}");
    }
    out.push('\n');
    for (name, marks) in rows {
        let _ = write!(out, "{name:first$}");
        for mark in marks {
            let _ = write!(out, " {mark:>7}");
        }
        out.push('\n');
    }
    for alarm in &board.alarms.ours {
        let _ = writeln!(out, "false alarm: {alarm}");
    }
    for skipped in &board.skipped {
        let _ = writeln!(out, "skipped {}: {}", skipped.fault, skipped.reason);
    }
    if !board.limits.is_empty() {
        let _ = writeln!(out, "\nDetection limits\n");
        out += &limits::text(&board.limits);
        let _ = writeln!(out);
        out += &limits::one_block_text(&board.one_block);
    }
    for fault in board.missed() {
        let _ = writeln!(out, "MISSED: {fault} passes every case of ours");
    }
    out
}

/// Markdown: the table, then what each fault is and the first case that catches it.
pub fn markdown(board: &Scoreboard) -> String {
    let mut out = String::new();
    let columns = Column::all();
    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    let _ = writeln!(out, "| fault | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(columns.len()));
    for (name, marks) in rows(board) {
        let _ = writeln!(out, "| {name} | {} |", marks.join(" | "));
    }
    let _ = writeln!(
        out,
        "\n`#` caught on inputs as suites use them (normal, aligned, BF16); `o` caught on our inputs only; `.` missed.\n"
    );
    let _ = writeln!(out, "| gate | formula |\n|---|---|");
    for rival in Rival::ALL {
        let _ = writeln!(
            out,
            "| {} | `{}` |",
            rival.name(),
            rival.formula().replace('|', "\\|")
        );
    }
    let _ = writeln!(
        out,
        "\n| fault | what is wrong | first case that catches it |\n|---|---|---|"
    );
    for fault in CATALOGUE {
        let caught = board.of(fault.name).find(|trial| trial.caught(0));
        let skipped = board.skipped.iter().find(|s| s.fault == fault.name);
        let case = match (caught, skipped) {
            (Some(trial), _) => trial.case.clone(),
            (None, Some(skipped)) => format!("skipped: {}", skipped.reason.replace('|', "\\|")),
            (None, None) => "none".to_owned(),
        };
        let _ = writeln!(out, "| {} | {} | {case} |", fault.name, fault.what);
    }
    if !board.limits.is_empty() {
        let _ = writeln!(out, "\n## Detection limits\n");
        out += &limits::markdown(&board.limits);
        let _ = writeln!(out);
        out += &limits::one_block_text(&board.one_block).replacen('\n', "\n\n", 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::scoreboard::{Accepted, FalseAlarms, Skipped, Trial};
    use super::*;

    fn board(faulty_ours: bool) -> Scoreboard {
        let columns = Column::all().len();
        let mut faulty = vec![true; columns];
        faulty[0] = faulty_ours;
        Scoreboard {
            trials: vec![Trial {
                fault: "zero-tile",
                case: "a case".into(),
                typical: false,
                twin: Accepted(vec![true; columns]),
                faulty: Accepted(faulty),
                finding: None,
                replay: String::new(),
            }],
            skipped: vec![],
            limits: vec![],
            one_block: vec![],
            alarms: FalseAlarms {
                cases: 3,
                rejected: vec![0; columns],
                ours: vec![],
            },
        }
    }

    #[test]
    fn a_missed_fault_a_false_alarm_and_an_empty_board_do_not_hold() {
        assert!(board(false).holds());
        assert!(!board(true).holds());
        assert!(text(&board(true)).contains("MISSED: zero-tile"));
        let mut alarm = board(false);
        alarm.alarms.rejected[0] = 1;
        assert!(!alarm.holds());
        assert!(!Scoreboard::default().holds());
        let mut nothing_ran = board(false);
        nothing_ran.alarms.cases = 0;
        assert!(!nothing_ran.holds());
    }

    #[test]
    fn a_twin_that_is_rejected_too_does_not_count_as_caught() {
        let mut board = board(false);
        board.trials[0].twin.0[0] = false;
        assert_eq!(board.missed(), ["zero-tile"]);
    }

    #[test]
    fn a_skipped_fault_is_shown_with_its_reason_and_counts_as_nothing() {
        let mut board = board(false);
        board.skipped.push(Skipped {
            fault: "wgmma-unpromoted",
            reason: "no Hopper here".into(),
        });
        assert!(text(&board).contains("skipped wgmma-unpromoted: no Hopper here"));
        let md = markdown(&board);
        let row = md
            .lines()
            .find(|line| line.starts_with("| wgmma-unpromoted |"));
        assert!(
            row.unwrap().ends_with("| skipped: no Hopper here |"),
            "{md}"
        );
        assert_eq!(
            (board.faults(), board.missed()),
            (vec!["zero-tile"], vec![])
        );
        assert!(
            rows(&board)
                .iter()
                .any(|(name, cells)| { name.starts_with("caught, all") && cells[0] == "1/1" })
        );
        // Nothing but skips proves nothing.
        board.trials.clear();
        assert!(!board.holds());
    }

    #[test]
    fn both_forms_name_the_fault_and_its_marks() {
        assert!(text(&board(false)).contains("zero-tile (1/1)"));
        let md = markdown(&board(false));
        assert!(md.contains("| zero-tile (1/1) | o | . |"), "{md}");
        assert!(md.contains("| zero-tile | one tile is zero | a case |"));
    }
}
