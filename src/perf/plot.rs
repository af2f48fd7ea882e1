//! SVG plots of records: the roofline, and time over shape.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::peaks::lookup;
use super::record::Record;

const SIZE: (u32, u32) = (900, 560);

/// A named SVG document.
pub type Picture = (String, String);

/// One series of points with its name.
struct Series {
    name: String,
    /// x, y, label.
    points: Vec<(f64, f64, String)>,
}

/// Every plot that the records have points for.
pub fn all(records: &[Record]) -> Result<Vec<Picture>> {
    let right: Vec<&Record> = records.iter().filter(|r| r.failure.is_none()).collect();
    let mut pictures = Vec::new();
    let gemms = series(&right, |r| {
        Some((r.about.work.intensity(), r.tflops?, r.about.shape.clone()))
    });
    if !gemms.is_empty() {
        pictures.push(("roofline".to_owned(), roofline(&right, &gemms)?));
        let times = series(&right, |r| {
            r.tflops?;
            Some((
                r.about.work.flops / 1e9,
                r.time.median,
                r.about.shape.clone(),
            ))
        });
        pictures.push((
            "time-gemm".to_owned(),
            scatter("Time over shape: GEMM", "GFLOP (2mnk)", "us", &times, &[])?,
        ));
    }
    let streams = series(&right, |r| {
        (r.about.form == "stream").then(|| {
            let mib = r.about.work.bytes() / f64::from(1 << 20);
            (mib, r.time.median, String::new())
        })
    });
    if !streams.is_empty() {
        pictures.push((
            "time-stream".to_owned(),
            scatter(
                "Time over shape: memory-bound",
                "MiB moved",
                "us",
                &streams,
                &[],
            )?,
        ));
    }
    Ok(pictures)
}

/// Points by subject and state of the cache, in order of x.
fn series(
    records: &[&Record],
    point: impl Fn(&Record) -> Option<(f64, f64, String)>,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for record in records {
        let Some(point) = point(record) else { continue };
        let about = &record.about;
        let name = format!("{} {} {}", about.subject, about.output, record.cache.name());
        match all.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    for series in &mut all {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// TFLOPS over FLOP a byte, under the limits of memory and of each unit used.
fn roofline(records: &[&Record], gemms: &[Series]) -> Result<String> {
    let first = records.first().ok_or_else(|| anyhow!("no record"))?;
    let mut limits = Vec::new();
    if let Some(peaks) = lookup(&first.place.device)
        && let Some(gbs) = peaks.bandwidth
    {
        let mut units: Vec<_> = Vec::new();
        for record in records.iter().filter(|r| r.tflops.is_some()) {
            if !units.contains(&record.about.work.unit) {
                units.push(record.about.work.unit);
            }
        }
        for unit in units {
            if let Some(peak) = peaks.tflops(unit) {
                // Straight pieces in log-log: up the memory slope, then flat.
                let knee = peak * 1e3 / gbs;
                let line = vec![(0.1, 0.1 * gbs / 1e3), (knee, peak), (1e5, peak)];
                limits.push((format!("{} peak", unit.name()), line));
            }
        }
    }
    scatter(
        &format!("Roofline: {}", first.place.device),
        "FLOP / byte (compulsory traffic)",
        "TFLOPS",
        gemms,
        &limits,
    )
}

/// A log-log plot of points and of lines that bound them.
fn scatter(
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[Series],
    limits: &[(String, Vec<(f64, f64)>)],
) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, title, [x_label, y_label], series, limits)
        .map_err(|e| anyhow!("while drawing {title}: {e}"))?;
    Ok(svg)
}

fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, most) = values
        .filter(|x| x.is_finite() && *x > 0.0)
        .fold((f64::INFINITY, 0f64), |(l, m), x| (l.min(x), m.max(x)));
    if least > most {
        return 1.0..10.0;
    }
    least / 2.0..most * 2.0
}

fn draw(
    svg: &mut String,
    title: &str,
    labels: [&str; 2],
    series: &[Series],
    limits: &[(String, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|s| &s.points);
    let x = range(points().map(|p| p.0));
    let y = range(
        points().map(|p| p.1).chain(
            limits
                .iter()
                .flat_map(|(_, line)| line.iter().skip(1).map(|p| p.1)),
        ),
    );
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
    chart
        .configure_mesh()
        .x_desc(labels[0])
        .y_desc(labels[1])
        .draw()?;
    for (i, (name, line)) in limits.iter().enumerate() {
        let grey = RGBColor(90, 90, 90).mix(1.0 - 0.25 * (i % 3) as f64);
        chart
            .draw_series(LineSeries::new(clipped(line, &x, &y), grey.stroke_width(2)))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey));
    }
    for (i, one) in series.iter().enumerate() {
        let colour = Palette99::pick(i).to_rgba();
        chart
            .draw_series(
                one.points
                    .iter()
                    .map(|p| Circle::new((p.0, p.1), 4, colour.filled())),
            )?
            .label(one.name.as_str())
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
        chart.draw_series(one.points.iter().filter(|p| !p.2.is_empty()).map(|p| {
            Text::new(
                p.2.clone(),
                (p.0 * 1.04, p.1),
                ("sans-serif", 11).into_font(),
            )
        }))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .position(SeriesLabelPosition::LowerRight)
        .draw()?;
    area.present()?;
    drop(chart);
    Ok(())
}

/// The line cut to the plot, by steps fine enough for log-log.
fn clipped(
    line: &[(f64, f64)],
    x: &std::ops::Range<f64>,
    y: &std::ops::Range<f64>,
) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for pair in line.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        for step in 0..=64 {
            let t = f64::from(step) / 64.0;
            let at = (x0 * (x1 / x0).powf(t), y0 * (y1 / y0).powf(t));
            if x.contains(&at.0) && y.contains(&at.1) {
                points.push(at);
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::sample::record;

    #[test]
    fn every_point_and_both_axes_are_in_a_well_formed_picture() {
        let records = [record("a", 100.0, 1), record("b", 300.0, 2)];
        let pictures = all(&records).unwrap();
        let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["roofline", "time-gemm"]);
        for (name, svg) in &pictures {
            assert!(
                svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
                "{name}"
            );
            // Two points and the one of the legend.
            assert_eq!(svg.matches("<circle").count(), 3, "{name}");
            assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "{name}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        }
        assert!(pictures[0].1.contains("fp8 peak"));
    }

    #[test]
    fn failed_cases_are_not_drawn_and_no_case_is_no_picture() {
        let mut failed = record("a", 100.0, 1);
        failed.failure = Some("wrong".to_owned());
        assert!(all(&[failed]).unwrap().is_empty());
        assert!(all(&[]).unwrap().is_empty());
    }
}
