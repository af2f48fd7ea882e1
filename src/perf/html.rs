//! The report: one HTML file with the plots and every figure, nothing fetched.

use std::fmt::Write;

use super::plot::Picture;
use super::record::Record;
use super::spark::spark;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;\
text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}\
.failed{color:#b00020}svg{max-width:100%;height:auto}details{margin:.3em 0}";

/// Text that HTML shows as it is.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The whole report.
pub fn report(records: &[Record], pictures: &[Picture]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>kernelgate bench</title><style>{STYLE}</style></head><body>\n\
         <h1>kernelgate bench</h1>\n"
    );
    if let Some(first) = records.first() {
        let place = &first.place;
        let _ = writeln!(
            html,
            "<p>{}; driver {} (CUDA {}); commit {}; peaks: {}. Times are medians in \
             microseconds with a 95 % bootstrap interval; {:.2} us between two events are \
             taken off.</p>",
            escape(&place.device),
            escape(&place.conditions.driver),
            escape(&place.cuda),
            escape(&place.commit),
            escape(&first.peaks_source),
            place.event_overhead_us
        );
    }
    for (name, svg) in pictures {
        let _ = writeln!(html, "<h2>{}</h2>\n{svg}", escape(name));
    }
    html += "<h2>Figures</h2>\n<table><tr>";
    for head in [
        "case",
        "us",
        "interval",
        "noise",
        "TFLOPS",
        "GB/s",
        "MFU",
        "MFU at clock",
        "roofline",
        "MHz",
        "state",
        "throttle",
        "rounds",
    ] {
        let _ = write!(html, "<th>{head}</th>");
    }
    html += "</tr>\n";
    for record in records {
        html += &row(record);
    }
    html += "</table>\n<h2>How each was measured and checked</h2>\n";
    for r in records {
        let about = &r.about;
        let _ = writeln!(
            html,
            "<details><summary>{}</summary>{}; recipe {}; output {}; config {}; input {}; counts \
             {}; {} samples; check: {} ({} compared); floor {:.2} us</details>",
            escape(&r.id),
            escape(&about.dtype),
            escape(&about.recipe),
            escape(&about.output),
            escape(&about.config.to_string()),
            escape(&about.input),
            escape(&about.counted),
            r.time.runs,
            escape(&r.check),
            r.compared,
            r.floor_us
        );
    }
    html + "</body></html>\n"
}

fn row(r: &Record) -> String {
    let number =
        |x: Option<f64>, digits: usize| x.map_or("–".to_owned(), |x| format!("{x:.digits$}"));
    let percent = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{:.1} %", 100.0 * x));
    if let Some(failure) = &r.failure {
        return format!(
            "<tr class=\"failed\"><td>{}</td><td colspan=\"12\">FAILED: {}</td></tr>\n",
            escape(&r.id),
            escape(failure)
        );
    }
    let cells = [
        format!("{:.2}", r.time.median),
        format!("{:.2}–{:.2}", r.time.interval.0, r.time.interval.1),
        percent(Some(r.time.noise)),
        number(r.tflops, 1),
        format!("{:.0}", r.gbs),
        percent(r.mfu),
        percent(r.mfu_at_clock),
        percent(r.roofline),
        number(r.clock_mhz.map(|c| c.median), 0),
        r.power_state.clone(),
        r.throttle.clone(),
        spark(&r.timings.microseconds),
    ];
    let mut row = format!("<tr><td>{}</td>", escape(&r.id));
    for cell in cells {
        let _ = write!(row, "<td>{}</td>", escape(&cell));
    }
    row + "</tr>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plot;
    use crate::perf::record::sample::record;

    #[test]
    fn the_report_is_one_file_with_every_case_and_picture() {
        let mut failed = record("bad <case>", 50.0, 3);
        failed.failure = Some("C[0, 0] is 1 & not 2".to_owned());
        let records = [record("good", 100.0, 1), failed];
        let pictures = plot::all(&records).unwrap();
        let html = report(&records, &pictures);
        assert!(html.contains("good/cold") && html.contains("bad &lt;case&gt;/cold"));
        assert!(html.contains("FAILED: C[0, 0] is 1 &amp; not 2"));
        assert_eq!(html.matches("<svg").count(), pictures.len());
        for outside in ["<script", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
