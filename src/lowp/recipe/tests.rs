//! Recipes against what they promise.

use super::*;

/// Deterministic values of mixed sign and magnitude.
fn sample(rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols)
        .map(|i| {
            let mixed = (i as u32).wrapping_mul(2_654_435_761) >> 8;
            (mixed as f32 / (1 << 23) as f32 - 1.0) * (1.0 + (i % 7) as f32)
        })
        .collect()
}

fn granularities() -> Vec<Granularity> {
    GROUP_SIZES
        .iter()
        .flat_map(|&g| {
            [
                Granularity::PerToken(g),
                Granularity::PerChannel(g),
                Granularity::PerBlock(g),
            ]
        })
        .chain([Granularity::Tensor])
        .collect()
}

#[test]
fn every_recipe_keeps_each_element_within_half_a_code_step_of_its_group() {
    for format in [E4M3, E5M2, E2M1] {
        for granularity in granularities() {
            for scale in [ScaleFormat::F32, ScaleFormat::Ue8m0] {
                // 37 × 131 is ragged for every group size.
                let (rows, cols) = (37, 131);
                let recipe = Recipe::new(format, granularity, scale);
                let x = sample(rows, cols);
                let q = recipe.quantise(&x, rows, cols).unwrap();
                let back = q.dequantise();
                for (i, (&x, &y)) in x.iter().zip(&back).enumerate() {
                    let s = f64::from(q.scale_at(i / cols, i % cols));
                    // The widest gap between codes is below max/(2^mantissa), and
                    // relative to |x| the step is at most 2^-mantissa.
                    let step = match format.name {
                        "e4m3" => (f64::from(x.abs()) / 8.0).max(s * 2f64.powi(-9)),
                        "e5m2" => (f64::from(x.abs()) / 4.0).max(s * 2f64.powi(-16)),
                        _ => (f64::from(x.abs()) / 2.0).max(s * 0.5),
                    };
                    let error = (f64::from(x) - y).abs();
                    assert!(error <= step * 0.5001, "{recipe} at {i}: {x} became {y}");
                }
            }
        }
    }
}

#[test]
fn the_largest_element_of_a_group_reaches_the_largest_code_and_none_saturates_past_it() {
    for format in [E4M3, E2M1] {
        let recipe = Recipe::new(format, Granularity::PerToken(32), ScaleFormat::F32);
        let x = sample(3, 70);
        let q = recipe.quantise(&x, 3, 70).unwrap();
        let max = format.max() as f32;
        for row in 0..3 {
            for start in (0..70).step_by(32) {
                let end = (start + 32).min(70);
                let top = (start..end)
                    .map(|col| format.decode(q.codes[row * 70 + col]).abs())
                    .fold(0.0, f32::max);
                assert_eq!(top, max);
            }
        }
    }
}

#[test]
fn ue8m0_scales_are_powers_of_two_not_below_the_plain_scale_and_elements_use_them() {
    let x = sample(4, 64);
    let plain = Recipe::new(E4M3, Granularity::PerToken(32), ScaleFormat::F32);
    let rounded = Recipe {
        scale: ScaleFormat::Ue8m0,
        ..plain
    };
    let (p, r) = (
        plain.quantise(&x, 4, 64).unwrap(),
        rounded.quantise(&x, 4, 64).unwrap(),
    );
    let mut moved = 0;
    for (p, r) in p.scales.iter().zip(&r.scales) {
        assert_eq!(r.to_bits() & 0x007f_ffff, 0, "{r} is no power of two");
        assert!(r >= p && *r < p * 2.0);
        moved += usize::from(r != p);
    }
    assert!(
        moved > 0,
        "a sample where every scale is a power of two tests nothing"
    );
    // Rounded before quantising: the codes differ from the plain ones.
    assert_ne!(p.codes, r.codes);
}

#[test]
fn a_zero_group_gets_the_clamped_scale_and_zero_codes() {
    let mut x = sample(2, 32);
    x[..16].fill(0.0);
    let recipe = Recipe::new(E4M3, Granularity::PerToken(16), ScaleFormat::F32);
    let q = recipe.quantise(&x, 2, 32).unwrap();
    assert_eq!(q.scales[0], AMAX_FLOOR / 448.0);
    assert!(q.codes[..16].iter().all(|&code| code == 0));
    let tiny: Vec<f32> = x.iter().map(|_| AMAX_FLOOR / 2.0).collect();
    let q = recipe.quantise(&tiny, 2, 32).unwrap();
    assert_eq!(q.scales[1], AMAX_FLOOR / 448.0, "amax below the clamp");
    assert_eq!(E4M3.decode(q.codes[16]), 224.0);
    let at: Vec<f32> = x.iter().map(|_| AMAX_FLOOR).collect();
    let q = recipe.quantise(&at, 2, 32).unwrap();
    assert_eq!(E4M3.decode(q.codes[16]), 448.0);
}

#[test]
fn fp4_has_no_minus_zero() {
    let recipe = Recipe::new(E2M1, Granularity::PerToken(16), ScaleFormat::F32);
    let mut x = vec![-0.01f32; 16];
    x[3] = 6.0;
    let q = recipe.quantise(&x, 1, 16).unwrap();
    assert!(q.codes.iter().all(|&code| code != 0x8));
    assert_eq!(q.codes[3], 0x7);
}

#[test]
fn per_channel_is_per_token_of_the_transpose() {
    let (rows, cols) = (131, 5);
    let x = sample(rows, cols);
    let channel = Recipe::new(E4M3, Granularity::PerChannel(128), ScaleFormat::F32);
    let token = Recipe {
        granularity: Granularity::PerToken(128),
        ..channel
    };
    let q = channel.quantise(&x, rows, cols).unwrap().transposed();
    let flipped = transpose(&x, rows, cols);
    assert_eq!(q, token.quantise(&flipped, cols, rows).unwrap());
}

#[test]
fn wrong_lengths_odd_groups_and_non_finite_values_are_refused() {
    let recipe = Recipe::new(E4M3, Granularity::PerToken(16), ScaleFormat::F32);
    assert!(matches!(
        recipe.quantise(&[0.0; 5], 2, 3),
        Err(RecipeError::Length { .. })
    ));
    assert!(matches!(
        recipe.quantise(&[0.0, f32::NAN], 1, 2),
        Err(RecipeError::NotFinite { row: 0, col: 1, .. })
    ));
    let odd = Recipe {
        granularity: Granularity::PerBlock(48),
        ..recipe
    };
    assert_eq!(
        odd.quantise(&[0.0], 1, 1),
        Err(RecipeError::GroupSize { found: 48 })
    );
    assert!(recipe.quantise(&[], 0, 0).unwrap().codes.is_empty());
}
