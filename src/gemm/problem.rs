//! What is multiplied: form, sizes, recipes, output type.

use anyhow::{Result, bail};

use crate::lowp::{E2M1, E4M3, E5M2, Granularity, OutputType, Recipe, ScaleFormat};

/// How the rows, or the depth, fall into groups with operands of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// One GEMM.
    Dense,
    /// Rows of all groups one after the other; group g has its own B.
    Contiguous { rows: Vec<usize> },
    /// Each group owns `max_rows` rows of A and C, of which the first `rows[g]`
    /// count. The others must be neither read nor written.
    Masked { max_rows: usize, rows: Vec<usize> },
    /// Groups split k: group g multiplies m × depths\[g\] by n × depths\[g\] into a C
    /// of its own.
    KGrouped { depths: Vec<usize> },
}

/// One GEMM problem, complete but for its input values.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub form: Form,
    /// Rows of A over all groups (contiguous: the sum; masked: groups × max_rows).
    pub m: usize,
    pub n: usize,
    /// Depth (k-grouped: the sum over the groups).
    pub k: usize,
    pub a: Recipe,
    pub b: Recipe,
    pub output: OutputType,
    /// C += instead of C =.
    pub accumulate: bool,
    /// Columns between the rows of C that nobody may touch.
    pub pad: usize,
}

/// One group: a GEMM of `rows` × n × `depth` in `allocated` rows of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub rows: usize,
    pub allocated: usize,
    pub depth: usize,
}

/// E4M3, 1 × 128 for A and 128 × 128 for B, FP32 scales.
pub fn fp8_recipes() -> (Recipe, Recipe) {
    (
        Recipe::new(E4M3, Granularity::PerToken(128), ScaleFormat::F32),
        Recipe::new(E4M3, Granularity::PerBlock(128), ScaleFormat::F32),
    )
}

/// E4M3 1 × 128 for A, E2M1 1 × 32 for B, FP32 scales.
pub fn fp4_recipes() -> (Recipe, Recipe) {
    (
        Recipe::new(E4M3, Granularity::PerToken(128), ScaleFormat::F32),
        Recipe::new(E2M1, Granularity::PerToken(32), ScaleFormat::F32),
    )
}

/// E4M3 with one scale a tensor.
pub fn tensor_recipes() -> (Recipe, Recipe) {
    let recipe = Recipe::new(E4M3, Granularity::Tensor, ScaleFormat::F32);
    (recipe, recipe)
}

impl Problem {
    /// A dense m × n × k problem under the FP8 block recipe.
    pub fn dense(m: usize, n: usize, k: usize, output: OutputType) -> Problem {
        let (a, b) = fp8_recipes();
        Problem {
            form: Form::Dense,
            m,
            n,
            k,
            a,
            b,
            output,
            accumulate: false,
            pad: 0,
        }
    }

    pub fn with_form(mut self, form: Form) -> Problem {
        match &form {
            Form::Dense => {}
            Form::Contiguous { rows } => self.m = rows.iter().sum(),
            Form::Masked { max_rows, rows } => self.m = rows.len() * max_rows,
            Form::KGrouped { depths } => self.k = depths.iter().sum(),
        }
        self.form = form;
        self
    }

    pub fn with_recipes(mut self, (a, b): (Recipe, Recipe)) -> Problem {
        self.a = a;
        self.b = b;
        self
    }

    pub fn accumulating(mut self) -> Problem {
        self.accumulate = true;
        self
    }

    pub fn padded(mut self, pad: usize) -> Problem {
        self.pad = pad;
        self
    }

    /// Row stride of C in elements.
    pub fn ldc(&self) -> usize {
        self.n + self.pad
    }

    pub fn segments(&self) -> Vec<Segment> {
        let plain = |rows: usize, depth: usize| Segment {
            rows,
            allocated: rows,
            depth,
        };
        match &self.form {
            Form::Dense => vec![plain(self.m, self.k)],
            Form::Contiguous { rows } => rows.iter().map(|&rows| plain(rows, self.k)).collect(),
            Form::Masked { max_rows, rows } => rows
                .iter()
                .map(|&rows| Segment {
                    rows,
                    allocated: *max_rows,
                    depth: self.k,
                })
                .collect(),
            Form::KGrouped { depths } => depths.iter().map(|&depth| plain(self.m, depth)).collect(),
        }
    }

    /// Multiply-adds that the problem asks for.
    pub fn work(&self) -> u128 {
        self.segments()
            .iter()
            .map(|s| s.rows as u128 * self.n as u128 * s.depth as u128)
            .sum()
    }

    /// Rows of C in memory.
    pub fn c_rows(&self) -> usize {
        self.segments().iter().map(|s| s.allocated).sum()
    }

    /// Refuses what no subject could mean.
    pub fn check(&self) -> Result<()> {
        if self.n == 0 {
            bail!("n is 0: expected at least one column");
        }
        if let Form::Masked { max_rows, rows } = &self.form
            && let Some(count) = rows.iter().find(|count| *count > max_rows)
        {
            bail!("a masked count of {count} exceeds the {max_rows} rows a group owns");
        }
        if self.segments().iter().all(|s| s.rows == 0 || s.depth == 0) {
            bail!("nothing to multiply: every group is empty");
        }
        for (name, recipe, formats) in [("a", self.a, [E4M3, E5M2]), ("b", self.b, [E4M3, E2M1])] {
            if !formats.contains(&recipe.format) {
                bail!("{name} in {}: no kernel here reads it", recipe.format.name);
            }
            recipe.granularity.check()?;
        }
        Ok(())
    }

    /// The options of `kernelgate gemm check` that make this problem again.
    pub fn options(&self) -> String {
        let list = |values: &[usize]| {
            let words: Vec<String> = values.iter().map(usize::to_string).collect();
            words.join(",")
        };
        let form = match &self.form {
            Form::Dense => String::new(),
            Form::Contiguous { rows } => format!(" --contiguous {}", list(rows)),
            Form::Masked { max_rows, rows } => {
                format!(" --masked {} --max-rows {max_rows}", list(rows))
            }
            Form::KGrouped { depths } => format!(" --k-grouped {}", list(depths)),
        };
        let recipe = |recipe: &Recipe| recipe.to_string().replace(' ', ",");
        let mut text = format!(
            "--only {},{},{}{form} --a {} --b {} --output {}",
            self.m,
            self.n,
            self.k,
            recipe(&self.a),
            recipe(&self.b),
            self.output.name()
        );
        if self.accumulate {
            text += " --accumulate";
        }
        if self.pad > 0 {
            text += &format!(" --pad {}", self.pad);
        }
        text
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let form = match &self.form {
            Form::Dense => "dense".to_owned(),
            Form::Contiguous { rows } => format!("contiguous {rows:?}"),
            Form::Masked { max_rows, rows } => format!("masked {rows:?} of {max_rows}"),
            Form::KGrouped { depths } => format!("k-grouped {depths:?}"),
        };
        write!(
            f,
            "{form} {}x{}x{} a[{}] b[{}] {}{}",
            self.m,
            self.n,
            self.k,
            self.a,
            self.b,
            self.output.name(),
            if self.accumulate { " accumulate" } else { "" }
        )
    }
}

/// Reads a recipe as [`Problem::options`] writes it: `e4m3,1x128,f32`.
pub fn parse_recipe(text: &str) -> Result<Recipe, String> {
    let expected = || {
        format!(
            "`{text}`: expected FORMAT,GROUP,SCALE such as e4m3,1x128,f32 \
             (formats e4m3 e5m2 e2m1; groups 1xG Gx1 GxG tensor, G of 16 32 64 128; \
             scales f32 ue8m0)"
        )
    };
    let mut words = text.split(',').map(str::trim);
    let (Some(format), Some(group), Some(scale), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(expected());
    };
    let format = [E4M3, E5M2, E2M1]
        .into_iter()
        .find(|known| known.name == format)
        .ok_or_else(expected)?;
    let scale = match scale {
        "f32" => ScaleFormat::F32,
        "ue8m0" => ScaleFormat::Ue8m0,
        _ => return Err(expected()),
    };
    let granularity = if group == "tensor" {
        Granularity::Tensor
    } else {
        let (rows, cols) = group.split_once('x').ok_or_else(expected)?;
        let size = |text: &str| text.parse::<usize>().map_err(|_| expected());
        match (size(rows)?, size(cols)?) {
            (1, g) => Granularity::PerToken(g),
            (g, 1) => Granularity::PerChannel(g),
            (g, h) if g == h => Granularity::PerBlock(g),
            _ => return Err(expected()),
        }
    };
    if granularity.check().is_err() {
        return Err(format!(
            "`{text}`: the group of {granularity} must be 16, 32, 64 or 128"
        ));
    }
    Ok(Recipe::new(format, granularity, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_read_back_as_they_are_written() {
        for (a, b) in [fp8_recipes(), fp4_recipes(), tensor_recipes()] {
            for recipe in [a, b] {
                let text = recipe.to_string().replace(' ', ",");
                assert_eq!(parse_recipe(&text), Ok(recipe));
            }
        }
        for wrong in [
            "",
            "e4m3",
            "e4m3,2x3,f32",
            "e3m4,1x128,f32",
            "e4m3,1x128,f32,x",
        ] {
            assert!(parse_recipe(wrong).unwrap_err().contains("expected FORMAT"));
        }
    }

    #[test]
    fn a_group_that_no_recipe_has_is_refused_by_the_parser_and_by_the_problem() {
        let group = |group: &str| parse_recipe(&format!("e4m3,{group},f32"));
        for wrong in [
            "1x0",
            "0x1",
            "0x0",
            "1x1",
            "3x3",
            "1x17",
            "1x18446744073709551615",
        ] {
            let error = group(wrong).unwrap_err();
            assert!(error.contains("must be 16, 32, 64 or 128"), "{error}");
        }
        let mut problem = Problem::dense(1, 1, 1, OutputType::F32);
        problem.a.granularity = Granularity::PerToken(0);
        assert!(problem.check().is_err());
    }

    #[test]
    fn each_form_counts_its_rows_depth_and_work() {
        let base = Problem::dense(4, 10, 6, OutputType::F32);
        assert_eq!(base.work(), 240);
        let p = base.clone().with_form(Form::Contiguous {
            rows: vec![3, 0, 2],
        });
        assert_eq!((p.m, p.c_rows(), p.work()), (5, 5, 300));
        let p = base.clone().with_form(Form::Masked {
            max_rows: 4,
            rows: vec![1, 4],
        });
        assert_eq!((p.m, p.c_rows(), p.work()), (8, 8, 300));
        let p = base.clone().with_form(Form::KGrouped {
            depths: vec![5, 0, 7],
        });
        assert_eq!((p.k, p.c_rows(), p.work()), (12, 12, 480));
    }

    #[test]
    fn empty_and_overfull_problems_are_refused_with_the_reason() {
        let base = Problem::dense(4, 10, 6, OutputType::F32);
        let over = Form::Masked {
            max_rows: 4,
            rows: vec![5],
        };
        let error = base.clone().with_form(over).check().unwrap_err();
        assert!(error.to_string().contains("exceeds the 4 rows"));
        let empty = Form::Contiguous { rows: vec![0, 0] };
        assert!(base.clone().with_form(empty).check().is_err());
        assert!(
            Problem {
                n: 0,
                ..base.clone()
            }
            .check()
            .is_err()
        );
        assert!(base.check().is_ok());
    }
}
